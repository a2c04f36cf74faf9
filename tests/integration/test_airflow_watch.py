"""How a run behaves on real Airflow whose epochs one task drives, while the tasks of the chain follow it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import httpx
import pytest

from tests.command_line import CommandLine
from tests.failover.driven import wait_until
from tests.fixture.airflow import DAGS, HISTORY, WHOLE, AirflowSite, DagRun, bodies, state_digest, wait_for
from tests.integration.test_airflow_operations import application, mark, task_of, wait_for_end, wait_until_again_in
from tests.size import nightly

pytestmark = [pytest.mark.airflow, pytest.mark.postgres]

WATCHED, ON_SPARK = "counting_watched", "counting_watched_on_spark"
EPOCHS = tuple(f"epochs.e{epoch:03d}" for epoch in range(8))


def drivers(airflow: AirflowSite, ended: DagRun) -> list[str]:
    """Return which tasks drove a DAG run's run, try by try."""
    run = airflow.store.find_run(ended.run_key)
    assert run is not None
    tasks = [attempt.holder.task for attempt in airflow.store.list_attempts(run.run_id)]
    return [task.removeprefix(f"{ended.run_key}/") for task in tasks if task is not None]


def wait_until_states(airflow: AirflowSite, dag_id: str, dag_run_id: str, **states: str) -> None:
    """Wait until tasks are in states, as `e003="success"`, and Airflow has heard of the deferred ones that they wait.

    It takes a task for lost that goes on before that (docs/operations.md).
    """

    def are_there() -> bool | None:
        tasks = airflow.api.task_instances(dag_id, dag_run_id)
        found = {name: tasks[f"epochs.{name}"] for name in states}
        if states != {name: task["state"] for name, task in found.items()}:
            return None
        heard = airflow.scheduler_log.read_text(errors="replace")
        reports = [
            "executor event with state success for task instance TaskInstanceKey("
            f"dag_id='{dag_id}', task_id='epochs.{name}', run_id='{dag_run_id}', try_number={task['try_number']},"
            for name, task in found.items()
            if task["state"] == "deferred"
        ]
        return all(report in heard for report in reports) or None

    wait_for(are_there, what=f"{dag_run_id} to be in {states}")


def hold(airflow: AirflowSite, dag_id: str, trace: Path, *, epoch: int) -> str:
    """Start a DAG run, and return when it is inside an epoch and its tasks show that."""
    dag_run_id = airflow.trigger(dag_id, trace=str(trace), holds_in=epoch)
    wait_until((trace / "held").exists, f"epoch {epoch}")
    before = dict.fromkeys((f"e{number:03d}" for number in range(epoch)), "success")
    wait_until_states(airflow, dag_id, dag_run_id, **before, **{f"e{epoch:03d}": "deferred"})
    return dag_run_id


def test_early_stop_skips_the_rest_without_processes_and_finish_publishes(airflow: AirflowSite, tmp_path: Path) -> None:
    ended = airflow.run(WATCHED, trace=str(tmp_path), until=3)

    assert {
        "open_run": "success",
        "drive": "success",
        **{name: "success" if name <= "epochs.e003" else "skipped" for name in EPOCHS},
        "finish": "success",
    } == ended.tasks
    tasks = airflow.api.task_instances(WATCHED, ended.dag_run_id)
    assert [(0, None)] * 4 == [(tasks[name]["try_number"], tasks[name]["pid"]) for name in EPOCHS[4:]]
    assert Counter(["largest", *(f"added {epoch}" for epoch in range(4))]) == bodies(tmp_path)
    assert ["drive/1", "finish/1"] == drivers(airflow, ended)


def test_driver_that_fails_for_good_fails_the_epoch_and_the_cleared_epoch_drives_the_rest(
    airflow: AirflowSite, tmp_path: Path
) -> None:
    """Marking the driver as a success in between has `finish` run again, which finds nothing to publish."""
    failed = airflow.run(WATCHED, trace=str(tmp_path), fails_in=2)

    assert {
        "open_run": "success",
        "drive": "failed",
        **dict.fromkeys(EPOCHS[:2], "success"),
        EPOCHS[2]: "failed",
        **dict.fromkeys(EPOCHS[3:], "upstream_failed"),
        "finish": "failed",
    } == failed.tasks
    log = airflow.api.log(WATCHED, failed.dag_run_id, EPOCHS[2], try_number=1)
    assert "the task drive is over, but epoch 2 is not durable" in log

    mark(airflow, WATCHED, failed.dag_run_id, "drive", "success")
    marked = airflow.wait(WATCHED, failed.dag_run_id)
    log = airflow.api.log(WATCHED, failed.dag_run_id, "finish", try_number=2)

    assert ("failed", {**failed.tasks, "drive": "success"}) == (marked.state, marked.tasks)
    assert "it has not terminated, so there is nothing to publish" in log

    (tmp_path / "mended").touch()
    airflow.api.clear(WATCHED, failed.dag_run_id, task_ids=(EPOCHS[2],))
    ended = airflow.wait(WATCHED, failed.dag_run_id)

    assert ("success", "success") == (ended.state, ended.tasks["drive"])
    assert WHOLE + Counter(["added 2"]) == bodies(tmp_path)
    assert ["drive/1", "epochs.e002/2", "finish/3"] == drivers(airflow, ended)


