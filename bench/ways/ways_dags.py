"""Which DAGs does bench/airflow_ways.py run? K-means of the digits, from the same start, for as many epochs."""

from __future__ import annotations

import os
from pathlib import Path

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, chain

from iteration_lib.airflow import iteration_dag

FOLDER, EPOCHS = os.environ["WAYS_FOLDER"], int(os.environ["WAYS_EPOCHS"])
KMEANS = "iteration_lib.library.kmeans:kmeans"
PARAMS = {
    "input": f"{FOLDER}/points.parquet",
    "initial_centres": f"{FOLDER}/centres.parquet",
    "k": 10,
    "tolerance": 0.0,
    "max_epochs": EPOCHS,
}

with DAG("naive", schedule=None) as naive:
    epochs = [
        SparkSubmitOperator(
            task_id=f"e{epoch:03d}",
            application=str(Path(__file__).with_name("naive_epoch.py")),
            application_args=[
                PARAMS["input"],
                f"{FOLDER}/{{{{ run_id }}}}-{epoch}.parquet" if epoch else PARAMS["initial_centres"],
                f"{FOLDER}/{{{{ run_id }}}}-{epoch + 1}.parquet",
            ],
            conn_id="spark_default",
            conf={"spark.ui.enabled": "false"},
        )
        for epoch in range(EPOCHS)
    ]
    chain(*epochs)

submit = iteration_dag(KMEANS, dag_id="submit", params=PARAMS, epochs_per_task=EPOCHS)
watch = iteration_dag(KMEANS, dag_id="watch", params=PARAMS, run_epochs="watch")
connect = iteration_dag(KMEANS, dag_id="connect", params=PARAMS, run_epochs="connect")
