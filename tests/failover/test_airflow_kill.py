"""A task that is killed under Airflow, with or without its supervisor: Spark ends too, and the retry resumes.

The run is held inside epoch 5 by a latch in its operator, in the second of its two tasks, on real Spark.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import psutil
import pytest

from iteration_lib.protocol.status import AttemptOutcome
from iteration_lib.store.record import AttemptRecord
from tests.failover.driven import is_over, wait_until
from tests.fixture.airflow import WHOLE, AirflowSite, DagRun, bodies, wait_for
from tests.size import IS_NIGHTLY, nightly

pytestmark = [pytest.mark.airflow, pytest.mark.postgres]

DAG_ID = "counting_on_spark"
WITH_SUPERVISOR = {"task": False, **({"task+supervisor": True} if IS_NIGHTLY else {})}


def result(airflow: AirflowSite, ended: DagRun) -> tuple[str, str | None]:
    """Return how a DAG run ended, and its run's state digest."""
    run = airflow.store.find_run(ended.run_key)
    return ended.state, run.state_digest if run is not None else None


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
    assert Counter(["largest", *(f"added {epoch}" for epoch in range(6))]) == bodies(tmp_path)
    (tmp_path / "released").touch()

    ended = airflow.wait(DAG_ID, dag_run_id)

    assert result(airflow, ended) == ("success", undisturbed)
    assert ended.tries["epochs.e004"] >= 2
    assert WHOLE + Counter(["added 5"]) == bodies(tmp_path)


@nightly("waits for a heartbeat that is missed")
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
    assert WHOLE + Counter(["added 5"]) == bodies(tmp_path)


@nightly("waits for a heartbeat that is missed, and three applications")
def test_a_try_whose_worker_was_frozen_leaves_the_run_to_its_retry_and_fails_nothing(
    airflow: AirflowSite, tmp_path: Path, undisturbed: str
) -> None:
    """It goes on when the retry drives, and asks for the run first then: its Spark was just being submitted."""
    dag_run_id = airflow.trigger(DAG_ID, trace=str(tmp_path), holds_in=0)
    submission = wait_for(lambda: submission_of(f"{DAG_ID}/{dag_run_id}"), what="the submission")
    task = submission.parent()
    assert task is not None
    supervisor = task.parent()
    assert supervisor is not None
    os.killpg(submission.pid, signal.SIGSTOP)
    for process in (task, supervisor):
        process.suspend()

    wait_until((tmp_path / "held").exists, "the retry to be in epoch 0")
    os.killpg(submission.pid, signal.SIGCONT)
    wait_until(lambda: is_over(submission), "the older try's end")
    for process in (task, supervisor):
        process.resume()
    (tmp_path / "released").touch()
    ended = airflow.wait(DAG_ID, dag_run_id)

    attempts = airflow.attempts(ended.run_key)
    by = [f"{ended.run_key}/{task}" for task in ("epochs.e000/2", "epochs.e004/1", "finish/1")]
    assert by == [known.holder.task for known in attempts]
    assert AttemptOutcome.SUPERSEDED not in {known.outcome for known in attempts}
    assert result(airflow, ended) == ("success", undisturbed)
    assert 2 == ended.tries["epochs.e000"]
    assert WHOLE == bodies(tmp_path)


def submission_of(run_key: str) -> psutil.Process | None:
    """Return the process that submits a run's first epochs, as soon as there is one."""
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any(word.startswith(f"{run_key} epochs 0-3") for word in words) and os.getpgid(process.pid) == process.pid:
            return process
    return None


def superseding(airflow: AirflowSite, run_key: str) -> AttemptRecord | None:
    """Return the attempt that has taken a run from another one, once there is one."""
    *earlier, last = airflow.attempts(run_key)
    is_superseded = any(known.outcome is AttemptOutcome.SUPERSEDED for known in earlier)
    return last if is_superseded and last.ended_at is None else None
