"""What does an epochs task do with a run that it finds? Called as Airflow calls it, on a real store."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from iteration_lib import Iteration, application
from iteration_lib.airflow import StallAlert
from iteration_lib.airflow.chain import Action
from iteration_lib.airflow.driver_process import DriverProcess
from iteration_lib.airflow.operators import EpochsOperator, FinishRunOperator
from iteration_lib.airflow.work import RunningEpochs
from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import LeaseHeldError, OperatorFailedError
from iteration_lib.process import this_holder
from iteration_lib.protocol.state import Holder
from iteration_lib.protocol.status import AttemptOutcome, RunStatus, StopKind
from iteration_lib.stopping import request_stop, resume_run
from iteration_lib.store.postgres import PostgresStore
from tests.command_line import PROJECT
from tests.driven_here import DEADLINE_SECONDS, KILL, Here
from tests.failover.driven import wait_until
from tests.iterations.told import Block, ToldParams, told
from tests.protocol_script import claim
from tests.store_script import new_family

pytestmark = [pytest.mark.airflow, pytest.mark.postgres]


@pytest.fixture
def here(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    monkeypatch.setenv("ITERATION_STORE_URL", store_url)
    with closing(PostgresStore(store_url)) as store:
        yield Here.begin(store, tmp_path, told)


IDENTITY = SimpleNamespace(dag_id="dag", run_id="one", task_id="e000", map_index=-1, try_number=1)


def epochs_operator(here: Here, *, runner: str = "local", end_epoch: int = 1) -> EpochsOperator:
    """Return the Airflow operator that owns the epochs from 0."""
    return EpochsOperator(
        task_id="e000",
        reference=here.run.reference,
        run_key=here.run.run_key,
        first_epoch=0,
        end_epoch=end_epoch,
        runner=runner,
    )


def task(
    here: Here, *, runner: str = "local", dag_run_id: str = "one", end_epoch: int = 1, try_number: int = 1
) -> RunningEpochs:
    """Return a try of the task that owns the epochs from 0."""
    identity = SimpleNamespace(**{**vars(IDENTITY), "run_id": dag_run_id, "try_number": try_number})
    return RunningEpochs(epochs_operator(here, runner=runner, end_epoch=end_epoch), task_instance=identity)


def test_retry_calls_the_listener_that_failed_on_the_tasks_last_epoch_and_starts_no_spark(here: Here) -> None:
    here.order("fail", "heard 0")
    with pytest.raises(OperatorFailedError):
        task(here).run()
    failed = here.found
    here.clear("fail")

    action = task(here, runner="spark").run()

    assert (RunStatus.FAILED, 1) == (failed.status, failed.epochs)
    assert (Action.PASS, RunStatus.RUNNING) == (action, here.found.status)
    assert [0] == [notice.epoch for notice in here.store.list_notices(here.run.run_id, "heard")]


GONE = dataclasses.replace(this_holder(), process_started=this_holder().process_started + "0")


@pytest.mark.parametrize(
    "holder", [GONE, this_holder("dag/one/e000/0")], ids=["its process is gone", "it was a try of this very task"]
)
def test_retry_has_listeners_hear_what_a_killed_try_made_durable_and_starts_no_spark(
    here: Here, holder: Holder
) -> None:
    here.drive_and_fail(until_epoch=1, script={"listener_called@0": KILL}, holder=holder)
    killed = here.found

    action = task(here, runner="spark").run()

    assert (RunStatus.RUNNING, 1) == (killed.status, killed.epochs)
    assert (Action.PASS, RunStatus.RUNNING) == (action, here.found.status)
    assert [0] == [notice.epoch for notice in here.store.list_notices(here.run.run_id, "heard")]
    assert [AttemptOutcome.SUPERSEDED, AttemptOutcome.RELEASED] == outcomes(here)


def outcomes(here: Here) -> list[AttemptOutcome | None]:
    """Return how the run's attempts ended."""
    return [attempt.outcome for attempt in here.store.list_attempts(here.run.run_id)]


