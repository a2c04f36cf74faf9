"""What is a savepoint? A folder that holds a checkpoint and all that a run needs to go on from it, and no store.

`savepoint.json` is written last, so that a folder without it is none: half of a copy is never taken for a whole one,
and writing it again goes on where it was cut short. It is the checkpoint's manifest with one more field, `savepoint`
(definition, parameters, pins), and `sha256`, by which it is verified itself. Every path in it is relative to its own
folder, which may be moved or copied to another place with any tool.

Input that the user owns is pinned, not copied: it has to be where it was. docs/manifest.md describes every field.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, cast

from iteration_lib.errors import StateCorruptedError, StateLocationError, UsageError
from iteration_lib.marker import carried_in_force, kept_in_force, read_under_one_definition
from iteration_lib.model.params import Scalar
from iteration_lib.protocol.state import RunId
from iteration_lib.protocol.status import CheckpointStatus
from iteration_lib.runner.pins import is_own, move_pin, pinned_from_json
from iteration_lib.runner.seam import PinnedData
from iteration_lib.state.copies import copy_checkpoint
from iteration_lib.state.files import (
    Written,
    copy_file,
    read_bytes,
    read_if_there,
    read_whole,
    verify_file,
    write_bytes,
)
from iteration_lib.state.location import StateLocation, filesystem_of
from iteration_lib.state.manifest import Manifest
from iteration_lib.state.saved import SavedStream
from iteration_lib.store.record import BranchRecord, CheckpointRecord, RunRecord
from iteration_lib.store.seam import History

SAVEPOINT_FILE = "savepoint.json"

_WAY_OUT = "or give the folder of a whole savepoint; a copy that was cut short has no savepoint.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Savepoint:
    """A checkpoint that needs no store. Paths of `manifest` and of pins are relative to `location`.

    `definition` and `params` are the run's, as the store has them; `pins` says by operator id what data streams read.
    """

    location: StateLocation
    manifest: Manifest
    definition: Mapping[str, object]
    params: Mapping[str, Scalar]
    pins: Mapping[str, PinnedData]

    def to_bytes(self) -> bytes:
        """Return what `savepoint.json` holds, wherever it lies; equal savepoints give equal bytes."""
        found = json.loads(self.manifest.to_bytes())
        found["savepoint"] = {
            "definition": self.definition,
            "params": self.params,
            "pins": {name: dataclasses.asdict(pin) for name, pin in self.pins.items()},
        }
        return json.dumps({**found, "sha256": _digest(found)}, sort_keys=True, indent=1).encode()


def checkpoint_of(store: History, run: RunRecord, checkpoint: CheckpointRecord) -> Savepoint:
    """Return a checkpoint as it lies in its run's folder, with all that a savepoint says of it.

    Raises UsageError for one that has no files, or has none any more, StateCorruptedError for a bad manifest.
    """
    if checkpoint.manifest_path is None or checkpoint.status is CheckpointStatus.DISCARDED:
        problem = f"checkpoint {checkpoint.checkpoint_id} of run {run.run_key!r} is {checkpoint.status.value}"
        raise UsageError(f"{problem}: it has no files; choose another one (see: iteration checkpoints {run.run_id})")
    location = StateLocation(run.state_uri).below(run.run_id)
    content = read_bytes(location, checkpoint.manifest_path, sha256=str(checkpoint.manifest_sha256))
    found = Manifest.from_bytes(content, path=location.path(checkpoint.manifest_path))

    def as_of(run: RunRecord) -> Savepoint:
        manifest = carried_in_force(store.list_operators(run.run_id), found)
        return Savepoint(
            location=location,
            manifest=dataclasses.replace(manifest, finished=finished_in_force(store, run.run_id, manifest)),
            definition=run.definition,
            params=run.params,
            pins={pin.name: pinned_from_json(pin.pin) for pin in store.list_pins(run.run_id)},
        )

    return read_under_one_definition(store, run, as_of)


def finished_in_force(store: History, run_id: RunId | None, manifest: Manifest) -> dict[str, SavedStream]:
    """Return what operators had finished for good with in a checkpoint of a run, as far as the run takes it for that.

    A savepoint, which is of no run, holds nothing else.

    An operator that was removed, and added again with other code, has finished with something else since, or not yet:
    the run's definition says nothing of the code that left the old output.
    """
    if run_id is None:
        return dict(manifest.finished)
    found = {known.operator_id: known.output for known in store.list_operators(run_id) if known.output is not None}
    in_force = {operator_id: SavedStream.from_json(output) for operator_id, output in found.items()}
    return {name: saved for name, saved in manifest.finished.items() if in_force.get(name) == saved}


def pins_to_take_over(store: History, branch: BranchRecord) -> dict[str, PinnedData]:
    """Return what data streams the next attempt of a branch copies from its origin: what it keeps, and has not pinned.

    Paths are relative to `branch.uri`. Raises StateCorruptedError for a savepoint any file of which is bad.
    """
    if branch.origin_run_id is None:
        found = dict(open_savepoint(branch.uri).pins)
    else:
        found = {pin.name: pinned_from_json(pin.pin) for pin in store.list_pins(branch.origin_run_id)}
    kept = kept_in_force(store.list_operators(branch.run_id), branch)
    wanted = kept - {pin.name for pin in store.list_pins(branch.run_id)}
    return {name: pin for name, pin in found.items() if name in wanted}


def copy_pin(source: StateLocation, pin: PinnedData, *, destination: StateLocation, folder: str = "") -> PinnedData:
    """Copy those files of a data stream that lie in the run's folder; return the pin with their new paths."""
    moved = move_pin(pin, folder) if folder else pin
    for file, new in zip(pin.files, moved.files, strict=True):
        if is_own(file.path):
            written = Written(path=file.path, size_bytes=file.size_bytes, sha256=file.version)
            copy_file(source, written, destination, new.path)
    return moved


