"""Why did a checkpoint begin, and what became of it?"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from iteration_lib.explanation.history import RunHistory
from iteration_lib.protocol.status import CheckpointKind, CheckpointStatus
from iteration_lib.store.record import CheckpointRecord
from iteration_lib.view import instant


def explain_checkpoint(history: RunHistory, checkpoint: CheckpointRecord) -> Iterator[str]:
    """Say of a checkpoint who or what began it, and how it ended."""
    yield from _beginning(history, checkpoint)
    if checkpoint.status is CheckpointStatus.PENDING:
        yield f"pending since {instant(checkpoint.triggered_at)}"
    elif checkpoint.status is CheckpointStatus.ABORTED:
        why = checkpoint.failure.value if checkpoint.failure is not None else "ABORTED"
        yield f"aborted {instant(checkpoint.ended_at)}, {why}: {checkpoint.reason}"
    else:
        yield f"completed {instant(checkpoint.ended_at)}"
        yield from _replacing(history, checkpoint)


def _beginning(history: RunHistory, checkpoint: CheckpointRecord) -> Iterator[str]:
    if checkpoint.kind is CheckpointKind.FINAL:
        yield f"begun because epoch {checkpoint.epoch} terminates the run"
    elif checkpoint.kind is CheckpointKind.PERIODIC and _is_at_pace(history, checkpoint):
        yield "begun at its attempt's pace"
    elif checkpoint.kind is CheckpointKind.PERIODIC:
        yield f"begun because epoch {checkpoint.epoch} is the last that its attempt was asked for"
    elif (stop := history.stop_at(checkpoint.triggered_at)) is not None:
        yield f"begun because {stop.requested_by} asked the run to stop {instant(stop.requested_at)}"
    for request in history.requests:
        if request.checkpoint_id == checkpoint.checkpoint_id:
            yield f"asked for by {request.requested_by} {instant(request.requested_at)}"


def _is_at_pace(history: RunHistory, checkpoint: CheckpointRecord) -> bool:
    """Tell whether a checkpoint was due by its attempt's policy when it began, also if its epoch was not the last."""
    attempt = history.attempt(checkpoint.fencing_token)
    if attempt is None:
        return True
    before = history.in_force_before(checkpoint)
    origin = min((known.epoch for known in history.epochs), default=0) - 1  # NO_EPOCH, but for a branch
    covered = max((known.epoch for known in before), default=origin)
    if checkpoint.epoch - covered < attempt.policy.every_epochs:
        return False
    pause = timedelta(seconds=attempt.policy.min_pause_seconds)
    if not pause or not before:
        return True
    ended = [known.ended_at for known in sorted(before, key=lambda known: known.epoch)]
    is_pending = any(at is None or at > checkpoint.triggered_at for at in ended)
    return not is_pending and ended[-1] is not None and ended[-1] + pause <= checkpoint.triggered_at


def _replacing(history: RunHistory, checkpoint: CheckpointRecord) -> Iterator[str]:
    """Say what a checkpoint that was completed had to make room for, if it is not the newest."""
    fell = history.fallback_behind(checkpoint)
    newer = history.subsumer_of(checkpoint)
    if fell is not None:
        # A row does not say when it was discarded: retention may have done so to all but the one that was newest.
        before = "" if checkpoint.checkpoint_id == fell.from_checkpoint_id else ", unless it was discarded before"
        yield (
            f"given up by {history.describe_attempt(fell.fencing_token)}, which fell back to checkpoint "
            f"{fell.to_checkpoint_id}{before}: checkpoint {fell.from_checkpoint_id} was broken, {fell.reason}"
        )
    elif newer is not None and checkpoint.status is not CheckpointStatus.COMPLETED:
        yield f"subsumed by checkpoint {newer.checkpoint_id} of epoch {newer.epoch}"
    if checkpoint.status is CheckpointStatus.DISCARDED:
        yield "its files are gone, or `iteration gc` removes them"
