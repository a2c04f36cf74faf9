"""What happens in a run that a person stops, drains and resumes? On a real store, with the driver in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import OperatorFailedError, RunStoppedError
from iteration_lib.protocol.event import RunResumed, StopRequested
from iteration_lib.protocol.status import RunStatus, StopKind, TerminatedBy
from iteration_lib.store.postgres import PostgresStore
from tests.driven_here import DEADLINE_SECONDS, KILL, Here, Killed, Latch, be_told_to_end
from tests.failover.driven import wait_until
from tests.iterations.steered import steered
from tests.iterations.told import told
from tests.protocol_script import stop_id
from tests.store_script import new_family

pytestmark = pytest.mark.postgres

EPOCHS = 4


@pytest.fixture
def here(store: PostgresStore, tmp_path: Path) -> Here:
    return Here.begin(store, tmp_path, steered, epochs=EPOCHS)


@pytest.fixture
def heard(store: PostgresStore, tmp_path: Path) -> Here:
    """A run with listeners, of three epochs."""
    return Here.begin(store, tmp_path, told)


@pytest.fixture(scope="module")
def undisturbed(store: PostgresStore, tmp_path_factory: pytest.TempPathFactory) -> Here:
    """A run that nobody stopped."""
    here = Here.begin(store, tmp_path_factory.mktemp("undisturbed"), steered, epochs=EPOCHS)
    assert RunStatus.FINISHED is here.drive().status
    return here


def asking(here: Here, kind: StopKind = StopKind.STOP) -> Callable[[], None]:
    """Return what asks a run to stop, from a connection of its own."""
    return lambda: ask(here, kind)


def ask(here: Here, kind: StopKind = StopKind.STOP) -> None:
    event = StopRequested(stop_id=stop_id(1, new_family()), kind=kind, requested_by="ann")
    Coordinator(here.store).apply(here.run.run_id, event)


def resume(here: Here) -> None:
    stop = here.store.list_stops(here.run.run_id)[-1]
    Coordinator(here.store).apply(here.run.run_id, RunResumed(stop_id=stop.stop_id, resumed_by="bob"))


def heard_lines(here: Here) -> list[str]:
    """Return what the listeners said they heard, in order."""
    lines = (here.desk / "log").read_text().splitlines()
    return [line for line in lines if line.split()[0] in ("heard", "ended") and len(line.split()) == 2]


def test_run_stops_after_the_epoch_in_progress_with_a_checkpoint_of_it_and_goes_on_to_the_same_bits(
    here: Here, undisturbed: Here
) -> None:
    """Though the pace would have none: the request came while epoch 1 was computed."""
    stopped = here.drive(script={"epoch_written@1": asking(here)}, every_epochs=10)
    checkpoints = [(known.epoch, known.kind.value, known.status.value) for known in here.checkpoints]
    attempts = here.store.list_attempts(here.run.run_id)

    assert (RunStatus.STOPPED, 1, StopKind.STOP) == (stopped.status, stopped.last_durable_epoch, stopped.asked_to)
    assert ([(1, "MANUAL", "COMPLETED")], ["DURABLE", "DURABLE"]) == (checkpoints, here.statuses)
    assert ["RELEASED"] == [known.outcome.value for known in attempts if known.outcome]

    resume(here)
    finished = here.drive()

    assert RunStatus.FINISHED is finished.status
    assert undisturbed.found.state_digest == finished.state_digest
    assert {"2", "3"} <= here.epochs_that_ran


def test_run_is_stopped_in_the_transaction_that_ends_its_attempt(here: Here) -> None:
    here.drive(script={"epoch_written@0": asking(here)})

    (stop,), (attempt,) = here.store.list_stops(here.run.run_id), here.store.list_attempts(here.run.run_id)
    assert stop.stopped_at is not None
    assert attempt.ended_at is not None
    assert stop.stopped_at >= attempt.ended_at >= here.epochs[0].durable_at


def test_request_that_comes_while_an_epoch_is_held_stops_behind_it(here: Here) -> None:
    latch = Latch()
    with here.driving(script={"manifest_written@0": latch}) as driving, latch:
        wait_until(lambda: len(here.epochs) > 1 and here.epochs[1].held_at is not None, "epoch 1 to be held")
        ask(here)
        latch.open()
        run = driving.result(DEADLINE_SECONDS)

    assert (RunStatus.STOPPED, ["DURABLE", "DURABLE"]) == (run.status, here.statuses)


def test_stop_waits_for_the_listeners_of_its_last_epoch_and_nobody_hears_of_an_end(heard: Here) -> None:
    heard.drive(script={"epoch_written@1": asking(heard)})

    told_before = heard_lines(heard)
    resume(heard)
    heard.drive()

    assert ["heard 0", "heard 1"] == told_before
    assert ["heard 0", "heard 1", "heard 2", "ended 2"] == heard_lines(heard)


def test_drained_run_ends_with_the_epoch_in_progress_as_any_run_ends(heard: Here) -> None:
    run = heard.drive(script={"epoch_written@1": asking(heard, StopKind.DRAIN)})

    (ended,) = heard.store.list_notices(heard.run.run_id, "ended")
    assert (RunStatus.FINISHED, TerminatedBy.DRAINED, 1) == (run.status, run.terminated_by, run.last_durable_epoch)
    assert ["heard 0", "heard 1", "ended 1"] == heard_lines(heard)
    assert {"by": "drained"} == ended.effect
    assert run.outputs is not None
    assert {"level"} == set(run.outputs)


@pytest.mark.parametrize("point", ["stop_reached@1", "checkpoint_completed@1"])
def test_crash_between_the_last_checkpoint_and_the_stop_leaves_it_to_the_next_attempt_which_runs_nothing(
    here: Here, point: str
) -> None:
    script = {"epoch_written@1": asking(here), point: KILL}
    assert isinstance(here.drive_and_fail(script=script), Killed)
    here.log()

    assert isinstance(here.drive_and_fail(), RunStoppedError)

    assert (RunStatus.STOPPED, ["DURABLE", "DURABLE"]) == (here.found.status, here.statuses)
    assert set() == here.epochs_that_ran
    assert ["SUPERSEDED"] == [
        known.outcome.value for known in here.store.list_attempts(here.run.run_id) if known.outcome
    ]


@pytest.mark.parametrize("point", ["epoch_written@1", "epoch_aligned@1", "manifest_written@1"])
def test_crash_before_the_last_checkpoint_is_complete_lets_the_next_attempt_stop_after_that_epoch(
    here: Here, undisturbed: Here, point: str
) -> None:
    def ask_once_epoch_0_is_durable() -> None:
        wait_until(lambda: here.found.last_durable_epoch == 0, "epoch 0 to be durable")
        ask(here)

    script = {"epoch_opened@1": ask_once_epoch_0_is_durable, point: KILL}
    assert isinstance(here.drive_and_fail(script=script), Killed)
    here.log()

    stopped = here.drive()

    assert (RunStatus.STOPPED, 1) == (stopped.status, stopped.last_durable_epoch)
    assert {"1"} == here.epochs_that_ran
    resume(here)
    assert undisturbed.found.state_digest == here.drive().state_digest


def test_attempt_that_is_told_to_end_stops_the_run_where_it_is_durable(here: Here) -> None:
    def be_stopped() -> None:
        wait_until(lambda: here.found.last_durable_epoch == 1, "epoch 1 to be durable")
        ask(here)
        be_told_to_end()

    assert isinstance(here.drive_and_fail(script={"epoch_opened@2": be_stopped}), SystemExit)

    assert (RunStatus.STOPPED, 1) == (here.found.status, here.found.last_durable_epoch)


def test_attempt_that_fails_leaves_the_stop_to_the_next_one(here: Here) -> None:
    here.order("fail", "total 2 -")
    failure = here.drive_and_fail(script={"epoch_opened@2": asking(here)}, patience_seconds=DEADLINE_SECONDS)
    assert isinstance(failure, OperatorFailedError)
    failed = here.found
    here.clear("fail")

    stopped = here.drive()

    assert (RunStatus.FAILED, StopKind.STOP) == (failed.status, failed.asked_to)
    assert (RunStatus.STOPPED, 2) == (stopped.status, stopped.last_durable_epoch)


def test_attempt_whose_last_epoch_comes_anyway_is_stopped_behind_it(here: Here) -> None:
    run = here.drive(until_epoch=2, script={"epoch_written@1": asking(here)})

    assert (RunStatus.STOPPED, 1) == (run.status, run.last_durable_epoch)


def test_stopped_run_is_refused_with_what_lets_it_go_on(here: Here) -> None:
    ask(here)

    error = here.drive_and_fail()

    assert f"run {here.run.run_id} is stopped; `iteration resume {here.run.run_id}` lets it go on" == str(error)
    assert () == here.store.list_attempts(here.run.run_id)
