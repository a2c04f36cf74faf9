"""Which files is a data stream made of, and are they still what they were when the run started?

A pinned path that is relative lies in the run's own folder: it was written there from records or from a DataFrame, and
its version is its SHA-256. Any other path is the user's, see `input_file`. Rows are numbered by the files' order, then
by place.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, cast

import pyarrow as pa

from iteration_lib.errors import (
    SHOWN_TO_ALL,
    InputError,
    OperatorResultError,
    StateCorruptedError,
    without_password,
)
from iteration_lib.model.operator import Operator
from iteration_lib.model.source import ParquetSource, RecordsSource
from iteration_lib.runner.input_file import (
    check_unchanged,
    describe_file,
    is_local,
    open_input,
    open_parquet,
    reading,
    with_digest,
)
from iteration_lib.runner.seam import PinnedData, PinnedFile
from iteration_lib.state.block import batch_of_result
from iteration_lib.state.copies import moved_path
from iteration_lib.state.files import verify_file
from iteration_lib.state.location import FileSystem, StateLocation, filesystem_of
from iteration_lib.state.saved import FileFormat, SavedFile
from iteration_lib.state.streams import new_part_path, save_batches

_DIGESTED_BYTES = 1 << 30  # reading as much takes no longer than Spark's start


def pin_source(source: object, *, operator: Operator, location: StateLocation, folder: str) -> PinnedData:
    """Pin what a data stream's function returned; raises OperatorResultError for what is no source."""
    if isinstance(source, ParquetSource):
        return with_digests(pin_parquet(source))
    if not isinstance(source, RecordsSource):
        raise OperatorResultError(
            operator_id=operator.operator_id,
            problem=f"returned a {type(source).__name__}; return parquet(...) or records(...), or on Spark a DataFrame",
        )
    batch = batch_of_result(source.columns, operator_id=operator.operator_id)
    path = new_part_path(folder, 0, FileFormat.PARQUET)
    file = save_batches(location, path, [batch], file_format=FileFormat.PARQUET)
    return pin_saved([file], operator_id=operator.operator_id)


def pin_parquet(source: ParquetSource) -> PinnedData:
    """List a source's files and count their rows; raises InputError that names the path."""
    shown = without_password(source.path)
    if shown != source.path:
        raise InputError(f"input {shown} {SHOWN_TO_ALL}")
    filesystem, root = open_input(source.path)
    with reading(source.path):
        paths = _list_parquet(filesystem, root, source.path)
        files, schemas = [], []
        for path in paths:
            schema, rows = _read_footer(filesystem, path, source.columns)
            address = _address_of(filesystem, path, root=root, given=source.path)
            files.append(describe_file(filesystem, path, address=address, rows=rows))
            schemas.append(schema)
    _check_one_schema([file.path for file in files], schemas)
    if not any(file.rows for file in files):
        raise InputError(f"{source.path} holds no rows; give an input that has some")
    return _pinned(files, source.columns)


def with_digests(pinned: PinnedData) -> PinnedData:
    """Return a pin with the SHA-256 of its local files, unless they are large; raises InputError if one is changing."""
    if sum(file.size_bytes for file in pinned.files) > _DIGESTED_BYTES:
        return pinned
    return _pinned([with_digest(file) for file in pinned.files], pinned.columns)


def pin_saved(files: Sequence[SavedFile], *, operator_id: str) -> PinnedData:
    """Pin Parquet files that were written into the run's own folder; raises InputError when they hold no rows."""
    if not any(file.rows for file in files):
        raise InputError(f"the data stream {operator_id!r} holds no rows; give an input that has some")
    pinned = [PinnedFile(path=f.path, size_bytes=f.size_bytes, version=f.sha256, rows=f.rows) for f in files]
    return _pinned(pinned, None)


def check_pinned(location: StateLocation, pinned: PinnedData) -> None:
    """Check that every file is still as it was pinned; raises InputError that names the file and the change."""
    for file in pinned.files:
        if is_own(file.path):
            try:
                verify_file(location, file.path, size_bytes=file.size_bytes, sha256=file.version)
            except StateCorruptedError as err:
                raise InputError(str(err), is_passing=err.is_passing) from err
        else:
            check_unchanged(file)


def resolve(location: StateLocation, path: str) -> tuple[FileSystem, str]:
    """Return the file system and the path of a pinned file."""
    return filesystem_of(location.path(path) if is_own(path) else path)


def is_own(path: str) -> bool:
    """Whether a pinned path lies in the run's own folder."""
    return "://" not in path and not path.startswith("/")


