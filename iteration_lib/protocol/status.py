"""Which statuses are there, and which may follow which?"""

from __future__ import annotations

import enum

from iteration_lib.errors import ProtocolViolationError


class RunStatus(enum.Enum):
    """RUNNING → TERMINATING (the last epoch is durable) → FINISHED (outputs published); FAILED may be resumed."""

    RUNNING = "RUNNING"
    TERMINATING = "TERMINATING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"


class AttemptOutcome(enum.Enum):
    """How an attempt ended."""

    RELEASED = "RELEASED"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    SUPERSEDED = "SUPERSEDED"


class EpochStatus(enum.Enum):
    """OPEN → ALIGNED → DURABLE; what is not durable when its attempt is superseded is VOIDED."""

    OPEN = "OPEN"
    ALIGNED = "ALIGNED"
    DURABLE = "DURABLE"
    VOIDED = "VOIDED"


class CheckpointStatus(enum.Enum):
    """PENDING → COMPLETED → SUBSUMED → DISCARDED, or PENDING → ABORTED."""

    PENDING = "PENDING"
    COMPLETED = "COMPLETED"
    ABORTED = "ABORTED"
    SUBSUMED = "SUBSUMED"
    DISCARDED = "DISCARDED"


class CheckpointKind(enum.Enum):
    """PERIODIC while the run goes on, FINAL for the epoch that terminates it."""

    PERIODIC = "PERIODIC"
    FINAL = "FINAL"


class TerminatedBy(enum.Enum):
    """The rule that ended a run."""

    CRITERIA = "criteria"
    EMPTY_FEEDBACK = "empty_feedback"
    MAX_EPOCHS = "max_epochs"


RUN_TRANSITIONS = frozenset(
    {
        (RunStatus.RUNNING, RunStatus.TERMINATING),
        (RunStatus.TERMINATING, RunStatus.FINISHED),
        (RunStatus.RUNNING, RunStatus.FAILED),
        (RunStatus.TERMINATING, RunStatus.FAILED),
        (RunStatus.FAILED, RunStatus.RUNNING),
        (RunStatus.FAILED, RunStatus.TERMINATING),
    }
)
EPOCH_TRANSITIONS = frozenset(
    {
        (EpochStatus.OPEN, EpochStatus.ALIGNED),
        (EpochStatus.ALIGNED, EpochStatus.DURABLE),
        (EpochStatus.OPEN, EpochStatus.VOIDED),
        (EpochStatus.ALIGNED, EpochStatus.VOIDED),
    }
)
CHECKPOINT_TRANSITIONS = frozenset(
    {
        (CheckpointStatus.PENDING, CheckpointStatus.COMPLETED),
        (CheckpointStatus.PENDING, CheckpointStatus.ABORTED),
        (CheckpointStatus.COMPLETED, CheckpointStatus.SUBSUMED),
        (CheckpointStatus.SUBSUMED, CheckpointStatus.DISCARDED),
    }
)


def check_transition(before: enum.Enum, after: enum.Enum) -> None:
    """Raise ProtocolViolationError unless the tables above allow the step."""
    step = (before, after)
    if step not in RUN_TRANSITIONS and step not in EPOCH_TRANSITIONS and step not in CHECKPOINT_TRANSITIONS:
        raise ProtocolViolationError(f"{before} cannot become {after}; this is a bug, please report it")
