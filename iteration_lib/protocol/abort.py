"""Who may abort a checkpoint, and what follows from it? Its attempt, a newer checkpoint, or a person.

A person's word counts from any process: it aborts everything that is pending up to an id, and may name the next one
before it begins. Whatever ends a pending checkpoint releases the alignment that waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from iteration_lib.errors import CheckpointNotFoundError, RunDeletedError, RunFinishedError, RunStoppedError
from iteration_lib.protocol.alignment import release_alignment
from iteration_lib.protocol.command import (
    AbortCheckpoint,
    AbortThrough,
    Command,
    RecordRequest,
)
from iteration_lib.protocol.event import CheckpointAborted, CheckpointRequested
from iteration_lib.protocol.state import CheckpointState, RunState
from iteration_lib.protocol.status import CheckpointFailure, CheckpointKind, RunStatus


def abort_by_user(state: RunState, event: CheckpointAborted) -> tuple[RunState, tuple[Command, ...]]:
    """Abort every pending checkpoint up to an id, and remember the next one if it is meant; repeating it is harmless.

    Raises CheckpointNotFoundError for an id that is further away, RunFinishedError for the next one of a run that has
    no next one.
    """
    if not 1 <= event.checkpoint_id <= state.last_checkpoint_id + 1:
        raise CheckpointNotFoundError(state.run_id, event.checkpoint_id, last=state.last_checkpoint_id)
    meant = tuple(known for known in state.pending if known.checkpoint_id <= event.checkpoint_id)
    reason = f"aborted by {event.aborted_by}"
    state, aborted = abort_checkpoints(state, meant, CheckpointFailure.ABORTED_BY_USER, reason)
    commands: list[Command] = [*aborted]
    is_next = max(state.last_checkpoint_id, state.aborted_through) < event.checkpoint_id
    if is_next:
        check_goes_on(state)
    if meant or is_next:
        commands.append(AbortThrough(checkpoint_id=event.checkpoint_id))
        state = replace(state, aborted_through=event.checkpoint_id)
    state, released = release_alignment(state)
    return state, (*commands, *released)


def request_checkpoint(state: RunState, event: CheckpointRequested) -> tuple[RunState, tuple[Command, ...]]:
    """Ask for a checkpoint of the next epoch that aligns in an attempt that has not failed; repeating it is harmless.

    Raises RunFinishedError when no epoch will.
    """
    if event.request_id in state.requests:
        return state, ()
    check_goes_on(state)
    requested = RecordRequest(request_id=event.request_id, requested_by=event.requested_by)
    return replace(state, requests={**state.requests, event.request_id: None}), (requested,)


def check_goes_on(state: RunState) -> None:
    """Raise RunFinishedError, RunDeletedError or RunStoppedError for a run of which no epoch will align any more."""
    if state.status is RunStatus.DELETED:
        raise RunDeletedError(state.run_id)
    if state.status is RunStatus.STOPPED:
        raise RunStoppedError(state.run_id)
    if state.terminated_by is not None:
        raise RunFinishedError(state.run_id, is_published=state.status is RunStatus.FINISHED)


def abort_checkpoints(
    state: RunState, aborted: Sequence[CheckpointState], failure: CheckpointFailure, reason: str
) -> tuple[RunState, tuple[Command, ...]]:
    """Abort some of the pending checkpoints, or none."""
    if not aborted:
        return state, ()
    ids = [known.checkpoint_id for known in aborted]
    pending = tuple(known for known in state.pending if known.checkpoint_id not in ids)
    commands = tuple(AbortCheckpoint(checkpoint_id=number, failure=failure, reason=reason) for number in ids)
    return replace(state, pending=pending), commands


def count_failure(state: RunState, kind: CheckpointKind) -> RunState:
    """Count a failed checkpoint, as the store does by itself; of a final or hand-made one none is tolerable (I13)."""
    count = state.checkpoint_failures + 1
    if kind is not CheckpointKind.PERIODIC:
        count = max(count, state.policy.tolerable_failures + 1)
    return replace(state, checkpoint_failures=count)
