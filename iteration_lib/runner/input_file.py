"""Is a user's file still the one that was pinned?

Its version is the time of its last change on a local disk, and elsewhere all that the store says of it but when it was
last read and where a request for it was led. With the same size and version it is not looked into. With another version
it is still the same if its content is: its SHA-256 on a local disk, unless the input was too large to be read for that,
and its ETag where a store gives one. The footer of a Parquet file would not do: rows in another order may leave it as
it is.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from iteration_lib.errors import InputError, StateLocationError
from iteration_lib.runner.seam import PinnedFile
from iteration_lib.state.location import FileSystem, filesystem_of, is_no_file, only_os_errors

_READ_AT = frozenset({"atime", "time", "accessTime", "last_accessed_on"})  # the latter of SFTP and SMB, HDFS, Azure
_LED_TO = frozenset({"url"})  # over HTTP, where a redirection may go elsewhere every time


def open_input(path: str) -> tuple[FileSystem, str]:
    """Return the file system of an input and its path there; raises InputError."""
    try:
        return filesystem_of(path)
    except StateLocationError as err:
        reason = f" ({err.__cause__})" if err.__cause__ is not None else ""
        raise InputError(
            f"input {path!r} cannot be opened{reason}; give a path or an address that fsspec knows",
            is_passing=err.is_passing,
        ) from err


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Raise InputError that names the path for what a file system raises inside the block.

    It is passing unless the file is not there: what else a store refuses, it may not refuse the next time.
    """
    try:
        with only_os_errors():
            yield
    except OSError as err:
        if is_no_file(err):
            raise InputError(f"input {path} is not there; check the path") from err
        raise InputError(f"input {path} cannot be read ({err})", is_passing=True) from err


@contextmanager
def open_parquet(filesystem: FileSystem, path: str) -> Iterator[tuple[pq.ParquetFile, bool]]:
    """Open a Parquet file, to be read in the block, and tell whether Arrow may decode it in threads (`use_threads`).

    Threads of Arrow's may read nothing of Python's (see `open_verified`): it opens a local file itself, and of another,
    which fsspec opens, it may not read ahead either. Raises OSError, and pyarrow.ArrowInvalid for what is no Parquet.
    """
    in_threads = is_local(filesystem)
    with (
        pa.OSFile(path) if in_threads else filesystem.open(path, "rb") as file,
        pq.ParquetFile(file, pre_buffer=in_threads) as parquet,
    ):
        yield parquet, in_threads


def describe_file(filesystem: FileSystem, path: str, *, address: str, rows: int) -> PinnedFile:
    """Return a file as it is now, but for its content on a local disk, for which it would have to be read.

    `address` is what opens it, elsewhere than on a local disk.
    """
    if is_local(filesystem):
        found = os.stat(path)  # noqa: PTH116 - text everywhere else
        return PinnedFile(path=path, size_bytes=found.st_size, version=str(found.st_mtime_ns), rows=rows)
    filesystem.invalidate_cache()
    info = filesystem.info(path)
    return PinnedFile(
        path=address,
        size_bytes=int(info["size"]),
        version=_version(info),
        rows=rows,
        content=info.get("ETag") or info.get("etag"),
    )


def with_digest(file: PinnedFile) -> PinnedFile:
    """Return a local file with its SHA-256, and any other as it is; raises InputError for one that has changed."""
    filesystem, path = open_input(file.path)
    if not is_local(filesystem):
        return file
    with reading(file.path):
        digest = _sha256(path)
        now = describe_file(filesystem, path, address=file.path, rows=file.rows)
    if now != file:
        raise InputError(f"input {file.path} is being written; start the run when that is done")
    return replace(file, content=digest)


def check_unchanged(file: PinnedFile) -> None:
    """Raise InputError that says how a file has changed since it was pinned, if it has."""
    filesystem, path = open_input(file.path)
    with reading(file.path):
        now = describe_file(filesystem, path, address=file.path, rows=file.rows)
        if (now.size_bytes, now.version) == (file.size_bytes, file.version):
            return
        if now.size_bytes != file.size_bytes:
            raise _changed(file, f"from {file.size_bytes} to {now.size_bytes} bytes")
        if file.content is None:
            raise (
                _changed_in_time(file) if is_local(filesystem) else _changed(file, "(it was written again)", remedy="")
            )
        if is_local(filesystem) and _sha256_of_version(path, now.size_bytes, now.version) != file.content:
            raise _changed(file, "(other bytes, as many as before)")
        if not is_local(filesystem) and now.content != file.content:
            raise _changed(
                file, "(its ETag is another)", remedy="put the old file back if that gives it its old ETag, or "
            )


def is_local(filesystem: FileSystem) -> bool:
    """Whether a file system is a local disk."""
    return "file" in (filesystem.protocol if isinstance(filesystem.protocol, tuple) else (filesystem.protocol,))


def _changed_in_time(file: PinnedFile) -> InputError:
    seconds, nanoseconds = divmod(int(file.version), 10**9)
    time = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z"  # as `touch -d` takes it
    change = "(its time is another, and its bytes of then are not known)"
    return _changed(file, change, remedy=f"put the old file back with its time, {time}, or ")


def _changed(file: PinnedFile, change: str, *, remedy: str = "put the old file back, or ") -> InputError:
    return InputError(
        f"input file {file.path} has changed {change} since the run started; {remedy}start another run with another "
        "run key"
    )


def _version(info: Mapping[str, object]) -> str:
    told = {name: what for name, what in info.items() if name not in _READ_AT | _LED_TO}
    return hashlib.sha256(str(told).encode()).hexdigest()


@functools.lru_cache(maxsize=65536)
def _sha256_of_version(path: str, _size_bytes: int, _version: str) -> str:
    return _sha256(path)


def _sha256(path: str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
