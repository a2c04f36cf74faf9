"""What becomes of a checkpoint: pending, completed, aborted, subsumed?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from iteration_lib.errors import ProtocolViolationError
from iteration_lib.protocol.abort import abort_checkpoints, count_failure
from iteration_lib.protocol.alignment import expect_all, fold, has_failed, release_alignment
from iteration_lib.protocol.command import (
    AnswerRequests,
    Command,
    CompleteCheckpoint,
    MakeEpochsDurable,
    RecordAcknowledgements,
    ReleaseOrigin,
    SetRunStatus,
    SubsumeCheckpoint,
    TriggerCheckpoint,
)
from iteration_lib.protocol.committable import store_committables
from iteration_lib.protocol.event import CheckpointAcknowledged, CheckpointDeclined, CheckpointTriggered, Committable
from iteration_lib.protocol.pacing import due_checkpoint, last_covered
from iteration_lib.protocol.state import NO_EPOCH, CheckpointState, RunState
from iteration_lib.protocol.status import (
    CheckpointFailure,
    CheckpointKind,
    CheckpointStatus,
    EpochStatus,
    RunStatus,
    check_transition,
)


def trigger_checkpoint(
    state: RunState, event: CheckpointTriggered, now: datetime | None
) -> tuple[RunState, tuple[Command, ...]]:
    """Begin a checkpoint of an aligned epoch under the next id (I7), where one is due; repeating it is harmless.

    Nothing begins where a pending or completed checkpoint covers the epoch: a greater id never covers less (I6). Nor
    does it in an attempt that has failed, in which nobody would write it: what a person asked for is left to the next
    attempt (I13). One that a person has aborted before is used up at once.
    """
    if 0 <= event.epoch <= last_covered(state):
        return state, ()
    epoch = state.epoch_state(event.epoch)
    if epoch is not None and (epoch.is_held or _is_repeated(state, event)):
        return state, ()
    if epoch is None or epoch.status is not EpochStatus.ALIGNED:
        raise ProtocolViolationError(f"a checkpoint of epoch {event.epoch} cannot begin: it is not aligned (I6)")
    if not event.participants or any(count < 1 for count in event.participants.values()):
        raise ProtocolViolationError(
            f"a checkpoint of epoch {event.epoch} needs participants with at least one subtask each (I8)"
        )
    kind = due_checkpoint(state, epoch, now, is_last=event.is_last)
    if kind is None or has_failed(state) or len(state.pending) >= state.policy.max_pending:
        return state, ()
    return _begin(state, event, kind)


def acknowledge_checkpoint(
    state: RunState, event: CheckpointAcknowledged, now: datetime | None
) -> tuple[RunState, tuple[Command, ...]]:
    """Fold acknowledgements in; with all of them and the manifest, the checkpoint completes (I8)."""
    checkpoint = _pending(state, event.checkpoint_id)
    _check_manifest(state, event)
    if checkpoint is None:
        return state, ()
    batch = {name: dict.fromkeys(subtasks, 1) for name, subtasks in event.acknowledgements.items()}
    participants = fold(checkpoint.participants, batch, what=f"checkpoint {checkpoint.checkpoint_id}")
    commands: list[Command] = []
    if participants != checkpoint.participants:
        commands.append(RecordAcknowledgements(checkpoint_id=checkpoint.checkpoint_id, participants=participants))
    if event.manifest_path is None or event.manifest_sha256 is None:
        acknowledged = replace(checkpoint, participants=participants)
        pending = tuple(acknowledged if known is checkpoint else known for known in state.pending)
        return replace(state, pending=pending), tuple(commands)
    if any(reports.reported != reports.expected for reports in participants):
        raise ProtocolViolationError(
            f"checkpoint {checkpoint.checkpoint_id} has a manifest, but not every acknowledgement (I8)"
        )
    is_late = state.completed is not None and state.completed.epoch >= checkpoint.epoch
    commands.append(
        CompleteCheckpoint(
            checkpoint_id=checkpoint.checkpoint_id,
            manifest_path=event.manifest_path,
            manifest_sha256=event.manifest_sha256,
            size_bytes=event.size_bytes,
            completed_at=now,
            is_subsumed=is_late,
        )
    )
    completed = replace(
        checkpoint,
        participants=participants,
        status=CheckpointStatus.COMPLETED,
        manifest_sha256=event.manifest_sha256,
        completed_at=now,
    )
    state = replace(state, pending=tuple(known for known in state.pending if known is not checkpoint))
    state, done = (state, tuple(commands)) if is_late else _complete(state, completed, commands, event.committables)
    state, released = release_alignment(state)
    return state, (*done, *released)


def decline_checkpoint(state: RunState, event: CheckpointDeclined) -> tuple[RunState, tuple[Command, ...]]:
    """Abort a pending checkpoint and count its failure; one that is not pending any more stays what it is."""
    if not event.failure.is_counted:
        raise ProtocolViolationError(f"an attempt declines a checkpoint, or it expires; not {event.failure.value}")
    checkpoint = _pending(state, event.checkpoint_id)
    if checkpoint is None:
        return state, ()
    state, aborted = abort_checkpoints(state, (checkpoint,), event.failure, event.reason)
    state, released = release_alignment(count_failure(state, checkpoint.kind))
    return state, (*aborted, *released)


def _is_repeated(state: RunState, event: CheckpointTriggered) -> bool:
    """Tell whether this was said before: there is a next epoch, or another checkpoint has begun.

    Nobody would write what began now, and whoever waits for it would wait for ever.
    """
    return event.last_checkpoint_id != state.last_checkpoint_id or state.epochs[-1].epoch > event.epoch


def _begin(state: RunState, event: CheckpointTriggered, kind: CheckpointKind) -> tuple[RunState, tuple[Command, ...]]:
    checkpoint = CheckpointState(
        checkpoint_id=state.last_checkpoint_id + 1,
        epoch=event.epoch,
        kind=kind,
        status=CheckpointStatus.PENDING,
        participants=expect_all(event.participants),
    )
    commands: list[Command] = [
        TriggerCheckpoint(
            checkpoint_id=checkpoint.checkpoint_id,
            epoch=checkpoint.epoch,
            kind=kind,
            participants=checkpoint.participants,
        )
    ]
    state = replace(state, last_checkpoint_id=checkpoint.checkpoint_id, pending=(*state.pending, checkpoint))
    if checkpoint.checkpoint_id <= state.aborted_through:
        reason = "aborted before it began"
        state, aborted = abort_checkpoints(state, (checkpoint,), CheckpointFailure.ABORTED_BY_USER, reason)
        commands += aborted
    if state.is_asked and kind is not CheckpointKind.PERIODIC:
        state, answered = _answer_requests(state, checkpoint)
        commands += answered
    return state, tuple(commands)


def _answer_requests(state: RunState, checkpoint: CheckpointState) -> tuple[RunState, tuple[Command, ...]]:
    """Answer what persons asked for; what an earlier checkpoint answered is forgotten."""
    number = checkpoint.checkpoint_id
    requests = {known: number for known, answer in state.requests.items() if answer in (None, number)}
    return replace(state, requests=requests), (AnswerRequests(checkpoint_id=number),)


def _pending(state: RunState, checkpoint_id: int) -> CheckpointState | None:
    if not 1 <= checkpoint_id <= state.last_checkpoint_id:
        raise ProtocolViolationError(
            f"checkpoint {checkpoint_id} was never triggered; the last one is {state.last_checkpoint_id} (I7)"
        )
    return next((known for known in state.pending if known.checkpoint_id == checkpoint_id), None)


def _check_manifest(state: RunState, event: CheckpointAcknowledged) -> None:
    """Raise ProtocolViolationError for half a manifest, or for another one than the checkpoint was completed with."""
    if (event.manifest_path is None) != (event.manifest_sha256 is None):
        raise ProtocolViolationError(
            f"checkpoint {event.checkpoint_id}: a manifest has a path and a digest, or there is none (I8)"
        )
    known = state.completed
    if known is None or known.checkpoint_id != event.checkpoint_id or event.manifest_sha256 is None:
        return
    if known.manifest_sha256 != event.manifest_sha256:
        raise ProtocolViolationError(f"checkpoint {event.checkpoint_id} is completed with another manifest (I8)")


def _complete(
    state: RunState,
    completed: CheckpointState,
    completing: Sequence[Command],
    committables: Sequence[Committable],
) -> tuple[RunState, tuple[Command, ...]]:
    """Make epochs durable, subsume what is older, and let a final decision bind (I6, I8); failures begin anew (I13)."""
    covered = tuple(epoch for epoch in state.epochs if epoch.epoch <= completed.epoch)
    commands: list[Command] = []
    if state.completed is not None:
        commands.append(SubsumeCheckpoint(checkpoint_id=state.completed.checkpoint_id))
    commands += completing
    older = tuple(
        known
        for known in state.pending
        if known.checkpoint_id < completed.checkpoint_id and known.kind is not CheckpointKind.MANUAL
    )
    reason = f"subsumed by {completed.checkpoint_id}"
    state, aborted = abort_checkpoints(state, older, CheckpointFailure.SUBSUMED, reason)
    state, stored = store_committables(state, committables, covered)
    commands += [*aborted, MakeEpochsDurable(through=completed.epoch), *stored]
    if state.holds_origin:
        commands.append(ReleaseOrigin())
    decision = covered[-1].decision
    terminated_by = decision.terminated_by if decision is not None else None
    if terminated_by is not None:
        check_transition(state.status, RunStatus.TERMINATING)
        commands.append(SetRunStatus(status=RunStatus.TERMINATING, terminated_by=terminated_by))
        if state.is_asked:  # since it began: no other one comes
            state, answered = _answer_requests(state, completed)
            commands += answered
    return (
        replace(
            state,
            status=state.status if terminated_by is None else RunStatus.TERMINATING,
            terminated_by=terminated_by,
            last_durable_epoch=completed.epoch,
            epochs=tuple(epoch for epoch in state.epochs if epoch.epoch > completed.epoch),
            edges=tuple(edge for edge in state.edges if not NO_EPOCH < edge.epoch <= completed.epoch),
            completed=completed,
            checkpoint_failures=state.checkpoint_failures if has_failed(state) else 0,
            holds_origin=False,
        ),
        tuple(commands),
    )
