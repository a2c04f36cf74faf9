"""Is a loop in a script a run like any other? On a real store, in this process."""

# ruff: noqa: PT012 - the block that raises is a whole script

from __future__ import annotations

import copy
import re
import signal
import uuid
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iteration_lib
from iteration_lib import Checkpointing, open_run
from iteration_lib.config import Settings
from iteration_lib.coordinator import Coordinator
from iteration_lib.driver.attempt import attempt_folder
from iteration_lib.engine import Engine, EngineKind
from iteration_lib.errors import (
    LeaseHeldError,
    LoopRunError,
    ParameterError,
    RunMismatchError,
    RunStoppedError,
    StateCorruptedError,
    StateLocationError,
    SupersededError,
    UsageError,
    ValueNotKeptError,
)
from iteration_lib.launch import Drive, Request, drive_run
from iteration_lib.launch import open_run as open_run_of_iteration
from iteration_lib.loop_run import LoopRun
from iteration_lib.model.loop import BODY
from iteration_lib.planning import plan_run
from iteration_lib.process import this_holder
from iteration_lib.protocol.event import RunResumed, StopRequested
from iteration_lib.protocol.resume import Action
from iteration_lib.protocol.status import (
    AttemptOutcome,
    CheckpointStatus,
    EpochStatus,
    RunStatus,
    StopKind,
    TerminatedBy,
)
from iteration_lib.store.dialogue import Call, Dialogues
from iteration_lib.store.opening import find_run
from iteration_lib.store.postgres import PostgresStore, open_engine
from iteration_lib.store.record import AttemptRecord, RunRecord
from iteration_lib.verification import verify_run
from tests.failover.driven import wait_until

pytestmark = pytest.mark.postgres


class Script:
    """A script that halves a level, with its own store and state; `bodies` are the epochs whose bodies began."""

    def __init__(self, store: PostgresStore, store_url: str, state: Path) -> None:
        self.key = uuid.uuid4().hex
        self.store = store
        self.bodies: list[int] = []
        self.state = state
        self._where = {"store": store_url, "state": str(state)}

    def open(self, **options: Any) -> AbstractContextManager[LoopRun]:
        """Open the run."""
        return open_run(self.key, **self._where, **options)

    def run(
        self,
        *,
        fails_in: int | None = None,
        asked_in: tuple[int, StopKind] | None = None,
        until: float = 0.1,
        **options: Any,
    ) -> float:
        """Run the script; in one epoch it may fail, or a person may ask it to stop or to drain."""
        with self.open(**options) as run:
            for epoch in run.epochs(level=lambda: np.array([8.0]), max_epochs=50):
                self.bodies.append(epoch.number)
                if epoch.number == fails_in:
                    raise ValueError("out of luck")
                if asked_in is not None and epoch.number == asked_in[0]:
                    stop = StopRequested(stop_id=str(uuid.uuid4()), kind=asked_in[1], requested_by="ann")
                    Coordinator(self.store).apply(self.record.run_id, stop)
                epoch.level = epoch.level / 2
                epoch.metrics(level=epoch.level[0])
                if epoch.level[0] < until:
                    epoch.stop()
            return float(run.result.level[0])

    @property
    def record(self) -> RunRecord:
        """The run as the store has it."""
        return find_run(self.store, self.key)

    @property
    def attempts(self) -> tuple[AttemptRecord, ...]:
        """Its attempts."""
        return tuple(self.store.list_attempts(self.record.run_id))

    @property
    def statuses(self) -> list[CheckpointStatus]:
        """The statuses of its checkpoints."""
        return [known.status for known in self.store.list_checkpoints(self.record.run_id)]


@pytest.fixture
def script(store: PostgresStore, store_url: str, tmp_path: Path) -> Script:
    return Script(store, store_url, tmp_path / "state")


def test_loop_that_stops_is_a_finished_run_with_its_reason_its_metrics_and_its_outputs(
    script: Script, store_url: str
) -> None:
    result = script.run()

    run = script.record
    epochs = script.store.list_epochs(run.run_id)
    assert 0.0625 == result
    assert (RunStatus.FINISHED, TerminatedBy.CRITERIA, 7) == (run.status, run.terminated_by, run.epochs)
    assert [{"level": 8 / 2 ** (epoch + 1)} for epoch in range(7)] == [dict(epoch.metrics) for epoch in epochs]
    assert {"level": 1, "criteria": 0} == dict(epochs[-1].decision_records or {})
    assert {"value": [0.0625]} == iteration_lib.load(script.key, store=store_url)["level"].to_pydict()
    assert [(AttemptOutcome.FINISHED, None)] == [(attempt.outcome, attempt.reason) for attempt in script.attempts]


