"""Does a run still make progress, and who is told when it does not?

Airflow's deadline alerts know when a DAG run began, and nothing of how far it has come. So the task that runs epochs
looks at the store beside them. It stalls when no epoch has become durable for a while, counted from the task's start at
the earliest: a retry counts anew, and a task that waits for a slot is not looked at (that is what a deadline is for).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

from iteration_lib.clock import Clock, SystemClock
from iteration_lib.errors import IterationError

if TYPE_CHECKING:
    from airflow.sdk import Context

_LAST_LOOK_SECONDS = 1
_LOOKS = 10  # in the time after which a run stalls

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StallAlert:
    """Whom to tell when no epoch has become durable for `interval`: a notifier, or a function of the task's context.

    The context's `reason` says what is wrong. The epochs go on.
    """

    interval: timedelta
    callback: Callable[[Context], object]


class StallWatch:
    """Calls `alert` with a sentence when a run stalls, and again only after it has gone on; inside a `with` block."""

    def __init__(
        self,
        *,
        read_epoch: Callable[[], int],
        alert: Callable[[str], object],
        stalls_after_seconds: float,
        clock: Clock | None = None,
    ) -> None:
        """Prepare; `read_epoch` returns the last durable epoch."""
        self._read_epoch = read_epoch
        self._alert = alert
        self._stalls_after_seconds = stalls_after_seconds
        self._clock = clock or SystemClock()
        self._since = self._clock.monotonic_seconds()
        self._epoch: int | None = None
        self._is_told = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stall", daemon=True)

    def __enter__(self) -> Self:
        """Start looking."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop looking; a look under way is waited for, an alert only for a second."""
        self._ended.set()
        self._thread.join(_LAST_LOOK_SECONDS)

    def look(self) -> None:
        """Look once; while the store is away nothing is concluded."""
        try:
            epoch = self._read_epoch()
        except IterationError as error:
            _logger.warning("event=progress_unknown error=%s", error)
            return
        now = self._clock.monotonic_seconds()
        if epoch != self._epoch:
            self._since = now if self._epoch is not None else self._since
            self._epoch, self._is_told = epoch, False
        if now - self._since >= self._stalls_after_seconds and not self._is_told:
            self._is_told = True
            self._tell(f"no epoch has become durable for {now - self._since:.0f} s; the last one is {epoch}")

    def _tell(self, reason: str) -> None:
        _logger.warning("event=stalled reason=%s", reason)
        try:
            self._alert(reason)
        except Exception:  # a user's callback: an alert that fails must not end the epochs it is about
            _logger.exception("event=alert_failed")

    def _run(self) -> None:
        while not self._ended.wait(self._stalls_after_seconds / _LOOKS):
            self.look()
