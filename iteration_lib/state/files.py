"""How is a file written so that it is there whole or not at all, and read so that no other bytes pass for it?

A file is written once and never replaced, but for one of which there is only one content (`replaces`). On local disks
it gets a temporary name, is fsynced, renamed, and its folder fsynced; elsewhere it is put in one request after it is
complete. Its size and SHA-256 are taken from the bytes as they are written, so that nothing that happens to them
afterwards goes unseen. Nothing is ever unpickled.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from iteration_lib.errors import StateCorruptedError, StateLocationError
from iteration_lib.state.location import StateLocation, filesystem_of, is_no_file, only_os_errors

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a new file holds, by the bytes that were written into it."""

    path: str
    size_bytes: int
    sha256: str


class NewFile(io.RawIOBase):
    """A file that is being written: counts and digests its bytes."""

    def __init__(self, path: str, target: BinaryIO) -> None:
        super().__init__()
        self._path = path
        self._target = target
        self._digest = hashlib.sha256()
        self._size_bytes = 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._size_bytes

    def write(self, data: object, /) -> int:
        """Write all of the bytes."""
        view = memoryview(cast("bytes", data)).cast("B")
        self._target.write(view)
        self._digest.update(view)
        self._size_bytes += len(view)
        return len(view)

    @property
    def written(self) -> Written:
        """What was written; the file exists under its name once `create_file` has been left."""
        return Written(path=self._path, size_bytes=self._size_bytes, sha256=self._digest.hexdigest())


@contextmanager
def create_file(location: StateLocation, path: str, *, replaces: bool = False) -> Iterator[NewFile]:
    """Write a new file at a relative path; it exists after the block, whole, or not at all.

    With `replaces` it may be there already, torn or whole: for a file into which everybody writes the same bytes.
    Raises StateLocationError where it cannot be written, or is there already.
    """
    full = location.path(path)
    create = _create_local if location.is_local else _create_remote
    try:
        if not replaces and _exists(location, full):
            raise FileExistsError(17, "the file is there already", full)
        with create(full, path) as new:
            yield new
    except OSError as err:
        raise StateLocationError(location.uri, f"cannot hold {path} ({err})", is_passing=True) from err


def write_bytes(location: StateLocation, path: str, content: bytes, *, replaces: bool = False) -> Written:
    """Write a new file that holds `content`; see create_file."""
    with create_file(location, path, replaces=replaces) as new:
        new.write(content)
    return new.written


def read_bytes(location: StateLocation, path: str, *, sha256: str, size_bytes: int | None = None) -> bytes:
    """Return a file's bytes, verified; raises StateCorruptedError that names the file."""
    full = location.path(path)
    if size_bytes is not None:
        filesystem, inner = filesystem_of(full)
        with _readable(full):
            _check_size(full, found=filesystem.size(inner), size_bytes=size_bytes)
    content = read_whole(location, path)
    _check_digest(full, found=hashlib.sha256(content).hexdigest(), sha256=sha256)
    return content


def read_whole(location: StateLocation, path: str) -> bytes:
    """Return a file's bytes as they are, for what tells by itself whether it is good; see read_bytes."""
    full = location.path(path)
    filesystem, inner = filesystem_of(full)
    with _readable(full):
        return cast("bytes", filesystem.cat_file(inner))


def read_if_there(location: StateLocation, path: str) -> bytes | None:
    """Return a file's bytes as they are, None where there is no file: for one that says itself what it holds.

    Raises StateLocationError where that cannot be known.
    """
    filesystem, inner = filesystem_of(location.path(path))
    try:
        with only_os_errors():
            content: bytes = filesystem.cat_file(inner)
    except OSError as err:
        if is_no_file(err):
            return None
        raise StateLocationError(location.uri, f"cannot read {path} ({err})", is_passing=True) from err
    return content


def open_verified(location: StateLocation, path: str, *, size_bytes: int, sha256: str) -> pa.NativeFile:
    """Return a file for random access, verified: mapped into memory on local disks, else fetched whole, and copied.

    For its bytes must be Arrow's own. Arrow's threads drop what they read when it was long handed out, and to drop an
    object of Python's while the interpreter ends aborts the process (SIGABRT).
    """
    if not location.is_local:
        content = read_bytes(location, path, size_bytes=size_bytes, sha256=sha256)
        buffer = pa.allocate_buffer(len(content))
        memoryview(buffer).cast("B")[:] = content
        return pa.BufferReader(buffer)
    verify_file(location, path, size_bytes=size_bytes, sha256=sha256)
    return pa.memory_map(location.path(path))