@nightly("another way to mend a driver that fails for good")
def test_failed_driver_that_is_cleared_with_the_failed_epoch_goes_on_and_the_epoch_follows_it(
    airflow: AirflowSite, tmp_path: Path
) -> None:
    failed = airflow.run(WATCHED, trace=str(tmp_path), fails_in=2)
    (tmp_path / "mended").touch()

    airflow.api.clear(WATCHED, failed.dag_run_id, task_ids=("drive", EPOCHS[2]))
    ended = airflow.wait(WATCHED, failed.dag_run_id)

    assert ("success", {"success"}) == (ended.state, set(ended.tasks.values()))
    assert WHOLE + Counter(["added 2"]) == bodies(tmp_path)
    assert ["drive/1", "drive/2", "finish/2"] == drivers(airflow, ended)


@nightly("another way to mend a driver that fails for good")
def test_failed_driver_that_is_cleared_alone_ends_the_run_and_leaves_the_epochs_as_they_are(
    airflow: AirflowSite, tmp_path: Path
) -> None:
    failed = airflow.run(WATCHED, trace=str(tmp_path), fails_in=2)
    (tmp_path / "mended").touch()

    airflow.api.clear(WATCHED, failed.dag_run_id, task_ids=("drive",))
    ended = airflow.wait(WATCHED, failed.dag_run_id)

    assert "success" == ended.state
    assert {**failed.tasks, "drive": "success", "finish": "success"} == ended.tasks
    assert WHOLE + Counter(["added 2"]) == bodies(tmp_path)
    assert ["drive/1", "drive/2", "finish/2"] == drivers(airflow, ended)


def test_driver_that_is_cleared_alone_while_it_runs_goes_on_and_the_epochs_follow_it(
    airflow: AirflowSite, tmp_path: Path
) -> None:
    dag_run_id = hold(airflow, WATCHED, tmp_path, epoch=5)

    airflow.api.clear(WATCHED, dag_run_id, task_ids=("drive",))
    wait_until(lambda: bodies(tmp_path)["added 5"] == 2, "the second try to be in epoch 5")
    (tmp_path / "released").touch()
    ended = airflow.wait(WATCHED, dag_run_id)

    assert ("success", {"success"}) == (ended.state, set(ended.tasks.values()))
    assert {1} == {ended.tries[name] for name in EPOCHS}
    assert WHOLE + Counter(["added 5"]) == bodies(tmp_path)
    assert ["drive/1", "drive/2", "finish/1"] == drivers(airflow, ended)


def test_run_comes_to_its_end_in_a_pool_of_one_slot(airflow: AirflowSite, tmp_path: Path) -> None:
    """The driver has the slot; an epoch's task has none while it waits."""
    airflow.api.call("POST", "pools", json={"name": "one_slot", "slots": 1, "include_deferred": False})

    ended = airflow.run("counting_watched_in_one_slot", trace=str(tmp_path))

    assert ("success", {"success"}) == (ended.state, set(ended.tasks.values()))
    assert WHOLE == bodies(tmp_path)
    assert ["drive/1", "finish/1"] == drivers(airflow, ended)


def test_epochs_that_are_cleared_or_marked_as_success_under_their_driver_leave_it_alone(
    airflow: AirflowSite, tmp_path: Path
) -> None:
    dag_run_id = hold(airflow, WATCHED, tmp_path, epoch=5)

    airflow.api.clear(WATCHED, dag_run_id, task_ids=(EPOCHS[3],))
    wait_until(
        lambda: airflow.api.task_instances(WATCHED, dag_run_id)[EPOCHS[4]]["try_number"] == 2, "epoch 4's second try"
    )
    wait_until_states(airflow, WATCHED, dag_run_id, e003="success", e004="success", e005="deferred")
    mark(airflow, WATCHED, dag_run_id, EPOCHS[5], "success")
    wait_until_states(airflow, WATCHED, dag_run_id, e005="success", e006="deferred")
    run = airflow.store.find_run(f"{WATCHED}/{dag_run_id}")
    (tmp_path / "released").touch()
    ended = airflow.wait(WATCHED, dag_run_id)

    assert run is not None
    assert 5 == run.epochs  # which does not call epoch 5 durable
    assert ("success", {"success"}) == (ended.state, set(ended.tasks.values()))
    assert WHOLE == bodies(tmp_path)
    assert ["drive/1", "finish/1"] == drivers(airflow, ended)


