"""How does an output become Parquet files that a reader sees all or none of, also on an object store?

    <uri>/_data/<run>/<epoch>-<output>-<token>/part-...parquet    what `prepare` copies, byte for byte
    <uri>/_published/<run>/<epoch>-<output>.json                  the pointer, which `commit` writes last

What readers see is the pointers alone. The guarantee rests on three things, none of which needs a rename or a
conditional put: a pointer is one small file that is written by one request, after its data are durable; its name shows
the same files, whoever writes it late, because one token's transaction of a run, output and epoch is ever committed (a
store that was restored from an older copy may try another one: it is refused, and what is shown stays as it is);
and its name says its place in the order (`<run>` begins with the time at which the run was created), so that an old one
written late never becomes the newest. A store that never replaces an object will do as well. Names that begin with an
underscore are passed over by Spark and pyarrow when somebody reads all of `uri`.

One address serves any number of runs and outputs. To give a publication up, remove its data first and its pointer
then: a commit that is repeated late finds no data and does not bring the pointer back.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, cast

from iteration_lib.errors import (
    SinkTargetError,
    StateCorruptedError,
    StateLocationError,
    without_user,
)
from iteration_lib.sinks.folder import Address, check_absolute, describe_folder, opened_folder
from iteration_lib.sinks.pointer import Shown, dump_pointer, pointer_path, run_folder, shown_by
from iteration_lib.sinks.seam import Publication, SinkTransaction, published_already
from iteration_lib.state.files import Written, copy_file, read_if_there, verify_file, write_bytes
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import SavedFile, SavedStream

_DATA = "_data"


@dataclass(frozen=True, slots=True, repr=False)
class ParquetSink:
    """Publish an output as Parquet files under `uri`: a local folder, or any address that fsspec opens.

    A local folder is named by its absolute path, since processes run in any. `iteration_lib.sinks.published` lists what
    was published there.
    """

    uri: Address

    def __repr__(self) -> str:
        """Show the address without its password."""
        return f"ParquetSink({without_user(os.fspath(self.uri))!r})"

    def describe(self) -> str:
        """Return where the files lie."""
        return describe_folder(self.uri)

    def check(self) -> None:
        """Write a small file and remove it; raises SinkTargetError, for a path that is not absolute too."""
        with opened_folder(self.uri) as location:
            check_absolute(self.uri)
            location.check_writable()

    def prepare(self, transaction: SinkTransaction, publication: Publication) -> Mapping[str, object]:
        """Copy the files into a folder of the transaction's own; see Sink.

        Nothing is removed before: who prepares once more, late, must not take away what was published meanwhile.
        """
        folder = _data_folder(transaction)
        with opened_folder(self.uri) as location:
            check_absolute(self.uri)  # nobody has, where a run that goes on was given this sink meanwhile
            copies = [_copy(publication.location, file, location, folder) for file in publication.files]
        return {"stream": replace(publication.stream, files=tuple(copies)).to_json()}

    def commit(self, transaction: SinkTransaction, committable: Mapping[str, object]) -> None:
        """Write the pointer, unless it is there; see Sink."""
        stream = SavedStream.from_json(
            cast("Mapping[str, Any]", committable["stream"])
        )  # Any: JSON, as prepare gave it
        with opened_folder(self.uri) as location:
            shown = _shown(location, transaction)
            if shown == _to_show(transaction, stream):
                return
            if shown is not None:
                raise self._published_already(location, transaction, shown)
            self._check_data(location, transaction, stream)
            _write_pointer(location, transaction, stream)

    def abort(self, transaction: SinkTransaction) -> None:
        """Remove the transaction's folder, unless it is shown: then the store is older than what it published."""
        with opened_folder(self.uri) as location:
            shown = _shown(location, transaction)
            if shown is None or not shown.may_be(transaction):
                location.remove(_data_folder(transaction))

    def _published_already(
        self, location: StateLocation, transaction: SinkTransaction, shown: Shown
    ) -> SinkTargetError:
        way_out = f"remove {without_user(location.path(pointer_path(transaction)))}"
        return published_already(self.describe(), transaction, publisher=shown.publisher, way_out=way_out)

    def _check_data(self, location: StateLocation, transaction: SinkTransaction, stream: SavedStream) -> None:
        there = set(location.list_files(_data_folder(transaction)))
        for file in stream.files:
            if file.path not in there:
                way_out = "where it was published once and then removed, all is well; otherwise restore the file"
                raise SinkTargetError(self.describe(), f"does not hold {file.path} any more", way_out=way_out)


def _data_folder(transaction: SinkTransaction) -> str:
    name = f"{transaction.epoch:010d}-{transaction.output}-{transaction.fencing_token:06d}"
    return f"{_DATA}/{run_folder(transaction)}/{name}"


def _shown(location: StateLocation, transaction: SinkTransaction) -> Shown | None:
    return shown_by(read_if_there(location, pointer_path(transaction)) or b"")


def _to_show(transaction: SinkTransaction, stream: SavedStream) -> Shown | None:
    return shown_by(dump_pointer(transaction, stream))


def _copy(source: StateLocation, file: SavedFile, target: StateLocation, folder: str) -> SavedFile:
    path = f"{folder}/{PurePosixPath(file.path).name}"
    try:
        copy_file(source, Written(path=file.path, size_bytes=file.size_bytes, sha256=file.sha256), target, path)
    except StateLocationError as err:
        try:  # another process came first, in a store that never replaces an object
            verify_file(target, path, size_bytes=file.size_bytes, sha256=file.sha256)
        except StateCorruptedError:
            raise err from None
    return replace(file, path=path)


def _write_pointer(location: StateLocation, transaction: SinkTransaction, stream: SavedStream) -> None:
    try:
        write_bytes(location, pointer_path(transaction), dump_pointer(transaction, stream), replaces=True)
    except StateLocationError:
        if _shown(location, transaction) != _to_show(transaction, stream):
            raise  # else another process came first, in a store that never replaces an object
