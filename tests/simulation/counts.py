"""Which events must many schedules have seen? A schedule without them proves nothing about them.

Each is counted by the simulation under this name. Over 20,000 schedules every one has to have happened, over a million
more than 1,000 times.
"""

from __future__ import annotations

from iteration_lib.crash_point import CrashPoint
from iteration_lib.protocol.status import CheckpointFailure

# No run here is a branch, none has a policy that lets checkpoints go, and nobody stops one.
_NOT_PASSED = (CrashPoint.ORIGIN_KEPT, CrashPoint.CHECKPOINTS_DISCARDED, CrashPoint.STOP_REACHED)
SOMETIMES: tuple[str, ...] = (
    *(f"crash at {point}" for point in CrashPoint if point not in _NOT_PASSED),
    "crash before: transaction",
    "crash after its grace",
    "crash before: hear that it is committed",
    "crash in a torn write",
    "long pause",
    "clock jumped back",
    "clock jumped forwards",
    "unknown outcome, committed",
    "unknown outcome, not committed",
    "ended: OutcomeUnknownError",
    "ended: SystemExit",
    "ended: CheckpointFailedError",
    "fenced commit refused",
    "lease held",
    "proof of another attempt refused",
    "takeover by lease",
    "takeover at the instant the lease ran out",
    "takeover by proof",
    "takeover by word",
    "superseded heard by the heartbeat",
    "operator cancelled by the heartbeat",
    "file written after the takeover",
    "OPEN epoch voided",
    "ALIGNED epoch voided",
    "alignment held",
    "alignment released by completion",
    "alignment released by ABORTED_BY_USER",
    "alignment released by DECLINED",
    "alignment released by EXPIRED",
    *(f"pending checkpoint aborted: {failure.value}" for failure in CheckpointFailure),
    "checkpoint aborted before it began",
    "checkpoint completed while another was pending",
    "checkpoint put off by the pause",
    "several checkpoints pending",
    "manual checkpoint begun",
    "manual checkpoint subsumed as it completed",
    "failed checkpoint tolerated",
    "failed checkpoint fatal",
    "stale upload refused",
    "epoch switched by timeout",
    "epoch switched by preemption",
    "marker committed by timeout",
    "marker committed by preemption",
    "marker without files",
    "part of an operator that finishes marked",
    "edge voided by a takeover",
    "edge ignored by a takeover",
    "edge restored",
    "part continued",
    "listener called again",
    "preempted",
    "a person comes too late",
    "resumed from FAILED",
    "resumed in TERMINATING",
    "failed while TERMINATING, and resumed",
    "reports in parts",
    "acknowledgements in parts",
    "duplicate report answered without a change",
    "delayed call committed",
    "echo of an attempt not in force refused",
    "echo of an old claim refused",
    "fate: put the file: fails",
    "fate: put the file: does not return",
    "fate: hear that the file is put: does not return",
    "fate: call the listener: fails",
    "fate: hear that the file is put: the connection is lost",
    "fate: get the file: fails",
    "torn file seen",
    "damaged file seen",
    "file removed",
    "probe: store refuses another token",
)


def too_rare(counters: dict[str, int], *, at_least: int) -> dict[str, int]:
    """Return what happened less often than it has to."""
    return {name: counters.get(name, 0) for name in SOMETIMES if counters.get(name, 0) < at_least}
