"""Which run does an address mean? It is asked behind the guards alone."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Depends, Request

from iteration_lib.errors import IterationError
from iteration_lib.store.record import RunRecord
from iteration_ui.stores import open_history


class NothingToShowError(IterationError):
    """There is no run at this address, or none yet."""


def run_of_dag_run(request: Request, dag_id: str, dag_run_id: str) -> RunRecord:
    """Return the run of a DAG run, or of the task group that the address names.

    It is found by its key alone: what was asked for may be another run's id.
    """
    group = request.path_params.get("group")
    run_key = "/".join([dag_id, dag_run_id, *([group] if group is not None else [])])
    run = open_history().find_run(run_key)
    if run is None or run.run_key != run_key:
        raise NothingToShowError(
            "This DAG run has opened no iteration yet; its task open_run does. One to which the DAG gives a key or a "
            "store of its own has no page here."
        )
    return run


def run_without_dag(run_id: UUID) -> RunRecord:
    """Return a run that no DAG started, by its id."""
    run = open_history().find_run(str(run_id))
    if run is None or run.run_id != str(run_id) or "/" in run.run_key:
        raise NothingToShowError("There is no run of this id that was started without a DAG.")
    return run


RunOfDagRun = Annotated[RunRecord, Depends(run_of_dag_run)]
