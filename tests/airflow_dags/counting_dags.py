"""The DAGs that the tests of Airflow run."""

from datetime import timedelta

from iteration_lib.airflow import iteration_dag

REFERENCE = "counting_team.counting:counting"
PARAMS = {"trace": "", "until": 100, "max_epochs": 8, "fails_in": -1, "holds_in": -1}

counting = iteration_dag(REFERENCE, params=PARAMS, runner="local", default_args={"retries": 0})
retried = iteration_dag(
    REFERENCE,
    dag_id="counting_retried",
    params=PARAMS,
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
watched = iteration_dag(
    REFERENCE,
    dag_id="counting_watched",
    params=PARAMS,
    run_epochs="watch",
    runner="local",
    default_args={"retries": 0},
)
watched_on_spark = iteration_dag(
    REFERENCE,
    dag_id="counting_watched_on_spark",
    params=PARAMS,
    run_epochs="watch",
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
