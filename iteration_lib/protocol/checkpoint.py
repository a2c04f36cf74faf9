"""What becomes of a checkpoint: pending, completed, aborted, subsumed?"""

from __future__ import annotations

from dataclasses import replace

from iteration_lib.errors import ProtocolViolationError
from iteration_lib.protocol.alignment import expect_all, fold
from iteration_lib.protocol.command import (
    AbortCheckpoint,
    Command,
    CompleteCheckpoint,
    MakeEpochsDurable,
    RecordAcknowledgements,
    SetRunStatus,
    SubsumeCheckpoint,
    TriggerCheckpoint,
)
from iteration_lib.protocol.event import CheckpointAcknowledged, CheckpointDeclined, CheckpointTriggered
from iteration_lib.protocol.state import CheckpointState, RunState
from iteration_lib.protocol.status import CheckpointKind, CheckpointStatus, EpochStatus, RunStatus, check_transition


def trigger_checkpoint(state: RunState, event: CheckpointTriggered) -> tuple[RunState, tuple[Command, ...]]:
    """Begin a checkpoint of an aligned epoch under the next id (I7); repeating it is harmless.

    Nothing begins where a pending or completed checkpoint covers the epoch: a greater id never covers less (I6).
    """
    covered = max([state.last_durable_epoch, *(known.epoch for known in state.pending)])
    if 0 <= event.epoch <= covered:
        return state, ()
    epoch = next((epoch for epoch in state.epochs if epoch.epoch == event.epoch), None)
    if epoch is None or epoch.status is not EpochStatus.ALIGNED or epoch.decision is None:
        raise ProtocolViolationError(f"a checkpoint of epoch {event.epoch} cannot begin: it is not aligned (I6)")
    if not event.participants or any(count < 1 for count in event.participants.values()):
        raise ProtocolViolationError(
            f"a checkpoint of epoch {event.epoch} needs participants with at least one subtask each (I8)"
        )
    checkpoint = CheckpointState(
        checkpoint_id=state.last_checkpoint_id + 1,
        epoch=event.epoch,
        kind=CheckpointKind.PERIODIC if epoch.decision.terminated_by is None else CheckpointKind.FINAL,
        status=CheckpointStatus.PENDING,
        participants=expect_all(event.participants),
    )
    triggered = TriggerCheckpoint(
        checkpoint_id=checkpoint.checkpoint_id,
        epoch=checkpoint.epoch,
        kind=checkpoint.kind,
        participants=checkpoint.participants,
    )
    return (
        replace(state, last_checkpoint_id=checkpoint.checkpoint_id, pending=(*state.pending, checkpoint)),
        (triggered,),
    )


def acknowledge_checkpoint(state: RunState, event: CheckpointAcknowledged) -> tuple[RunState, tuple[Command, ...]]:
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
    acknowledged = replace(checkpoint, participants=participants)
    state = replace(state, pending=tuple(acknowledged if c is checkpoint else c for c in state.pending))
    if event.manifest_path is None or event.manifest_sha256 is None:
        return state, tuple(commands)
    if any(reports.reported != reports.expected for reports in participants):
        raise ProtocolViolationError(
            f"checkpoint {checkpoint.checkpoint_id} has a manifest, but not every acknowledgement (I8)"
        )
    commands.append(
        CompleteCheckpoint(
            checkpoint_id=checkpoint.checkpoint_id,
            manifest_path=event.manifest_path,
            manifest_sha256=event.manifest_sha256,
            size_bytes=event.size_bytes,
        )
    )
    completed = replace(acknowledged, status=CheckpointStatus.COMPLETED, manifest_sha256=event.manifest_sha256)
    return _complete(state, completed, commands)


def decline_checkpoint(state: RunState, event: CheckpointDeclined) -> tuple[RunState, tuple[Command, ...]]:
    """Abort a pending checkpoint; one that is not pending any more stays what it is."""
    checkpoint = _pending(state, event.checkpoint_id)
    if checkpoint is None:
        return state, ()
    left = tuple(known for known in state.pending if known is not checkpoint)
    return replace(state, pending=left), (AbortCheckpoint(checkpoint_id=checkpoint.checkpoint_id, reason=event.reason),)


def abort_pending(state: RunState, reason: str) -> tuple[RunState, tuple[Command, ...]]:
    """Abort everything that is pending."""
    aborted = tuple(AbortCheckpoint(checkpoint_id=known.checkpoint_id, reason=reason) for known in state.pending)
    return replace(state, pending=()), aborted


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
    state: RunState, completed: CheckpointState, commands: list[Command]
) -> tuple[RunState, tuple[Command, ...]]:
    """Make epochs durable, subsume what is older, and let a final decision bind (I6, I8)."""
    older = [known for known in state.pending if known.checkpoint_id < completed.checkpoint_id]
    commands += [
        AbortCheckpoint(checkpoint_id=known.checkpoint_id, reason=f"subsumed by {completed.checkpoint_id}")
        for known in older
    ]
    if state.completed is not None:
        commands.insert(0, SubsumeCheckpoint(checkpoint_id=state.completed.checkpoint_id))
    commands.append(MakeEpochsDurable(through=completed.epoch))
    covered = next(epoch for epoch in state.epochs if epoch.epoch == completed.epoch)
    terminated_by = covered.decision.terminated_by if covered.decision is not None else None
    if terminated_by is not None:
        check_transition(state.status, RunStatus.TERMINATING)
        commands.append(SetRunStatus(status=RunStatus.TERMINATING, terminated_by=terminated_by))
    return (
        replace(
            state,
            status=state.status if terminated_by is None else RunStatus.TERMINATING,
            terminated_by=terminated_by,
            last_durable_epoch=completed.epoch,
            epochs=tuple(epoch for epoch in state.epochs if epoch.epoch > completed.epoch),
            pending=tuple(known for known in state.pending if known.checkpoint_id > completed.checkpoint_id),
            completed=completed,
        ),
        tuple(commands),
    )
