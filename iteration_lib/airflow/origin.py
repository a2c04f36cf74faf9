"""From which checkpoint does a DAG run's run start?

`start_from` says it: nothing (from the beginning), what `iteration branch` takes (RUN_KEY@CHECKPOINT, RUN_KEY for its
newest, a savepoint's folder), or `previous`: the last checkpoint of the predecessor, which is the DAG run of the same
DAG with the greatest earlier logical date in which the iteration was not skipped, by a branch of a larger DAG. It is
asked once, when the run is made: a retry, and a task that is cleared, find the run that there is.

In a DAG whose file says `previous`, Airflow itself holds a DAG run's first task back until its predecessor's tasks have
succeeded. What it lets through all the same (the first run of a backfill, a DAG run that somebody marked as a success)
is looked at here, and a predecessor that has not terminated is refused: its last checkpoint is not what it leaves. One
that a person has stopped leaves what it has. Which run it has opened Airflow knows until `airflow db clean`, and the
store beyond that, by its key, unless the DAG file gives that (`run_key=`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from airflow.sdk import TaskInstanceState

from iteration_lib.airflow.chain import first_epoch_of
from iteration_lib.airflow.parameter import MAX_EPOCHS, PREVIOUS, choose_data
from iteration_lib.airflow.task_state import find_task_state
from iteration_lib.branching import BranchRequest, branch_run
from iteration_lib.config import Settings
from iteration_lib.errors import UsageError
from iteration_lib.launch import Request
from iteration_lib.launch import open_run as find_or_create_run
from iteration_lib.protocol.status import RunStatus
from iteration_lib.store.opening import find_run
from iteration_lib.store.record import RunRecord
from iteration_lib.store.seam import StoreWithHistory

if TYPE_CHECKING:
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

_MOST_SKIPPED = 1000  # DAG runs that are looked past, with three questions to Airflow for each
_WAY_OUT = "or delete that DAG run, so that this one has another predecessor; then clear this task"


def begin_run(  # noqa: PLR0913  (what is asked of a DAG run, all but three by keyword)
    store: StoreWithHistory,
    settings: Settings,
    request: Request,
    *,
    start_from: str,
    start_data: str,
    max_epochs: int,
    task_instance: RuntimeTaskInstanceProtocol,
) -> RunRecord:
    """Return the run of this DAG run, made now if there is none; it has at most `max_epochs` epochs of its own.

    Where it is made from a checkpoint, `start_data` says what becomes of its data: "new", "kept", or "".
    Raises what `branch_run` and `open_run` raise for a user's mistake.
    """
    begun_by = f"{task_instance.dag_id}/{task_instance.run_id}"
    known = store.find_run(request.run_key)
    branch = store.find_branch(known.run_id) if known is not None else None
    is_previous = start_from == PREVIOUS
    if is_previous:
        start_from = _left_by_predecessor(store, request.run_key, task_instance) if known is None else ""
    if not start_from or (branch is not None and branch.branched_by == begun_by):
        begins_at = first_epoch_of(store, known) if known is not None else 0
        params = {**request.params, MAX_EPOCHS: begins_at + max_epochs}
        return find_or_create_run(store, settings, dataclasses.replace(request, params=params))
    branching = BranchRequest(
        checkpoint=start_from,
        run_key=request.run_key,
        branched_by=begun_by,
        reference=request.reference,
        params=request.params,
        more_epochs=max_epochs,
        state_uri=settings.state_uri,  # where this DAG's state goes, wherever its origin's is
        # each date has data of its own, also where its place is the same
        data=choose_data(start_data or None, or_else="leave it empty") or ("new" if is_previous else None),
    )
    return branch_run(store, settings, branching)


def _left_by_predecessor(store: StoreWithHistory, run_key: str, task_instance: RuntimeTaskInstanceProtocol) -> str:
    """Return what names the predecessor's last checkpoint, "" where there is no predecessor."""
    if task_instance.get_template_context()["dag_run"].logical_date is None:
        raise UsageError(
            "start_from is 'previous', but this DAG run has no logical date and so no predecessor; trigger the DAG "
            "with a logical date or, where its form has the field start_from, with RUN_KEY@CHECKPOINT in it or nothing"
        )
    for looked_past, dag_run_id in enumerate(_dag_runs_before(task_instance)):
        if looked_past == _MOST_SKIPPED:
            raise UsageError(
                f"of the {_MOST_SKIPPED} DAG runs before this one none has opened a run, for their iteration was "
                "skipped; name a checkpoint with start_from= in the DAG file, or leave it out to start from nothing"
            )
        opened = task_instance.xcom_pull(task_ids=task_instance.task_id, run_id=dag_run_id)
        if opened is not None:
            return _left_by(find_run(store, opened["run_id"]), dag_run_id=dag_run_id)
        state = find_task_state(task_instance.task_id, task_instance=task_instance, dag_run_id=dag_run_id)
        if state == TaskInstanceState.SKIPPED:
            continue
        key = _key_in(dag_run_id, run_key, task_instance)
        found = store.find_run(key) if key is not None else None
        if found is not None:
            return _left_by(found, dag_run_id=dag_run_id)
        known = "" if key is not None else " that Airflow still knows, and its key is not to be told from this one's"
        raise UsageError(
            f"the DAG run {dag_run_id} before this one has opened no run{known}; clear it and let it end, {_WAY_OUT}"
        )
    return ""


def _key_in(dag_run_id: str, run_key: str, task_instance: RuntimeTaskInstanceProtocol) -> str | None:
    """Return the key that a run has in another DAG run; None where the DAG file gives it, from what nobody knows."""
    own = f"{task_instance.dag_id}/{task_instance.run_id}"
    if not f"{run_key}/".startswith(f"{own}/"):
        return None
    return f"{task_instance.dag_id}/{dag_run_id}{run_key.removeprefix(own)}"


def _dag_runs_before(task_instance: RuntimeTaskInstanceProtocol) -> Iterator[str]:
    """Go back from one DAG run to the next earlier one; all but the first are those that have this task."""
    first = task_instance.get_previous_dagrun()
    if first is None:
        return
    yield first.run_id
    before = task_instance.get_previous_ti(logical_date=first.logical_date)
    while before is not None:
        yield before.run_id
        before = task_instance.get_previous_ti(logical_date=before.logical_date)


def _left_by(run: RunRecord, *, dag_run_id: str) -> str:
    if run.terminated_by is None and run.status is not RunStatus.STOPPED:
        raise UsageError(
            f"run {run.run_key!r} of the DAG run {dag_run_id} before this one is {run.status.value} with {run.epochs} "
            f"durable epochs and has not terminated; let it end, {_WAY_OUT}"
        )
    return run.run_id
