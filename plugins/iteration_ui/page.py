"""What does the tab of one run show? Pure: what was read goes in, a page of texts, numbers and drawings comes out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from iteration_lib.marker import kept_in_force
from iteration_lib.protocol.state import NO_EPOCH
from iteration_lib.protocol.status import EpochStatus, RunStatus
from iteration_lib.store.overview import Restart, Span
from iteration_lib.store.record import EpochRecord, RunRecord, StopRecord
from iteration_ui.address import page_of_dag_run
from iteration_ui.button import Button, buttons_of
from iteration_ui.chart import Chart, Mark, Point, draw_chart
from iteration_ui.grid import Grid, make_grid
from iteration_ui.paging import Pages, pages_of
from iteration_ui.reading import RATED_EPOCHS, RunReading
from iteration_ui.show import show_rate, show_seconds
from iteration_ui.tables import (
    AttemptRow,
    CheckpointRow,
    EpochRow,
    attempt_rows,
    checkpoint_rows,
    epoch_rows,
)

LIVE_SECONDS = 3
WAITING_SECONDS = 10
_REFRESH_SECONDS = {
    RunStatus.RUNNING: LIVE_SECONDS,
    RunStatus.TERMINATING: LIVE_SECONDS,
    RunStatus.FAILED: WAITING_SECONDS,  # a retry, or a person, may let it go on
    RunStatus.STOPPED: WAITING_SECONDS,
}
_REASONS = {
    "criteria": "its criteria were met",
    "empty_feedback": "a variable fed back nothing",
    "max_epochs": "it reached max_epochs",
    "drained": "somebody asked it to drain",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run has come. `rate` and `left` are empty where nothing tells them."""

    durable: int
    of: int | None
    rate: str
    left: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """One run. `refresh_seconds` is None once nothing changes any more; newest rows come first.

    The tasks of a chain count the run's own epochs, the first of which is `first_epoch`. `dag_run_page` is empty but
    for the run of a task group.
    """

    run_id: str
    run_key: str
    dag_run_page: str
    reference: str
    status: str
    summary: str
    progress: Progress
    refresh_seconds: int | None
    origin: str
    first_epoch: int
    params: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    state_digest: str | None
    failure: str | None
    charts: tuple[Chart, ...]
    grid: Grid
    metric_names: tuple[str, ...]
    epochs: tuple[EpochRow, ...]
    epoch_pages: Pages
    attempts: tuple[AttemptRow, ...]
    attempt_pages: Pages
    checkpoints: tuple[CheckpointRow, ...]
    checkpoint_pages: Pages
    needed_elsewhere: tuple[CheckpointRow, ...]
    buttons: tuple[Button, ...]


def make_run_page(reading: RunReading, *, now: datetime) -> RunPage:
    """Return the page of a run as it is now."""
    run = reading.run
    metric_names = tuple(dict.fromkeys(name for epoch in reading.epochs for name in epoch.metrics))
    return RunPage(
        run_id=run.run_id,
        run_key=run.run_key,
        dag_run_page=page_of_dag_run(run.run_key),
        reference=run.reference,
        status=run.status.value,
        summary=_summary(run, reading.stops),
        progress=_progress(run, reading.newest),
        refresh_seconds=refresh_seconds_of(run.status),
        origin=_origin(reading),
        first_epoch=reading.branch.first_epoch if reading.branch is not None else 0,
        params=tuple((name, str(value)) for name, value in run.params.items()),
        outputs=tuple(sorted((run.outputs or {}).items())),
        state_digest=run.state_digest,
        failure=run.failure,
        charts=tuple(_charts(reading)),
        grid=make_grid(
            reading.operators,
            reading.spans,
            reading.edge_spans,
            width=reading.width,
            failed=_failed(reading),
            kept=kept_in_force(reading.operators, reading.branch) if reading.branch is not None else (),
        ),
        metric_names=metric_names,
        epochs=epoch_rows(reading.epochs, metric_names),
        epoch_pages=pages_of(reading.epoch_window, reading.query, "epochs"),
        attempts=attempt_rows(reading.attempts, reading.attempt_spans, now),
        attempt_pages=pages_of(reading.attempt_window, reading.query, "attempts"),
        checkpoints=checkpoint_rows(reading.checkpoints, now),
        checkpoint_pages=pages_of(reading.checkpoint_window, reading.query, "checkpoints"),
        needed_elsewhere=checkpoint_rows(reading.needed_elsewhere, now),
        buttons=buttons_of(
            run, has_checkpoint=any(known.has_files for known in (*reading.checkpoints, *reading.needed_elsewhere))
        ),
    )


