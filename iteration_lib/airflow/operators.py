"""Which Airflow operators does an iteration's DAG consist of?

They hold what a DAG file says and hand it to `work` when they run: parsing a DAG must not import what running one
needs (pyspark, a database driver, the provider's hooks).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import BaseOperator, Context

from iteration_lib.airflow.chain import Action
from iteration_lib.airflow.interface import AirflowSkipException, DownstreamTasksSkipped, conf
from iteration_lib.airflow.parameter import read_form
from iteration_lib.airflow.spark_page import SparkLink

if TYPE_CHECKING:
    from pydantic import JsonValue

    from iteration_lib.airflow.stall import StallAlert
    from iteration_lib.airflow.work import RunningEpochs

_INJECTS_PARENT_JOB_INFO = conf.getboolean("openlineage", "spark_inject_parent_job_info", fallback=False)
_INJECTS_TRANSPORT_INFO = conf.getboolean("openlineage", "spark_inject_transport_info", fallback=False)


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

    template_fields: Sequence[str] = (
        *IterationOperator.template_fields,
        "state_uri",
        "start_from",
        "start_data",
        "run_params",
    )

    def __init__(
        self,
        *,
        run_params: Mapping[str, object],
        has_form: bool = False,
        start_from: str = "",
        start_data: str = "",
        longest: int | None = None,
        state_uri: str | None = None,
        **options: Any,  # noqa: ANN401  (IterationOperator's own)
    ) -> None:
        """Take the run's parameters, texts among them as templates; where the DAG `has_form`, its form has the say."""
        super().__init__(**options)
        self.run_params = dict(run_params)
        self.has_form = has_form
        self.start_from = start_from
        self.start_data = start_data
        self.longest = longest
        self.state_uri = state_uri

    def execute(self, context: Context) -> dict[str, object]:
        """Return what identifies the run, for whoever reads this task's XCom."""
        from iteration_lib.airflow import work  # noqa: PLC0415  (see the module's docstring)

        params = self.run_params
        if self.has_form:
            fields = context["dag"].params
            defaults = {name: fields.get_param(name).value for name in fields}  # a required field has none
            params = read_form(context["params"], defaults=defaults, rendered=self.run_params)
        return work.open_run(self, params=params, task_instance=context["ti"])


class EpochsOperator(IterationOperator):
    """Runs the epochs that it owns by its place in the chain, and succeeds only when the store calls them durable.

    Meanwhile `stall_alert` tells somebody when none becomes durable for too long. What OpenLineage is told of the Spark
    application is told as by the provider's SparkSubmitOperator, under the same names.
    """

    template_fields: Sequence[str] = (*IterationOperator.template_fields, "conn_id", "spark_conf")

    def __init__(  # noqa: PLR0913  (what a DAG's author may choose, all by keyword)
        self,
        *,
        first_epoch: int,
        end_epoch: int,
        runner: Literal["spark", "connect", "local"] = "spark",
        conn_id: str = "spark_default",
        spark_conf: Mapping[str, str] | None = None,
        stall_alert: StallAlert | None = None,
        openlineage_inject_parent_job_info: bool = _INJECTS_PARENT_JOB_INFO,
        openlineage_inject_transport_info: bool = _INJECTS_TRANSPORT_INFO,
        **options: Any,  # noqa: ANN401  (IterationOperator's own)
    ) -> None:
        super().__init__(**options)
        self.first_epoch = first_epoch
        self.end_epoch = end_epoch
        self.runner = runner
        self.conn_id = conn_id
        self.spark_conf = dict(spark_conf or {})
        self.stall_alert = stall_alert
        self.openlineage_inject_parent_job_info = openlineage_inject_parent_job_info
        self.openlineage_inject_transport_info = openlineage_inject_transport_info
        self.operator_extra_links = () if runner == "local" else (SparkLink(),)
        self._running: RunningEpochs | None = None

    @property
    def until_epoch(self) -> int:
        """The epoch before which it stops driving."""
        return self.end_epoch

    @property
    def spark_page(self) -> str:
        """Where Spark shows what this try did, once it has ended; empty where nothing does."""
        return self._running.page.address_afterwards if self._running is not None else ""

    def execute(self, context: Context) -> None:
        """Run the epochs; stop the chain when the run has terminated."""
        from iteration_lib.airflow import open_lineage, work  # noqa: PLC0415  (see the module's docstring)

        if self.runner == "spark":
            self.spark_conf = open_lineage.inject_lineage(
                self.spark_conf,
                context,
                parent_job_info=self.openlineage_inject_parent_job_info,
                transport_info=self.openlineage_inject_transport_info,
            )
        self._running = work.RunningEpochs(self, task_instance=context["ti"])
        with work.watch_for_stall(self, context):
            action = self._running.run()
        self._end(action)

    def _end(self, action: Action) -> None:
        """End the task as the store says of its epochs."""
        if action is Action.SKIP:
            raise AirflowSkipException("the run terminated before this task's epochs")
        if action is Action.HALT:
            raise AirflowSkipException(
                "the run was stopped before this task's epochs were durable; `iteration resume` lets it go on, "
                "then clear this task"
            )
        later = self.later_epochs()
        if action is Action.STOP and later:
            raise DownstreamTasksSkipped(tasks=later)  # type: ignore[no-untyped-call]  # Airflow annotates it not

    def later_epochs(self) -> list[str]:
        """Return the tasks behind this one that run epochs of the same run."""
        behind = [task for task in self.get_flat_relatives(upstream=False) if isinstance(task, EpochsOperator)]
        own = [task for task in behind if _group_of(task) == _group_of(self)]  # a DAG may have several iterations
        return [task.task_id for task in sorted(own, key=lambda task: task.first_epoch)]

    def on_kill(self) -> None:
        """End what runs the epochs; the run stays where it is durable."""
        if self._running is not None:
            self._running.kill()


