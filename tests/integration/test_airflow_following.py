"""What does an epochs task do whose epochs another task drives? Called as Airflow calls it, on a real store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskDeferred

from iteration_lib.airflow.operators import FollowEpochsOperator
from iteration_lib.airflow.task_state import OVER
from iteration_lib.errors import OperatorFailedError
from iteration_lib.process import this_holder
from iteration_lib.protocol.status import RunStatus, StopKind
from iteration_lib.stopping import request_stop
from iteration_lib.store.postgres import PostgresStore
from tests.driven_here import Here
from tests.iterations.told import told

pytestmark = [pytest.mark.airflow, pytest.mark.postgres]


@pytest.fixture
def here(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    monkeypatch.setenv("ITERATION_STORE_URL", store_url)
    with closing(PostgresStore(store_url)) as store:
        yield Here.begin(store, tmp_path, told)


def follower(here: Here, *, first_epoch: int = 1, **options: Any) -> FollowEpochsOperator:
    """Return the Airflow operator that owns one epoch of three, plain Python in case that it drives."""
    return FollowEpochsOperator(
        task_id=f"e{first_epoch:03d}",
        reference=here.run.reference,
        run_key=here.run.run_key,
        first_epoch=first_epoch,
        end_epoch=first_epoch + 1,
        until_epoch=3,
        driving_task_id="drive",
        runner="local",
        **options,
    )


def context(*, drive: str | None, try_number: int = 1, clear_number: int = 0) -> dict[str, SimpleNamespace]:
    """Return what Airflow hands over while the driving task is in a state."""

    def get_task_states(*, dag_id: str, task_ids: list[str], run_ids: list[str]) -> dict[str, dict[str, str | None]]:
        return {run_ids[0]: dict.fromkeys(task_ids, drive)} if dag_id == "dag" else {}

    identity = {"dag_id": "dag", "run_id": "one", "task_id": "e001", "map_index": -1, "try_number": try_number}
    return {
        "ti": SimpleNamespace(**identity, get_task_states=get_task_states),
        "dag_run": SimpleNamespace(clear_number=clear_number),
    }


def holders(here: Here) -> list[str | None]:
    """Return which tasks have driven the run."""
    return [attempt.holder.task for attempt in here.store.list_attempts(here.run.run_id)]


@pytest.mark.parametrize("drive", [None, "scheduled", "queued", "running", "up_for_retry", "restarting"])
@pytest.mark.parametrize("try_number", [1, 2])
def test_task_waits_for_a_driving_task_that_is_not_over(here: Here, drive: str | None, try_number: int) -> None:
    with pytest.raises(TaskDeferred) as deferred:
        follower(here).execute(context(drive=drive, try_number=try_number))

    path, arguments = deferred.value.trigger.serialize()
    assert ("iteration_lib.airflow.trigger.EpochsTrigger", "follow") == (path, deferred.value.method_name)
    assert {
        "run_key": here.run.run_key,
        "store_conn_id": None,
        "first_epoch": 1,
        "end_epoch": 2,
        "dag_id": "dag",
        "dag_run_id": "one",
        "driving_task_id": "drive",
        "ends_itself": False,
    } == arguments


@pytest.mark.parametrize("option", [{"on_success_callback": print}, {"outlets": [Asset("trained")]}])
def test_task_ends_by_itself_where_its_success_calls_back_or_makes_an_asset_new(
    here: Here, option: dict[str, Any]
) -> None:
    with pytest.raises(TaskDeferred) as deferred:
        follower(here, **option).execute(context(drive="running"))

    assert deferred.value.trigger.serialize()[1]["ends_itself"]


@pytest.mark.parametrize("drive", OVER)
def test_first_try_fails_when_the_driving_task_is_over_without_its_epochs(here: Here, drive: str) -> None:
    """Also where that fails before this one begins: its retries are used up."""
    with pytest.raises(AirflowFailException, match="the task drive is over, but epoch 1 is not durable; its log says"):
        follower(here).execute(context(drive=drive))

    assert [] == holders(here)


def test_later_try_that_had_waited_fails_with_the_driving_task_as_the_first_does(here: Here) -> None:
    with pytest.raises(AirflowFailException, match="the task drive is over"):
        follower(here).follow(context(drive="failed", try_number=2), None)

    assert [] == holders(here)


@pytest.mark.parametrize(("try_number", "clear_number"), [(2, 0), (2, 1), (1, 1)])
def test_try_after_another_or_after_a_clear_takes_the_place_of_a_driving_task_that_is_over_up_to_the_runs_end(
    here: Here, try_number: int, clear_number: int
) -> None:
    """A task that never ran since the ones before it had failed is cleared to its first try."""
    follower(here).execute(context(drive="failed", try_number=try_number, clear_number=clear_number))

    assert (RunStatus.TERMINATING, 3) == (here.found.status, here.found.epochs)
    assert [f"dag/one/e001/{try_number}"] == holders(here)


@pytest.mark.parametrize("try_number", [1, 2])
def test_task_of_a_run_that_has_come_to_its_end_only_follows_though_the_driving_task_is_over(
    here: Here, try_number: int
) -> None:
    here.drive(holder=this_holder("dag/one/drive/1"))

    follower(here).execute(context(drive="success", try_number=try_number, clear_number=1))

    assert ["dag/one/drive/1"] == holders(here)


@pytest.mark.parametrize("try_number", [1, 2])
def test_task_whose_epochs_are_durable_leaves_a_failed_run_to_the_driving_tasks_retry(
    here: Here, try_number: int
) -> None:
    """Its listeners too: a token taken here would supersede the retry, which may be at work by now."""
    here.order("fail", "heard 1")
    with pytest.raises(OperatorFailedError):
        here.drive(until_epoch=2, holder=this_holder("dag/one/drive/1"))
    failed = here.found

    follower(here).execute(context(drive="up_for_retry", try_number=try_number))

    assert (RunStatus.FAILED, 2) == (failed.status, failed.epochs)
    assert failed == here.found
    assert ["dag/one/drive/1"] == holders(here)


def test_task_of_a_run_that_was_stopped_is_skipped(here: Here) -> None:
    request_stop(here.store, here.run, kind=StopKind.STOP, by="ann")

    with pytest.raises(AirflowSkipException, match="the run was stopped before this task"):
        follower(here).execute(context(drive="skipped"))


def test_task_behind_the_end_of_the_run_is_skipped(here: Here) -> None:
    here.drive(holder=this_holder("dag/one/drive/1"))

    with pytest.raises(AirflowSkipException, match="the run terminated before this task"):
        follower(here, first_epoch=5).execute(context(drive="success"))
