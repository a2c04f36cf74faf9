"""How does a stream come to lie in another folder, so that nothing of the first one is needed any more?

A copied file keeps its path, or gets a folder before it: paths hold random names, so that copies of two origins in one
folder do not meet. A copy of a copy does not keep the folder of the first: however long a line of branches is, names
stay short. Copying again goes on where it was cut short: what is whole already is verified and left.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from iteration_lib.state.files import Written, copy_file
from iteration_lib.state.location import StateLocation
from iteration_lib.state.manifest import Manifest
from iteration_lib.state.saved import SavedStream

ORIGIN = "origin"  # in an attempt's folder, what it has copied from its run's origin
_COPIES = re.compile(rf"^(?:[^/]+/{ORIGIN}/)+")


def copy_stream(
    source: StateLocation, stream: SavedStream, *, destination: StateLocation, folder: str = ""
) -> SavedStream:
    """Copy the files of a stream, below a folder of the destination; return the stream as it is named there.

    Raises StateCorruptedError that names the file of the origin, StateLocationError where there can be no copy, or
    nobody can tell what is there.
    """
    moved = move_stream(stream, folder)
    for file, new in zip(stream.files, moved.files, strict=True):
        written = Written(path=file.path, size_bytes=file.size_bytes, sha256=file.sha256)
        copy_file(source, written, destination, new.path)
    return moved


def copy_checkpoint(
    source: StateLocation, manifest: Manifest, *, destination: StateLocation, folder: str = ""
) -> Manifest:
    """Copy every file that a checkpoint names; return its manifest with their new paths, which is not written yet."""

    def copied(streams: Mapping[str, SavedStream]) -> dict[str, SavedStream]:
        return {
            name: copy_stream(source, stream, destination=destination, folder=folder)
            for name, stream in streams.items()
        }

    return replace(
        manifest,
        variables=copied(manifest.variables),
        states=copied(manifest.states),
        finished=copied(manifest.finished),
        outputs=copied(manifest.outputs),
    )


def move_stream(stream: SavedStream, folder: str) -> SavedStream:
    """Return a stream whose files lie below another folder; with none it is the same stream."""
    if not folder:
        return stream
    return replace(stream, files=tuple(replace(file, path=moved_path(file.path, folder)) for file in stream.files))


def moved_path(path: str, folder: str) -> str:
    """Return the path below another folder; of what is a copy already, without the folder of copies that it lies in."""
    return f"{folder}/{_COPIES.sub('', path)}"