def test_retry_that_finds_the_run_asked_to_stop_succeeds_all_the_same_where_its_epochs_are_durable(here: Here) -> None:
    task(here).run()
    claimed = dataclasses.replace(claim(family=new_family()), holder=this_holder("dag/one/e000/0"))
    Coordinator(here.store).apply(here.run.run_id, claimed)
    request_stop(here.store, here.run, kind=StopKind.STOP, by="ann")
    asked = here.found.status

    action = task(here).run()

    assert (RunStatus.RUNNING, Action.PASS, RunStatus.STOPPED) == (asked, action, here.found.status)


def test_task_whose_epochs_are_durable_leaves_the_run_to_the_task_that_drives_it_now(here: Here) -> None:
    """One that was cleared alone, while a later one of its DAG run is at work."""
    task(here).run()
    claimed = dataclasses.replace(claim(family=new_family()), holder=this_holder("dag/one/e001/1"))
    Coordinator(here.store).apply(here.run.run_id, claimed)

    action = task(here).run()

    assert Action.PASS is action
    assert [AttemptOutcome.RELEASED, None] == outcomes(here)


def test_task_of_a_run_that_was_stopped_is_skipped_and_goes_on_once_it_is_resumed(here: Here) -> None:
    request_stop(here.store, here.run, kind=StopKind.STOP, by="ann")

    with pytest.raises(AirflowSkipException, match="`iteration resume` lets it go on, then clear this task"):
        epochs_operator(here).execute({"ti": IDENTITY})
    stopped = here.found
    resume_run(here.store, stopped, by="bob")
    action = task(here).run()

    assert (RunStatus.STOPPED, 0) == (stopped.status, stopped.fencing_token)
    assert (Action.PASS, 1) == (action, here.found.epochs)


def test_task_that_is_stopped_inside_its_epochs_halts_behind_the_one_in_progress(here: Here) -> None:
    here.order("hold", "raised 1")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(task(here, end_epoch=3).run)
        wait_until((here.desk / "held").exists, "epoch 1 to be held")
        request_stop(here.store, here.run, kind=StopKind.STOP, by="ann")
        here.clear("hold")
        action = running.result(DEADLINE_SECONDS)

    assert (Action.HALT, RunStatus.STOPPED, 2) == (action, here.found.status, here.found.epochs)


def test_finish_of_a_run_that_was_stopped_is_skipped(here: Here) -> None:
    request_stop(here.store, here.run, kind=StopKind.STOP, by="ann")

    with pytest.raises(AirflowSkipException, match=r"is stopped; `iteration resume .*` lets it go on, then clear this"):
        finish(here, opening="success")


def test_finish_of_a_group_that_was_skipped_is_skipped_and_tells_of_no_older_run(here: Here) -> None:
    """The key may have a run: the DAG run took this arm before it was cleared."""
    here.drive()

    with pytest.raises(AirflowSkipException, match=r"the task train\.open_run was skipped"):
        finish(here, opening="skipped")


@pytest.mark.parametrize("opening", ["failed", "upstream_failed"])
def test_finish_of_a_run_that_was_not_opened_names_the_task_to_clear(here: Here, opening: str) -> None:
    with pytest.raises(AirflowFailException, match=rf"open_run has not opened the run, it is {opening}: clear it"):
        finish(here, opening=opening)


def finish(here: Here, *, opening: str) -> None:
    """Do what the last task does while the one that opens the run is in a state."""
    task_instance = SimpleNamespace(**vars(IDENTITY), get_task_states=lambda **_: {"one": {"train.open_run": opening}})
    last = FinishRunOperator(
        task_id="finish", reference=here.run.reference, run_key=here.run.run_key, opening_task_id="train.open_run"
    )
    last.execute({"ti": task_instance})


def test_task_tells_whom_it_is_to_tell_when_no_epoch_becomes_durable_and_goes_on(here: Here) -> None:
    here.order("hold", "raised 0")
    told: list[str] = []

    def tell(context: dict[str, str]) -> None:
        told.append(f"{context['run_id']}: {context['reason']}")
        here.clear("hold")

    owner = epochs_operator(here)
    owner.stall_alert = StallAlert(interval=timedelta(seconds=0.2), callback=tell)

    owner.execute({"ti": IDENTITY, "run_id": "one"})

    assert ["one: no epoch has become durable for 0 s; the last one is -1"] == told[:1]
    assert 1 == here.found.epochs