@nightly("another way to mend a driver that fails for good")
def test_failed_epoch_that_is_marked_as_success_has_the_next_one_drive_its_epoch_and_the_rest(
    airflow: AirflowSite, tmp_path: Path
) -> None:
    """Airflow clears those behind it: none of them has run before."""
    failed = airflow.run(WATCHED, trace=str(tmp_path), fails_in=2)
    (tmp_path / "mended").touch()

    mark(airflow, WATCHED, failed.dag_run_id, EPOCHS[2], "success")
    ended = airflow.wait(WATCHED, failed.dag_run_id)

    assert {**failed.tasks, **dict.fromkeys((*EPOCHS[2:], "finish"), "success")} == ended.tasks
    assert ("success", 1) == (ended.state, ended.tries[EPOCHS[3]])
    assert WHOLE + Counter(["added 2"]) == bodies(tmp_path)
    assert ["drive/1", "epochs.e003/1", "finish/2"] == drivers(airflow, ended)


def test_success_callback_is_called_for_every_epoch(airflow: AirflowSite, tmp_path: Path) -> None:
    """Also for one whose task has no process while it waits."""
    dag_run_id = hold(airflow, "counting_watched_with_callbacks", tmp_path, epoch=0)
    (tmp_path / "released").touch()

    ended = airflow.wait("counting_watched_with_callbacks", dag_run_id)

    assert "success" == ended.state
    assert sorted(["drive", *EPOCHS]) == sorted((tmp_path / "succeeded").read_text().split())


@pytest.mark.parametrize(
    ("state", "cleared", "driven_by"),
    [
        ("success", ("drive", EPOCHS[5]), "drive/2"),
        pytest.param("failed", (EPOCHS[5],), "epochs.e005/2", marks=nightly("marked in another way")),
    ],
    ids=["success", "failed"],
)
def test_driver_that_is_marked_takes_its_spark_with_it_and_the_run_goes_on_to_the_bits_of_every_other_way(
    airflow: AirflowSite, tmp_path: Path, undisturbed: str, state: str, cleared: tuple[str, ...], driven_by: str
) -> None:
    """Then it is cleared with the epoch that failed for that, or the epoch alone, which drives the rest.

    The other ways are those of a DAG run that nobody disturbs, and of a run that somebody types, both without Spark.
    """
    for name in ("typed", "watched"):
        (tmp_path / name).mkdir()
    watched = tmp_path / "watched"
    dag_run_id = hold(airflow, ON_SPARK, watched, epoch=5)
    run_key = f"{ON_SPARK}/{dag_run_id}"
    shell = CommandLine(store_url=str(airflow.store.url), folder=tmp_path, cwd=DAGS)
    typed = shell.run("counting_team.counting:counting", tmp_path.name, "--param", f"trace={tmp_path / 'typed'}")
    address = airflow.links(ON_SPARK, dag_run_id, "drive")["Spark UI"]
    assert address is not None
    page = httpx.get(address, follow_redirects=True)

    driving = application(airflow, run_key)
    mark(airflow, ON_SPARK, dag_run_id, "drive", state)
    marked = airflow.wait(ON_SPARK, dag_run_id)
    wait_for_end(driving)
    run = airflow.store.find_run(run_key)
    (watched / "released").touch()
    airflow.api.clear(ON_SPARK, dag_run_id, task_ids=cleared)
    ended = airflow.wait(ON_SPARK, dag_run_id)

    names = ("drive", EPOCHS[5], EPOCHS[6], "finish")
    assert [state, "failed", "upstream_failed", "failed"] == [marked.tasks[name] for name in names]
    assert run is not None
    assert (5, "success") == (run.epochs, ended.state)
    assert ["drive/1", driven_by, "finish/2"] == drivers(airflow, ended)
    assert f"iteration {run_key}" in page.text
    afterwards = airflow.links(ON_SPARK, dag_run_id, driven_by.partition("/")[0])["Spark UI"]
    assert re.fullmatch(rf"{HISTORY}/history/local-\d+/jobs/", str(afterwards))
    assert WHOLE + Counter(["added 5"]) == bodies(watched)
    assert [undisturbed] * 2 == [state_digest(airflow, ended), typed.json["state_digest"]]


@nightly("on every change a task that drives epochs of its own on Spark is killed and retried")
def test_driver_that_is_killed_takes_its_spark_with_it_and_its_retry_goes_on_to_the_same_bits(
    airflow: AirflowSite, tmp_path: Path, undisturbed: str
) -> None:
    dag_run_id = hold(airflow, ON_SPARK, tmp_path, epoch=5)

    killed = application(airflow, f"{ON_SPARK}/{dag_run_id}")
    task_of(killed).kill()
    wait_for_end(killed)
    wait_until_again_in("added 5", tmp_path, times=2)
    (tmp_path / "released").touch()
    ended = airflow.wait(ON_SPARK, dag_run_id)

    assert ("success", {"success"}) == (ended.state, set(ended.tasks.values()))
    assert ["drive/1", "drive/2", "finish/1"] == drivers(airflow, ended)
    assert WHOLE + Counter(["added 5"]) == bodies(tmp_path)
    assert undisturbed == state_digest(airflow, ended)
