"""Which Airflow operators does an iteration's DAG consist of?

They hold what a DAG file says and hand it to `work` when they run: parsing a DAG must not import what running one
needs (pyspark, a database driver, the provider's hooks).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import BaseOperator, Context

from iteration_lib.airflow.chain import Action
from iteration_lib.airflow.interface import AirflowSkipException, DownstreamTasksSkipped

if TYPE_CHECKING:
    from pydantic import JsonValue

    from iteration_lib.airflow.work import RunningEpochs


class IterationOperator(BaseOperator):
    """What the three have in common: which run, in which store."""

    template_fields: Sequence[str] = ("run_key", "store_conn_id")
    ui_color = "#e8f1fb"

    def __init__(
        self,
        *,
        reference: str,
        run_key: str,
        store_conn_id: str | None = None,
        **options: Any,  # noqa: ANN401  (BaseOperator's own)
    ) -> None:
        super().__init__(**options)
        self.reference = reference
        self.run_key = run_key
        self.store_conn_id = store_conn_id


class OpenRunOperator(IterationOperator):
    """Creates the run, or finds the one that an earlier try created; checks everything that can be checked first."""

    template_fields: Sequence[str] = (*IterationOperator.template_fields, "state_uri")

    def __init__(
        self,
        *,
        state_uri: str | None = None,
        longest: int | None = None,
        **options: Any,  # noqa: ANN401  (IterationOperator's own)
    ) -> None:
        super().__init__(**options)
        self.state_uri = state_uri
        self.longest = longest

    def execute(self, context: Context) -> dict[str, object]:
        """Return what identifies the run, for whoever reads this task's XCom."""
        from iteration_lib.airflow import work  # noqa: PLC0415  (see the module's docstring)

        return work.open_run(self, params=dict(context["params"]))


class EpochsOperator(IterationOperator):
    """Runs the epochs that it owns by its place in the chain, and succeeds only when the store calls them durable."""

    template_fields: Sequence[str] = (*IterationOperator.template_fields, "conn_id", "spark_conf")

    def __init__(
        self,
        *,
        first_epoch: int,
        end_epoch: int,
        runner: Literal["spark", "local"] = "spark",
        conn_id: str = "spark_default",
        spark_conf: Mapping[str, str] | None = None,
        **options: Any,  # noqa: ANN401  (IterationOperator's own)
    ) -> None:
        super().__init__(**options)
        self.first_epoch = first_epoch
        self.end_epoch = end_epoch
        self.runner = runner
        self.conn_id = conn_id
        self.spark_conf = dict(spark_conf or {})
        self._running: RunningEpochs | None = None

    def execute(self, context: Context) -> None:
        """Run the epochs; stop the chain when the run has terminated."""
        from iteration_lib.airflow import work  # noqa: PLC0415  (see the module's docstring)

        self._running = work.RunningEpochs(self, task_instance=context["ti"])
        action = self._running.run()
        if action is Action.SKIP:
            raise AirflowSkipException(f"the run terminated before epoch {self.first_epoch}")
        if action is Action.HALT:
            raise AirflowSkipException(
                f"the run was stopped before epoch {self.end_epoch - 1} was durable; `iteration resume` lets it go on, "
                "then clear this task"
            )
        later = self.later_epochs()
        if action is Action.STOP and later:
            raise DownstreamTasksSkipped(tasks=later)  # type: ignore[no-untyped-call]  # Airflow annotates it not

    def later_epochs(self) -> list[str]:
        """Return the tasks behind this one that run epochs of the same run."""
        behind = [task for task in self.get_flat_relatives(upstream=False) if isinstance(task, EpochsOperator)]
        return [task.task_id for task in sorted(behind, key=lambda task: task.first_epoch)]

    def on_kill(self) -> None:
        """End what runs the epochs; the run stays where it is durable."""
        if self._running is not None:
            self._running.kill()


class FinishRunOperator(IterationOperator):
    """Publishes the outputs of a run that has terminated, and tells Airflow that its asset is new. Starts no Spark."""

    def execute(self, context: Context) -> dict[str, JsonValue]:
        """Return what was published."""
        from iteration_lib.airflow import work  # noqa: PLC0415  (see the module's docstring)

        published = work.finish_run(self, task_instance=context["ti"])
        for asset in self.outlets:
            context["outlet_events"][asset].extra = published
        return published
