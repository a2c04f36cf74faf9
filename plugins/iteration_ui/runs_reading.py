"""What is read for the page of all runs? One page of them, and what those that are compared have measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from iteration_lib.protocol.state import RunId
from iteration_lib.protocol.status import RunStatus
from iteration_lib.store.listing import (
    ListedRun,
    Listing,
    RunFilter,
    RunMetricSpan,
    read_listing,
    read_metric_spans,
    read_prefixes,
)
from iteration_lib.store.postgres import PostgresStore
from iteration_ui.grid import width_for

PAGE_SIZE = 50
MAX_GROUPS = 200
MAX_COMPARED = 8  # so many colours are told apart


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsQuery:
    """What a viewer asked for; empty texts ask for nothing."""

    dag_id: str = ""
    status: RunStatus | Literal[""] = ""
    name: str = ""
    page: int = 1
    compare: tuple[RunId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsReading:
    """What was read; `dag_ids` are those of all the runs that the viewer may see.

    `compared` are the first of those chosen ones that are there, and that he may see; `too_many` is how many more are.
    """

    listing: Listing
    dag_ids: Sequence[str] = ()
    compared: Sequence[ListedRun] = ()
    too_many: int = 0
    spans: Sequence[RunMetricSpan] = field(default=())


def read_groups(store: PostgresStore, dag_id: str, dag_run_id: str) -> Sequence[ListedRun]:
    """Read the runs of a DAG run's task groups."""
    wanted = RunFilter(prefixes=[dag_id], below=f"{dag_id}/{dag_run_id}/")
    return read_listing(store, wanted, size=MAX_GROUPS).runs


def read_runs(store: PostgresStore, query: RunsQuery, *, readable: RunFilter) -> RunsReading:
    """Read what a viewer asked for, of the runs that are readable to him."""
    wanted = RunFilter(
        prefixes=[prefix for prefix in readable.prefixes if query.dag_id in ("", prefix)],
        with_unprefixed=readable.with_unprefixed and not query.dag_id,
        status=query.status or None,
        name=query.name,
    )
    chosen: tuple[ListedRun, ...] = ()
    spans: tuple[RunMetricSpan, ...] = ()
    if query.compare:
        meant = RunFilter(prefixes=readable.prefixes, with_unprefixed=readable.with_unprefixed, run_ids=query.compare)
        chosen = read_listing(store, meant, size=len(query.compare)).runs
    first = sorted((run.run_id for run in chosen), key=query.compare.index)[:MAX_COMPARED]
    compared = tuple(run for run in chosen if run.run_id in first)
    if compared:
        width = width_for(max(run.epochs for run in compared) + 1)
        spans = read_metric_spans(store, [run.run_id for run in compared], width=width)
    return RunsReading(
        listing=read_listing(store, wanted, size=PAGE_SIZE, skip=(query.page - 1) * PAGE_SIZE),
        dag_ids=read_prefixes(store, readable.prefixes),
        compared=compared,
        too_many=len(chosen) - len(compared),
        spans=spans,
    )