def write_savepoint(savepoint: Savepoint, destination: StateLocation) -> Savepoint:
    """Copy a savepoint, or a checkpoint in its run's folder, to a folder of its own; return it as it lies there.

    Every file is verified on the way, `savepoint.json` is written last. Repeating the call is harmless, and goes on
    where it was cut short. Raises UsageError when another savepoint lies there, or the folder is no other one than the
    origin's, StateCorruptedError that names a bad file of the origin, StateLocationError when the folder cannot be
    written, or read to see what lies there.
    """
    if _is_inside(destination, savepoint.location):
        problem = f"lies in {savepoint.location.uri}, whose files a savepoint outlives"
        raise UsageError(f"{destination.uri} {problem}; choose a folder elsewhere")
    copied = dataclasses.replace(savepoint, location=destination)
    content, found = copied.to_bytes(), read_if_there(destination, SAVEPOINT_FILE)
    if found not in (None, content):
        raise UsageError(f"{destination.uri} holds another savepoint already; choose a folder of its own")
    copy_checkpoint(savepoint.location, savepoint.manifest, destination=destination)
    for pin in savepoint.pins.values():
        copy_pin(savepoint.location, pin, destination=destination)
    if found is None:  # there are stores that never replace an object, not even by the same bytes
        write_bytes(destination, SAVEPOINT_FILE, content, replaces=True)
    return copied


def open_savepoint(uri: str) -> Savepoint:
    """Return the savepoint in a folder, every file of it verified.

    Raises StateCorruptedError that names the file, whatever is wrong: missing, changed, of a newer version, no
    savepoint at all.
    """
    savepoint = read_savepoint(uri)
    with _as_corrupted(uri):
        for path, size_bytes, sha256 in _files(savepoint):
            verify_file(savepoint.location, path, size_bytes=size_bytes, sha256=sha256)
    return savepoint


def read_savepoint(uri: str) -> Savepoint:
    """Return what the savepoint in a folder says; see open_savepoint, which looks at the files that it names too."""
    with _as_corrupted(uri):
        location = StateLocation(uri)
        return _parse(location, location.path(SAVEPOINT_FILE), read_whole(location, SAVEPOINT_FILE))


@contextmanager
def _as_corrupted(uri: str) -> Iterator[None]:
    try:
        yield
    except StateCorruptedError as err:
        raise StateCorruptedError(err.uri, err.problem, is_unreadable=err.is_unreadable, way_out=_WAY_OUT) from err
    except StateLocationError as err:  # no such file system, or a path that leads out of the folder
        raise StateCorruptedError(f"{uri}/{SAVEPOINT_FILE}", f"cannot be used ({err})", way_out=_WAY_OUT) from err


def _is_inside(destination: StateLocation, origin: StateLocation) -> bool:
    """Whether a folder is the origin's, or lies in it: what is put there, `gc` takes for files of the origin."""
    (filesystem, path), (other, root) = filesystem_of(destination.uri), filesystem_of(origin.uri)
    if destination.is_local:
        path, root = os.path.realpath(path), os.path.realpath(root)
    return bool(filesystem == other) and PurePosixPath(path).is_relative_to(root)


def _parse(location: StateLocation, full: str, content: bytes) -> Savepoint:
    manifest = Manifest.from_bytes(content, path=full)
    found = cast("dict[str, Any]", json.loads(content))  # Any: JSON, checked by its use
    said = found.pop("sha256", None)
    if said is None or "savepoint" not in found:
        raise StateCorruptedError(full, "is the manifest of a checkpoint, but no savepoint")
    if said != _digest(found):
        raise StateCorruptedError(full, f"has the SHA-256 {_digest(found)}, but {said} was written")
    try:
        extra = found["savepoint"]
        return Savepoint(
            location=location,
            manifest=manifest,
            definition=dict(extra["definition"]),
            params=dict(extra["params"]),
            pins={name: pinned_from_json(pin) for name, pin in extra["pins"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        raise StateCorruptedError(full, f"is no savepoint ({err!r})") from err


def _digest(found: Mapping[str, object]) -> str:
    """Return the SHA-256 of what a savepoint says, however it is laid out."""
    return hashlib.sha256(json.dumps(found, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _files(savepoint: Savepoint) -> Iterator[tuple[str, int, str]]:
    for stream in savepoint.manifest.streams:
        for file in stream.files:
            yield file.path, file.size_bytes, file.sha256
    for pin in savepoint.pins.values():
        for pinned in pin.files:
            if is_own(pinned.path):
                yield pinned.path, pinned.size_bytes, pinned.version
