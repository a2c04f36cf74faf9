"""Which runs does a page list, and how do the metrics of several compare? A page at a time, counted by the server.

A run's key may have a prefix: what stands before its first slash. Airflow's runs have their DAG's id there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from iteration_lib.protocol.state import RunId
from iteration_lib.protocol.status import RunStatus, StopKind
from iteration_lib.store.overview import MetricSpan
from iteration_lib.store.postgres import PostgresStore
from iteration_lib.store.row import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs are meant: those of some prefixes, `with_unprefixed` those of none too.

    `status` None means every run that is not deleted; `name` is a part of the key, in letters of either case; `below`
    is what the key begins with.
    """

    prefixes: Sequence[str]
    with_unprefixed: bool = False
    status: RunStatus | None = None
    name: str = ""
    below: str = ""
    run_ids: Sequence[RunId] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """A run in a forest of branches: one of `depth` 0 started from none of those that are meant.

    `origin_checkpoint_id` is None for a run that started from no other one; `metrics` are its last durable epoch's.
    """

    run_id: RunId
    run_key: str
    reference: str
    status: RunStatus
    asked_to: StopKind | None
    epochs: int
    max_epochs: int | None
    created_at: datetime
    finished_at: datetime | None
    depth: int
    origin_checkpoint_id: int | None
    from_savepoint: bool
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Some of the runs that are meant, of `total`."""

    runs: tuple[ListedRun, ...]
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMetricSpan(MetricSpan):
    """What a metric of a run was from one epoch to another."""

    run_id: RunId
    name: str
    first_epoch: int
    last_epoch: int


def read_listing(store: PostgresStore, wanted: RunFilter, *, size: int, skip: int = 0) -> Listing:
    """Return runs as a forest: each behind the one that it branched from, the trees with the newest runs first.

    Where `skip` would leave none, they are those of the last page of this size.
    """
    found = store.read(
        "list_forest",
        lambda row: (_listed(row), int(row["total"])),
        prefixes=list(wanted.prefixes),
        with_unprefixed=wanted.with_unprefixed,
        status=wanted.status.value if wanted.status is not None else None,
        key_part=wanted.name,
        below=wanted.below,
        run_ids=list(wanted.run_ids) if wanted.run_ids is not None else None,
        size=size,
        skip=skip,
    )
    return Listing(runs=tuple(run for run, _ in found), total=found[0][1] if found else 0)


def read_prefixes(store: PostgresStore, prefixes: Sequence[str]) -> tuple[str, ...]:
    """Return those of some prefixes that runs have, sorted; deleted runs do not count."""
    return store.read("list_prefixes", lambda row: str(row["prefix"]), prefixes=list(prefixes))


def read_metric_spans(store: PostgresStore, run_ids: Sequence[RunId], *, width: int) -> tuple[RunMetricSpan, ...]:
    """Return the metrics of runs by run, name and epoch, `width` epochs at a time."""
    return store.read("list_metric_spans", lambda row: RunMetricSpan(**row), run_ids=list(run_ids), width=width)


def _listed(row: Row) -> ListedRun:
    shaped = {name: value for name, value in row.items() if name != "total"}
    shaped["status"] = RunStatus(row["status"])
    shaped["asked_to"] = StopKind(row["asked_to"]) if row["asked_to"] is not None else None
    return ListedRun(**shaped)
