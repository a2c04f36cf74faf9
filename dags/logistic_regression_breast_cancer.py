"""Logistic regression on the Wisconsin breast cancer table, for at most `max_epochs` epochs."""

import os
from pathlib import Path

from airflow.sdk import task

from iteration_lib.airflow import iteration_dag

TABLE = Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser() / "data" / "breast_cancer.parquet"

with iteration_dag(
    "iteration_lib.library.logistic_regression:logistic_regression",
    dag_id="logistic_regression_breast_cancer",
    params={"input": str(TABLE), "l2": 0.01, "max_epochs": 50},
    epochs_per_task=25,
    tags=["iteration", "example"],
) as dag:

    @task
    def write_breast_cancer(path: str) -> None:
        """Write the example's input, once."""
        from iteration_lib.library import datasets  # noqa: PLC0415  (parsing a DAG needs no scikit-learn)

        if path == str(TABLE):
            datasets.write_breast_cancer(TABLE)

    write_breast_cancer("{{ params.input }}") >> dag.get_task("open_run")