def test_loop_that_a_person_stops_ends_after_its_epoch_by_an_error_and_goes_on_once_it_is_resumed(
    script: Script,
) -> None:
    """What stands behind the loop must not take half of a result for the whole."""
    with pytest.raises(RunStoppedError):
        script.run(asked_in=(2, StopKind.STOP))
    stopped, (attempt,) = script.record, script.attempts
    with pytest.raises(RunStoppedError):
        script.run()
    (stop,) = script.store.list_stops(stopped.run_id)
    Coordinator(script.store).apply(stopped.run_id, RunResumed(stop_id=stop.stop_id, resumed_by="bob"))

    result = script.run()

    assert (RunStatus.STOPPED, 3) == (stopped.status, stopped.epochs)
    assert (AttemptOutcome.RELEASED, "its run was asked to stop") == (attempt.outcome, attempt.reason)
    assert (0.0625, [0, 1, 2, 3, 4, 5, 6]) == (result, script.bodies)


def test_loop_that_a_person_drains_ends_with_its_epoch_as_any_other_and_has_a_result(script: Script) -> None:
    result = script.run(asked_in=(2, StopKind.DRAIN))

    run = script.record
    assert (1.0, [0, 1, 2]) == (result, script.bodies)
    assert (RunStatus.FINISHED, TerminatedBy.DRAINED) == (run.status, run.terminated_by)


def test_finished_run_yields_no_epoch_and_gives_its_result_at_once(script: Script) -> None:
    first = script.run()
    bodies = list(script.bodies)

    second = script.run()

    assert (first, bodies, 1) == (second, script.bodies, len(script.attempts))


def test_loop_ends_after_its_last_epoch_without_being_told(script: Script) -> None:
    script.run(until=0.0)

    assert (TerminatedBy.MAX_EPOCHS, 50) == (script.record.terminated_by, script.record.epochs)


def test_error_in_the_body_passes_through_fails_the_attempt_and_the_next_goes_on_there(script: Script) -> None:
    with pytest.raises(ValueError, match="out of luck"):
        script.run(fails_in=3)
    failed = script.record
    result = script.run()

    assert (RunStatus.FAILED, 3, "ValueError: out of luck") == (failed.status, failed.epochs, failed.failure)
    assert ([0, 1, 2, 3, 3, 4, 5, 6], 0.0625) == (script.bodies, result)


def test_error_of_another_run_that_the_body_drives_fails_the_attempt_as_any_other(script: Script) -> None:
    """It is not this attempt that was superseded: that must not be left open."""
    other = SupersededError(run_id="another", held=1, current=2)

    with pytest.raises(SupersededError) as passed, script.open() as run:
        for epoch in run.epochs(level=1, max_epochs=9):
            if epoch.number == 2:
                raise other

    assert other is passed.value
    assert (RunStatus.FAILED, 2) == (script.record.status, script.record.epochs)
    assert [(AttemptOutcome.FAILED, f"SupersededError: {other}")] == [
        (known.outcome, known.reason) for known in script.attempts
    ]


def test_error_of_a_checkpoint_that_the_script_swallows_comes_again_at_the_end_of_its_block(script: Script) -> None:
    """Else the attempt would end as if its loop had been left."""
    told = pytest.raises(StateLocationError, match=r"checkpoint-000001\.json")
    with told as passed, script.open() as run, suppress(StateLocationError):
        for epoch in run.epochs(level=8, max_epochs=4):
            if epoch.number == 0:
                (live,) = script.attempts
                folder = script.state / script.record.run_id / attempt_folder(1, live.attempt_id)
                (folder / "checkpoint-000001.json").mkdir(parents=True)
            else:
                wait_until(lambda: script.statuses == [CheckpointStatus.ABORTED], "the checkpoint to fail")

    (attempt,) = script.attempts
    assert (AttemptOutcome.FAILED, str(passed.value)) == (attempt.outcome, attempt.reason)
    assert (RunStatus.FAILED, 0) == (script.record.status, script.record.epochs)
    assert 1 == epoch.number


def test_first_value_is_asked_for_only_where_no_epoch_is_durable(script: Script) -> None:
    asked: list[str] = []

    def start() -> int:
        asked.append("asked")
        return 1

    for fails_in in (0, 1, None):
        with suppress(ZeroDivisionError), script.open() as run:
            for epoch in run.epochs(count=start, max_epochs=3):
                epoch.count += 1 // (epoch.number != fails_in)

    assert (["asked", "asked"], 4) == (asked, run.result.count)


