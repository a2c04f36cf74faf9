"""Which pages are there, and who may see them?

Every route carries Airflow's own authorisation for the DAG that it shows; a test walks the route table. A route reads,
shapes and returns.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import APIRouter, Depends, FastAPI
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader

from iteration_lib.airflow.hook import IterationStoreHook
from iteration_lib.errors import IterationError
from iteration_lib.store.postgres import PostgresStore
from iteration_ui.page import make_run_page
from iteration_ui.reading import read_run

PROBLEM_SECONDS = 5
_ANY_DAG = "~"  # Airflow's authorisation takes it for all DAGs together, which no page of ours shows

_templates = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, trim_blocks=True, lstrip_blocks=True
)
_FRAMING = "frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
router = APIRouter()


def make_app() -> FastAPI:
    """Return the application; without pages of its own about itself, which nothing would guard."""
    app = FastAPI(title="Iterations", docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(router)
    return app


@lru_cache(maxsize=1)
def _history(url: str) -> PostgresStore:
    return PostgresStore(url)


def open_history() -> PostgresStore:
    """Return the store, for reading; raises UsageError when nothing leads to it, or nothing answers there."""
    return _history(IterationStoreHook().get_url())


@router.get(
    "/dags/{dag_id}/runs/{dag_run_id}",
    response_class=HTMLResponse,
    dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.RUN))],
)
def show_run(dag_id: str, dag_run_id: str) -> HTMLResponse:
    """Show the iteration's run of a DAG run."""
    if dag_id == _ANY_DAG:
        return _problem("There is no such DAG.", status=404)
    try:
        reading = read_run(open_history(), f"{dag_id}/{dag_run_id}")
    except IterationError as error:
        return _problem(str(error), status=503)
    if reading is None:
        return _problem("This DAG run has opened no iteration yet; its first task does.", status=404)
    page = make_run_page(reading, now=datetime.now(tz=UTC))
    return _html("run.html", status=200, page=page, title=page.run_key, refresh=page.refresh_seconds)


def _problem(message: str, *, status: int) -> HTMLResponse:
    return _html("problem.html", status=status, message=message, title="Iteration", refresh=PROBLEM_SECONDS)


def _html(template: str, *, status: int, **values: object) -> HTMLResponse:
    """Render a page that runs no script but its own, asks this server alone, and is framed by Airflow alone."""
    nonce = secrets.token_urlsafe(16)
    text = _templates.get_template(template).render(nonce=nonce, **values)
    own = f"style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'"
    policy = f"default-src 'none'; {own}; {_FRAMING}"
    headers = {"Content-Security-Policy": policy, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return HTMLResponse(text, status_code=status, headers=headers)
