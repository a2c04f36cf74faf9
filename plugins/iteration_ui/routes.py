"""Which pages are there, and who may see them?

Every route carries Airflow's own authorisation for the DAG that it shows; a test walks the route table. A route reads,
shapes and returns.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated
from uuid import UUID

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, FastAPI, Query
from fastapi.responses import HTMLResponse

from iteration_lib.airflow.hook import IterationStoreHook, find_read_conn_id
from iteration_lib.errors import IterationError
from iteration_lib.protocol.state import RunId
from iteration_lib.protocol.status import RunStatus
from iteration_lib.store.listing import RunFilter
from iteration_lib.store.postgres import PostgresStore
from iteration_lib.store.reader import open_reader
from iteration_ui import guard
from iteration_ui.answer import NothingToShowError, answer_error, answer_page
from iteration_ui.page import make_run_page
from iteration_ui.reading import RunReading, read_run
from iteration_ui.runs_page import make_runs_page
from iteration_ui.runs_reading import RunsQuery, read_runs

_ANY_DAG = "~"  # Airflow's authorisation takes it for all DAGs together, which no page of ours shows
_STATUSES = {status.value: status for status in RunStatus}

router = APIRouter(default_response_class=HTMLResponse)


def make_app() -> FastAPI:
    """Return the application; without pages of its own about itself, which nothing would guard."""
    app = FastAPI(title="Iterations", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_exception_handler(IterationError, answer_error)
    app.include_router(router)
    return app


@lru_cache(maxsize=1)
def _history(url: str) -> PostgresStore:
    return open_reader(url)


def open_history() -> PostgresStore:
    """Return the store, for reading; raises UsageError when nothing leads to it, or nothing answers there."""
    return _history(IterationStoreHook(find_read_conn_id()).get_url())


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
    return answer_page("runs.html", page=shown, title="Iterations", refresh=None)


@router.get("/dags/{dag_id}/runs/{dag_run_id}", dependencies=[Depends(guard.read)])
def show_dag_run(dag_id: str, dag_run_id: str) -> HTMLResponse:
    """Show the iteration's run of a DAG run."""
    if dag_id == _ANY_DAG:
        raise NothingToShowError("There is no such DAG.")
    reading = read_run(open_history(), f"{dag_id}/{dag_run_id}")
    if reading is None:
        raise NothingToShowError("This DAG run has opened no iteration yet; its first task does.")
    return _show(reading)


@router.get("/runs/{run_id}", dependencies=[Depends(guard.read_store)])
def show_run(run_id: UUID) -> HTMLResponse:
    """Show a run that no DAG started; one that a DAG did has its page there."""
    history = open_history()
    run = history.find_run(str(run_id))
    reading = read_run(history, run.run_key) if run is not None and "/" not in run.run_key else None
    if reading is None:
        raise NothingToShowError("There is no run of this id that was started without a DAG.")
    return _show(reading)


def _show(reading: RunReading) -> HTMLResponse:
    page = make_run_page(reading, now=datetime.now(tz=UTC))
    return answer_page("run.html", page=page, title=page.run_key, refresh=page.refresh_seconds)
