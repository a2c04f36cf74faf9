"""What does the tab of a DAG run show whose iterations are task groups? Pure: runs go in, a row for each comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from iteration_lib.store.listing import ListedRun
from iteration_ui.page import WAITING_SECONDS, refresh_seconds_of
from iteration_ui.runs_page import RunRow, make_row


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsPage:
    """The runs of one DAG run, each under the name of its group; it refreshes, for another group may begin."""

    dag_id: str
    dag_run_id: str
    rows: tuple[RunRow, ...]
    refresh_seconds: int


def make_groups_page(dag_id: str, dag_run_id: str, runs: Sequence[ListedRun]) -> GroupsPage:
    """Return the page of a DAG run."""
    rows = [make_row(run) for run in sorted(runs, key=lambda run: run.created_at)]
    return GroupsPage(
        dag_id=dag_id,
        dag_run_id=dag_run_id,
        rows=tuple(replace(row, name=row.name.removeprefix(f"{dag_run_id}/")) for row in rows),
        refresh_seconds=min(
            (refresh_seconds_of(run.status) or WAITING_SECONDS for run in runs), default=WAITING_SECONDS
        ),
    )
