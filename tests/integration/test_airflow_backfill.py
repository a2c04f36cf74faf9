"""What does a backfill over dates train, and from which checkpoint? On real Airflow, with the plain-Python runner."""

from __future__ import annotations

from pathlib import Path

import pytest

from iteration_lib.airflow.standalone.api import AirflowApiError
from iteration_lib.lineage import lineage_of
from tests.fixture.airflow import AirflowSite, DagRun
from tests.size import IS_NIGHTLY

pytestmark = [pytest.mark.airflow, pytest.mark.postgres]
_DATES = 10 if IS_NIGHTLY else 4


def backfill(airflow: AirflowSite, dag_id: str, *, days: int, **options: object) -> list[str]:
    """Ask for a backfill over the first days of the year; returns the DAG runs' ids, by date."""
    airflow.api.call("POST", "backfills", json={**first_days(dag_id, days), **options})
    found = airflow.api.call("GET", f"dags/{dag_id}/dagRuns", params={"order_by": "logical_date"})["dag_runs"]
    return [str(dag_run["dag_run_id"]) for dag_run in found]


def first_days(dag_id: str, days: int) -> dict[str, object]:
    """Return what a backfill is asked with."""
    return {
        "dag_id": dag_id,
        "from_date": "2026-01-01T00:00:00Z",
        "to_date": f"2026-01-{days:02d}T00:00:00Z",
        "reprocess_behavior": "failed",
    }


def wait_for_all(airflow: AirflowSite, dag_id: str, dag_run_ids: list[str]) -> list[DagRun]:
    """Wait until every DAG run has ended."""
    return [airflow.wait(dag_id, dag_run_id) for dag_run_id in dag_run_ids]


def test_backfill_over_dates_trains_each_from_what_its_predecessor_left(airflow: AirflowSite, tmp_path: Path) -> None:
    """Though Airflow would run all of them at a time. Two epochs a date, with a parameter that the date makes."""
    conf = {"trace": str(tmp_path)}

    dag_run_ids = backfill(airflow, "counting_daily", days=_DATES, dag_run_conf=conf, max_active_runs=_DATES)
    ended = wait_for_all(airflow, "counting_daily", dag_run_ids)

    runs = [run for dag_run in ended if (run := airflow.store.find_run(dag_run.run_key)) is not None]
    lineage = lineage_of(airflow.store, runs[0])
    parents = [descent.branch for descent in lineage[1:] if descent.branch is not None]
    assert ["success"] * _DATES == [dag_run.state for dag_run in ended]
    assert [101 + day for day in range(_DATES)] == [run.params["until"] for run in runs]
    assert [(run.run_id, day) for day, run in enumerate(runs)] == [(one.run.run_id, one.depth) for one in lineage]
    assert [None, *(run.run_id for run in runs[:-1])] == [
        one.branch.origin_run_id if one.branch is not None else None for one in lineage
    ]
    assert [(run.last_checkpoint_id, run.last_durable_epoch) for run in runs[:-1]] == [
        (parent.origin_checkpoint_id, parent.epoch) for parent in parents
    ]
    assert [f"added {epoch}" for epoch in range(2 * _DATES)] == bodies(tmp_path)


def test_dates_behind_one_that_fails_wait_until_it_is_cleared_and_succeeds(
    airflow: AirflowSite, tmp_path: Path
) -> None:
    dag_id = "counting_daily_failing"
    conf = {"trace": str(tmp_path), "fails_in": 2}
    first, second, third = backfill(airflow, dag_id, days=3, dag_run_conf=conf)
    failed = airflow.wait(dag_id, second)

    waiting = airflow.api.task_instances(dag_id, third)["open_run"]["state"]
    (tmp_path / "mended").touch()
    airflow.api.clear(dag_id, second, task_ids=("epochs.e000",))
    ended = wait_for_all(airflow, dag_id, [first, second, third])

    assert ("failed", None) == (failed.state, waiting)
    assert ["success"] * 3 == [dag_run.state for dag_run in ended]
    assert ["added 0", "added 1", "added 2", *(f"added {epoch}" for epoch in range(2, 6))] == bodies(tmp_path)


def test_backfill_backwards_is_refused_by_airflow_itself(airflow: AirflowSite) -> None:
    asked = {**first_days("counting_daily", 3), "run_backwards": True}

    with pytest.raises(AirflowApiError, match="cannot be run in reverse when the Dag has tasks where depends_on_past"):
        airflow.api.call("POST", "backfills/dry_run", json=asked)


def test_run_that_is_triggered_from_a_checkpoint_of_another_one_goes_on_behind_it(
    airflow: AirflowSite, tmp_path: Path
) -> None:
    """The chain's first task owns the epoch behind the checkpoint, whatever its number."""
    origin = airflow.run("counting", trace=str(tmp_path), until=3)

    ended = airflow.run("counting", trace=str(tmp_path), until=5, start_from=f"{origin.run_key}@2")

    run = airflow.store.find_run(ended.run_key)
    branch = airflow.store.find_branch(run.run_id) if run is not None else None
    assert (2, 1, ended.run_key) == (
        (branch.origin_checkpoint_id, branch.epoch, branch.branched_by) if branch is not None else None
    )
    assert {"success": 6, "skipped": 4} == {
        state: list(ended.tasks.values()).count(state) for state in set(ended.tasks.values())
    }
    assert [f"added {epoch}" for epoch in (0, 1, 2, 3, 2, 3, 4, 5)] == bodies(tmp_path)


def test_start_that_is_not_there_fails_the_first_task_without_a_retry(airflow: AirflowSite, tmp_path: Path) -> None:
    ended = airflow.run("counting_retried", trace=str(tmp_path), start_from="nobody@1")

    log = airflow.api.log("counting_retried", ended.dag_run_id, "open_run", try_number=1)
    assert ("failed", "failed", 1) == (ended.state, ended.tasks["open_run"], ended.tries["open_run"])
    assert "no run has the id or the key 'nobody'; `iteration list` shows what there is" in log


def bodies(trace: Path) -> list[str]:
    """Return which epochs ran, in order."""
    return [line for line in (trace / "bodies").read_text().splitlines() if line.startswith("added")]
