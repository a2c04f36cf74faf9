"""Where does a task of an iteration's DAG link to? To its epoch in the tab of the DAG run.

The API server makes the link when it is looked at, so it is there while the task runs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from airflow.sdk import BaseOperator, BaseOperatorLink

from iteration_lib.airflow.operators import EpochsOperator, FollowEpochsOperator
from iteration_lib.airflow.task_group import RUN_KEY
from iteration_ui.address import tab_path

if TYPE_CHECKING:
    from airflow.sdk.types import TaskInstanceKey

_FIRST_EPOCH = re.compile(r"(?:^|\.)e(\d+)$")  # a task is named by the first epoch that it owns


class EpochLink(BaseOperatorLink):
    """The link of a task that runs epochs."""

    operators: ClassVar[list[type[BaseOperator]]] = [EpochsOperator, FollowEpochsOperator]

    @property
    def name(self) -> str:
        """What the link is called."""
        return "Epoch"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the tab's address, with the task's group and first epoch as its fragment."""
        return epoch_path(ti_key.dag_id, ti_key.run_id, ti_key.task_id, run_key=getattr(operator, "run_key", RUN_KEY))


def epoch_path(dag_id: str, dag_run_id: str, task_id: str, *, run_key: str) -> str:
    """Return where a task's epoch is shown; the tasks of a branch count from its own first one.

    `run_key` is the DAG's template: that of a task group ends with its id, and no page shows a run of any other one.
    """
    if not f"{run_key}/".startswith(f"{RUN_KEY}/"):
        return ""
    named = _FIRST_EPOCH.search(task_id)
    group = run_key.removeprefix(RUN_KEY).removeprefix("/")
    fragment = "/".join([*([group] if group else []), *([f"epoch-{int(named[1])}"] if named else [])])
    return tab_path(dag_id, dag_run_id) + (f"#{fragment}" if fragment else "")
