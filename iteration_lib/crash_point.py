"""Where could a crash matter, and how does a test make one happen there?

A crash point is a place between two effects, by name. Production code reaches all of them and nothing happens; with the
test setting ITERATION_CRASH_POINT=name[@epoch]:action one of them acts, once per process: `kill` ends the process as a
power cut would, `hold` touches the file that ITERATION_CRASH_LATCH names and waits until it is removed.
"""

from __future__ import annotations

import enum
import os
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from iteration_lib.errors import UsageError

_POLL_SECONDS = 0.02


class CrashPoint(enum.Enum):
    """Every place where a crash matters, in the order in which an attempt passes them.

    SINK_PREPARED to CHECKPOINTS_DISCARDED lie in the checkpoint's asynchronous part, beside the next epoch.
    """

    ATTEMPT_OPENED = "attempt_opened"
    SINK_ABORTED = "sink_aborted"
    ORIGIN_KEPT = "origin_kept"
    DATA_PINNED = "data_pinned"
    OPERATOR_WRITTEN = "operator_written"
    OPERATOR_FINISHED = "operator_finished"
    EPOCH_OPENED = "epoch_opened"
    EDGE_MARKED = "edge_marked"
    EPOCH_WRITTEN = "epoch_written"
    EPOCH_ALIGNED = "epoch_aligned"
    OUTPUTS_WRITTEN = "outputs_written"
    SINK_PREPARED = "sink_prepared"
    MANIFEST_WRITTEN = "manifest_written"
    CHECKPOINT_COMPLETED = "checkpoint_completed"
    SINK_COMMITTED = "sink_committed"
    CHECKPOINTS_DISCARDED = "checkpoints_discarded"
    LISTENER_CALLED = "listener_called"
    LISTENER_NOTIFIED = "listener_notified"
    STOP_REACHED = "stop_reached"
    POINTER_WRITTEN = "pointer_written"
    RUN_FINISHED = "run_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashPlan:
    """Which crash point acts, in which epoch (None: the first time), and how."""

    point: CrashPoint | None = None
    epoch: int | None = None
    action: str = "kill"
    latch: Path | None = None
    _acted: threading.Event = field(default_factory=threading.Event, compare=False, repr=False)

    def reach(self, point: CrashPoint, epoch: int | None = None) -> None:
        """Pass a crash point; returns at once unless the plan names it."""
        if point is not self.point or (self.epoch is not None and epoch != self.epoch) or self._acted.is_set():
            return
        self._acted.set()
        if self.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.latch is not None:
            self.latch.touch()
            while self.latch.exists():
                time.sleep(_POLL_SECONDS)


def crash_plan(environment: Mapping[str, str]) -> CrashPlan:
    """Read the test setting; without it the plan does nothing. Raises UsageError for one that names no crash point."""
    setting = environment.get("ITERATION_CRASH_POINT")
    if not setting:
        return CrashPlan()
    place, _, action = setting.partition(":")
    name, _, epoch = place.partition("@")
    latch = environment.get("ITERATION_CRASH_LATCH")
    try:
        plan = CrashPlan(
            point=CrashPoint(name),
            epoch=int(epoch) if epoch else None,
            action=action or "kill",
            latch=Path(latch) if latch else None,
        )
    except ValueError as err:
        names = ", ".join(point.value for point in CrashPoint)
        raise UsageError(f"ITERATION_CRASH_POINT={setting!r} names no crash point; there are: {names}") from err
    if plan.action not in ("kill", "hold") or (plan.action == "hold" and plan.latch is None):
        raise UsageError(f"ITERATION_CRASH_POINT={setting!r}: the action is kill, or hold with ITERATION_CRASH_LATCH")
    return plan
