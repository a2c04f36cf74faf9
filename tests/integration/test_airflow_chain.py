"""How a DAG's chain behaves on real Airflow: early stop, failure and clearing, refusals, the asset's event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import httpx
import pytest

from iteration_lib.airflow.standalone.api import AirflowApiError
from iteration_lib.protocol.status import StopKind
from iteration_lib.stopping import request_stop, resume_run
from tests.failover.driven import wait_until
from tests.fixture.airflow import AirflowSite

Key = TypeVar("Key")

pytestmark = [pytest.mark.airflow, pytest.mark.postgres]


def test_run_that_terminates_at_epoch_7_of_30_skips_22_without_processes_and_finish_publishes(
    airflow: AirflowSite, tmp_path: Path
) -> None:
    ended = airflow.run("counting_thirty", trace=str(tmp_path), until=7)

    assert "success" == ended.state
    assert {
        "open_run": "success",
        **{f"epochs.e{epoch:03d}": "success" if epoch <= 7 else "skipped" for epoch in range(30)},
        "finish": "success",
    } == ended.tasks
    skipped = [name for name, state in ended.tasks.items() if state == "skipped"]
    tasks = airflow.api.task_instances("counting_thirty", ended.dag_run_id)
    assert [(0, None)] * 22 == [(tasks[name]["try_number"], tasks[name]["pid"]) for name in skipped]
    assert ["largest", *(f"added {epoch}" for epoch in range(8))] == _bodies(tmp_path)
    run = airflow.store.find_run(ended.run_key)
    assert ("FINISHED", 8) == ((run.status.value, run.epochs) if run is not None else None)


def test_finish_tells_airflow_which_state_its_asset_has_now(airflow: AirflowSite, tmp_path: Path) -> None:
    ended = airflow.run("counting", trace=str(tmp_path), until=1)

    events = airflow.api.call("GET", "assets/events", params={"source_dag_id": "counting"})["asset_events"]
    event = next(event for event in events if event["source_run_id"] == ended.dag_run_id)
    run = airflow.store.find_run(ended.run_key)
    assert run is not None
    assert "counting_team.counting:counting" == event["name"]
    assert {
        "run_id": run.run_id,
        "run_key": ended.run_key,
        "checkpoint_id": 2,
        "epoch": 1,
        "terminated_by": "criteria",
        "state_digest": run.state_digest,
        "outputs": dict(run.outputs or {}),
    } == event["extra"]
    assert "FINISHED" == run.status.value


def test_epoch_4_that_fails_for_good_fails_the_rest_and_cleared_goes_on_from_there(
    airflow: AirflowSite, tmp_path: Path
) -> None:
    failed = airflow.run("counting_thirty", trace=str(tmp_path), until=7, fails_in=4)

    assert "failed" == failed.state
    assert {
        "open_run": "success",
        **{f"epochs.e{epoch:03d}": "success" for epoch in range(4)},
        "epochs.e004": "failed",
        **{f"epochs.e{epoch:03d}": "upstream_failed" for epoch in range(5, 30)},
        "finish": "upstream_failed",
    } == failed.tasks
    assert ["largest", *(f"added {epoch}" for epoch in range(5))] == _bodies(tmp_path)

    (tmp_path / "mended").touch()
    airflow.api.clear("counting_thirty", failed.dag_run_id, task_ids=("epochs.e004",))
    ended = airflow.wait("counting_thirty", failed.dag_run_id)

    assert {"success": 10, "skipped": 22} == _count(ended.tasks)
    assert {0: 22, 1: 9, 2: 1} == _count(ended.tries)
    assert ("success", 2) == (ended.state, ended.tries["epochs.e004"])
    assert ["added 4", "added 5", "added 6", "added 7"] == _bodies(tmp_path)[6:]


def test_cleared_task_whose_epochs_are_durable_runs_nothing(airflow: AirflowSite, tmp_path: Path) -> None:
    before = airflow.run("counting", trace=str(tmp_path), until=3)
    bodies = _bodies(tmp_path)

    airflow.api.clear("counting", before.dag_run_id, task_ids=("epochs.e001",))
    after = airflow.wait("counting", before.dag_run_id)

    assert ("success", before.tasks) == (after.state, after.tasks)
    assert (2, 2) == (after.tries["epochs.e001"], after.tries["finish"])
    assert bodies == _bodies(tmp_path)
    assert airflow.store.find_run(before.run_key) == airflow.store.find_run(after.run_key)


def test_stopped_run_skips_its_tasks_and_goes_on_once_it_is_resumed_and_they_are_cleared(
    airflow: AirflowSite, tmp_path: Path
) -> None:
    dag_run_id = airflow.trigger("counting", trace=str(tmp_path), until=5, holds_in=2)
    wait_until((tmp_path / "held").exists, "epoch 2 to be held")
    run = airflow.store.find_run(f"counting/{dag_run_id}")
    assert run is not None
    request_stop(airflow.store, run, kind=StopKind.STOP, by="ann")
    (tmp_path / "released").touch()

    stopped = airflow.wait("counting", dag_run_id)

    assert ("success", {"success": 4, "skipped": 6}) == (stopped.state, _count(stopped.tasks))
    found = airflow.store.find_run(run.run_id)
    assert found is not None
    assert ("STOPPED", 3, "skipped") == (found.status.value, found.epochs, stopped.tasks["finish"])

    resume_run(airflow.store, found, by="bob")
    airflow.api.clear("counting", dag_run_id, task_ids=("epochs.e003",))
    ended = airflow.wait("counting", dag_run_id)

    assert ("success", "success") == (ended.state, ended.tasks["finish"])
    assert ["largest", *(f"added {epoch}" for epoch in range(6))] == _bodies(tmp_path)


def test_run_that_stalls_has_somebody_told_while_its_task_goes_on(airflow: AirflowSite, tmp_path: Path) -> None:
    dag_run_id = airflow.trigger("counting", trace=str(tmp_path), until=1, holds_in=1)
    reasons = tmp_path / "stalled"
    wait_until(lambda: reasons.exists() and "the last one is 0\n" in reasons.read_text(), "somebody to be told")
    (tmp_path / "released").touch()

    ended = airflow.wait("counting", dag_run_id)

    assert ("success", 1) == (ended.state, ended.tries["epochs.e001"])


def test_groups_of_a_larger_dag_run_one_after_the_other_each_with_epochs_of_its_own(
    airflow: AirflowSite, tmp_path: Path
) -> None:
    """The first one stops early, and the second one starts from what it left."""
    ended = airflow.run("counting_in_two_groups", trace=str(tmp_path), until=1)

    coarse, fine = (airflow.store.find_run(f"{ended.run_key}/{group}") for group in ("coarse", "fine"))
    assert coarse is not None
    assert fine is not None
    branch = airflow.store.find_branch(fine.run_id)
    assert {
        "coarse.open_run": "success",
        "coarse.epochs.e000": "success",
        "coarse.epochs.e001": "success",
        "coarse.epochs.e002": "skipped",
        "coarse.epochs.e003": "skipped",
        "coarse.finish": "success",
        "fine.open_run": "success",
        "fine.epochs.e000": "success",
        "fine.finish": "success",
    } == ended.tasks
    assert (coarse.run_id, 1) == ((branch.origin_run_id, branch.epoch) if branch is not None else None)
    assert [("FINISHED", 1), ("FINISHED", 3)] == [(run.status.value, run.last_durable_epoch) for run in (coarse, fine)]
    assert [f"added {epoch}" for epoch in range(4)] == [line for line in _bodies(tmp_path) if line != "largest"]


def test_groups_that_a_branch_does_not_take_are_skipped_whole_and_what_comes_behind_goes_on(
    airflow: AirflowSite, tmp_path: Path
) -> None:
    ended = airflow.run("counting_in_one_arm", trace=str(tmp_path))

    skipped = ("open_run", "epochs.e000", "epochs.e001", "finish")
    assert "success" == ended.state
    assert {
        "choose": "success",
        "leave_it": "success",
        **{f"submit.{name}": "skipped" for name in skipped},
        **{f"watch.{name}": "skipped" for name in (*skipped, "drive")},
        "report": "success",
    } == ended.tasks


def test_more_epochs_than_the_chain_has_are_refused_at_the_trigger(airflow: AirflowSite, tmp_path: Path) -> None:
    with pytest.raises(AirflowApiError, match="max_epochs: 9 is greater than the maximum of 8") as refused:
        airflow.trigger("counting", trace=str(tmp_path), max_epochs=9)

    assert httpx.codes.BAD_REQUEST == refused.value.status


def test_mistake_of_the_user_is_not_retried_and_says_what_to_change(airflow: AirflowSite, tmp_path: Path) -> None:
    ended = airflow.run("counting_retried", trace=str(tmp_path), untill=3)

    log = airflow.api.log("counting_retried", ended.dag_run_id, "open_run", try_number=1)
    assert ("failed", "failed", 1) == (ended.state, ended.tasks["open_run"], ended.tries["open_run"])
    assert "unknown parameter 'untill'; there are: trace, until, max_epochs" in log
    assert airflow.store.find_run(ended.run_key) is None


def test_operator_that_raises_is_retried_from_the_last_durable_epoch(airflow: AirflowSite, tmp_path: Path) -> None:
    dag_run_id = airflow.trigger("counting_retried", trace=str(tmp_path), until=3, fails_in=2)
    ended = airflow.wait("counting_retried", dag_run_id)

    assert ("failed", 4) == (ended.state, ended.tries["epochs.e000"])
    assert ["largest", "added 0", "added 1", *["added 2"] * 4] == _bodies(tmp_path)


def test_run_on_spark_ends_as_the_plain_python_one_does_to_the_bit(airflow: AirflowSite, tmp_path: Path) -> None:
    (tmp_path / "spark").mkdir()
    (tmp_path / "local").mkdir()
    spark_run = airflow.trigger("counting_on_spark", trace=str(tmp_path / "spark"), until=3)

    local = airflow.run("counting_retried", trace=str(tmp_path / "local"), until=3)
    on_spark = airflow.wait("counting_on_spark", spark_run)

    assert ("success", "success") == (local.state, on_spark.state)
    assert _bodies(tmp_path / "local") == _bodies(tmp_path / "spark")
    digests = [run.state_digest for ended in (local, on_spark) if (run := airflow.store.find_run(ended.run_key))]
    assert 1 == len(set(digests))
    assert None not in digests
    log = airflow.api.log("counting_on_spark", spark_run, "epochs.e000", try_number=1)
    assert "event=epoch_aligned" in log
    assert len(log.splitlines()) < 60
    assert airflow.processes.environment["AIRFLOW_CONN_ITERATION_STORE"].split('"password": "')[1][:20] not in log


def _bodies(trace: Path) -> list[str]:
    return (trace / "bodies").read_text().splitlines()


def _count(found: Mapping[str, Key]) -> dict[Key, int]:
    return dict(Counter(found.values()))
