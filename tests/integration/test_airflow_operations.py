"""What does it do to a run when a person, or a machine, lays hands on its tasks? Each row of docs/operations.md."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import httpx
import psutil
import pytest

from iteration_lib.airflow.standalone.api import AirflowApiError
from iteration_lib.protocol.status import AttemptOutcome
from tests.failover.driven import is_over, wait_until
from tests.fixture.airflow import AirflowSite, wait_for
from tests.size import nightly

pytestmark = [pytest.mark.airflow, pytest.mark.postgres]

SHORT = "counting"  # eight tasks of one epoch each, never retried
LONG = "counting_retried"  # two tasks of four epochs each, retried after a second


def test_retry_goes_on_behind_the_last_durable_epoch(airflow: AirflowSite, tmp_path: Path) -> None:
    dag_run_id = airflow.trigger(LONG, trace=str(tmp_path), until=3, fails_in=2)
    wait_until(lambda: "added 2" in bodies(tmp_path), "the first try to fail")
    (tmp_path / "mended").touch()

    ended = airflow.wait(LONG, dag_run_id)

    assert "success" == ended.state
    assert ended.tries["epochs.e000"] > 1
    assert {"largest", "added 0", "added 1", "added 3"} == ran_once(tmp_path)


def test_task_that_is_cleared_while_it_runs_is_killed_and_goes_on_behind_the_last_durable_epoch(
    airflow: AirflowSite, tmp_path: Path
) -> None:
    dag_run_id = hold(airflow, LONG, tmp_path, epoch=2, until=3)

    airflow.api.clear(LONG, dag_run_id, task_ids=("epochs.e000",))
    wait_for(lambda: ends(airflow, f"{LONG}/{dag_run_id}") or None, what="the end of the first attempt")
    (tmp_path / "released").touch()
    ended = airflow.wait(LONG, dag_run_id)

    assert ("success", 2) == (ended.state, ended.tries["epochs.e000"])
    assert (AttemptOutcome.RELEASED, "interrupted") == ends(airflow, ended.run_key)[0]
    assert {"largest", "added 0", "added 1", "added 3"} == ran_once(tmp_path)


def test_epochs_of_a_failed_task_that_is_marked_as_success_are_run_by_the_next_one(
    airflow: AirflowSite, tmp_path: Path
) -> None:
    failed = airflow.run(SHORT, trace=str(tmp_path), until=2, fails_in=1)
    (tmp_path / "mended").touch()

    mark(airflow, SHORT, failed.dag_run_id, "epochs.e001", "success")
    ended = airflow.wait(SHORT, failed.dag_run_id)

    assert ("failed", "success") == (failed.state, ended.state)
    assert (1, 1) == (ended.tries["epochs.e001"], ended.tries["epochs.e002"])
    assert ["largest", "added 0", "added 1", "added 1", "added 2"] == bodies(tmp_path)


def test_run_whose_tasks_are_all_marked_as_success_publishes_nothing(airflow: AirflowSite, tmp_path: Path) -> None:
    dag_run_id = hold(airflow, SHORT, tmp_path, epoch=0, until=2)
    for epoch in range(1, 8):
        mark(airflow, SHORT, dag_run_id, f"epochs.e{epoch:03d}", "success")
    (tmp_path / "released").touch()

    marked = airflow.wait(SHORT, dag_run_id)
    log = airflow.api.log(SHORT, dag_run_id, "finish", try_number=1)
    airflow.api.clear(SHORT, dag_run_id, task_ids=("epochs.e001",))
    ended = airflow.wait(SHORT, dag_run_id)

    assert ("failed", "failed", "success") == (marked.state, marked.tasks["finish"], ended.state)
    assert "there is nothing to publish; clear the first epoch task that did not run its epochs" in log
    assert ["largest", "added 0", "added 1", "added 2"] == bodies(tmp_path)


def test_finish_that_is_marked_as_success_publishes_nothing_before_it_is_cleared(
    airflow: AirflowSite, tmp_path: Path
) -> None:
    dag_run_id = hold(airflow, SHORT, tmp_path, epoch=0, until=0)

    mark(airflow, SHORT, dag_run_id, "finish", "success")
    (tmp_path / "released").touch()
    marked = airflow.wait(SHORT, dag_run_id)
    before, events_before = airflow.store.find_run(marked.run_key), events(airflow, dag_run_id)
    airflow.api.clear(SHORT, dag_run_id, task_ids=("finish",))
    ended = airflow.wait(SHORT, dag_run_id)

    after = airflow.store.find_run(ended.run_key)
    assert before is not None
    assert after is not None
    assert ("success", "TERMINATING", 0) == (marked.state, before.status.value, events_before)
    assert ("success", "FINISHED", 1) == (ended.state, after.status.value, events(airflow, dag_run_id))


def test_running_task_that_is_marked_as_success_is_killed_and_the_next_one_runs_its_epochs(
    airflow: AirflowSite, tmp_path: Path
) -> None:
    dag_run_id = hold(airflow, LONG, tmp_path, epoch=2, until=4)
    task = psutil.Process(airflow.live_attempt(f"{LONG}/{dag_run_id}").holder.pid)

    mark(airflow, LONG, dag_run_id, "epochs.e000", "success")
    wait_until(lambda: is_over(task), "the end of the marked task")
    (tmp_path / "released").touch()
    ended = airflow.wait(LONG, dag_run_id)

    assert ("success", 1) == (ended.state, ended.tries["epochs.e000"])
    assert {"largest", "added 0", "added 1", "added 3", "added 4"} == ran_once(tmp_path)


@nightly("on Spark; on every change a driver there is marked as a success, and a task without Spark told to end")
def test_whatever_ends_a_task_ends_its_spark_and_leaves_the_run_where_it_is_durable(
    airflow: AirflowSite, tmp_path: Path
) -> None:
    """SIGTERM, as a worker gets it that is shut down; then the task is marked as failed, and then its DAG run."""
    dag_id = "counting_on_spark"
    dag_run_id = hold(airflow, dag_id, tmp_path, epoch=2, until=3)
    run_key = f"{dag_id}/{dag_run_id}"

    first = application(airflow, run_key)
    task_of(first).terminate()
    wait_for_end(first)
    wait_until_again_in("added 2", tmp_path, times=2)
    second = application(airflow, run_key)
    mark(airflow, dag_id, dag_run_id, "epochs.e000", "failed")
    failed = airflow.wait(dag_id, dag_run_id)
    wait_for_end(second)
    airflow.api.clear(dag_id, dag_run_id, task_ids=("epochs.e000",))
    wait_until_again_in("added 2", tmp_path, times=3)
    third = application(airflow, run_key)
    airflow.api.call("PATCH", f"dags/{dag_id}/dagRuns/{dag_run_id}", json={"state": "failed"})
    marked = airflow.wait(dag_id, dag_run_id)
    wait_for_end(third)
    run = airflow.store.find_run(run_key)
    (tmp_path / "released").touch()
    airflow.api.clear(dag_id, dag_run_id, task_ids=("epochs.e000",))
    ended = airflow.wait(dag_id, dag_run_id)

    assert ["failed", "failed", "failed", "success"] == tries(airflow, dag_id, dag_run_id, "epochs.e000")
    assert ("failed", "upstream_failed", 2) == (failed.state, failed.tasks["epochs.e004"], failed.tries["epochs.e000"])
    assert ["failed", "skipped", "skipped"] == [marked.tasks[name] for name in ("epochs.e000", "epochs.e004", "finish")]
    assert run is not None
    assert ("RUNNING", 2, "success") == (run.status.value, run.epochs, ended.state)
    assert [(AttemptOutcome.RELEASED, "interrupted")] * 3 == ends(airflow, run_key)[:3]
    assert {"largest", "added 0", "added 1", "added 3"} == ran_once(tmp_path)


def test_deleted_dag_run_leaves_its_run_and_one_of_the_same_id_finds_it_again(
    airflow: AirflowSite, tmp_path: Path
) -> None:
    dag_run_id = hold(airflow, LONG, tmp_path, epoch=0, until=1)
    address = f"dags/{LONG}/dagRuns/{dag_run_id}"
    with pytest.raises(AirflowApiError, match="cannot be deleted in running state") as refused:
        airflow.api.call("DELETE", address)
    (tmp_path / "released").touch()
    before = airflow.wait(LONG, dag_run_id)
    run = airflow.store.find_run(before.run_key)

    airflow.api.call("DELETE", address)
    conf = {"trace": str(tmp_path), "until": 1, "holds_in": 0}
    again = {"dag_run_id": dag_run_id, "logical_date": None, "conf": conf}
    airflow.api.call("POST", f"dags/{LONG}/dagRuns", json=again)
    ended = airflow.wait(LONG, dag_run_id)

    assert httpx.codes.CONFLICT == refused.value.status
    assert run is not None
    assert ("success", run) == (ended.state, airflow.store.find_run(ended.run_key))
    assert ["largest", "added 0", "added 1"] == bodies(tmp_path)


def test_paused_dag_lets_its_running_task_end_and_starts_no_other_until_it_is_let_go_on(
    airflow: AirflowSite, tmp_path: Path
) -> None:
    """That no other has started shows by what another DAG, triggered later, has done meanwhile."""
    (tmp_path / "other").mkdir()
    dag_run_id = hold(airflow, LONG, tmp_path, epoch=2, until=5)

    airflow.api.call("PATCH", f"dags/{LONG}", json={"is_paused": True})
    (tmp_path / "released").touch()
    wait_for(lambda: states(airflow, LONG, dag_run_id)["epochs.e000"] == "success" or None, what="the running task")
    airflow.run(SHORT, trace=str(tmp_path / "other"), until=0)
    paused = states(airflow, LONG, dag_run_id)
    run = airflow.store.find_run(f"{LONG}/{dag_run_id}")
    airflow.api.unpause(LONG)
    ended = airflow.wait(LONG, dag_run_id)

    assert run is not None
    assert (None, 4, "success") == (paused["epochs.e004"], run.epochs, ended.state)
    assert ["largest", *(f"added {epoch}" for epoch in range(6))] == bodies(tmp_path)


def test_task_that_is_told_to_end_is_no_success_and_its_retry_goes_on(airflow: AirflowSite, tmp_path: Path) -> None:
    """SIGTERM, as a worker gets it that is shut down."""
    dag_run_id = hold(airflow, LONG, tmp_path, epoch=2, until=3)

    os.kill(airflow.live_attempt(f"{LONG}/{dag_run_id}").holder.pid, signal.SIGTERM)
    wait_for(lambda: ends(airflow, f"{LONG}/{dag_run_id}") or None, what="the end of the first attempt")
    (tmp_path / "released").touch()
    ended = airflow.wait(LONG, dag_run_id)

    assert ["failed", "success"] == tries(airflow, LONG, dag_run_id, "epochs.e000")
    assert (AttemptOutcome.RELEASED, "interrupted") == ends(airflow, ended.run_key)[0]
    assert {"largest", "added 0", "added 1", "added 3"} == ran_once(tmp_path)


def hold(airflow: AirflowSite, dag_id: str, trace: Path, *, epoch: int, until: int) -> str:
    """Start a DAG run and return it once it is held inside an epoch."""
    dag_run_id = airflow.trigger(dag_id, trace=str(trace), until=until, holds_in=epoch)
    wait_until((trace / "held").exists, f"epoch {epoch} to be held")
    return dag_run_id


def mark(airflow: AirflowSite, dag_id: str, dag_run_id: str, task_id: str, state: str) -> None:
    """Mark a task, as the UI's button does."""
    address = f"dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}"
    airflow.api.call("PATCH", address, json={"new_state": state})


