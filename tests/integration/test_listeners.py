"""Does a listener hear of every durable epoch, in order, and does its effect happen once? On a real store.

What a listener returns is committed with the mark that it has heard: a process that dies in between makes it hear
again, under the same id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from iteration_lib.coordinator import Publish
from iteration_lib.errors import OperatorFailedError
from iteration_lib.protocol import Event, RunState
from iteration_lib.protocol.event import OutputsPublished
from iteration_lib.protocol.state import RunId
from iteration_lib.protocol.status import AttemptOutcome, RunStatus
from iteration_lib.store.postgres import PostgresStore
from tests.driven_here import DEADLINE_SECONDS, KILL, Here, Latch, MortalCoordinator
from tests.failover.driven import wait_until
from tests.iterations.told import told

pytestmark = pytest.mark.postgres


@pytest.fixture
def here(store: PostgresStore, tmp_path: Path) -> Here:
    return Here.begin(store, tmp_path, told)


def lines(here: Here, name: str) -> list[str]:
    """Return what a listener said it heard, in order: the epochs."""
    said = [line.split() for line in (here.desk / "log").read_text().splitlines()]
    return [words[1] for words in said if words[0] == name and len(words) == 2]


def ids(here: Here, name: str, epoch: int) -> list[str]:
    """Return the ids under which a listener heard of an epoch."""
    said = [line.split() for line in (here.desk / "log").read_text().splitlines()]
    return [words[3] for words in said if words[:2] == [name, str(epoch)] and len(words) == 4]


def effects(here: Here, name: str) -> list[tuple[int, object]]:
    """Return what is stored of a listener: epochs and effects."""
    return [(notice.epoch, notice.effect) for notice in here.store.list_notices(here.run.run_id, name)]


def in_turn(here: Here) -> dict[str, Callable[[], None]]:
    """Hold epoch 1 back until all have heard of epoch 0: `heard` is the first to hear of it then."""

    def wait() -> None:
        wait_until(lambda: effects(here, "overheard") != [], "all to hear of epoch 0")

    return {"manifest_written@1": wait}


EFFECTS = [(epoch, {"level": epoch + 1.0, "records": {"level": 2}}) for epoch in range(3)]


def test_listener_hears_of_every_durable_epoch_once_in_order_and_of_the_end_once(here: Here) -> None:
    run = here.drive()

    assert ["0", "1", "2"] == lines(here, "heard") == lines(here, "overheard")
    assert ["2"] == lines(here, "ended")
    assert EFFECTS == effects(here, "heard")
    assert [(0, None), (1, None), (2, None)] == effects(here, "overheard")
    assert [(2, {"by": "max_epochs"})] == effects(here, "ended")
    assert RunStatus.FINISHED is run.status


def test_listener_hears_of_no_epoch_that_is_not_durable(here: Here) -> None:
    """Epoch 1 has reported everything, and is held until the checkpoint of epoch 0 is written."""
    latch = Latch()
    with here.driving(script={"manifest_written@0": latch}) as driving, latch:
        wait_until(lambda: len(here.epochs) > 1 and here.epochs[1].held_at is not None, "epoch 1 to be held")
        heard = lines(here, "heard")
        latch.open()
        driving.result(DEADLINE_SECONDS)

    assert [] == heard
    assert ["0", "1", "2"] == lines(here, "heard")


def test_listener_that_was_called_when_the_process_died_hears_again_under_the_same_id(here: Here) -> None:
    here.drive_and_fail(script={**in_turn(here), "listener_called@1": KILL})
    before = effects(here, "heard")

    here.drive()

    assert EFFECTS[:1] == before
    assert ["0", "1", "1", "2"] == lines(here, "heard")
    assert 1 == len(set(ids(here, "heard", 1)))
    assert 3 == len({ids(here, "heard", epoch)[0] for epoch in range(3)})
    assert EFFECTS == effects(here, "heard")


def test_listener_whose_effect_is_stored_does_not_hear_again(here: Here) -> None:
    here.drive_and_fail(script={**in_turn(here), "listener_notified@1": KILL})

    here.drive()

    assert ["0", "1", "2"] == lines(here, "heard")
    assert EFFECTS == effects(here, "heard")


def test_listener_hears_of_every_epoch_that_one_checkpoint_covers(store: PostgresStore, tmp_path: Path) -> None:
    here = Here.begin(store, tmp_path, told, max_epochs=6)
    here.drive_and_fail(
        every_epochs=3,
        script={
            "epoch_opened@4": lambda: wait_until(lambda: here.found.last_durable_epoch == 2, "epoch 2 to be durable"),
            "epoch_aligned@4": KILL,
        },
    )
    before = [epoch for epoch, _ in effects(here, "heard")]

    here.drive(every_epochs=3)

    assert before == [0, 1, 2][: len(before)]
    assert ["0", "1", "2", "3", "4", "5"] == lines(here, "heard")
    assert list(range(6)) == [epoch for epoch, _ in effects(here, "heard")]


def test_last_epoch_of_an_attempt_is_heard_of_before_it_ends(here: Here) -> None:
    here.drive(until_epoch=2)

    assert EFFECTS[:2] == effects(here, "heard")
    assert [] == effects(here, "ended")


def test_listener_that_raises_ends_the_attempt_and_hears_again(here: Here) -> None:
    here.order("fail", "heard 1")
    error = here.drive_and_fail()
    failed, overheard = here.found, lines(here, "overheard")
    here.clear("fail")

    run = here.drive()

    assert isinstance(error, OperatorFailedError)
    assert "'heard'" in str(error)
    assert "told to fail: heard 1" in str(error)
    assert (RunStatus.FAILED, str(error)) == (failed.status, failed.failure)
    assert ["0", "1", "1", "2"] == lines(here, "heard")
    assert 1 == len(set(ids(here, "heard", 1)))
    assert overheard in (["0"], ["0", "1"])  # by whether epoch 1 was durable when it heard of epoch 0
    assert ["0", "1", "2"] == lines(here, "overheard")
    assert EFFECTS == effects(here, "heard")
    assert RunStatus.FINISHED is run.status


def test_listener_of_the_end_that_raises_leaves_a_run_that_has_only_that_to_do(here: Here) -> None:
    here.order("fail", "ended 2")
    error = here.drive_and_fail()
    failed, bodies = here.found, lines(here, "raised")
    here.clear("fail")

    run = here.drive()

    assert isinstance(error, OperatorFailedError)
    assert (RunStatus.FAILED, 3) == (failed.status, failed.epochs)
    assert RunStatus.FINISHED is run.status
    assert ["0", "1", "2"] == bodies == lines(here, "raised")
    assert ["2", "2"] == lines(here, "ended")
    assert 1 == len(set(ids(here, "ended", 2)))
    assert [(2, {"by": "max_epochs"})] == effects(here, "ended")


class DiesBeforePublishing(MortalCoordinator):
    """Dies between the listeners' calls and the commit that finishes the run."""

    def apply(self, run_id: RunId, *events: Event, publish: Publish | None = None) -> RunState:
        """See Coordinator."""
        if any(isinstance(event, OutputsPublished) for event in events):
            self.kill()
        return super().apply(run_id, *events, publish=publish)


