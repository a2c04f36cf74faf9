"""Is a checkpoint due after an epoch, and of which kind?"""

from __future__ import annotations

from datetime import datetime, timedelta

from iteration_lib.protocol.state import EpochState, RunState
from iteration_lib.protocol.status import CheckpointKind, StopKind


def due_checkpoint(state: RunState, epoch: EpochState, now: datetime | None, *, is_last: bool) -> CheckpointKind | None:
    """Return the kind of checkpoint that an aligned epoch gets, None for none.

    The epoch that terminates the run always gets one, and so does the attempt's last; what a person asked for, by
    name or by asking the run to stop, comes next, and what the pace asks for last. Asked for an attempt that has not
    failed: in one that has, none begins.
    """
    if epoch.decision is not None and epoch.decision.terminated_by is not None:
        return CheckpointKind.FINAL
    if state.is_asked or state.asked_to is StopKind.STOP:
        return CheckpointKind.MANUAL
    if is_last or (is_paced(state, epoch.epoch) and has_paused(state, now)):
        return CheckpointKind.PERIODIC
    return None


def is_paced(state: RunState, epoch: int) -> bool:
    """Tell whether enough epochs lie between this one and the last that a checkpoint covers, or is about to."""
    return epoch - last_covered(state) >= state.policy.every_epochs


def last_covered(state: RunState) -> int:
    """Return the last epoch that a completed or a pending checkpoint covers, or NO_EPOCH."""
    return max([state.last_durable_epoch, *(known.epoch for known in state.pending)])


def has_paused(state: RunState, now: datetime | None) -> bool:
    """Tell whether enough time lies between the last completed checkpoint and now; None will do where none has to.

    A clock that was set back behind the completion counts as enough: else the pause would last as long as that.
    """
    pause = timedelta(seconds=state.policy.min_pause_seconds)
    if not pause:
        return True
    if state.pending:
        return False
    completed_at = state.completed.completed_at if state.completed is not None else None
    if completed_at is None:
        return True
    return now is not None and not completed_at <= now < completed_at + pause
