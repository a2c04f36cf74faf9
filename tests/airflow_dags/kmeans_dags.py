"""The example K-means, in plain Python, on a cluster that a test brings, and on a Spark Connect server."""

from iteration_lib.airflow import iteration_dag

REFERENCE = "iteration_lib.library.kmeans:kmeans"
PARAMS = {"input": "", "k": 10, "seed": 1, "max_epochs": 4}

local = iteration_dag(REFERENCE, dag_id="kmeans_local", params=PARAMS, epochs_per_task=4, runner="local")
on_cluster = iteration_dag(
    REFERENCE, dag_id="kmeans_on_cluster", params=PARAMS, epochs_per_task=4, conn_id="spark_cluster"
)
connected = iteration_dag(REFERENCE, dag_id="kmeans_connected", params=PARAMS, epochs_per_task=2, run_epochs="connect")