def test_listener_of_the_end_hears_again_under_the_same_id_when_the_process_dies_before_the_run_is_finished(
    here: Here,
) -> None:
    here.drive_and_fail(coordinator_class=DiesBeforePublishing)
    before = here.found.status, effects(here, "ended")

    run = here.drive()

    assert (RunStatus.TERMINATING, []) == before
    assert ["2", "2"] == lines(here, "ended")
    assert 1 == len(set(ids(here, "ended", 2)))
    assert [(2, {"by": "max_epochs"})] == effects(here, "ended")
    assert RunStatus.FINISHED is run.status


@pytest.mark.parametrize("place", ["pointer_written", "checkpoint_completed@2"])
def test_end_is_heard_of_once_by_whoever_finishes_the_run(here: Here, place: str) -> None:
    here.drive_and_fail(script={place: KILL})

    here.drive()

    assert ["2"] == lines(here, "ended")
    assert ["0", "1", "2"] == lines(here, "heard")
    assert {1} == set(Counter(lines(here, "raised")).values())
    outcomes = [attempt.outcome for attempt in here.store.list_attempts(here.run.run_id)]
    assert [AttemptOutcome.SUPERSEDED, AttemptOutcome.FINISHED] == outcomes


def test_finished_run_tells_nobody_again(here: Here) -> None:
    here.drive_and_fail(script={"run_finished": KILL})
    before = (here.desk / "log").read_text()

    error = here.drive_and_fail()

    assert "finished" in str(error)
    assert before == (here.desk / "log").read_text()
