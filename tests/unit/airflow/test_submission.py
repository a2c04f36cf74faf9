"""What is submitted for a task's epochs, and what stays out of sight."""

from __future__ import annotations

import dataclasses
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from iteration_lib.airflow.driver_process import DriverProcess, spark_environment
from iteration_lib.airflow.operators import EpochsOperator
from iteration_lib.airflow.submission import Submission, TaskIdentity, make_submission
from iteration_lib.airflow.work import RunningEpochs
from iteration_lib.errors import ConnectionNotFoundError, ExecutionLostError, UsageError
from tests.failover.driven import wait_until
from tests.unit.plugin.test_page import RUN

pytestmark = pytest.mark.airflow
SECRET = "postgresql://user:hidden-word@db/iteration"
IDENTITY = TaskIdentity(dag_id="kmeans", dag_run_id="manual", task_id="epochs.e010", map_index=-1, try_number=2)


def _operator() -> EpochsOperator:
    return EpochsOperator(
        task_id="e010",
        reference="my_team.kmeans:kmeans",
        run_key="kmeans/manual",
        first_epoch=10,
        end_epoch=20,
        spark_conf={"spark.executor.memory": "2g"},
    )


def _submission() -> Submission:
    return make_submission(_operator(), RUN, identity=IDENTITY, store_url=SECRET)


def test_driver_gets_the_run_and_the_end_of_its_epochs_as_arguments() -> None:
    assert ("0b5c", "--until-epoch", "20") == _submission().arguments
    assert "application.py" == _submission().application.name
    assert _submission().application.is_file()


def test_stores_address_is_in_the_environment_and_nowhere_else() -> None:
    submission = _submission()

    assert {
        "ITERATION_STORE_URL": SECRET,
        "ITERATION_PARENT_PID": str(os.getpid()),
        "ITERATION_TASK": "kmeans/manual/epochs.e010/2",
        "ITERATION_TERMINATION_GRACE_SECONDS": "3",
    } == submission.environment
    assert "hidden-word" not in f"{submission.arguments} {submission.name} {submission.conf}"


def test_name_tells_the_run_and_its_epochs() -> None:
    assert "kmeans/manual epochs 10-19 (run 0b5c)" == _submission().name


def test_epochs_of_a_run_that_began_behind_a_checkpoint_are_counted_from_there() -> None:
    submission = make_submission(_operator(), RUN, identity=IDENTITY, store_url=SECRET, run_begins_at=5)

    assert ("0b5c", "--until-epoch", "25") == submission.arguments
    assert "kmeans/manual epochs 15-24 (run 0b5c)" == submission.name


def test_spark_is_found_beside_this_python_and_what_the_user_set_stays() -> None:
    found = spark_environment({"PATH": "/usr/bin", "SPARK_HOME": "/opt/spark", "PYSPARK_PYTHON": "/opt/python"})

    assert ("/opt/spark", "/opt/python", sys.executable) == (
        found["SPARK_HOME"],
        found["PYSPARK_PYTHON"],
        found["PYSPARK_DRIVER_PYTHON"],
    )
    assert f"/opt/spark/bin:{Path(sys.executable).parent}:/usr/bin" == found["PATH"]


def test_driver_finds_the_modules_that_the_task_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))

    folders = spark_environment({"PATH": os.environ["PATH"], "PYTHONPATH": "/mine"})["PYTHONPATH"].split(os.pathsep)

    assert (str(tmp_path), "/mine") == (folders[0], folders[-1])
    assert not [folder for folder in folders if folder.endswith("site-packages")]


def test_missing_spark_connection_is_named_and_never_means_yarn() -> None:
    with pytest.raises(ConnectionNotFoundError, match=r"no connection 'spark_default', .*; add it"):
        DriverProcess(_submission())


@pytest.mark.parametrize(
    ("extra", "conf"),
    [
        pytest.param('{"deploy-mode": "cluster"}', {}, id="the connection"),
        pytest.param("{}", {"spark.submit.deployMode": "cluster"}, id="spark_conf"),
    ],
)
def test_cluster_deploy_mode_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, extra: str, conf: dict[str, str]
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", f'{{"conn_type": "spark", "host": "yarn", "extra": {extra}}}')

    with pytest.raises(UsageError, match=r"deploy mode cluster.*use client mode"):
        DriverProcess(dataclasses.replace(_submission(), conf=conf)).run()


def test_client_mode_is_asked_for_whatever_the_cluster_has_as_its_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fake_spark(tmp_path, 'echo "$@" > "$SPARK_HOME/arguments"')
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "yarn"}')

    DriverProcess(_submission()).run(environ={**os.environ, "SPARK_HOME": str(tmp_path)})

    assert "--conf spark.submit.deployMode=client" in (tmp_path / "arguments").read_text()


@pytest.mark.parametrize(("code", "error"), [(2, UsageError), (1, ExecutionLostError), (3, ExecutionLostError)])
def test_drivers_exit_code_says_whether_a_retry_would_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, error: type[Exception]
) -> None:
    _fake_spark(tmp_path, f'echo "the reason"; exit {code}')
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[1]"}')
    process = DriverProcess(_submission())

    with pytest.raises(error, match="the reason"):
        process.run(environ={**os.environ, "SPARK_HOME": str(tmp_path)})


def test_drivers_python_is_told_to_end_alone_and_has_its_launcher_for_as_long_as_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it computed it captures through the JVM."""
    application = tmp_path / "driver.py"
    application.write_text(
        "import signal, sys, time\nfrom pathlib import Path\nhere = Path(sys.argv[1])\n"
        "def end(*_):\n    (here / 'captured').touch()\n    sys.exit(143)\n"
        "signal.signal(signal.SIGTERM, end)\n(here / 'ready').touch()\ntime.sleep(60)\n"
    )
    _fake_spark(tmp_path, f"trap 'touch {tmp_path}/launcher_told' TERM; {sys.executable} {application} {tmp_path}")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[1]"}')
    process = DriverProcess(dataclasses.replace(_submission(), application=application))

    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(process.run, environ={**os.environ, "SPARK_HOME": str(tmp_path)})
        wait_until((tmp_path / "ready").exists, "the driver")
        process.on_kill()
        error = run.exception()

    assert isinstance(error, ExecutionLostError)
    assert (True, False) == ((tmp_path / "captured").exists(), (tmp_path / "launcher_told").exists())


def test_task_that_is_told_to_end_before_it_has_a_driver_starts_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[1]"}')

    with pytest.raises(SystemExit) as caught:
        DriverProcess(_submission()).on_kill()

    assert 143 == caught.value.code


def test_task_that_drives_by_itself_ends_like_a_program_that_is_told_to() -> None:
    """By an exit the epochs capture what they have computed, and the run has not failed."""
    identity = SimpleNamespace(dag_id="kmeans", run_id="manual", task_id="e010", map_index=-1, try_number=1)

    with pytest.raises(SystemExit) as caught:
        RunningEpochs(_operator(), task_instance=identity).kill()

    assert 143 == caught.value.code


def _fake_spark(home: Path, script: str) -> None:
    """Put a spark-submit there that runs a shell script: the seam to a foreign program, not to our own code."""
    (home / "bin").mkdir()
    submit = home / "bin" / "spark-submit"
    submit.write_text(f"#!/bin/sh\n{script}\n")
    submit.chmod(0o755)
