"""A task that is killed under Airflow, with or without its supervisor: Spark ends too, and the retry resumes.

The run is held inside epoch 5 by a latch in its operator, in the second of its two tasks, on real Spark.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import psutil
import pytest

from iteration_lib.protocol.status import AttemptOutcome
from iteration_lib.store.record import AttemptRecord
from tests.failover.driven import is_over, wait_until
from tests.fixture.airflow import AirflowSite, DagRun, wait_for

pytestmark = [pytest.mark.airflow, pytest.mark.postgres]

DAG_ID = "counting_on_spark"
IN_PLAIN_PYTHON = "counting_retried"  # the same iteration
_IS_NIGHTLY = os.environ.get("ITERATION_TEST_SIZE") == "nightly"
WITH_SUPERVISOR = {"task": False, **({"task+supervisor": True} if _IS_NIGHTLY else {})}


def result(airflow: AirflowSite, ended: DagRun) -> tuple[str, str | None]:
    """Return how a DAG run ended, and its run's state digest."""
    run = airflow.store.find_run(ended.run_key)
    return ended.state, run.state_digest if run is not None else None


def bodies(trace: Path) -> Counter[str]:
    """Count how often each body ran."""
    return Counter((trace / "bodies").read_text().splitlines())


@pytest.fixture(scope="module")
def undisturbed(airflow: AirflowSite, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the state digest of the DAG run that nobody disturbs, which is the plain-Python runner's."""
    trace = tmp_path_factory.mktemp("undisturbed")
    state, digest = result(airflow, airflow.run(IN_PLAIN_PYTHON, trace=str(trace)))
    assert state == "success"
    assert digest is not None
    assert bodies(trace) == Counter(["largest", *(f"added {epoch}" for epoch in range(8))])
    return digest


@pytest.mark.parametrize("with_supervisor", WITH_SUPERVISOR.values(), ids=WITH_SUPERVISOR)
def test_a_killed_task_takes_spark_with_it_and_its_retry_resumes_to_the_same_bits(
    airflow: AirflowSite, tmp_path: Path, undisturbed: str, *, with_supervisor: bool
) -> None:
    """Durable epochs and the operator that is finished for good do not run again; nothing is left running."""
    dag_run_id = airflow.trigger(DAG_ID, trace=str(tmp_path), holds_in=5)
    wait_until((tmp_path / "held").exists, "epoch 5")
    driver = psutil.Process(airflow.live_attempt(f"{DAG_ID}/{dag_run_id}").holder.pid)
    jvm = driver.parent()
    task = psutil.Process(int(driver.environ()["ITERATION_PARENT_PID"]))
    supervisor = task.parent()
    assert jvm is not None
    assert supervisor is not None
    assert (jvm.name(), driver.is_running()) == ("java", True)

    for process in [supervisor, task] if with_supervisor else [task]:
        process.kill()

    for what, process in {"the driver": driver, "its JVM": jvm}.items():
        wait_until(lambda process=process: is_over(process), f"{what}'s end", timeout_seconds=40)
    assert bodies(tmp_path) == Counter(["largest", *(f"added {epoch}" for epoch in range(6))])
    (tmp_path / "released").touch()

    ended = airflow.wait(DAG_ID, dag_run_id)

    assert result(airflow, ended) == ("success", undisturbed)
    assert ended.tries["epochs.e004"] >= 2
    assert bodies(tmp_path) == Counter(["largest", "added 5", *(f"added {epoch}" for epoch in range(8))])


def test_a_try_that_outlived_its_supervisor_ends_with_its_spark_once_its_retry_has_the_run(
    airflow: AirflowSite, tmp_path: Path, undisturbed: str
) -> None:
    """Airflow counts it as dead, and starts the retry beside it; the function that it is in does not return."""
    dag_run_id = airflow.trigger(DAG_ID, trace=str(tmp_path), holds_in=5)
    wait_until((tmp_path / "held").exists, "epoch 5")
    driver = psutil.Process(airflow.live_attempt(f"{DAG_ID}/{dag_run_id}").holder.pid)
    jvm = driver.parent()
    supervisor = psutil.Process(int(driver.environ()["ITERATION_PARENT_PID"])).parent()
    assert jvm is not None
    assert supervisor is not None

    supervisor.kill()
    retry = wait_for(lambda: superseding(airflow, f"{DAG_ID}/{dag_run_id}"), what="the retry")
    was_alive = not is_over(driver)
    for what, process in {"the driver": driver, "its JVM": jvm}.items():
        wait_until(lambda process=process: is_over(process), f"{what}'s end", timeout_seconds=40)
    (tmp_path / "released").touch()
    ended = airflow.wait(DAG_ID, dag_run_id)

    assert (True, f"{DAG_ID}/{dag_run_id}/epochs.e004/2") == (was_alive, retry.holder.task)
    assert result(airflow, ended) == ("success", undisturbed)
    assert bodies(tmp_path) == Counter(["largest", "added 5", *(f"added {epoch}" for epoch in range(8))])


def superseding(airflow: AirflowSite, run_key: str) -> AttemptRecord | None:
    """Return the attempt that has taken a run from another one, once there is one."""
    *earlier, last = airflow.attempts(run_key)
    is_superseded = any(known.outcome is AttemptOutcome.SUPERSEDED for known in earlier)
    return last if is_superseded and last.ended_at is None else None
