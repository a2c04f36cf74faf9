"""What does the tab of one run show? Pure: records in, a page of texts and numbers out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from iteration_lib.protocol.status import RunStatus
from iteration_lib.store.record import AttemptRecord, CheckpointRecord, EpochRecord, RunRecord

LIVE_SECONDS = 3
_LIVE = (RunStatus.RUNNING, RunStatus.TERMINATING)
_REASONS = {
    "criteria": "its criteria were met",
    "empty_feedback": "a variable fed back nothing",
    "max_epochs": "it reached max_epochs",
    "drained": "somebody asked it to drain",
}


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
    """One attempt."""

    attempt: int
    holder: str
    started: str
    lasted: str
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRow:
    """One checkpoint."""

    checkpoint_id: int
    epoch: int
    kind: str
    status: str
    size: str
    seconds: str
    age: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """One run. `refresh_seconds` is None once nothing changes any more; newest rows come first."""

    run_id: str
    run_key: str
    reference: str
    status: str
    summary: str
    refresh_seconds: int | None
    params: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    state_digest: str | None
    failure: str | None
    metric_names: tuple[str, ...]
    epochs: tuple[EpochRow, ...]
    epochs_left_out: int
    attempts: tuple[AttemptRow, ...]
    checkpoints: tuple[CheckpointRow, ...]


def make_run_page(
    run: RunRecord,
    *,
    epochs: Sequence[EpochRecord],
    attempts: Sequence[AttemptRecord],
    checkpoints: Sequence[CheckpointRecord],
    now: datetime,
) -> RunPage:
    """Return the page of a run as it is now; `epochs` may leave out the oldest."""
    metric_names = tuple(dict.fromkeys(name for epoch in epochs for name in epoch.metrics))
    return RunPage(
        run_id=run.run_id,
        run_key=run.run_key,
        reference=run.reference,
        status=run.status.value,
        summary=_summary(run),
        refresh_seconds=LIVE_SECONDS if run.status in _LIVE else None,
        params=tuple((name, str(value)) for name, value in run.params.items()),
        outputs=tuple(sorted((run.outputs or {}).items())),
        state_digest=run.state_digest,
        failure=run.failure,
        metric_names=metric_names,
        epochs=tuple(_epoch_row(epoch, metric_names) for epoch in reversed(epochs)),
        epochs_left_out=min((epoch.epoch for epoch in epochs), default=0),
        attempts=tuple(_attempt_row(attempt, now) for attempt in reversed(attempts)),
        checkpoints=tuple(_checkpoint_row(checkpoint, now) for checkpoint in reversed(checkpoints)),
    )


def show_seconds(seconds: float | None) -> str:
    """Return a duration as people read it: 0.25 s, 12 s, 3 min 5 s, 2 h 4 min, 3 d 1 h."""
    if seconds is None:
        return ""
    if seconds < 60:  # noqa: PLR2004  (a minute)
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004  (digits that matter)
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "d"), (hours, "h"), (minutes, "min"), (rest, "s"))
    first = next(place for place, (value, _) in enumerate(parts) if value)
    return " ".join(f"{value} {unit}" for value, unit in parts[first : first + 2] if value)


def show_bytes(size: int | None) -> str:
    """Return a size as people read it, in powers of 1,000."""
    if size is None:
        return ""
    shown, units = float(size), iter(("B", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while shown >= 1000 and unit != "TB":  # noqa: PLR2004  (a power of 1,000)
        shown, unit = shown / 1000, next(units)
    return f"{shown:.0f} {unit}" if unit == "B" else f"{shown:.1f} {unit}"


def _summary(run: RunRecord) -> str:
    epochs = f"{run.epochs} durable epoch{'' if run.epochs == 1 else 's'}"
    if run.terminated_by is not None:
        return f"{epochs}; terminated because {_REASONS[run.terminated_by.value]}"
    planned = f"{epochs} of at most {run.max_epochs}" if run.max_epochs is not None else epochs
    if run.status is RunStatus.STOPPED:
        return f"{planned}; stopped until `iteration resume`"
    return planned if run.asked_to is None else f"{planned}; asked to {run.asked_to.value.lower()} after this epoch"


def _epoch_row(epoch: EpochRecord, metric_names: Sequence[str]) -> EpochRow:
    return EpochRow(
        epoch=epoch.epoch,
        status=epoch.status.value,
        attempt=epoch.fencing_token,
        seconds=show_seconds(epoch.seconds),
        records=", ".join(f"{head} {sum(c or 0 for c in counts):,}" for head, counts in epoch.records.items()),
        metrics=tuple(f"{epoch.metrics[name]:.8g}" if name in epoch.metrics else "" for name in metric_names),
    )


def _attempt_row(attempt: AttemptRecord, now: datetime) -> AttemptRow:
    return AttemptRow(
        attempt=attempt.fencing_token,
        holder=attempt.holder.describe(),
        started=attempt.started_at.strftime("%Y-%m-%d %H:%M:%S UTC"),
        lasted=show_seconds(((attempt.ended_at or now) - attempt.started_at).total_seconds()),
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
    )