def verify_file(location: StateLocation, path: str, *, size_bytes: int, sha256: str) -> None:
    """Check that a file holds the bytes that were written; raises StateCorruptedError that names it.

    A local file is digested once per process, for as long as its size, its time and its inode stay what they are.
    """
    if not location.is_local:
        read_bytes(location, path, size_bytes=size_bytes, sha256=sha256)
        return
    full = location.path(path)
    try:
        found = Path(full).stat()
        _check_size(full, found=found.st_size, size_bytes=size_bytes)
        digest = _digest_local(full, found.st_size, found.st_mtime_ns, found.st_ino)
    except OSError as err:
        raise _unreadable(full, err) from err
    _check_digest(full, found=digest, sha256=sha256)


def copy_file(source: StateLocation, file: Written, target: StateLocation, path: str) -> None:
    """Copy a file, verified on the way; one that is there already is verified, and written again if it is bad.

    Never by a link: a copy is there to outlive what befalls its origin, a bit that turns on the disk included. Raises
    StateCorruptedError that names the origin, and then no copy is made; StateLocationError where there can be none, or
    where nobody can tell what is there: it may be whole, and needed.
    """
    full = source.path(file.path)
    try:
        verify_file(target, path, size_bytes=file.size_bytes, sha256=file.sha256)
    except StateCorruptedError as err:
        if err.is_unreadable:
            raise StateLocationError(target.uri, f"cannot read {path} ({err.problem})", is_passing=True) from err
    else:
        return
    with create_file(target, path, replaces=True) as new:
        for chunk in _chunks(full):
            new.write(chunk)
        _check_size(full, found=new.written.size_bytes, size_bytes=file.size_bytes)
        _check_digest(full, found=new.written.sha256, sha256=file.sha256)


def _chunks(full: str) -> Iterator[bytes]:
    """Read a file piece by piece; raises StateCorruptedError, which is no trouble of the place that it goes to."""
    filesystem, inner = filesystem_of(full)
    with _readable(full), filesystem.open(inner, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


@contextmanager
def _create_local(full: str, path: str) -> Iterator[NewFile]:
    final = Path(full)
    _make_folder(final.parent)
    temporary = final.with_name(f".{final.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as target:
            yield NewFile(path, target)
            target.flush()
            os.fsync(target.fileno())
        temporary.rename(final)
        _sync_folder(final.parent)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


@contextmanager
def _create_remote(full: str, path: str) -> Iterator[NewFile]:
    filesystem, inner = filesystem_of(full)
    with tempfile.NamedTemporaryFile() as target:
        yield (new := NewFile(path, cast("BinaryIO", target)))
        target.flush()
        with only_os_errors():
            filesystem.put_file(target.name, inner)
    with only_os_errors():
        filesystem.invalidate_cache()
        if filesystem.size(inner) != new.written.size_bytes:
            raise OSError(5, "the file was not put whole", full)


def _exists(location: StateLocation, full: str) -> bool:
    if location.is_local:
        return Path(full).exists()
    filesystem, inner = filesystem_of(full)
    with only_os_errors():
        return bool(filesystem.exists(inner))


def _make_folder(folder: Path) -> None:
    """Make a folder and its parents, each recorded in its parent on disk."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@functools.lru_cache(maxsize=65536)
def _digest_local(full: str, _size: int, _modified: int, _inode: int) -> str:
    with Path(full).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_size(full: str, *, found: int, size_bytes: int) -> None:
    if found != size_bytes:
        raise StateCorruptedError(full, f"has {found} bytes, but {size_bytes} were written")


def _check_digest(full: str, *, found: str, sha256: str) -> None:
    if found != sha256:
        raise StateCorruptedError(full, f"has the SHA-256 {found}, but {sha256} was written")


@contextmanager
def _readable(full: str) -> Iterator[None]:
    try:
        with only_os_errors():
            yield
    except OSError as err:
        raise _unreadable(full, err) from err


def _unreadable(full: str, err: OSError) -> StateCorruptedError:
    if is_no_file(err):
        return StateCorruptedError(full, "is missing")
    return StateCorruptedError(full, f"cannot be read ({err})", is_unreadable=True)
