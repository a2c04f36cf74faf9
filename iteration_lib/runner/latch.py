"""How does a thread wait for another so that a signal's handler may raise at any moment of the wait?

`Thread.join` that was interrupted takes a thread that goes on for one that has ended, and a future or an event can be
left locked: both wait in Python, where a handler may raise between taking a lock and noting it. Here there is one lock,
and nothing behind it.
"""

from __future__ import annotations

import threading

_HEAR_SIGNALS_SECONDS = 1.0  # a signal that comes just before a wait begins, or to another thread, does not end it


class Latch:
    """Is closed until somebody opens it, once; then it stays open."""

    def __init__(self) -> None:
        """Begin closed."""
        self._lock = threading.Lock()
        self._lock.acquire()
        self._is_open = False

    def open(self) -> None:
        """Let whoever waits go on, and whoever comes later."""
        self._is_open = True
        self._lock.release()

    def wait(self) -> None:
        """Wait in one thread until it is open; what a handler raises ends the wait, which may be begun again."""
        while not self._is_open:
            self._lock.acquire(timeout=_HEAR_SIGNALS_SECONDS)
