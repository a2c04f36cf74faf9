"""The DAGs that the tests of Airflow run."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow.sdk import DAG, Context, Param, TriggerRule, task

from iteration_lib.airflow import StallAlert, iteration_dag, iteration_task_group

REFERENCE = "counting_team.counting:counting"
PARAMS = {"trace": "", "until": 100, "max_epochs": 8, "fails_in": -1, "holds_in": -1}


def tell(context: Context) -> None:
    """Write down why the run stalls."""
    with (Path(context["params"]["trace"]) / "stalled").open("a") as file:
        file.write(f"{context['reason']}\n")


def congratulate(context: Context) -> None:
    """Write down which task has succeeded."""
    with (Path(context["params"]["trace"]) / "succeeded").open("a") as file:
        file.write(f"{context['ti'].task_id}\n")


counting = iteration_dag(
    REFERENCE,
    params=PARAMS,
    runner="local",
    default_args={"retries": 0},
    epoch_options={"stall_alert": StallAlert(interval=timedelta(seconds=2), callback=tell)},
)
retried = iteration_dag(
    REFERENCE,
    dag_id="counting_retried",
    params={**PARAMS, "until": Param(100, type="integer", description="The last epoch of the run, by its criteria.")},
    epochs_per_task=4,
    runner="local",
    default_args={"retries": 3, "retry_delay": timedelta(seconds=1)},
)
on_spark = iteration_dag(
    REFERENCE,
    dag_id="counting_on_spark",
    params=PARAMS,
    epochs_per_task=4,
    default_args={"retries": 3, "retry_delay": timedelta(seconds=1)},
)
thirty = iteration_dag(
    REFERENCE,
    dag_id="counting_thirty",
    params={**PARAMS, "max_epochs": 30},
    runner="local",
    default_args={"retries": 0},
)
# Two epochs a day, of days that are over: nothing is scheduled, all is backfilled.
for dag_id in ("counting_daily", "counting_daily_failing"):
    iteration_dag(
        REFERENCE,
        dag_id=dag_id,
        params={**PARAMS, "until": "{{ 100 + logical_date.day }}", "max_epochs": 2},
        start_from="previous",
        epochs_per_task=2,
        schedule="@daily",
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        end_date=datetime(2026, 1, 31, tzinfo=UTC),
        catchup=False,
        runner="local",
        default_args={"retries": 0},
    )
with DAG("counting_in_two_groups", schedule=None, params={"trace": ""}, default_args={"retries": 0}):
    given = {"trace": "{{ params.trace }}", "until": "{{ dag_run.conf.until }}"}
    coarse = iteration_task_group("coarse", REFERENCE, params=given, max_epochs=4, runner="local")
    fine = iteration_task_group(
        "fine",
        REFERENCE,
        params={**given, "until": 100},
        start_from="{{ dag.dag_id }}/{{ run_id }}/coarse",
        max_epochs=2,
        epochs_per_task=2,
        runner="local",
    )
    coarse >> fine
with DAG("counting_in_one_arm", schedule=None, params={"trace": ""}, default_args={"retries": 0}):

    @task.branch
    def choose() -> str:
        """Have nothing trained."""
        return "leave_it"

    @task
    def leave_it() -> None:
        """Stand for the arm that is taken."""

    @task(trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS)
    def report() -> None:
        """Stand for what comes behind both."""

    given = {"trace": "{{ params.trace }}"}
    arms = [
        iteration_task_group(way, REFERENCE, params=given, max_epochs=2, runner="local", run_epochs=way)
        for way in ("submit", "watch")
    ]
    arms.append(leave_it())
    choose() >> arms >> report()
watched = iteration_dag(
    REFERENCE,
    dag_id="counting_watched",
    params=PARAMS,
    run_epochs="watch",
    runner="local",
    default_args={"retries": 0},
)
watched_in_one_slot = iteration_dag(
    REFERENCE,
    dag_id="counting_watched_in_one_slot",
    params=PARAMS,
    run_epochs="watch",
    runner="local",
    epoch_options={"pool": "one_slot"},
    default_args={"retries": 0},
)
watched_with_callbacks = iteration_dag(
    REFERENCE,
    dag_id="counting_watched_with_callbacks",
    params=PARAMS,
    run_epochs="watch",
    runner="local",
    epoch_options={"on_success_callback": congratulate},
    default_args={"retries": 0},
)
watched_on_spark = iteration_dag(
    REFERENCE,
    dag_id="counting_watched_on_spark",
    params=PARAMS,
    run_epochs="watch",
    spark_conf={"spark.ui.enabled": "true", "spark.ui.port": "0"},
    default_args={"retries": 3, "retry_delay": timedelta(seconds=1)},
)
connected = iteration_dag(
    REFERENCE,
    dag_id="counting_connected",
    params=PARAMS,
    run_epochs="connect",
    epochs_per_task=2,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=1)},
)