class FollowEpochsOperator(EpochsOperator):
    """Succeeds when another task has made its epochs durable, and has no process while it waits for that.

    Its first try only follows, as long as nobody has cleared a task of its DAG run: a driving task that fails is not to
    be tried once more by the next one of the chain. Any other that begins when the driving task is over takes that
    task's place, and drives the run to its end where it has not come to it.
    """

    def __init__(
        self,
        *,
        driving_task_id: str,
        until_epoch: int,
        **options: Any,  # noqa: ANN401  (EpochsOperator's own)
    ) -> None:
        super().__init__(**options)
        self.driving_task_id = driving_task_id
        self._until_epoch = until_epoch

    @property
    def until_epoch(self) -> int:
        """The end of the run: whoever takes the driving task's place does all of its work."""
        return self._until_epoch

    def execute(self, context: Context) -> None:
        """Follow the driving task, or take its place."""
        from iteration_lib.airflow import following  # noqa: PLC0415  (see the module's docstring)

        task_instance = context["ti"]
        # One that was `upstream_failed` is cleared to its first try: marking a task as success does that, too.
        is_again = task_instance.try_number > 1 or bool(context["dag_run"].clear_number)
        if is_again and following.is_driving_over(self, task_instance=task_instance):
            super().execute(context)
        else:
            self.follow(context)

    def follow(self, context: Context, event: object = None) -> None:  # noqa: ARG002  (Airflow hands it over)
        """End as the store says of the epochs, or wait until there is something to say."""
        from iteration_lib.airflow import following, trigger  # noqa: PLC0415  (see the module's docstring)

        task_instance = context["ti"]
        action = following.follow_epochs(self, task_instance=task_instance)
        if action is Action.DRIVE:
            waiting = trigger.EpochsTrigger(
                run_key=self.run_key,
                store_conn_id=self.store_conn_id,
                first_epoch=self.first_epoch,
                end_epoch=self.end_epoch,
                dag_id=task_instance.dag_id,
                dag_run_id=task_instance.run_id,
                driving_task_id=self.driving_task_id,
                ends_itself=bool(self.on_success_callback or self.outlets),
            )
            self.defer(trigger=waiting, method_name="follow")
        self._end(action)


def _group_of(task: EpochsOperator) -> str:
    return task.task_id.rpartition(".")[0]


class FinishRunOperator(IterationOperator):
    """Publishes the outputs of a run that has terminated, and tells Airflow that its asset is new. Starts no Spark.

    It is skipped where the task that opens the run was: the whole group was, by a branch of a larger DAG. What a Spark
    Connect server keeps for the run ends with it.
    """

    template_fields: Sequence[str] = (*IterationOperator.template_fields, "connect_conn_id")

    def __init__(
        self,
        *,
        opening_task_id: str,
        connect_conn_id: str | None = None,
        **options: Any,  # noqa: ANN401  (IterationOperator's own)
    ) -> None:
        super().__init__(**options)
        self.opening_task_id = opening_task_id
        self.connect_conn_id = connect_conn_id

    def execute(self, context: Context) -> dict[str, JsonValue]:
        """Return what was published."""
        from iteration_lib.airflow import work  # noqa: PLC0415  (see the module's docstring)

        published = work.finish_run(self, task_instance=context["ti"])
        for asset in self.outlets:
            context["outlet_events"][asset].extra = published
        return published