@pytest.mark.parametrize("alert", [None, StallAlert(interval=timedelta(minutes=1), callback=print)])
def test_store_that_a_person_has_to_upgrade_fails_the_task_for_good_whether_or_not_it_looks_for_stalls(
    here: Here, empty_store: str, monkeypatch: pytest.MonkeyPatch, alert: StallAlert | None
) -> None:
    monkeypatch.setenv("ITERATION_STORE_URL", empty_store)
    owner = epochs_operator(here)
    owner.stall_alert = alert

    with pytest.raises(AirflowFailException, match="run `iteration db upgrade`"):
        owner.execute({"ti": IDENTITY})


def test_task_takes_the_run_from_another_task_of_its_dag_run_and_from_nobody_else(here: Here) -> None:
    """The holder is alive, as far as can be proved: this very process. Airflow runs a DAG run's tasks one at a time."""
    claimed = dataclasses.replace(claim(), holder=this_holder("dag/one/e000/1"))
    Coordinator(here.store).apply(here.run.run_id, claimed)

    with pytest.raises(LeaseHeldError):
        task(here, dag_run_id="other").run()
    action = task(here, dag_run_id="one").run()

    assert (Action.PASS, 1) == (action, here.found.epochs)


def test_task_of_a_run_that_may_not_go_on_says_which_operators_stand_in_the_way_and_submits_nothing(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when somebody edits the file between two tasks."""
    task(here).run()
    before = here.store.list_attempts(here.run.run_id)
    monkeypatch.setattr(DriverProcess, "run", lambda _: pytest.fail("an application was submitted"))
    monkeypatch.setattr("iteration_lib.launch.load_iteration", lambda _: edited())

    with pytest.raises(AirflowFailException, match="'raised'"):
        task(here, runner="spark", end_epoch=3).run()

    assert before == here.store.list_attempts(here.run.run_id)


def edited() -> Iteration:
    """Return the iteration with another body."""
    other = Iteration("told", params=ToldParams)

    @other.variable
    def level() -> Block:
        return {"l": np.ones(2)}

    @other.operator
    def raised(level: Block) -> Block:
        return {"l": level["l"] * 2.0}

    other.feedback(level=raised)
    other.output(level=raised)
    return other


def be_driven_by(here: Here, task: str) -> None:
    """Have a try of a task claim the run; its process is alive."""
    claimed = dataclasses.replace(claim(family=new_family()), holder=this_holder(task))
    Coordinator(here.store).apply(here.run.run_id, claimed)


def test_older_try_that_goes_on_late_leaves_the_run_to_the_try_that_airflow_has_started_since(here: Here) -> None:
    """Its worker was frozen before it could claim the run. A task that is cleared has a greater number again."""
    be_driven_by(here, "dag/one/e000/10")

    with pytest.raises(LeaseHeldError, match=r"is being driven by dag/one/e000/10 "):
        task(here, try_number=9).run()
    refused = outcomes(here)
    action = task(here, try_number=11).run()

    assert [None] == refused
    assert [AttemptOutcome.SUPERSEDED, AttemptOutcome.RELEASED] == outcomes(here)
    assert (Action.PASS, 1) == (action, here.found.epochs)


def test_driver_of_an_older_try_ends_without_spark_and_calls_it_no_mistake(here: Here, store_url: str) -> None:
    be_driven_by(here, "dag/one/e000/2")
    environment = {**os.environ, "ITERATION_STORE_URL": store_url, "ITERATION_TASK": "dag/one/e000/1"}

    command = [sys.executable, application.__file__, here.run.run_id, "--until-epoch", "1"]
    driver = subprocess.run(command, env=environment, cwd=PROJECT, capture_output=True, text=True, check=False)

    assert LeaseHeldError.exit_code == driver.returncode, driver.stdout + driver.stderr
    assert "is being driven by dag/one/e000/2 " in driver.stdout
    assert "event=spark_started" not in driver.stdout
    assert [None] == outcomes(here)
