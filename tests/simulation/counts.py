"""Which events must many schedules have seen? A schedule without them proves nothing about them.

Each is counted by the simulation under this name. Over 20,000 schedules every one of SOMETIMES has to have happened,
over a million more than 1,000 times; of schedules in which the user's file changes there are fewer (test_schedules.py).
"""

from __future__ import annotations

import ast
import inspect
from types import ModuleType

from iteration_lib.crash_point import CrashPoint
from iteration_lib.protocol.status import CheckpointFailure
from tests.simulation import illegal, illegal_parts
from tests.simulation.fiber import Call
from tests.simulation.swarm import FATE_RATES


def probes_of(module: ModuleType) -> tuple[str, ...]:
    """Return the names of the probes that a module makes: each one is yielded with its events."""
    yielded = (node.value for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Yield))
    named = (value.elts[0] for value in yielded if isinstance(value, ast.Tuple))
    return tuple(dict.fromkeys(ast.literal_eval(name) for name in named))


_PROBES = tuple(f"probe: {name}" for module in (illegal, illegal_parts) for name in probes_of(module))

SOMETIMES: tuple[str, ...] = (
    *(f"crash at {point}" for point in CrashPoint),
    *(f"crash before: {call.value}" for call in Call if call not in (Call.DIE, Call.JOIN)),
    *(f"fate: {call.value}: {fate.value}" for fate, calls in FATE_RATES for call in calls),
    *_PROBES,
    "probe: store refuses another token",
    "read lost",
    "lease renewal lost",
    "lease renewed since somebody looked",
    "collector overtaken",
    "crash after its grace",
    "crash in a torn write",
    "long pause",
    "clock jumped back",
    "clock jumped forwards",
    "decided in vain",
    "commit forgotten by the server",
    "forgotten commit repeated",
    "forgotten commit that cannot be repeated",
    "unknown outcome, committed",
    "unknown outcome, not committed",
    "ended: OutcomeUnknownError",
    "ended: ToldToEnd",
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
    "first epoch held against its plan",
    "alignment released by completion",
    "alignment released by ABORTED_BY_USER",
    "alignment released by DECLINED",
    "alignment released by EXPIRED",
    *(f"pending checkpoint aborted: {failure.value}" for failure in CheckpointFailure),
    "checkpoint aborted before it began",
    "checkpoint expired by a timer",
    "checkpoint completed while another was pending",
    "checkpoint put off by the pause",
    "pause counted as over by a clock that was set back",
    "several checkpoints pending",
    "manual checkpoint begun",
    "terminating while a hand-made checkpoint is pending",
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
    "marker committed of an OPEN epoch",
    "marker committed of an ALIGNED epoch",
    "marker committed with the completion that it waited for",
    "edge ignored by a takeover",
    "edge restored",
    "part continued",
    "listener called again",
    "prepared and aborted",
    "committed again",
    "prepared by an attempt not in force",
    "preempted",
    "checkpoint completed in the grace period",
    "edge captured as demanded",
    "finishing operator captured as demanded",
    "a person comes too late",
    "a person cannot stop a run and drain it",
    "fell back",
    "fallback refused",
    "run drained",
    "drained epoch voided",
    "asked to drain as it ended by itself",
    "stopped run resumed",
    "resumed from FAILED",
    "resumed in TERMINATING",
    "failed while TERMINATING, and resumed",
    "reports in parts",
    "acknowledgements in parts",
    "duplicate report answered without a change",
    "delayed call committed",
    "echo of an attempt not in force refused",
    "echo of an old claim refused",
    "torn file seen",
    "damaged file seen",
    "file removed",
    "file removed beside a live attempt",
    "checkpoint discarded",
    "checkpoint kept for its metric",
    "claimed checkpoint discarded",
    "discarding met a pin",
    "discarding met a person's pin",
    "checkpoint pinned by hand",
    "checkpoint released by hand",
    "pin by hand refused",
    "branched: CLAIM",
    "branched: NO_CLAIM",
    "branch refused: IllegalBranchError",
    "branch refused: RunMismatchError",
    "branch refused: UsageError",
    "origin released by a checkpoint",
    "origin released by deletion",
    "run deleted under its attempt",
    "deletion refused",
    "ended: RunDeletedError",
    "errand cut short before: read rows",
)


# The same of schedules in which the user's file changes.
EVOLVING: tuple[str, ...] = (
    *(
        f"{kind} {event}"
        for kind in ("data stream", "operator", "operator that carries", "operator that finishes")
        for event in ("is added", "comes back", "comes back as another", "is renamed", "is removed")
    ),
    *(
        f"{kind} {event}"
        for kind in ("operator", "operator that carries", "operator that finishes")
        for event in ("takes others", "is dropped")
    ),
    "variable is added",
    "variable is dropped",
    "variable is removed",
    "version refused: variable added",
    "edge voided by a new version",
    "edge kept by a new version",
    "foreseen before it opened",
    "marker without files",
    "first epoch held against its plan",
    "state begins anew, and another one of its id had one",
    "state begins anew in a branch",
    "branch adds again what it would have kept",
    "version refused: changed",
    "version refused: takes others",
    "version refused: removed",
    "version refused: pinned before",
    "version refused as others went on",
    "branched: NO_CLAIM",
    "branched with another version",
    "branch refused: IllegalBranchError",
    "fell back",
    "ended: RunMismatchError",
)

# The same of what some 500 in a million do.
EVOLVING_SELDOM = ("edge without files asked for by a new version", "version refused as it finishes: takes others")


def too_rare(counters: dict[str, int], *, at_least: int, names: tuple[str, ...] = SOMETIMES) -> dict[str, int]:
    """Return what happened less often than it has to."""
    return {name: counters.get(name, 0) for name in names if counters.get(name, 0) < at_least}
