"""Which checkpoints may go, and which must not?

A checkpoint is needed by its own run, as long as it is the newest one there, and by every branch that started from it
and has no full one of its own yet: the branch *pins* it (FLIP-193). A person may pin any that is there, until it is
released. What a run keeps beyond that is its policy's: the last ones, and the best ones by a metric. To discard a
checkpoint is a row's step; its files go afterwards, and nothing that can be read again names them then (I18).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from iteration_lib.errors import ProtocolViolationError, SupersededError
from iteration_lib.protocol.command import (
    Command,
    DeleteRun,
    DiscardCheckpoints,
    PinCheckpoint,
    ReleaseCheckpoint,
    ReleaseOrigin,
)
from iteration_lib.protocol.event import CheckpointPinned, CheckpointReleased, CheckpointsDiscarded, RunDeleted
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.state import RunState
from iteration_lib.protocol.status import CheckpointStatus, RunStatus, check_transition
from iteration_lib.protocol.undriven import check_undriven, end_gone_attempt, void_rest


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedCheckpoint:
    """A checkpoint that was completed and is not discarded.

    `metric` is what its epoch measured of the policy's metric, None where it measured none. `is_claimed`: a branch has
    taken it over, and owns a full one by now.
    """

    checkpoint_id: int
    epoch: int
    metric: float | None = None
    is_claimed: bool = False


def discardable(state: RunState, retained: Sequence[RetainedCheckpoint], policy: CheckpointPolicy) -> tuple[int, ...]:
    """Return the ids of the checkpoints that nobody needs and that the policy does not keep, in their order.

    The newest one counts among the last. Of two that are equally good the newer one is the better.
    """
    free = [known for known in retained if _is_free(state, known.checkpoint_id)]
    if state.status is RunStatus.DELETED:
        return _ids(free)
    kept = {known.checkpoint_id for known in (*_last(retained, policy), *_best(retained, policy))}
    return _ids(known for known in free if known.is_claimed or known.checkpoint_id not in kept)


def discard_checkpoints(state: RunState, event: CheckpointsDiscarded) -> tuple[RunState, tuple[Command, ...]]:
    """Discard checkpoints; repeating it is harmless.

    Raises ProtocolViolationError for one that is needed (I18), SupersededError for an attempt that is not the last one.
    """
    if event.attempt_id not in (None, state.last_attempt_id):
        raise SupersededError(run_id=state.run_id, held=None, current=state.fencing_token)
    for checkpoint_id in event.checkpoint_ids:
        if not 1 <= checkpoint_id <= state.last_checkpoint_id or not _is_free(state, checkpoint_id):
            raise ProtocolViolationError(f"checkpoint {checkpoint_id} cannot be discarded: it is needed (I18)")
    if not event.checkpoint_ids:
        return state, ()
    completed = state.completed
    if completed is not None and completed.checkpoint_id in event.checkpoint_ids:
        state = replace(state, completed=None)
    return state, (DiscardCheckpoints(checkpoint_ids=event.checkpoint_ids),)


def pin_checkpoint(state: RunState, event: CheckpointPinned) -> tuple[RunState, tuple[Command, ...]]:
    """Keep a checkpoint for a person; repeating it is harmless. Raises ProtocolViolationError for one without files."""
    if event.status not in (CheckpointStatus.COMPLETED, CheckpointStatus.SUBSUMED):
        raise ProtocolViolationError(f"checkpoint {event.checkpoint_id} cannot be pinned: it is not there (I18)")
    if event.checkpoint_id in state.pinned_by_hand:
        return state, ()
    pinned = replace(state, pinned_by_hand=state.pinned_by_hand | {event.checkpoint_id})
    return pinned, (PinCheckpoint(checkpoint_id=event.checkpoint_id, pinned_by=event.pinned_by),)


def release_checkpoint(state: RunState, event: CheckpointReleased) -> tuple[RunState, tuple[Command, ...]]:
    """Keep a checkpoint for no person any longer; repeating it is harmless."""
    if event.checkpoint_id not in state.pinned_by_hand:
        return state, ()
    released = replace(state, pinned_by_hand=state.pinned_by_hand - {event.checkpoint_id})
    return released, (ReleaseCheckpoint(checkpoint_id=event.checkpoint_id),)


def delete_run(state: RunState, event: RunDeleted, now: datetime) -> tuple[RunState, tuple[Command, ...]]:
    """Delete a run that nobody drives; repeating it is harmless.

    Raises LeaseHeldError while an attempt is live, unless its lease ran out or its holder is proved to be gone.
    """
    if state.status is RunStatus.DELETED:
        return state, ()
    check_transition(state.status, RunStatus.DELETED)
    check_undriven(state, now, gone_attempt_id=event.gone_attempt_id)
    state, ended = end_gone_attempt(state, "its run was deleted", by=event.deleted_by)
    state, voided = void_rest(state)
    commands: list[Command] = [*ended, *voided, DeleteRun(deleted_by=event.deleted_by)]
    if state.holds_origin:
        commands.append(ReleaseOrigin())
    return replace(state, status=RunStatus.DELETED, holds_origin=False), tuple(commands)


def _is_free(state: RunState, checkpoint_id: int) -> bool:
    """Tell whether neither its own run nor a branch nor a person needs a checkpoint."""
    if checkpoint_id in state.pinned_by_hand:
        return False
    is_newest = state.completed is not None and checkpoint_id >= state.completed.checkpoint_id
    return checkpoint_id not in state.pinned and (state.status is RunStatus.DELETED or not is_newest)


def _last(retained: Sequence[RetainedCheckpoint], policy: CheckpointPolicy) -> Sequence[RetainedCheckpoint]:
    if policy.retain_last is None:
        return retained if policy.retain_best == 0 else retained[-1:]
    return sorted(retained, key=lambda known: known.checkpoint_id)[-policy.retain_last :]


def _best(retained: Sequence[RetainedCheckpoint], policy: CheckpointPolicy) -> Sequence[RetainedCheckpoint]:
    """Return the best ones; all of them where none measured the metric: its name may be mistyped."""
    sign = -1 if policy.retain_mode == "min" else 1
    measured = [(sign * known.metric, known.epoch, known) for known in retained if known.metric is not None]
    if policy.retain_best and not measured:
        return retained
    ranked = sorted(measured, key=lambda found: found[:2], reverse=True)
    return [known for _, _, known in ranked[: policy.retain_best]]


def _ids(retained: Iterable[RetainedCheckpoint]) -> tuple[int, ...]:
    return tuple(sorted(known.checkpoint_id for known in retained))
