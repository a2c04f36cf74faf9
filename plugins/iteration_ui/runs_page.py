"""What does the page of all runs show? Pure: what was read goes in, rows, links and drawings come out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from iteration_lib.protocol.state import RunId
from iteration_lib.protocol.status import RunStatus
from iteration_lib.store.listing import ListedRun, RunMetricSpan
from iteration_ui.address import run_page
from iteration_ui.chart import Chart, Point, draw_chart, show_number
from iteration_ui.runs_reading import MAX_COMPARED, PAGE_SIZE, RunsQuery, RunsReading
from iteration_ui.show import show_seconds, show_time


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One run; `link` is below the pages' own path, `dag_id` empty for a run that no DAG started."""

    run_id: RunId
    link: str
    name: str
    dag_id: str
    depth: int
    origin: str
    reference: str
    status: str
    asked_to: str
    epochs: str
    metrics: str
    started: str
    lasted: str
    is_compared: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsPage:
    """Some of all runs, and those that are compared in `charts`, each in the colour of its place.

    It is page `number`, the last one where a later one was asked for. `too_many` more were chosen than
    there are `colours`.
    """

    query: RunsQuery
    dag_ids: tuple[str, ...]
    statuses: tuple[str, ...]
    rows: tuple[RunRow, ...]
    total: int
    number: int
    pages: int
    newer: str
    older: str
    compared: tuple[RunRow, ...]
    too_many: int
    colours: int
    charts: tuple[Chart, ...]


def make_runs_page(query: RunsQuery, reading: RunsReading) -> RunsPage:
    """Return the page that a viewer asked for."""
    total = reading.listing.total
    pages = max(1, math.ceil(total / PAGE_SIZE))
    number = min(query.page, pages)
    chosen = {run.run_id for run in reading.compared}
    return RunsPage(
        query=query,
        dag_ids=tuple(reading.dag_ids),
        statuses=tuple(status.value for status in RunStatus),
        rows=tuple(make_row(run, is_compared=run.run_id in chosen) for run in reading.listing.runs),
        total=total,
        number=number,
        pages=pages,
        newer=_address(query, number - 1) if number > 1 else "",
        older=_address(query, number + 1) if number < pages else "",
        compared=tuple(make_row(run, is_compared=True) for run in reading.compared),
        too_many=reading.too_many,
        colours=MAX_COMPARED,
        charts=tuple(_charts(reading.compared, reading.spans)),
    )


def _address(query: RunsQuery, page: int) -> str:
    """Return the address of another page of the same list, relative to this one."""
    asked = {"dag_id": query.dag_id, "status": query.status and query.status.value, "name": query.name}
    shown = [(name, value) for name, value in asked.items() if value]
    return "?" + urlencode([*shown, *(("compare", run_id) for run_id in query.compare), ("page", str(page))])


def make_row(run: ListedRun, *, is_compared: bool = False) -> RunRow:
    """Return the row of a run."""
    dag_id, separator, dag_run_id = run.run_key.partition("/")
    lasted = (run.finished_at - run.created_at).total_seconds() if run.finished_at else None
    return RunRow(
        run_id=run.run_id,
        link=run_page(run.run_id, run.run_key) if run.status is not RunStatus.DELETED else "",
        name=dag_run_id if separator else run.run_key,
        dag_id=dag_id if separator else "",
        depth=run.depth,
        origin=_origin(run),
        reference=run.reference,
        status=run.status.value,
        asked_to=f"asked to {run.asked_to.value.lower()}" if run.asked_to and run.status is RunStatus.RUNNING else "",
        epochs=f"{run.epochs} of {run.max_epochs}" if run.max_epochs is not None else str(run.epochs),
        metrics=", ".join(f"{name} {show_number(value)}" for name, value in run.metrics.items()),
        started=show_time(run.created_at),
        lasted=show_seconds(lasted),
        is_compared=is_compared,
    )


def _origin(run: ListedRun) -> str:
    if run.from_savepoint:
        return "from a savepoint"
    if run.origin_checkpoint_id is None:
        return ""
    whose = "" if run.depth else " of a run that is not listed"
    return f"from checkpoint {run.origin_checkpoint_id}{whose}"


def _charts(compared: Sequence[ListedRun], spans: Sequence[RunMetricSpan]) -> Iterator[Chart]:
    """Draw each metric with a line for each run, in the order in which they were chosen."""
    for name in sorted({span.name for span in spans}):
        series = {
            run.run_key: [_point(span) for span in spans if (span.run_id, span.name) == (run.run_id, name)]
            for run in compared
        }
        chart = draw_chart(name, series)
        if chart is not None:
            yield chart


def _point(span: RunMetricSpan) -> Point:
    return Point(
        first_epoch=span.first_epoch,
        last_epoch=span.last_epoch,
        least=span.least,
        greatest=span.greatest,
        last=span.last,
    )
