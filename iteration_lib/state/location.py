"""Where do state files lie, and what may a path be?

A StateLocation is a root: a local folder, or any address that fsspec opens. Everything below it is named by relative
paths of plain characters, so that nothing can climb out of the root. This room alone imports fsspec, whose plug-ins
raise the errors of their own libraries: those stop here.
"""

from __future__ import annotations

import errno
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import fsspec
from fsspec.implementations.local import LocalFileSystem

from iteration_lib.errors import IterationError, StateLocationError

FileSystem: TypeAlias = fsspec.AbstractFileSystem

_PUNCTUATION = frozenset("._-=+")
_REMOVALS = 100  # of a folder: Python before 3.13 ends one at each file that somebody else removes first


@dataclass(frozen=True, slots=True)
class StateLocation:
    """A root folder for state files; it can be sent to executors."""

    uri: str

    def __post_init__(self) -> None:
        filesystem, path = filesystem_of(self.uri)
        if isinstance(filesystem, LocalFileSystem):
            object.__setattr__(self, "uri", path)

    @property
    def is_local(self) -> bool:
        """Whether its files are on this machine's own disks, where they can be renamed, fsynced and mapped."""
        return "://" not in self.uri

    def below(self, relative: str) -> StateLocation:
        """Return the location of a folder inside this one."""
        return StateLocation(self.path(relative))

    def path(self, relative: str) -> str:
        """Return the full address of a relative path. Raises StateLocationError if it could lead out of the root."""
        problem = _path_problem(relative)
        if problem is not None:
            raise StateLocationError(self.uri, f"cannot hold the path {relative!r}: {problem}")
        full = f"{self.uri.rstrip('/')}/{relative}"
        if self.is_local and not _is_inside(full, self.uri):
            raise StateLocationError(self.uri, f"cannot hold the path {relative!r}: a link leads out of the root")
        return full

    def check_writable(self) -> None:
        """Write a small file, as state files are written, and remove it again. Raises StateLocationError if that fails.

        Folders are made where there are folders; a bucket is not, since one that is not there was mistyped.
        """
        probe = f"writable-{secrets.token_hex(8)}"
        with self._failing("be written"), tempfile.NamedTemporaryFile() as content:
            content.write(b"writable")
            content.flush()
            filesystem, path = filesystem_of(self.path(probe))
            if self.is_local:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            filesystem.put_file(content.name, path)
            filesystem.rm_file(path)

    def list_files(self, folder: str = "") -> tuple[str, ...]:
        """Return the relative path of every file below a folder, sorted; none if there is no such folder.

        Raises StateLocationError.
        """
        return tuple(sorted(self.list_sizes(folder)))

    def list_sizes(self, folder: str = "") -> dict[str, int]:
        """Return the size in bytes of every file below a folder, by its relative path; see list_files."""
        filesystem, root = filesystem_of(self.uri)
        _, start = filesystem_of(self.path(folder) if folder else self.uri)
        with self._failing(f"list {folder or 'its files'}", is_passing=True):
            found = _find_local(filesystem, start) if self.is_local else _find_remote(filesystem, start)
            return {path[len(root.rstrip("/")) + 1 :]: size for path, size in found.items()}

    def remove(self, relative: str) -> None:
        """Remove a file, or a folder and what is in it; repeating the call is harmless. Raises StateLocationError."""
        filesystem, path = filesystem_of(self.path(relative))
        with self._failing(f"remove {relative}", is_passing=True):
            for tries_left in reversed(range(_REMOVALS)):
                try:
                    filesystem.rm(path, recursive=True)
                except FileNotFoundError:
                    if not (self.is_local and os.path.lexists(path)):
                        return
                    if not tries_left:  # somebody else keeps removing its files before they are
                        raise
                else:
                    return

    def remove_empty_folders(self, relative: str) -> None:
        """Remove what is empty of a folder and of the folders in it; nothing elsewhere than on local disks."""
        if self.is_local:
            for folder, _, _ in os.walk(self.path(relative), topdown=False):
                with suppress(OSError):  # it is not empty
                    Path(folder).rmdir()

    def make_folder(self, relative: str) -> str:
        """Return the address of a folder, which is there on local disks: elsewhere none has to be. Not fsynced.

        Raises StateLocationError.
        """
        full = self.path(relative)
        if self.is_local:
            with self._failing(f"hold the folder {relative}", is_passing=True):
                Path(full).mkdir(parents=True, exist_ok=True)
        return full

    @contextmanager
    def _failing(self, what: str, *, is_passing: bool = False) -> Iterator[None]:
        try:
            with only_os_errors():
                yield
        except OSError as err:
            raise StateLocationError(self.uri, f"cannot {what} ({err})", is_passing=is_passing) from err


@contextmanager
def only_os_errors() -> Iterator[None]:
    """Turn what a file system raises inside the block into an OSError, if it is none."""
    try:
        yield
    except (OSError, IterationError):
        raise
    except Exception as err:  # the border to plug-ins: each raises its library's errors, as for missing credentials
        raise OSError(f"{type(err).__name__}: {err}") from err


def is_no_file(error: OSError) -> bool:
    """Tell whether an error says that there is no such file: another time there will not be one either."""
    return isinstance(error, FileNotFoundError | NotADirectoryError) or error.errno == errno.ENAMETOOLONG


def filesystem_of(address: str) -> tuple[FileSystem, str]:
    """Return the file system of an address and the path inside it; raises StateLocationError for what is no address.

    So is one that is not UTF-8, as a file on a local disk may be called: manifests and the store could not name it.
    """
    if not address or "\0" in address:
        raise StateLocationError(address, "is no address")
    try:
        address.encode()
        filesystem, path = fsspec.core.url_to_fs(address)
    except Exception as err:  # the border to plug-ins: see only_os_errors
        raise StateLocationError(address, f"cannot be opened ({err})", is_passing=isinstance(err, OSError)) from err
    return filesystem, path


def _find_remote(filesystem: FileSystem, start: str) -> dict[str, int]:
    filesystem.invalidate_cache()
    if not filesystem.exists(start):
        return {}
    return {path: int(info["size"]) for path, info in filesystem.find(start, detail=True).items()}


def _find_local(filesystem: FileSystem, start: str) -> dict[str, int]:
    """Return the sizes of files by their addresses; fsspec's own search passes over a folder that cannot be listed."""
    sizes: dict[str, int] = {}
    folders = [start]
    while folders:
        try:
            listed = filesystem.ls(folders.pop(), detail=True)
        except OSError as err:
            if not is_no_file(err):
                raise
            continue  # it is not there, or was removed meanwhile
        folders += (info["name"] for info in listed if info["type"] == "directory")
        sizes |= {info["name"]: info["size"] for info in listed if info["type"] != "directory"}
    return dict(sorted(sizes.items()))


def _path_problem(relative: str) -> str | None:
    for part in relative.split("/"):
        if part in ("", ".", ".."):
            return "every part of a path is a plain name"
        for character in part:
            if not character.isalnum() and character not in _PUNCTUATION:
                return f"the character {character!r} is not allowed"
    return None


def _is_inside(path: str, root: str) -> bool:
    real_root = os.path.realpath(root)
    return os.path.commonpath([real_root, os.path.realpath(path)]) == real_root
