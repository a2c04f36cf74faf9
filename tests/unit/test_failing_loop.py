"""What is said of a loop whose body has raised an error of this project? Whether it tells of this run, or of another.

A body may drive or read other runs itself, whose operators may be called as its own variables are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

import pytest

from iteration_lib.clock import SystemClock
from iteration_lib.config import Settings
from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import (
    IterationError,
    MetricError,
    OperatorError,
    OperatorFailedError,
    SchemaMismatchError,
    StateLocationError,
)
from iteration_lib.launch import Drive
from iteration_lib.loop_run import LoopRequest, LoopRun
from iteration_lib.model.checkpointing import Checkpointing
from iteration_lib.model.loop import BODY
from iteration_lib.model.operator import Operator
from iteration_lib.process import this_holder
from iteration_lib.protocol.state import FailedOperator, RunId
from iteration_lib.protocol.status import AttemptOutcome, CheckpointFailure, RunStatus
from iteration_lib.runner.local import LocalRunner
from iteration_lib.runner.seam import Materialised, Runner, Stream
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import FileFormat, SavedStream
from iteration_lib.store.memory import MemoryStore, MemoryTransaction
from iteration_lib.store.opening import find_run
from iteration_lib.store.record import AttemptRecord, RunRecord
from tests.protocol_script import claim

BAD = -1.0


class LateRunner(LocalRunner):
    """Finds out what is wrong with a variable when the body is through, as Spark does with what is lazy."""

    def hold(self, value: object, *, operator: Operator, epoch: int | None, description: str) -> Stream:
        """See Runner."""
        held = super().hold(value, operator=operator, epoch=epoch, description=description)
        if [BAD] == self.give(held).column(0).to_pylist():  # type: ignore[attr-defined]  # a record batch
            raise OperatorFailedError(operator_id=operator.operator_id, epoch=epoch, cause="bad row")
        return held


class FullDisk(LateRunner):
    """Finds no room for an output."""

    error: BaseException = StateLocationError("disk", "is full")

    def materialise(
        self,
        stream: Stream,
        *,
        folder: str | None,
        file_format: FileFormat = FileFormat.ARROW,
        done: SavedStream | None = None,
    ) -> Materialised:
        """See Runner."""
        if file_format is FileFormat.PARQUET:
            raise self.error
        return super().materialise(stream, folder=folder, file_format=file_format, done=done)


class InterruptedOnDisk(FullDisk):
    """Is interrupted while it writes an output."""

    error = KeyboardInterrupt()


class Left(Exception):  # noqa: N818 - no error, but a way out
    """How a script leaves its loop."""


class BuggyStore(MemoryStore):
    """Meets a bug when a checkpoint is to be completed, if it `has_bug`."""

    has_bug = False

    def transaction(self, run_id: RunId) -> AbstractContextManager[MemoryTransaction]:
        """See Store."""
        if self.has_bug and threading.current_thread().name.startswith("checkpoint-"):
            raise ZeroDivisionError("a bug")
        return super().transaction(run_id)


class Script:
    """A loop on a store in memory, whose body raises an error, reports a metric or breaks a variable in epoch 2."""

    def __init__(self, folder: Path) -> None:
        self.store = MemoryStore(SystemClock())
        self._settings = Settings(store_url=None, state_uri=str(folder / "state"))
        self.runner_class: type[LateRunner] = LateRunner
        self.when_closed: Callable[[], object] = lambda: None

    def run(
        self,
        *,
        error: BaseException | None = None,
        shift: float = 0.0,
        level: float = 1.0,
        max_epochs: int = 9,
        swallows: type[BaseException] | tuple[()] = (),
    ) -> None:
        """Run the script, which may swallow an error inside its block."""
        request = LoopRequest(run_key="loop", params={}, state_uri=None, checkpointing=Checkpointing())
        drive = Drive(holder=this_holder(), open_runner=self._open_runner, parallelism=1)
        with ExitStack() as stack, suppress(swallows):
            for epoch in LoopRun(self.store, self._settings, request, drive, stack).epochs(
                level=1.0, max_epochs=max_epochs
            ):
                if epoch.number < 2:
                    continue
                epoch.level = level
                epoch.metrics(shift=shift)
                if error is not None:
                    raise error

    @contextmanager
    def _open_runner(self, run: RunRecord, location: StateLocation, _scratch: str) -> Iterator[Runner]:
        try:
            yield self.runner_class(location, max_buckets=run.max_buckets, parallelism=1)
        finally:
            self.when_closed()

    @property
    def record(self) -> RunRecord:
        """The run as the store has it."""
        return find_run(self.store, "loop")

    @property
    def attempt(self) -> AttemptRecord:
        """Its first attempt."""
        return self.store.list_attempts(self.record.run_id)[0]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


@pytest.mark.parametrize(
    "other",
    [
        OperatorFailedError(operator_id="moved", epoch=400, cause="boom"),
        OperatorFailedError(operator_id="moved", epoch=2, cause="boom"),
        OperatorFailedError(operator_id="level", epoch=400, cause="boom"),
        SchemaMismatchError(variable="centre", operator_id=BODY, expected="a", found="b", epoch=400),
    ],
    ids=["another's", "another's in the same epoch", "a variable's in another epoch", "a body's in another epoch"],
)
def test_operator_of_another_run_is_not_the_one_that_failed(script: Script, other: OperatorError) -> None:
    with pytest.raises(IterationError) as passed:
        script.run(error=other)

    told = f"{type(other).__name__}: {other}"
    attempt = script.attempt
    assert other is passed.value
    assert (RunStatus.FAILED, 2, told) == (script.record.status, script.record.epochs, script.record.failure)
    assert (AttemptOutcome.FAILED, None, told) == (attempt.outcome, attempt.failed, attempt.reason)


def test_body_that_measures_no_number_is_the_operator_that_failed(script: Script) -> None:
    with pytest.raises(MetricError) as passed:
        script.run(shift=float("nan"))

    assert (FailedOperator(operator_id=BODY, epoch=2), str(passed.value)) == (
        script.attempt.failed,
        script.attempt.reason,
    )


def test_variable_that_cannot_be_computed_is_the_operator_that_failed(script: Script) -> None:
    with pytest.raises(OperatorFailedError) as passed:
        script.run(level=BAD)

    assert (FailedOperator(operator_id="level", epoch=2), str(passed.value)) == (
        script.attempt.failed,
        script.attempt.reason,
    )


def test_bug_that_left_a_checkpoint_pending_comes_again_where_the_script_swallows_it(script: Script) -> None:
    """Else the block would wait for ever for a checkpoint that nobody writes."""
    script.store = BuggyStore(SystemClock())
    script.store.has_bug = True

    with pytest.raises(ZeroDivisionError, match="a bug"):
        script.run(swallows=ZeroDivisionError)

    told = "ZeroDivisionError: a bug"
    assert (RunStatus.FAILED, 0, told) == (script.record.status, script.record.epochs, script.record.failure)
    assert (AttemptOutcome.FAILED, told) == (script.attempt.outcome, script.attempt.reason)


@pytest.mark.parametrize(
    ("runner_class", "outcome", "reason"),
    [
        (FullDisk, AttemptOutcome.FAILED, str(FullDisk.error)),
        (InterruptedOnDisk, AttemptOutcome.RELEASED, "its loop was left"),
    ],
)
def test_script_that_swallows_what_left_a_checkpoint_unwritten_waits_for_nobody_to_write_it(
    script: Script, runner_class: type[FullDisk], outcome: AttemptOutcome, reason: str
) -> None:
    """An error comes again; who interrupts the script leaves its loop."""
    script.runner_class, swallowed = runner_class, type(runner_class.error)

    with suppress(StateLocationError):
        script.run(max_epochs=1, swallows=swallowed)

    assert (outcome, reason) == (script.attempt.outcome, script.attempt.reason)
    assert [CheckpointFailure.ATTEMPT_ENDED] == [
        known.failure for known in script.store.list_checkpoints(script.record.run_id)
    ]


@pytest.mark.parametrize("error", [None, ZeroDivisionError("a bug of the script")], ids=["left", "failed"])
def test_run_that_another_attempt_takes_while_the_runner_is_closed_was_left_in_order(
    script: Script, error: Exception | None
) -> None:
    script.when_closed = lambda: Coordinator(script.store).apply(script.record.run_id, claim(2))

    with nullcontext() if error is None else pytest.raises(ZeroDivisionError, match="a bug of the script"):
        script.run(error=error or Left(), swallows=Left)

    assert (AttemptOutcome.RELEASED if error is None else AttemptOutcome.FAILED) is script.attempt.outcome
    assert 2 == len(script.store.list_attempts(script.record.run_id))


class SlowStore(MemoryStore):
    """Takes longer over a checkpoint than an attempt has that was interrupted."""

    def transaction(self, run_id: RunId) -> AbstractContextManager[MemoryTransaction]:
        """See Store."""
        if threading.current_thread().name.startswith("checkpoint-"):
            time.sleep(2.5)
        return super().transaction(run_id)


@pytest.mark.parametrize("error", [SystemExit(1), GeneratorExit()], ids=["exits", "is closed as a generator"])
def test_script_that_exits_or_is_closed_loses_no_epoch_that_it_has_finished(
    script: Script, error: BaseException
) -> None:
    """Nobody told its process to end, which would have little time."""
    script.store = SlowStore(SystemClock())

    with pytest.raises(type(error)):
        script.run(error=error)

    assert (RunStatus.RUNNING, 2) == (script.record.status, script.record.epochs)
    assert AttemptOutcome.RELEASED is script.attempt.outcome
