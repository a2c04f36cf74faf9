"""Does the same DAG run on a Spark cluster, through a connection, as it does in plain Python?"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from iteration_lib.library.datasets import write_digits
from tests.fixture.airflow import HISTORY, AirflowSite

pytestmark = [pytest.mark.airflow, pytest.mark.postgres, pytest.mark.spark]


@pytest.fixture
def connection(airflow: AirflowSite, cluster: str) -> None:
    """Tell Airflow of the cluster, as its form of connections does."""
    master = urlsplit(cluster)
    fields = {"conn_type": "spark", "host": f"spark://{master.hostname}", "port": master.port}
    airflow.api.call("POST", "connections", json={"connection_id": "spark_cluster", **fields})


@pytest.mark.usefixtures("connection")
def test_kmeans_on_a_cluster_of_two_workers_ends_as_in_plain_python_to_the_bit(
    airflow: AirflowSite, cluster: str, tmp_path: Path
) -> None:
    digits = str(write_digits(tmp_path / "digits.parquet"))

    dag_run_id = airflow.trigger("kmeans_on_cluster", input=digits)
    local = airflow.run("kmeans_local", input=digits)
    ended = airflow.wait("kmeans_on_cluster", dag_run_id)

    log = airflow.api.log("kmeans_on_cluster", dag_run_id, "epochs.e000", try_number=1)
    started = re.search(r"application_id=(app-\S+) ui=http://\S+:\d+", log)
    link = airflow.links("kmeans_on_cluster", dag_run_id, "epochs.e000")["Spark UI"]
    runs = [airflow.store.find_run(key) for key in (local.run_key, ended.run_key)]
    digests = [run.state_digest for run in runs if run is not None]
    assert ("success", "success") == (local.state, ended.state)
    assert f"--master {cluster}" in log
    assert started is not None
    assert f"{HISTORY}/history/{started[1]}/jobs/" == link
    assert (2, 1) == (len(digests), len(set(digests)))
    assert None not in digests
