"""Which run, and which checkpoint, does an address mean? It is asked behind the guards alone."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Depends, Request

from iteration_lib.errors import CheckpointNotFoundError, IterationError
from iteration_lib.store.record import RunRecord
from iteration_ui.stores import open_history


class NothingToShowError(IterationError):
    """There is no run at this address, or none yet, or none any more."""


def run_key_of(request: Request) -> str:
    """Return the key that an address names: of a DAG run, or of one of its task groups."""
    named = request.path_params
    return "/".join(named[part] for part in ("dag_id", "dag_run_id", "group") if part in named)


def run_of_dag_run(request: Request) -> RunRecord:
    """Return the run of a DAG run, or of a task group, by its key alone: it may be another run's id."""
    run_key = run_key_of(request)
    run = open_history().find_run(run_key)
    if run is None or run.run_key != run_key:
        raise NothingToShowError(
            "This DAG run has no iteration: its task open_run has opened none yet, or somebody has deleted it; or the "
            "DAG gives it a key or a store of its own, and it has no page here."
        )
    return run


def run_without_dag(run_id: UUID) -> RunRecord:
    """Return a run that no DAG started, by its id."""
    run = open_history().find_run(str(run_id))
    if run is None or run.run_id != str(run_id) or "/" in run.run_key:
        raise NothingToShowError("There is no run of this id that was started without a DAG.")
    return run


RunOfDagRun = Annotated[RunRecord, Depends(run_of_dag_run)]


def known_checkpoint(run: RunOfDagRun, checkpoint_id: int) -> int:
    """Return the id of a checkpoint that a run has or had; raises CheckpointNotFoundError."""
    if not 0 < checkpoint_id <= run.last_checkpoint_id:
        raise CheckpointNotFoundError(run.run_id, checkpoint_id, last=run.last_checkpoint_id)
    return checkpoint_id


KnownCheckpoint = Annotated[int, Depends(known_checkpoint)]
