"""K-means of the UCI handwritten digits on Spark: ten centres, until none moves any more.

Its first task writes the digits to Parquet where nobody has given another input; every epochs task is one Spark
application through the connection `spark_default`.
"""

import os
from pathlib import Path

from airflow.sdk import task

from iteration_lib.airflow import iteration_dag

DIGITS = Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser() / "data" / "digits.parquet"

with iteration_dag(
    "iteration_lib.library.kmeans:kmeans",
    dag_id="kmeans_digits",
    params={"input": str(DIGITS), "k": 10, "seed": 1, "tolerance": 0.0001, "max_epochs": 60},
    epochs_per_task=20,
    tags=["iteration", "example"],
) as dag:

    @task
    def write_digits(path: str) -> None:
        """Write the example's input, once."""
        from iteration_lib.library import datasets  # noqa: PLC0415  (parsing a DAG needs no scikit-learn)

        if path == str(DIGITS):
            datasets.write_digits(DIGITS)

    write_digits("{{ params.input }}") >> dag.get_task("open_run")