def pinned_from_json(pin: Mapping[str, object]) -> PinnedData:
    """Rebuild a pin as the store keeps it."""
    found = cast("dict[str, Any]", pin)  # Any: JSON that dataclasses.asdict made
    columns = found["columns"]
    return PinnedData(
        files=tuple(PinnedFile(**file) for file in found["files"]),
        columns=tuple(columns) if columns is not None else None,
        fingerprint=found["fingerprint"],
    )


def move_pin(pinned: PinnedData, folder: str) -> PinnedData:
    """Return a pin whose own files lie below another folder now; the user's own lie where they lay."""
    files = [replace(file, path=moved_path(file.path, folder)) if is_own(file.path) else file for file in pinned.files]
    return _pinned(files, pinned.columns)


def _pinned(files: Sequence[PinnedFile], columns: tuple[str, ...] | None) -> PinnedData:
    described = json.dumps([[asdict(file) for file in files], columns], sort_keys=True)
    fingerprint = hashlib.sha256(described.encode()).hexdigest()
    return PinnedData(files=tuple(files), columns=columns, fingerprint=fingerprint)


def _address_of(filesystem: FileSystem, path: str, *, root: str, given: str) -> str:
    """Return what opens a file of an input; what a file system makes of its path may lack the host."""
    below = path[len(root) :].strip("/")
    address = f"{given}{'' if given.endswith('/') else '/'}{below}" if below else given
    is_right = "::" not in given and open_input(address)[1] == path
    return address if is_right else str(filesystem.unstrip_protocol(path))


def _list_parquet(filesystem: FileSystem, root: str, given: str) -> list[str]:
    filesystem.invalidate_cache()
    if not filesystem.isdir(root):
        if _is_hidden(root.rpartition("/")[2]) and filesystem.info(root):
            raise InputError(
                f"input {given} is a file that Spark takes for no data, by its name's first sign; rename it"
            )
        return [root]
    found: list[str] = []
    for path in sorted(_local_files(root) if is_local(filesystem) else filesystem.find(root)):
        parts = path[len(root) :].strip("/").split("/")
        if any(map(_is_hidden, parts)) or not parts[-1].endswith(".parquet"):
            continue
        if any("=" in part for part in parts[:-1]):
            raise InputError(f"input {given} is partitioned by folders ({'/'.join(parts)}); name one of the folders")
        try:
            path.encode()
        except UnicodeEncodeError:
            raise InputError(f"input {given} holds a file whose name is not UTF-8 ({path!r}); rename it") from None
        found.append(path)
    if not found:
        raise InputError(f"input {given} is a folder without *.parquet files")
    return found


def _is_hidden(name: str) -> bool:
    """Tell whether Spark takes a file or a folder of this name for no data."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _local_files(root: str) -> Iterator[str]:
    """Yield the files below a folder, also behind links, but none of one that is hidden, and of each folder once.

    Raises OSError for a folder that cannot be listed.
    """
    seen, folders, linked = set[str](), [root], list[str]()
    while folders or linked:
        folder = folders.pop() if folders else linked.pop(0)  # what is no link comes first, and keeps its own name
        real = os.path.realpath(folder)
        if real in seen:
            continue
        seen.add(real)
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if not entry.is_dir():
                    yield entry.path
                elif not _is_hidden(entry.name):
                    (linked if entry.is_symlink() else folders).append(entry.path)


def _read_footer(filesystem: FileSystem, path: str, columns: Sequence[str] | None) -> tuple[pa.Schema, int]:
    try:
        with open_parquet(filesystem, path) as (parquet, _):
            schema, rows = parquet.schema_arrow, parquet.metadata.num_rows
    except pa.ArrowInvalid as err:
        raise InputError(f"input {path} is not a Parquet file ({str(err).splitlines()[0]})") from err
    names = list(columns) if columns is not None else schema.names
    for name in names:
        if name not in schema.names:
            raise InputError(f"input {path} has no column {name!r}; it has: {', '.join(schema.names)}")
    return pa.schema([schema.field(name).remove_metadata() for name in names]), rows


def _check_one_schema(paths: Sequence[str], schemas: Sequence[pa.Schema]) -> None:
    for path, schema in zip(paths, schemas, strict=True):
        if _columns(schema) != _columns(schemas[0]):
            raise InputError(
                f"input {path} has other columns than {paths[0]}: {_names(schema)}, not {_names(schemas[0])}"
            )


def _columns(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """Return the columns without whether nulls are allowed: writers differ in it, and none may be there anyway."""
    return [(field.name, _nullable(field.type)) for field in schema]


def _nullable(found: pa.DataType) -> pa.DataType:
    if pa.types.is_list(found):
        return pa.list_(_nullable(found.value_type))
    if pa.types.is_large_list(found):
        return pa.large_list(_nullable(found.value_type))
    if pa.types.is_fixed_size_list(found):
        return pa.list_(_nullable(found.value_type), found.list_size)
    return found


def _names(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
