"""What may be done from a run's page, and by whom?

By a viewer whom Airflow lets change the DAG's runs, by a POST of our own page. What a checkpoint's form starts is no
action of ours: the browser asks Airflow for the DAG run.
"""

from __future__ import annotations

import logging
from uuid import UUID, uuid4

from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.configuration import conf  # airflow.sdk has it too, but not in 3.1
from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse

from iteration_lib.store.record import RunRecord
from iteration_ui import action, guard
from iteration_ui.address import run_page
from iteration_ui.answer import answer_page
from iteration_ui.dry_run import plan_of
from iteration_ui.lookup import KnownCheckpoint, RunOfDagRun
from iteration_ui.stores import open_history, open_store, reading_url

router = APIRouter(
    default_response_class=HTMLResponse,
    dependencies=[Depends(guard.change), Depends(guard.one_dag), Depends(guard.same_origin)],
)
_logger = logging.getLogger(__name__)


@router.post("/stop")
def stop(run: RunOfDagRun, user: GetUserDep) -> HTMLResponse:
    """Stop a run after the epoch in progress."""
    return _done(run, user.get_name(), "stop", action.stop(open_store(), run, by=user.get_name()))


@router.post("/resume")
def resume(run: RunOfDagRun, user: GetUserDep) -> HTMLResponse:
    """Let a stopped run go on."""
    return _done(run, user.get_name(), "resume", action.resume(open_store(), run, by=user.get_name()))


@router.post("/checkpoint")
def checkpoint(run: RunOfDagRun, user: GetUserDep) -> HTMLResponse:
    """Ask for a checkpoint."""
    return _done(run, user.get_name(), "checkpoint", action.checkpoint(open_store(), run, by=user.get_name()))


@router.post("/savepoint")
def savepoint_now(run: RunOfDagRun, user: GetUserDep, request_id: UUID | None = None) -> HTMLResponse:
    """Copy the checkpoint of the next epoch to a folder of its own; until it is there, the page asks again."""
    asked = str(request_id or uuid4())
    said = action.savepoint_now(open_store(), run, by=user.get_name(), request_id=asked)
    if said is not None:
        return _done(run, user.get_name(), "savepoint", said)
    here = run_page(run.run_id, run.run_key)
    return answer_page("waiting.html", again=f"{here}/savepoint?request_id={asked}", back=here, title=run.run_key)


@router.post("/checkpoints/{checkpoint_id}/savepoint")
def savepoint(run: RunOfDagRun, checkpoint_id: KnownCheckpoint, user: GetUserDep) -> HTMLResponse:
    """Copy a checkpoint to a folder of its own."""
    return _done(run, user.get_name(), "savepoint", action.savepoint(open_history(), run, checkpoint_id))


@router.post("/checkpoints/{checkpoint_id}/pin")
def pin(run: RunOfDagRun, checkpoint_id: KnownCheckpoint, user: GetUserDep) -> HTMLResponse:
    """Keep a checkpoint."""
    said = action.pin(open_store(), run, checkpoint_id, by=user.get_name())
    return _done(run, user.get_name(), "pin", said)


@router.post("/checkpoints/{checkpoint_id}/release")
def release(run: RunOfDagRun, checkpoint_id: KnownCheckpoint, user: GetUserDep) -> HTMLResponse:
    """Keep a checkpoint no longer."""
    return _done(run, user.get_name(), "release", action.release(open_store(), run, checkpoint_id))


@router.post("/plan")
def plan(run: RunOfDagRun) -> HTMLResponse:
    """Say what the next attempt would do."""
    planned = plan_of(run.run_id, store_url=reading_url(), dags_folder=conf.get("core", "dags_folder"))
    return answer_page("plan.html", plan=planned, back=run_page(run.run_id, run.run_key), title="Dry run")


def _done(run: RunRecord, by: str, what: str, said: str) -> HTMLResponse:
    _logger.info("event=run_acted action=%s run_id=%s by=%s", what, run.run_id, by)
    return answer_page("done.html", said=said, back=run_page(run.run_id, run.run_key), title=run.run_key)