def test_loop_that_is_left_by_break_keeps_the_epochs_before_and_goes_on_with_that_one(script: Script) -> None:
    with script.open() as run:
        for epoch in run.epochs(level=8, max_epochs=4):
            epoch.level -= 1
            if epoch.number == 2:
                break
        left_at = epoch.number
    with pytest.raises(
        UsageError, match=r"has no result before its loop has come to its end; end it by epoch.stop\(\)"
    ):
        run.result  # noqa: B018 - to ask is the test
    left, (attempt,) = script.record, script.attempts

    with script.open() as run:
        numbers = [epoch.number for epoch in run.epochs(level=8, max_epochs=4)]

    assert (2, RunStatus.RUNNING, 2) == (left_at, left.status, left.epochs)
    assert (AttemptOutcome.RELEASED, "its loop was left") == (attempt.outcome, attempt.reason)
    assert ([2, 3], 6) == (numbers, run.result.level)


def test_interrupt_releases_the_run(script: Script) -> None:
    with pytest.raises(KeyboardInterrupt), script.open() as run:
        for epoch in run.epochs(level=8, max_epochs=4):
            if epoch.number == 1:
                raise KeyboardInterrupt

    (attempt,) = script.attempts
    assert (RunStatus.RUNNING, 1) == (script.record.status, script.record.epochs)
    assert (AttemptOutcome.RELEASED, "interrupted") == (attempt.outcome, attempt.reason)


def test_error_behind_the_loop_does_not_undo_it(script: Script) -> None:
    with pytest.raises(ValueError, match="too late"), script.open() as run:
        for _ in run.epochs(level=8, max_epochs=2):
            pass
        raise ValueError("too late")

    assert (RunStatus.FINISHED, AttemptOutcome.FINISHED) == (script.record.status, script.attempts[-1].outcome)


def test_variable_that_nobody_touches_stays_what_it_is(script: Script) -> None:
    with script.open() as run:
        for epoch in run.epochs(level=8, kept={"a": np.arange(3)}, max_epochs=3):
            epoch.level -= 1

    assert ([0, 1, 2], 5) == (run.result.kept["a"].tolist(), run.result.level)


def test_variable_may_be_another_type_in_every_epoch(script: Script) -> None:
    seen = []
    with script.open() as run:
        for epoch in run.epochs(best=None, max_epochs=3):
            seen.append(epoch.best)
            epoch.best = {"epoch": epoch.number} if epoch.number else 0.5

    assert ([None, 0.5, {"epoch": 1}], {"epoch": 2}) == (seen, run.result.best)


def test_first_epoch_sees_what_a_resumed_one_would_see(script: Script) -> None:
    """Arrays arrive in C order, and as nobody else's, though nothing was restored."""
    given = np.asfortranarray(np.eye(3))
    with script.open() as run:
        for epoch in run.epochs(place=given, max_epochs=1):
            seen = epoch.place
            seen[0, 0] = 9.0

    assert (True, 1.0, 9.0) == (seen.flags.c_contiguous, given[0, 0], run.result.place[0, 0])


def test_array_that_the_body_changes_later_is_not_changed_in_the_epoch_that_it_was_given_to(script: Script) -> None:
    kept, seen = np.zeros(1), []
    with script.open() as run:
        for epoch in run.epochs(level=np.zeros(1), max_epochs=3):
            seen.append(epoch.level[0])
            kept += 1
            epoch.level = kept
        kept += 1

    assert ([0.0, 1.0, 2.0], 3.0) == (seen, run.result.level[0])


def test_value_that_cannot_be_kept_is_named_and_the_run_goes_on_once_it_is_mended(script: Script) -> None:
    with (
        pytest.raises(ValueNotKeptError, match=r"^variable level\['best'\] is a list; make it an array"),
        script.open() as run,
    ):
        for epoch in run.epochs(level=8, max_epochs=2):
            epoch.level = {"best": [1, 2]} if epoch.number else 7
    with script.open() as run:
        numbers = [epoch.number for epoch in run.epochs(level=8, max_epochs=2)]

    assert ([1], 7) == (numbers, run.result.level)


