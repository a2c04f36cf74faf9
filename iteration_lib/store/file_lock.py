"""Who else on this machine uses a folder right now?

A lock on a file that the kernel drops when its holder is gone, however it ended. Shared or exclusive, held by an open
file, so two holders in one process exclude each other as two processes do. A child made by fork shares its parent's
lock until both are gone; a child that becomes another program does not.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


class FileLock:
    """One holder's lock on one file; the file is made when it is missing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether this holder has the lock, shared or exclusive."""
        return self._descriptor is not None

    def acquire_shared(self) -> None:
        """Wait until nobody holds the lock exclusively."""
        self._acquire(fcntl.LOCK_SH)

    def acquire_exclusive(self) -> None:
        """Wait until nobody else holds the lock."""
        self._acquire(fcntl.LOCK_EX)

    def try_exclusive(self) -> bool:
        """Take the lock, or turn a shared one into an exclusive one, where nobody else holds it; never waits.

        Where somebody does, a lock that was held shared stays so.
        """
        held = self._descriptor
        descriptor = held if held is not None else self._open()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if held is None:
                os.close(descriptor)
            else:
                # A refused conversion may have dropped the old lock (flock(2)), so it is taken again.
                fcntl.flock(descriptor, fcntl.LOCK_SH)
            return False
        if not self._is_current(descriptor):
            os.close(descriptor)
            self._descriptor = None
            return self.try_exclusive()
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Let go; harmless when nothing is held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the lock exclusively for the length of a block."""
        self.acquire_exclusive()
        try:
            yield
        finally:
            self.release()

    def _acquire(self, kind: int) -> None:
        self.release()
        while True:
            descriptor = self._open()
            try:
                fcntl.flock(descriptor, kind)
                if self._is_current(descriptor):
                    self._descriptor = descriptor
                    return
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _is_current(self, descriptor: int) -> bool:
        """Tell whether the locked file is still the one at the path: its last holder may have removed it."""
        try:
            return os.path.samestat(os.fstat(descriptor), self._path.stat())
        except FileNotFoundError:
            return False