def states(airflow: AirflowSite, dag_id: str, dag_run_id: str) -> dict[str, str | None]:
    """Return the tasks' states as they are now."""
    return {name: task["state"] for name, task in airflow.api.task_instances(dag_id, dag_run_id).items()}


def tries(airflow: AirflowSite, dag_id: str, dag_run_id: str, task_id: str) -> list[str]:
    """Return how the tries of a task ended."""
    found = airflow.api.call("GET", f"dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/tries")
    return [known["state"] for known in found["task_instances"]]


def application(airflow: AirflowSite, run_key: str) -> tuple[psutil.Process, psutil.Process]:
    """Return the Spark application that drives a run: the driver, and its JVM."""
    driver = psutil.Process(airflow.live_attempt(run_key).holder.pid)
    jvm = driver.parent()
    assert jvm is not None
    assert "java" == jvm.name()
    return driver, jvm


def task_of(application: tuple[psutil.Process, psutil.Process]) -> psutil.Process:
    """Return the task that has submitted a Spark application."""
    return psutil.Process(int(application[0].environ()["ITERATION_PARENT_PID"]))


def wait_for_end(application: tuple[psutil.Process, psutil.Process]) -> None:
    """Wait until nothing is left of a Spark application."""
    for process in application:
        wait_until(lambda process=process: is_over(process), "the end of Spark")


def wait_until_again_in(body: str, trace: Path, *, times: int) -> None:
    """Wait until a body has been begun so many times."""
    wait_until(lambda: bodies(trace).count(body) == times, f"{body} to be begun {times} times")


def events(airflow: AirflowSite, dag_run_id: str) -> int:
    """Return how often a DAG run has told Airflow that its asset is new."""
    found = airflow.api.call("GET", "assets/events", params={"source_dag_id": SHORT, "limit": 100})
    return [event["source_run_id"] for event in found["asset_events"]].count(dag_run_id)


def ends(airflow: AirflowSite, run_key: str) -> list[tuple[AttemptOutcome | None, str | None]]:
    """Return how the attempts of a run that have ended did, in their order."""
    return [(known.outcome, known.reason) for known in airflow.attempts(run_key) if known.ended_at is not None]


def bodies(trace: Path) -> list[str]:
    """Return which bodies ran, in their order."""
    log = trace / "bodies"
    return log.read_text().splitlines() if log.exists() else []


def ran_once(trace: Path) -> set[str]:
    """Return the bodies that ran exactly once."""
    return {body for body, times in Counter(bodies(trace)).items() if times == 1}