def refresh_seconds_of(status: RunStatus) -> int | None:
    """Return after how many seconds a run is looked at again; None where nothing changes any more."""
    return _REFRESH_SECONDS.get(status)


def _summary(run: RunRecord, stops: Sequence[StopRecord]) -> str:
    epochs = f"{run.epochs} durable epoch{'' if run.epochs == 1 else 's'}"
    if run.terminated_by is not None:
        return f"{epochs}; terminated because {_REASONS[run.terminated_by.value]}"
    planned = f"{epochs} of at most {run.max_epochs}" if run.max_epochs is not None else epochs
    by = next((f" by {stop.requested_by}" for stop in stops if stop.is_in_force), "")
    if run.status is RunStatus.STOPPED:
        return f"{planned}; stopped{by} until somebody resumes it"
    return planned if run.asked_to is None else f"{planned}; asked{by} to {run.asked_to.value.lower()} after this epoch"


def _progress(run: RunRecord, epochs: Sequence[EpochRecord]) -> Progress:
    """Tell the rate by the newest durable epochs of one attempt: between two attempts nothing goes on."""
    durable = [epoch for epoch in epochs if epoch.status is EpochStatus.DURABLE]
    newest = [epoch for epoch in durable if epoch.fencing_token == durable[-1].fencing_token][-RATED_EPOCHS:]
    times = [epoch.aligned_at for epoch in newest if epoch.aligned_at is not None]
    seconds = (times[-1] - times[0]).total_seconds() if times else 0.0
    rate = (len(times) - 1) / seconds if seconds > 0 else None
    is_going = run.status is RunStatus.RUNNING and run.terminated_by is None
    left = (run.max_epochs - run.epochs) / rate if rate and run.max_epochs is not None and is_going else None
    return Progress(
        durable=run.epochs,
        of=run.max_epochs,
        rate=show_rate(rate) if rate else "",
        left=show_seconds(left),
    )


def _failed(reading: RunReading) -> tuple[str, int] | None:
    """Return the operator that ended the newest attempt; where no epoch is told, it failed in the next one."""
    failed = reading.newest_attempt.failed if reading.newest_attempt is not None else None
    if failed is None:
        return None
    return failed.operator_id, failed.epoch if failed.epoch != NO_EPOCH else reading.run.last_durable_epoch + 1


def _origin(reading: RunReading) -> str:
    branch = reading.branch
    if branch is None:
        return ""
    where = f"checkpoint {branch.origin_checkpoint_id} of run {branch.origin_run_id}"
    place = where if branch.origin_run_id is not None else f"the savepoint {branch.uri}"
    return f"began behind epoch {branch.epoch}, from {place}"


def _charts(reading: RunReading) -> Iterator[Chart]:
    """Draw each metric that was measured, in the order in which they first were."""
    marks = [_mark(restart) for restart in reading.restarts]
    for name in dict.fromkeys(name for span in reading.spans for name in span.metrics):
        points = [_point(span, name) for span in reading.spans if name in span.metrics]
        chart = draw_chart(name, {name: points}, marks)
        if chart is not None:
            yield chart


def _point(span: Span, name: str) -> Point:
    found = span.metrics[name]
    return Point(
        first_epoch=span.first_epoch,
        last_epoch=span.last_epoch,
        least=found.least,
        greatest=found.greatest,
        last=found.last,
    )


def _mark(restart: Restart) -> Mark:
    fell = restart.to_checkpoint_id
    what = f", fell back to checkpoint {fell}" if fell is not None else ""
    last = f"attempt {restart.attempt} began again with epoch {restart.epoch}{what}"
    others = f"{restart.attempts} attempts began again near here, at last: " if restart.attempts > 1 else ""
    return Mark(epoch=restart.epoch, label=f"{others}{last}")