@pytest.mark.parametrize(
    ("params", "variables", "max_epochs", "difference"),
    [
        ({"k": 9}, ["level"], 4, "parameter 'k' was 8, now 9"),
        ({}, ["level"], 4, "parameter 'k' was 8, now null"),
        ({"k": 8}, ["level"], 5, "parameter 'max_epochs' was 4, now 5"),
        ({"k": 8}, ["level", "rng"], 4, "variable 'rng' is new"),
        ({"k": 8}, ["place"], 4, "variable 'level' is gone"),
    ],
)
def test_run_of_other_parameters_or_variables_is_refused_with_the_difference(
    script: Script, params: dict[str, int], variables: list[str], max_epochs: int, difference: str
) -> None:
    with script.open(params={"k": 8}) as run:
        next(iter(run.epochs(level=8, max_epochs=4)))

    with pytest.raises(RunMismatchError) as refused, script.open(params=params) as run:
        next(iter(run.epochs(**dict.fromkeys(variables, 8), max_epochs=max_epochs)))

    assert difference in refused.value.differences
    assert 1 == len(script.attempts)


def test_max_epochs_may_be_a_parameter_too_if_it_is_the_same(script: Script) -> None:
    with script.open(params={"max_epochs": 2}) as run:
        numbers = [epoch.number for epoch in run.epochs(level=8)]
    with (
        pytest.raises(ParameterError, match="'max_epochs' is 2, but the loop has 3"),
        script.open(params={"max_epochs": 2}) as run,
    ):
        next(iter(run.epochs(level=8, max_epochs=3)))

    assert [0, 1] == numbers


def test_two_at_once_are_one_too_many_unless_one_takes_over(script: Script) -> None:
    with pytest.raises(SupersededError), script.open() as first:
        for epoch in first.epochs(level=8, max_epochs=3):
            if epoch.number == 1:
                with pytest.raises(LeaseHeldError), script.open() as second:
                    next(iter(second.epochs(level=8, max_epochs=3)))
                wait_until(lambda: [CheckpointStatus.COMPLETED] == script.statuses, "epoch 0, written beside this body")
                with script.open(takeover=True) as third:
                    numbers = [found.number for found in third.epochs(level=8, max_epochs=3)]

    assert ([1, 2], RunStatus.FINISHED) == (numbers, script.record.status)


def test_run_has_one_loop(script: Script) -> None:
    with script.open() as run:
        assert 2 == len(list(run.epochs(level=8, max_epochs=2)))

        with pytest.raises(UsageError, match="has one loop; open another run for another loop"):
            list(run.epochs(level=8, max_epochs=2))


def test_value_that_is_given_to_an_epoch_of_the_past_is_refused(script: Script) -> None:
    """As by a loop over list(run.epochs(...)), all of whose epochs are over before the first body."""
    with pytest.raises(UsageError, match="epoch 0 is over"), script.open() as run:
        epochs = run.epochs(level=8, max_epochs=5)
        first = next(epochs)
        next(epochs)
        first.level = 9

    assert (RunStatus.FAILED, 1) == (script.record.status, script.record.epochs)


def test_loop_behind_the_block_is_refused(script: Script) -> None:
    """Its attempt would be ended by nobody."""
    with script.open() as run:
        begun_too_late = run.epochs(level=8, max_epochs=2)

    for epochs in (begun_too_late, run.epochs(level=8, max_epochs=2)):
        with pytest.raises(UsageError, match="is closed; loop over its epochs inside the `with` block"):
            next(epochs)
    assert script.store.find_run(script.key) is None


def test_result_may_be_copied(script: Script) -> None:
    with script.open() as run:
        list(run.epochs(level=8, max_epochs=1))

        assert 8 == copy.copy(run.result).level


def test_checkpoints_are_taken_as_often_as_the_script_says(script: Script) -> None:
    script.run(checkpointing=Checkpointing(every_epochs=3))

    checkpoints = script.store.list_checkpoints(script.record.run_id)
    assert [2, 5, 6] == [known.epoch for known in checkpoints]
    assert CheckpointStatus.COMPLETED is checkpoints[-1].status


def test_epoch_without_a_checkpoint_costs_one_transaction(script: Script, store_url: str) -> None:
    """What a body feeds back, the decision and the next epoch: as for the operators of an iteration."""
    engine, counts = open_engine(store_url), []
    dialogues = Dialogues(engine)

    for max_epochs in (5, 15):
        script.key = uuid.uuid4().hex
        with script.open(checkpointing=Checkpointing(every_epochs=100)) as run:
            for epoch in run.epochs(level=8, max_epochs=max_epochs):
                epoch.level -= 1
        with dialogues.begin() as opened:
            counts.append(opened.fetch(Call("lock_run", {"run_id": script.record.run_id}))[0]["revision"])

    dialogues.release()
    engine.dispose()
    assert 10 == counts[1] - counts[0]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"checkpointing": Checkpointing(alignment_timeout_seconds=1)}, "a loop has none; drop it"),
        ({"params": {"path": Path()}}, "parameter 'path' is .*; it has to be a bool, an int, a float or a text"),
        ({"params": {"text": "\0"}}, "parameter 'text' is .*, which is no str"),
    ],
)
def test_what_a_loop_cannot_have_is_refused(script: Script, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ParameterError, match=problem), script.open(**options):
        pass


