"""Is this attempt still the one in force? A thread renews its lease, and tells when it is not.

It serves liveness: a superseded attempt stops computing soon, instead of finding out at its next commit, which its
token would refuse anyway. While the store is away nothing is concluded.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from iteration_lib.errors import IterationError

_logger = logging.getLogger(__name__)

_JOIN_SECONDS = 10.0


class Heartbeat:
    """Calls `renew` at an interval until it answers False; then calls what was asked for, once."""

    def __init__(self, *, renew: Callable[[], bool], interval_seconds: float) -> None:
        """Prepare; a thread beats inside the `with` block."""
        self._renew = renew
        self._interval_seconds = interval_seconds
        self._stopped = threading.Event()
        self._superseded = threading.Event()
        self._lock = threading.Lock()
        self._on_superseded: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    @property
    def is_superseded(self) -> bool:
        """Tell whether another attempt has taken the run."""
        return self._superseded.is_set()

    def when_superseded(self, call: Callable[[], None]) -> None:
        """Have `call` called when another attempt takes the run; at once, if one has already."""
        with self._lock:
            self._on_superseded = call
            if not self._superseded.is_set():
                return
        call()

    def __enter__(self) -> Self:
        """Start beating."""
        try:
            self._thread.start()
        except BaseException:  # an interrupt: nobody would stop it
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and wait a moment for a beat under way: what it calls may hang with what ran the operators."""
        self.stop()
        self._thread.join(_JOIN_SECONDS)

    def stop(self) -> None:
        """Conclude nothing more: whoever says its last word must not take its own end for a takeover."""
        self._stopped.set()

    def beat(self) -> bool:
        """Renew the lease once; tell whether to beat again."""
        try:
            renewed = self._renew()
        except IterationError as err:
            _logger.warning("event=lease_not_renewed error=%s", err)
            return True
        if renewed or self._stopped.is_set():
            return True
        _logger.error("event=superseded")
        with self._lock:
            self._superseded.set()
            call = self._on_superseded
        if call is not None:
            call()
        return False

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_seconds):
            if not self.beat():
                return
