"""Does the same DAG run on a Spark cluster, and on a Connect server, as it does in plain Python?"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from iteration_lib.library.datasets import write_digits
from tests.fixture.airflow import CONNECT_PAGE, HISTORY, AirflowSite, state_digest

pytestmark = [pytest.mark.airflow, pytest.mark.postgres, pytest.mark.spark]


@pytest.fixture
def connection(airflow: AirflowSite, cluster: str) -> None:
    """Tell Airflow of the cluster, as its form of connections does."""
    master = urlsplit(cluster)
    fields = {"conn_type": "spark", "host": f"spark://{master.hostname}", "port": master.port}
    airflow.api.call("POST", "connections", json={"connection_id": "spark_cluster", **fields})


@pytest.mark.usefixtures("connection", "spark_connect")
def test_kmeans_on_a_cluster_of_two_workers_and_on_a_connect_server_ends_as_in_plain_python_to_the_bit(
    airflow: AirflowSite, cluster: str, tmp_path: Path
) -> None:
    digits = str(write_digits(tmp_path / "digits.parquet"))

    dag_run_id = airflow.trigger("kmeans_on_cluster", input=digits)
    connected = airflow.wait("kmeans_connected", airflow.trigger("kmeans_connected", input=digits))
    local = airflow.run("kmeans_local", input=digits)
    ended = airflow.wait("kmeans_on_cluster", dag_run_id)

    log = airflow.api.log("kmeans_on_cluster", dag_run_id, "epochs.e000", try_number=1)
    started = re.search(r"application_id=(app-\S+) ui=http://\S+:\d+", log)
    links = [airflow.links(known.dag_id, known.dag_run_id, "epochs.e000") for known in (connected, ended)]
    assert ["success"] * 3 == [known.state for known in (local, connected, ended)]
    assert f"--master {cluster}" in log
    assert started is not None
    assert [CONNECT_PAGE, f"{HISTORY}/history/{started[1]}/jobs/"] == [link["Spark UI"] for link in links]
    assert 1 == len({state_digest(airflow, known) for known in (local, connected, ended)})