def test_empty_key_is_refused() -> None:
    with pytest.raises(UsageError, match="the run key is empty"), open_run(""):
        pass


def test_key_that_is_too_long_is_refused() -> None:
    with pytest.raises(UsageError, match="has 2001 bytes, and 2000 have room"), open_run("k" * 2_001):
        pass


@pytest.mark.parametrize("key", ["a\0b", "\ud800"])
def test_key_that_no_database_can_keep_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match="is no text that can be kept; give another one"), open_run(key):
        pass


def test_run_of_an_iteration_is_not_taken_for_a_loop_nor_the_other_way_round(
    script: Script, store: PostgresStore, tmp_path: Path
) -> None:
    settings = Settings(store_url=None, state_uri=str(tmp_path / "state"))
    counted = Request(reference=COUNTED, run_key=script.key, params={"log": str(tmp_path / "log")})
    open_run_of_iteration(store, settings, counted)

    with pytest.raises(RunMismatchError, match=f"iteration was {COUNTED}, now loop"), script.open() as run:
        next(iter(run.epochs(level=8, max_epochs=3)))

    script.key = uuid.uuid4().hex
    with pytest.raises(ValueError, match="out of luck"):
        script.run(fails_in=1)
    drive = Drive(holder=this_holder(), open_runner=Engine(kind=EngineKind.LOCAL).open_runner, parallelism=1)
    with pytest.raises(LoopRunError, match="is a loop in a script of its own; to go on with it, run that script again"):
        open_run_of_iteration(store, settings, Request(reference=COUNTED, run_key=script.key))
    with pytest.raises(LoopRunError):
        drive_run(store, settings, script.record, drive)


COUNTED = "tests.iterations.counted:counted"


def test_run_is_planned_and_verified_like_any_other(script: Script) -> None:
    with pytest.raises(ValueError, match="out of luck"):
        script.run(fails_in=2)

    plan = plan_run(script.store, script.record)
    files = verify_run(script.store, script.record)

    assert plan.resume is not None
    assert (2, (), ()) == (plan.resume.epoch, plan.refusals, plan.changes)
    steps = {step.vertex.operator_id: step.action for step in plan.resume.steps}
    assert {"level": Action.RESTORED, BODY: Action.RUN} == steps
    assert 4 == len(files)
    assert [] == [file for file in files if file.problem]


def test_loop_goes_on_from_an_older_checkpoint_to_the_same_value_where_it_is_let(script: Script) -> None:
    with pytest.raises(ValueError, match="out of luck"):
        script.run(fails_in=3)
    files = verify_run(script.store, script.record, checkpoint_id=3)
    (broken,) = (file.path for file in files if "/epoch-" in file.path)
    (script.state / script.record.run_id / broken).unlink()
    script.bodies.clear()
    with pytest.raises(StateCorruptedError, match=re.escape(broken)):
        script.run()

    result = script.run(allow_fallback=True)

    (fell,) = script.store.list_fallbacks(script.record.run_id)
    assert (3, 2) == (fell.from_checkpoint_id, fell.to_checkpoint_id)
    assert (0.0625, [2, 3, 4, 5, 6], RunStatus.FINISHED) == (result, script.bodies, script.record.status)


def test_sigterm_does_afterwards_what_it_did_before(script: Script) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with script.open():
        inside = signal.getsignal(signal.SIGTERM)

    assert signal.SIG_DFL is before is signal.getsignal(signal.SIGTERM)
    assert before is not inside


def test_handler_of_sigterm_that_the_script_sets_meanwhile_stays(script: Script) -> None:
    try:
        with script.open():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

        assert signal.SIG_IGN is signal.getsignal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_epochs_that_were_not_durable_are_voided_by_the_next_attempt(script: Script) -> None:
    with pytest.raises(ValueError, match="out of luck"):
        script.run(fails_in=2)
    script.run()

    epochs = script.store.list_epochs(script.record.run_id)
    assert [2] == [epoch.epoch for epoch in epochs if epoch.status is EpochStatus.VOIDED]
