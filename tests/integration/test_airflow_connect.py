"""How a run behaves on real Airflow whose epoch tasks are clients of a warm Spark Connect server."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import psutil
import pytest

from iteration_lib.runner.node_cache import scope_of_run
from tests.command_line import PROJECT
from tests.failover.driven import wait_until
from tests.fixture.airflow import CONNECT_PAGE, DAGS, WHOLE, AirflowSite, bodies, state_digest
from tests.fixture.spark import SPARK_VARIABLE
from tests.size import nightly

pytestmark = [pytest.mark.airflow, pytest.mark.postgres, pytest.mark.spark]

CONNECTED = "counting_connected"


def test_task_that_is_killed_on_a_connect_server_resumes_by_its_retry_to_the_bits_of_every_other_way(
    airflow: AirflowSite, spark_connect: str, tmp_path: Path, undisturbed: str
) -> None:
    dag_run_id = airflow.trigger(CONNECTED, trace=str(tmp_path), holds_in=5)
    wait_until((tmp_path / "held").exists, "epoch 5")

    attempt = airflow.live_attempt(f"{CONNECTED}/{dag_run_id}")
    run = airflow.store.find_run(f"{CONNECTED}/{dag_run_id}")
    assert run is not None
    cached = [path.stat().st_mtime for path in cached_buckets(run.run_id)]
    client = psutil.Process(attempt.holder.pid)
    # Airflow lets nobody but root look into a task's process: that somebody is connected is what all may see.
    ports = {connection.raddr.port for connection in psutil.net_connections() if connection.raddr}
    client.kill()
    (tmp_path / "released").touch()
    ended = airflow.wait(CONNECTED, dag_run_id)

    assert airflow.connect_port in ports
    assert CONNECT_PAGE == airflow.links(CONNECTED, dag_run_id, "epochs.e004")["Spark UI"]
    assert ("success", 2) == (ended.state, ended.tries["epochs.e004"])
    assert WHOLE + Counter(["added 5"]) == bodies(tmp_path)
    assert undisturbed == state_digest(airflow, ended)
    assert not has_session(airflow, spark_connect, ended.run_key)
    assert {True} == {written < attempt.started_at.timestamp() for written in cached}  # by a task before
    assert [] == cached_buckets(run.run_id)


def cached_buckets(run_id: str) -> list[Path]:
    """Return the files in which this machine holds buckets of a run's data, for the Connect server's workers."""
    return list(Path(tempfile.gettempdir()).glob(f"iteration-cache-*/{scope_of_run(run_id)}-*/bucket-*.arrow"))


def has_session(airflow: AirflowSite, server: str, run_key: str) -> bool:
    """Tell whether the server would let the run go on in a session that was not ended."""
    run = airflow.store.find_run(run_key)
    assert run is not None
    asking = f"import sys, uuid\nsys.path.append({str(DAGS)!r})\n"
    asking += "from iteration_lib.runner.code_shipping import digest_code as digest\n"
    asking += "from iteration_lib.runner.spark_session import open_warm_session as warm\n"
    asking += f"key = {run.run_id!r} + '/' + digest({run.reference!r})\n"
    asking += f"spark = warm({server!r}, 'tests', key=key)\n"
    asking += "print(spark.session_id == str(uuid.uuid5(uuid.NAMESPACE_OID, key)))"
    return ask(asking) == ["True"]


def test_session_with_a_key_is_there_for_the_next_process_until_it_is_stopped(spark_connect: str) -> None:
    opening = "from iteration_lib.runner.spark_session import open_warm_session as warm\n"
    opening += f"spark = warm({spark_connect!r}, 'tests', key='mine')\n"

    put = ask(opening + "spark.range(3).createTempView('kept')\nprint(spark.session_id)")
    found = ask(opening + "print(spark.session_id, spark.table('kept').count())\nspark.stop()")
    after = ask(opening + "print(spark.session_id, spark.catalog.tableExists('kept'))")

    assert [put[0], "3"] == found
    assert "False" == after[1]
    assert put[0] != after[0]


def ask(program: str) -> list[str]:
    """Return the words that a program prints, in a process of its own."""
    ended = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert 0 == ended.returncode, ended.stderr
    return ended.stdout.split()


@nightly("a run is driven on the server on every change")
def test_runner_keeps_its_whole_contract_on_a_connect_server(spark_connect: str) -> None:
    """In a process of its own: one that has a classic session can have no other."""
    suite = [f"tests/contract/test_runner{name}.py" for name in ("", "_parts", "_holding")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "spark", *suite]
    environment = {**os.environ, SPARK_VARIABLE: spark_connect}

    ended = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)

    assert 0 == ended.returncode, ended.stdout
    assert "skipped" not in ended.stdout
