"""Which statuses are there, and which may follow which?"""

from __future__ import annotations

import enum

from iteration_lib.errors import ProtocolViolationError


class RunStatus(enum.Enum):
    """RUNNING → TERMINATING (the last epoch is durable) → FINISHED (outputs published); FAILED may be resumed.

    A person may stop a run: STOPPED lasts until a person resumes it. One that nobody drives may be deleted: DELETED is
    the end, and keeps no checkpoint but those that are pinned.
    """

    RUNNING = "RUNNING"
    TERMINATING = "TERMINATING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"
    DELETED = "DELETED"


class AttemptOutcome(enum.Enum):
    """How an attempt ended."""

    RELEASED = "RELEASED"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    SUPERSEDED = "SUPERSEDED"


class EpochStatus(enum.Enum):
    """OPEN → ALIGNED → DURABLE; what is not durable when its attempt is superseded is VOIDED.

    A durable one is VOIDED only where a run falls back to an older checkpoint.
    """

    OPEN = "OPEN"
    ALIGNED = "ALIGNED"
    DURABLE = "DURABLE"
    VOIDED = "VOIDED"


class CheckpointStatus(enum.Enum):
    """PENDING → COMPLETED → SUBSUMED → DISCARDED, or PENDING → ABORTED.

    PENDING → SUBSUMED is the way of one that is complete only after a newer one of a later epoch; COMPLETED → DISCARDED
    that of the newest one of a run that was deleted, or that falls back to an older one, which goes from SUBSUMED to
    COMPLETED then.
    """

    PENDING = "PENDING"
    COMPLETED = "COMPLETED"
    ABORTED = "ABORTED"
    SUBSUMED = "SUBSUMED"
    DISCARDED = "DISCARDED"


class CheckpointKind(enum.Enum):
    """PERIODIC while the run goes on, MANUAL where a person asked for one, FINAL for the epoch that terminates it."""

    PERIODIC = "PERIODIC"
    MANUAL = "MANUAL"
    FINAL = "FINAL"


class CheckpointFailure(enum.Enum):
    """Why a pending checkpoint was aborted (Flink's CheckpointFailureReason)."""

    DECLINED = "DECLINED"
    EXPIRED = "EXPIRED"
    ABORTED_BY_USER = "ABORTED_BY_USER"
    SUBSUMED = "SUBSUMED"
    ATTEMPT_ENDED = "ATTEMPT_ENDED"

    @property
    def is_counted(self) -> bool:
        """Whether it counts against the tolerable failures: what somebody decided is no failure."""
        return self in (CheckpointFailure.DECLINED, CheckpointFailure.EXPIRED)


class UnalignedBy(enum.Enum):
    """Why an open epoch switched to the unaligned checkpoint."""

    TIMEOUT = "timeout"
    PREEMPTION = "preemption"


class RestoreMode(enum.Enum):
    """What becomes of the checkpoint that a branch started from, once the branch has a full one of its own (FLIP-193).

    NO_CLAIM leaves it to its run; CLAIM lets it go with the next collection.
    """

    NO_CLAIM = "NO_CLAIM"
    CLAIM = "CLAIM"


class StopKind(enum.Enum):
    """How a person ends a run early: STOP after the epoch in progress, to be resumed; DRAIN makes it the run's last."""

    STOP = "STOP"
    DRAIN = "DRAIN"


class OperatorStatus(enum.Enum):
    """What is left of an operator: all of it, some of its buckets, nothing."""

    RUNNING = "RUNNING"
    PARTIALLY_FINISHED = "PARTIALLY_FINISHED"
    FINISHED = "FINISHED"


class TerminatedBy(enum.Enum):
    """The rule that ended a run."""

    CRITERIA = "criteria"
    EMPTY_FEEDBACK = "empty_feedback"
    MAX_EPOCHS = "max_epochs"
    DRAINED = "drained"


RUN_TRANSITIONS = frozenset(
    {
        (RunStatus.RUNNING, RunStatus.TERMINATING),
        (RunStatus.TERMINATING, RunStatus.FINISHED),
        (RunStatus.RUNNING, RunStatus.FAILED),
        (RunStatus.TERMINATING, RunStatus.FAILED),
        (RunStatus.FAILED, RunStatus.RUNNING),
        (RunStatus.FAILED, RunStatus.TERMINATING),
        (RunStatus.RUNNING, RunStatus.STOPPED),
        (RunStatus.FAILED, RunStatus.STOPPED),
        (RunStatus.STOPPED, RunStatus.RUNNING),
        (RunStatus.RUNNING, RunStatus.DELETED),
        (RunStatus.TERMINATING, RunStatus.DELETED),
        (RunStatus.FAILED, RunStatus.DELETED),
        (RunStatus.FINISHED, RunStatus.DELETED),
        (RunStatus.STOPPED, RunStatus.DELETED),
    }
)
EPOCH_TRANSITIONS = frozenset(
    {
        (EpochStatus.OPEN, EpochStatus.ALIGNED),
        (EpochStatus.ALIGNED, EpochStatus.DURABLE),
        (EpochStatus.OPEN, EpochStatus.VOIDED),
        (EpochStatus.ALIGNED, EpochStatus.VOIDED),
        (EpochStatus.DURABLE, EpochStatus.VOIDED),
    }
)
CHECKPOINT_TRANSITIONS = frozenset(
    {
        (CheckpointStatus.PENDING, CheckpointStatus.COMPLETED),
        (CheckpointStatus.PENDING, CheckpointStatus.ABORTED),
        (CheckpointStatus.PENDING, CheckpointStatus.SUBSUMED),
        (CheckpointStatus.COMPLETED, CheckpointStatus.SUBSUMED),
        (CheckpointStatus.SUBSUMED, CheckpointStatus.COMPLETED),
        (CheckpointStatus.SUBSUMED, CheckpointStatus.DISCARDED),
        (CheckpointStatus.COMPLETED, CheckpointStatus.DISCARDED),
    }
)


def check_transition(before: enum.Enum, after: enum.Enum) -> None:
    """Raise ProtocolViolationError unless the tables above allow the step."""
    step = (before, after)
    if step not in RUN_TRANSITIONS and step not in EPOCH_TRANSITIONS and step not in CHECKPOINT_TRANSITIONS:
        raise ProtocolViolationError(f"{before} cannot become {after}; this is a bug, please report it")
