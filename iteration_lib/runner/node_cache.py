"""Where does a node keep the buckets of a data stream, so that an epoch maps them into memory instead of reading them?

Each bucket is one Arrow file, with its SHA-256 behind it, in a folder that only this user may enter; one that is
missing, torn or holds other bytes than were written is built again from the pinned source. A file is digested once per
process, for as long as its size, its time and its inode stay what they are. Two processes that build the same bucket
write the same bytes under temporary names. Nothing depends on the cache: where it cannot be used, rows are read from
the source every time.

Folders are `<scope>-<pin>-<buckets>`. The scope of a runner on a local master is its own, and is removed when it
closes; on a cluster it is shared by all runs of a user; on a Spark Connect server it is the run's, from process to
process until the run ends. Whoever makes a folder removes those of runners that were killed, and those that no task
has used for IDLE_SECONDS.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import secrets
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from iteration_lib.model.bucket import bucket_rows
from iteration_lib.runner.rows import RowReader
from iteration_lib.runner.seam import PinnedData
from iteration_lib.state.files import NewFile
from iteration_lib.state.location import StateLocation

SHARED = "shared"
IDLE_SECONDS = 7 * 24 * 3600
_DIGEST_BYTES = hashlib.sha256().digest_size

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedData:
    """A pinned data stream as an executor reads it: its schema, its buckets, and where the node keeps them."""

    location: StateLocation
    pinned: PinnedData
    schema: pa.Schema
    count: int
    scope: str


class BucketCache:
    """Reads buckets of one data stream through the node's cache; for one task."""

    def __init__(self, data: CachedData) -> None:
        """Open the node's folder, and remove what has been idle in it."""
        self._data = data
        self._reader: RowReader | None = None
        self._folder = _open_folder(f"{data.scope}-{data.pinned.fingerprint[:32]}-{data.count}")

    def bucket(self, index: int) -> pa.RecordBatch:
        """Return one bucket, mapped into memory where the node holds it. Raises InputError for a bad source."""
        if not self._rows(index):
            return pa.RecordBatch.from_pylist([], schema=self._data.schema)
        if self._folder is None:
            return self._read(index)
        path = self._folder / f"bucket-{index:06d}.arrow"
        return self._map(path, index) or self._build(path, index)

    def _map(self, path: Path, index: int) -> pa.RecordBatch | None:
        try:
            found = path.stat()
            if not _is_whole(path, found.st_size, found.st_mtime_ns, found.st_ino):
                return None
            batch = pa.ipc.open_file(_map_file(path)[:-_DIGEST_BYTES]).get_batch(0)
        except OSError:  # not there yet
            return None
        is_right = batch.num_rows == len(self._rows(index)) and batch.schema.equals(self._data.schema)
        return batch if is_right else None

    def _build(self, path: Path, index: int) -> pa.RecordBatch:
        batch = self._read(index)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            with temporary.open("xb") as file:
                new = NewFile(temporary.name, file)
                with pa.ipc.new_file(new, batch.schema) as writer:
                    writer.write_batch(batch)
                file.write(bytes.fromhex(new.written.sha256))
            temporary.rename(path)
        except OSError as err:
            _logger.warning("event=cache_unusable path=%s reason=%s", path, err)
            with suppress(OSError):
                temporary.unlink()
            return batch
        return self._map(path, index) or batch

    def _read(self, index: int) -> pa.RecordBatch:
        if self._reader is None:
            self._reader = RowReader(self._data.location, self._data.pinned, self._data.schema)
        return self._reader.read(self._rows(index))

    def _rows(self, index: int) -> range:
        return bucket_rows(index, count=self._data.count, rows=self._data.pinned.rows)


@functools.lru_cache(maxsize=65536)
def _is_whole(path: Path, _size: int, _modified: int, _inode: int) -> bool:
    content = _map_file(path)
    written: bytes = content[-_DIGEST_BYTES:].to_pybytes()
    return hashlib.sha256(content[:-_DIGEST_BYTES]).digest() == written


def _map_file(path: Path) -> pa.Buffer:
    return pa.memory_map(str(path)).read_buffer()


def new_scope() -> str:
    """Return a scope of one runner's own, which says who that is."""
    return f"{os.getpid()}.{secrets.token_hex(8)}"


def scope_of_run(run_id: str) -> str:
    """Return the scope that all runners of one run share."""
    return f"run.{run_id.replace('-', '')}"


def remove_scope(scope: str) -> None:
    """Remove what one scope holds on this machine; repeating the call is harmless."""
    root = _root()
    if _is_private(root):
        for folder in root.glob(f"{scope}-*"):
            shutil.rmtree(folder, ignore_errors=True)


def _open_folder(name: str) -> Path | None:
    """Return a private folder of the node's cache, or None where there can be none."""
    root = _root()
    try:
        root.mkdir(mode=0o700, exist_ok=True)
        if not _is_private(root):
            _logger.warning("event=cache_unusable path=%s reason=others can enter it", root)
            return None
        folder = root / name
        if not folder.is_dir():
            _remove_idle(root)
            folder.mkdir(mode=0o700, exist_ok=True)
        os.utime(folder)
    except OSError as err:
        _logger.warning("event=cache_unusable path=%s reason=%s", root, err)
        return None
    return folder


def _remove_idle(root: Path) -> None:
    oldest = time.time() - IDLE_SECONDS  # files carry the wall clock's time
    for folder in root.iterdir():
        with suppress(OSError):
            if folder.stat().st_mtime < oldest or _is_orphan(folder.name):
                shutil.rmtree(folder, ignore_errors=True)


def _is_orphan(name: str) -> bool:
    """Whether a folder's runner is gone. A wrong answer costs time alone: its tasks build it again."""
    process = name.partition("-")[0].partition(".")[0]
    return process.isdecimal() and not Path(f"/proc/{process}").exists()


def _is_private(root: Path) -> bool:
    try:
        found = root.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077


def _root() -> Path:
    return Path(tempfile.gettempdir()) / f"iteration-cache-{os.geteuid()}"
