"""In which state is another task, of the same DAG run or of another one of its DAG?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import TaskInstanceState

if TYPE_CHECKING:
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

OVER = tuple(
    state.value
    for state in (
        TaskInstanceState.SUCCESS,
        TaskInstanceState.FAILED,
        TaskInstanceState.UPSTREAM_FAILED,
        TaskInstanceState.SKIPPED,
        TaskInstanceState.REMOVED,
    )
)  # a task in any other state will still run, or is running


def find_task_state(
    task_id: str, *, task_instance: RuntimeTaskInstanceProtocol, dag_run_id: str | None = None
) -> str | None:
    """Return the state as Airflow has it now; None where the task waits for others."""
    dag_run_id = dag_run_id or task_instance.run_id
    found = task_instance.get_task_states(dag_id=task_instance.dag_id, task_ids=[task_id], run_ids=[dag_run_id])
    state = found.get(dag_run_id, {}).get(task_id)
    return str(state) if state is not None else None
