"""Which pages are there, and who may see them?

Every route carries Airflow's own authorisation for the DAG that it shows; a test walks the route table. A route reads,
shapes and returns.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse

from iteration_lib.protocol.state import RunId
from iteration_lib.protocol.status import RunStatus
from iteration_lib.store.listing import RunFilter
from iteration_lib.store.record import RunRecord
from iteration_ui import guard
from iteration_ui.address import DAG_RUN, GROUP, run_page, site_path
from iteration_ui.answer import answer_page
from iteration_ui.groups_page import make_groups_page
from iteration_ui.lookup import KnownCheckpoint, NothingToShowError, RunOfDagRun, run_of_dag_run, run_without_dag
from iteration_ui.page import make_run_page
from iteration_ui.paging import TableQuery
from iteration_ui.reading import read_run
from iteration_ui.runs_page import make_runs_page
from iteration_ui.runs_reading import RunsQuery, read_groups, read_runs
from iteration_ui.start_form import make_start_form
from iteration_ui.stores import open_history

_STATUSES = {status.value: status for status in RunStatus}


def tables(
    epochs_to: int | None = None, checkpoints_to: int | None = None, attempts_to: int | None = None
) -> TableQuery:
    """Return which rows of a run's tables are asked for."""
    return TableQuery(epochs_to=epochs_to, checkpoints_to=checkpoints_to, attempts_to=attempts_to)


Tables = Annotated[TableQuery, Depends(tables)]

router = APIRouter(default_response_class=HTMLResponse)


@router.get("/runs", dependencies=[Depends(guard.read)])
def list_runs(
    user: GetUserDep,
    *,
    dag_id: str = "",
    status: str = "",
    name: str = "",
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    compare: Annotated[tuple[UUID, ...], Query()] = (),
) -> HTMLResponse:
    """Show the runs that a viewer may see."""
    query = RunsQuery(
        dag_id=dag_id,
        status=_STATUSES.get(status, ""),
        name=name,
        page=page,
        compare=tuple(RunId(str(run_id)) for run_id in compare),
    )
    readable = RunFilter(prefixes=sorted(guard.readable_dags(user)), with_unprefixed=guard.may_read_store(user))
    shown = make_runs_page(query, read_runs(open_history(), query, readable=readable))
    return answer_page("runs.html", page=shown, title="Iterations")


@router.get(DAG_RUN, dependencies=[Depends(guard.read), Depends(guard.one_dag)])
def show_dag_run(dag_id: str, dag_run_id: str, query: Tables, request: Request, user: GetUserDep) -> HTMLResponse:
    """Show the iteration's run of a DAG run with what the viewer may do to it, or the runs of its task groups."""
    try:
        run = run_of_dag_run(request)
    except NothingToShowError:
        page = make_groups_page(dag_id, dag_run_id, read_groups(open_history(), dag_id, dag_run_id))
        if not page.rows:
            raise
        return answer_page("groups.html", page=page, title=dag_run_id, refresh=page.refresh_seconds)
    may_change, may_trigger = guard.may(guard.change, request, user), guard.may(guard.trigger, request, user)
    return _show(run, query, may_change=may_change, may_trigger=may_trigger)


@router.get(GROUP, dependencies=[Depends(guard.read), Depends(guard.one_dag)])
def show_group(run: RunOfDagRun, query: Tables, request: Request, user: GetUserDep) -> HTMLResponse:
    """Show the run of a task group; the form of its DAG is not the run's, so that it starts none from a checkpoint."""
    return _show(run, query, may_change=guard.may(guard.change, request, user))


@router.get("/runs/{run_id}", dependencies=[Depends(guard.read_store)])
def show_run(run_id: UUID, query: Tables) -> HTMLResponse:
    """Show a run that no DAG started; one that a DAG did has its page there."""
    return _show(run_without_dag(run_id), query)


@router.get(
    f"{DAG_RUN}/checkpoints/{{checkpoint_id}}/start", dependencies=[Depends(guard.trigger), Depends(guard.one_dag)]
)
def show_start_form(run: RunOfDagRun, checkpoint_id: KnownCheckpoint) -> HTMLResponse:
    """Show the form that starts a run from a checkpoint: the browser sends it to Airflow, as the viewer himself."""
    (found,) = open_history().list_checkpoints(run.run_id, [checkpoint_id])
    if not found.has_files:
        raise NothingToShowError(f"Checkpoint {checkpoint_id} is {found.status.value}: it has no files any more.")
    branch = open_history().find_branch(run.run_id)
    form = make_start_form(
        run.run_key,
        run.params,
        checkpoint_id=checkpoint_id,
        epoch=found.epoch,
        first_epoch=branch.first_epoch if branch is not None else 0,
    )
    back = run_page(run.run_id, run.run_key)
    return answer_page("start.html", form=form, back=back, site=site_path(), title="Start from a checkpoint")


def _show(run: RunRecord, query: TableQuery, *, may_change: bool = False, may_trigger: bool = False) -> HTMLResponse:
    page = make_run_page(read_run(open_history(), run, query), now=datetime.now(tz=UTC))
    here = run_page(page.run_id, page.run_key)
    may = {"may_change": may_change, "may_trigger": may_trigger}
    return answer_page("run.html", page=page, here=here, **may, title=page.run_key, refresh=page.refresh_seconds)
