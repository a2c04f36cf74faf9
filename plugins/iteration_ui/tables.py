"""Which rows have the tables of a run's tab? Pure: records in, texts and numbers out; newest come first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from iteration_lib.protocol.status import CheckpointStatus
from iteration_lib.store.overview import AttemptSpan
from iteration_lib.store.record import AttemptRecord, CheckpointRecord, EpochRecord
from iteration_ui.show import show_bytes, show_epochs, show_seconds, show_time


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRow:
    """One epoch under one attempt; `metrics` in the order of the page's `metric_names`."""

    epoch: int
    status: str
    attempt: int
    seconds: str
    records: str
    metrics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRow:
    """One attempt; `epochs` are those that it opened, `durable` how many of them became so."""

    attempt: int
    holder: str
    started: str
    lasted: str
    epochs: str
    durable: int
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRow:
    """One checkpoint; `needed_by` says who needs its files: nobody where it is safe to delete, empty without files."""

    checkpoint_id: int
    epoch: int
    kind: str
    status: str
    size: str
    seconds: str
    age: str
    needed_by: str
    reason: str
    is_there: bool


def epoch_rows(epochs: Sequence[EpochRecord], metric_names: Sequence[str]) -> tuple[EpochRow, ...]:
    """Return the table of epochs."""
    return tuple(
        EpochRow(
            epoch=epoch.epoch,
            status=epoch.status.value,
            attempt=epoch.fencing_token,
            seconds=show_seconds(epoch.seconds),
            records=", ".join(f"{head} {sum(c or 0 for c in counts):,}" for head, counts in epoch.records.items()),
            metrics=tuple(f"{epoch.metrics[name]:.8g}" if name in epoch.metrics else "" for name in metric_names),
        )
        for epoch in reversed(epochs)
    )


def attempt_rows(
    attempts: Sequence[AttemptRecord], spans: Sequence[AttemptSpan], now: datetime
) -> tuple[AttemptRow, ...]:
    """Return the table of attempts."""
    opened = {span.attempt: span for span in spans}
    return tuple(_attempt_row(attempt, opened.get(attempt.fencing_token), now) for attempt in reversed(attempts))


def checkpoint_rows(checkpoints: Sequence[CheckpointRecord], now: datetime) -> tuple[CheckpointRow, ...]:
    """Return the table of checkpoints."""
    return tuple(_checkpoint_row(checkpoint, now) for checkpoint in reversed(checkpoints))


def _attempt_row(attempt: AttemptRecord, opened: AttemptSpan | None, now: datetime) -> AttemptRow:
    return AttemptRow(
        attempt=attempt.fencing_token,
        holder=attempt.holder.describe(),
        started=show_time(attempt.started_at),
        lasted=show_seconds(((attempt.ended_at or now) - attempt.started_at).total_seconds()),
        epochs=show_epochs(opened.first_epoch, opened.last_epoch) if opened is not None else "",
        durable=opened.durable if opened is not None else 0,
        outcome=attempt.outcome.value if attempt.outcome is not None else "LIVE",
        reason=attempt.reason or "",
    )


def _checkpoint_row(checkpoint: CheckpointRecord, now: datetime) -> CheckpointRow:
    pending = (checkpoint.ended_at - checkpoint.triggered_at).total_seconds() if checkpoint.ended_at else None
    return CheckpointRow(
        checkpoint_id=checkpoint.checkpoint_id,
        epoch=checkpoint.epoch,
        kind=checkpoint.kind.value,
        status=checkpoint.status.value,
        size=show_bytes(checkpoint.size_bytes),
        seconds=show_seconds(pending),
        age=show_seconds((now - checkpoint.triggered_at).total_seconds()),
        needed_by=_needed_by(checkpoint),
        reason=checkpoint.reason or "",
        is_there=checkpoint.has_files,
    )


def _needed_by(checkpoint: CheckpointRecord) -> str:
    if not checkpoint.has_files:
        return ""
    if checkpoint.safe_to_delete:
        return "nobody: safe to delete"
    branches = len(checkpoint.by_branches)
    needing = ["its run"] if checkpoint.status is CheckpointStatus.COMPLETED else []  # it is the run's newest one
    needing += [f"{branches} branch{'' if branches == 1 else 'es'}"] if branches else []
    return " and ".join(needing)
