"""Which Spark application runs a task's epochs?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from iteration_lib import application
from iteration_lib.application import PARENT_PID_VARIABLE, TASK_VARIABLE
from iteration_lib.config import STORE_URL_VARIABLE, TERMINATION_GRACE_VARIABLE

if TYPE_CHECKING:
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

    from iteration_lib.airflow.operators import EpochsOperator
    from iteration_lib.store.record import RunRecord

GRACE_SECONDS = 3  # for a driver; Airflow kills a task that takes longer to end than five, whatever a pod would have


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskIdentity:
    """One try of one Airflow task instance."""

    dag_id: str
    dag_run_id: str
    task_id: str
    map_index: int
    try_number: int

    @classmethod
    def of(cls, task_instance: RuntimeTaskInstanceProtocol) -> Self:
        """Return the identity of a running task instance."""
        return cls(
            dag_id=task_instance.dag_id,
            dag_run_id=task_instance.run_id,
            task_id=task_instance.task_id,
            map_index=-1 if task_instance.map_index is None else task_instance.map_index,
            try_number=task_instance.try_number,
        )

    def describe(self) -> str:
        """Return it in one word, as attempts are recorded: dag/dag_run/task/try."""
        return f"{self.dag_id}/{self.dag_run_id}/{self.task_id}/{self.try_number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One Spark application. `environment` is the driver's alone: what is secret travels there and nowhere else."""

    application: Path
    arguments: tuple[str, ...]
    name: str
    conn_id: str
    conf: Mapping[str, str]
    environment: Mapping[str, str]


def make_submission(
    operator: EpochsOperator, run: RunRecord, *, identity: TaskIdentity, store_url: str | None, run_begins_at: int = 0
) -> Submission:
    """Return the application that drives a run, which begins with some epoch, up to where the operator drives it."""
    first, end = run_begins_at + operator.first_epoch, run_begins_at + operator.until_epoch
    epochs = f"epoch {first}" if end == first + 1 else f"epochs {first}-{end - 1}"
    return Submission(
        application=Path(application.__file__),
        arguments=(run.run_id, "--until-epoch", str(end)),
        name=f"{run.run_key} {epochs} (run {run.run_id})",
        conn_id=operator.conn_id,
        conf=operator.spark_conf,
        environment={
            STORE_URL_VARIABLE: store_url or "",
            PARENT_PID_VARIABLE: str(os.getpid()),
            TASK_VARIABLE: identity.describe(),
            TERMINATION_GRACE_VARIABLE: str(GRACE_SECONDS),
        },
    )
