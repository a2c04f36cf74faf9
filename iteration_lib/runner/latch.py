"""How does a thread wait for another so that a signal's handler may raise at any moment of the wait?

`Thread.join` that was interrupted takes a thread that goes on for one that has ended (up to Python 3.12), and a future
or an event can be left locked: they wait in Python, where a handler may raise between taking a lock and noting it. Here
there is one lock, and nothing behind it.
"""

from __future__ import annotations

import threading
from contextlib import suppress

_HEAR_SIGNALS_SECONDS = 1.0  # a signal that comes just before a wait begins, or to another thread, does not end it


class Latch:
    """Is closed until somebody opens it; then it stays open."""

    def __init__(self) -> None:
        """Begin closed."""
        self._lock = threading.Lock()
        self._lock.acquire()
        self._is_open = False

    @property
    def is_open(self) -> bool:
        """Whether nobody has to wait."""
        return self._is_open

    def open(self) -> None:
        """Let whoever waits go on, and whoever comes later. Repeatable, also where a handler interrupted it."""
        self._is_open = True
        with suppress(RuntimeError):  # nobody holds the lock any more
            self._lock.release()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait in one thread until it is open, or for so long; return whether it is.

        What a handler raises ends the wait, which may be begun again.
        """
        if seconds is not None:
            return self._is_open or self._lock.acquire(timeout=seconds) or self._is_open
        while not self._is_open:
            self._lock.acquire(timeout=_HEAR_SIGNALS_SECONDS)
        return True
