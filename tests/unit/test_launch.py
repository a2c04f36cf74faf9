"""What does whoever drives a run find out about it, and when? On a store in memory."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from iteration_lib.cli.options import command_to_drive, params_of
from iteration_lib.clock import SystemClock
from iteration_lib.config import Settings
from iteration_lib.coordinator import Coordinator
from iteration_lib.driver.context import Silent
from iteration_lib.engine import Engine, EngineKind
from iteration_lib.errors import (
    IterationError,
    OperatorFailedError,
    ParameterError,
    RunMismatchError,
    RunStoppedError,
    StateLocationError,
    UsageError,
)
from iteration_lib.launch import Drive, max_epochs_of, new_run, open_context
from iteration_lib.model.definition import load_iteration
from iteration_lib.process import this_holder
from iteration_lib.protocol.state import RunId
from iteration_lib.protocol.status import AttemptOutcome, RunStatus
from iteration_lib.stopping import wait_for_stop
from iteration_lib.store.memory import MemoryStore
from iteration_lib.store.record import AttemptRecord
from tests.driven_in_memory import KEY, SOURCE, InMemory
from tests.protocol_script import FIRST, resumes, stops

MOVED = SOURCE.replace(
    "@planned.map_buckets(finishes=True)\ndef scaled(points, made):",
    "@planned.data\ndef other():\n    return records(y=[5.0, 6.0])\n\n\n"
    "@planned.map_buckets(finishes=True)\ndef scaled(points, other):",
).replace('made["y"]', 'other["y"]')


TOLD = (
    SOURCE
    + """

@planned.on_epoch_durable
def heard(epoch, params):
    if Path(params.broken).exists():
        raise RuntimeError("broken")
    with Path(params.broken + "-heard").open("a") as log:
        log.write(f"{epoch} ")
"""
)


# `felt` leaves a word of each epoch in which it is called.
CALLED = SOURCE.replace(
    "@planned.operator\ndef moved(sums,",
    """
@planned.operator(operator_id="felt")
def felt(centre, params, epoch):
    with Path(params.broken + "-called").open("a") as log:
        log.write(f"{epoch} ")
    return centre


@planned.operator
def moved(sums, felt,""",
)


def test_driver_knows_how_long_the_process_has_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    bench = InMemory(tmp_path)
    bench.write_input()
    bench.write_iteration()
    run = bench.open()
    iteration = load_iteration(run.reference)
    settings = Settings(store_url=None, state_uri=run.state_uri, termination_grace_seconds=120.0)
    drive = Drive(holder=this_holder(), open_runner=Engine(kind=EngineKind.LOCAL).open_runner, parallelism=1)

    with open_context(bench.store, settings, run, drive, graph=iteration.graph(), params=None) as context:
        seconds = context.termination_grace_seconds

    assert 120.0 == seconds


class StoreThatIsWrittenMeanwhile(MemoryStore):
    """Somebody else writes, once, between the check of a run and the opening of an attempt."""

    meanwhile: Callable[[], object] | None = None

    def list_attempts(self, run_id: RunId) -> tuple[AttemptRecord, ...]:
        """See History."""
        act, self.meanwhile = self.meanwhile, None
        if act is not None:
            act()
        return super().list_attempts(run_id)


def test_what_the_attempt_before_finished_until_it_was_superseded_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its output was computed from other inputs, and would be taken for that of the operator as it is now."""
    monkeypatch.syspath_prepend(str(tmp_path))
    store = StoreThatIsWrittenMeanwhile(SystemClock())
    bench = InMemory(tmp_path, store)
    bench.write_input()
    bench.write_iteration()
    run, coordinator = bench.open(), Coordinator(store)
    bench.be_killed()
    bench.write_iteration(MOVED)
    store.meanwhile = lambda: coordinator.apply(run.run_id, FIRST.finishes("scaled"))

    with pytest.raises(RunMismatchError) as caught:
        bench.drive()

    assert "finished for good with the inputs points, made" in str(caught.value)
    assert run.definition == bench.run.definition


def test_renamed_operator_whose_edge_is_durable_is_not_called_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for its own name nor for that of what it takes."""
    monkeypatch.syspath_prepend(str(tmp_path))
    bench = InMemory.begin(tmp_path, CALLED)
    bench.drive_until_broken()
    renamed = CALLED.replace("def felt(", "def sensed(").replace("moved(sums, felt,", "moved(sums, sensed,")
    renamed = renamed.replace("centre", "middle").replace(
        "@planned.variable", '@planned.variable(operator_id="centre")'
    )
    bench.write_iteration(renamed)
    bench.mend()

    run = bench.drive()

    assert "0 1 2 " == (tmp_path / "broken-called").read_text()
    assert RunStatus.FINISHED is run.status
    changes = bench.store.list_attempts(run.run_id)[1].definition_changes
    told = {"operator 'felt': name was felt, now sensed", "operator 'centre': name was centre, now middle"}
    assert told <= set(changes or ())


def test_listener_that_failed_on_the_last_epoch_that_was_asked_for_is_called_by_the_next_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left to compute, so nothing that computes is started."""
    monkeypatch.syspath_prepend(str(tmp_path))
    bench = InMemory.begin(tmp_path, TOLD)
    (tmp_path / "broken").touch()
    asked: dict[str, Any] = {"until_epoch": 1, "publish": False}
    with pytest.raises(OperatorFailedError):
        bench.drive(**asked)
    failed = bench.run
    bench.mend()

    again = bench.drive(**asked, open_runner=None)

    assert (RunStatus.FAILED, 1) == (failed.status, failed.epochs)
    assert (RunStatus.RUNNING, 1) == (again.status, again.epochs)
    assert "0 " == (tmp_path / "broken-heard").read_text()


def drive_until_told_to_end(bench: InMemory, **asked: Any) -> None:
    """Drive the run until its listener ends the process, as SIGTERM does it; from then on the listener lets it live."""
    told = "from iteration_lib.interrupt import ToldToEnd; raise ToldToEnd"
    bench.write_iteration(TOLD.replace('raise RuntimeError("broken")', told))
    bench.open()
    (bench.folder / "broken").touch()
    with pytest.raises(SystemExit):
        bench.drive(**asked)
    bench.mend()


def test_listener_that_was_told_to_end_behind_the_last_epoch_that_was_asked_for_is_called_by_the_next_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    bench = InMemory(tmp_path)
    bench.write_input()
    asked: dict[str, Any] = {"until_epoch": 1, "publish": False}
    drive_until_told_to_end(bench, **asked)
    interrupted = bench.run

    for _ in range(2):
        again = bench.drive(**asked, open_runner=None)

    assert (RunStatus.RUNNING, 1) == (interrupted.status, interrupted.epochs) == (again.status, again.epochs)
    assert "0 " == (tmp_path / "broken-heard").read_text()
    reasons = [attempt.reason for attempt in bench.store.list_attempts(again.run_id)]
    assert ["interrupted", None] == reasons  # and the one after these has nothing to do


def test_stopped_run_is_said_to_be_stopped_though_its_last_attempt_was_told_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its listeners hear when somebody has resumed it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    bench = InMemory(tmp_path)
    bench.write_input()
    asked: dict[str, Any] = {"until_epoch": 1, "publish": False}
    drive_until_told_to_end(bench, **asked)
    Coordinator(bench.store).apply(bench.run.run_id, stops())

    stopped = bench.drive(**asked)

    assert (RunStatus.STOPPED, 1) == (stopped.status, stopped.epochs)


def test_attempt_that_was_killed_behind_its_last_epoch_is_ended_by_the_next_and_its_listeners_hear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the epoch's being durable and the listener it was killed, which leaves no failure."""
    monkeypatch.syspath_prepend(str(tmp_path))
    bench = InMemory.begin(tmp_path)
    asked: dict[str, Any] = {"until_epoch": 1, "publish": False}
    bench.drive(**asked)
    bench.be_killed()
    bench.write_iteration(TOLD)

    again = bench.drive(**asked, open_runner=None)

    assert (RunStatus.RUNNING, 1) == (again.status, again.epochs)
    assert "0 " == (tmp_path / "broken-heard").read_text()
    ended = [AttemptOutcome.RELEASED, AttemptOutcome.SUPERSEDED, AttemptOutcome.RELEASED]
    assert ended == [attempt.outcome for attempt in bench.store.list_attempts(again.run_id)]


def be_killed_and_stopped(bench: InMemory) -> None:
    """The driver dies behind its last epoch, and a person stops the run, of which nobody is left to tell."""
    bench.write_iteration()
    run, coordinator = bench.open(), Coordinator(bench.store)
    bench.drive(until_epoch=1)
    bench.be_killed()
    coordinator.apply(run.run_id, stops(gone=1))


def fail_and_be_stopped(bench: InMemory) -> None:
    """A person stops the run, and then its listener fails; the next attempt is refused, for the run is stopped."""
    bench.write_iteration(TOLD)
    run = bench.open()
    (bench.folder / "broken").touch()
    with pytest.raises(OperatorFailedError):
        bench.drive(until_epoch=1, observer=Asking(bench.store, run.run_id))
    with pytest.raises(RunStoppedError):
        bench.drive()
    bench.mend()


class Asking(Silent):
    """Asks the run to stop when an epoch of it is durable, before its listeners hear of that."""

    def __init__(self, store: MemoryStore, run_id: RunId) -> None:
        self._coordinator, self._run_id = Coordinator(store), run_id

    def epoch_durable(self, *_: object, **__: object) -> None:
        """See Observer."""
        self._coordinator.apply(self._run_id, stops())


@pytest.mark.parametrize("come_to_a_stop", [be_killed_and_stopped, fail_and_be_stopped])
def test_listeners_that_a_stop_came_before_hear_when_the_run_has_been_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, come_to_a_stop: Callable[[InMemory], None]
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    bench = InMemory(tmp_path)
    bench.write_input()
    come_to_a_stop(bench)
    stopped = bench.run
    bench.write_iteration(TOLD)
    Coordinator(bench.store).apply(stopped.run_id, resumes())

    again = bench.drive(until_epoch=1, publish=False, open_runner=None)

    assert (RunStatus.STOPPED, 1) == (stopped.status, stopped.epochs)
    assert (RunStatus.RUNNING, 1) == (again.status, again.epochs)
    assert "0 " == (tmp_path / "broken-heard").read_text()


def test_epoch_in_progress_when_a_listener_fails_is_run_before_the_stop_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where none is, the next attempt stops the run at once; so whoever waits is told that there is one at most."""
    monkeypatch.syspath_prepend(str(tmp_path))
    bench = InMemory(tmp_path)
    bench.write_input()
    bench.write_iteration(TOLD.replace("if epoch == 1 and", "if epoch > 9 and").replace("= 3", "= 9"))
    run = bench.open()
    (tmp_path / "broken").touch()
    with pytest.raises(OperatorFailedError):
        bench.drive(observer=Asking(bench.store, run.run_id))
    failed, (asked,) = bench.run, bench.store.list_stops(run.run_id)
    bench.mend()

    with pytest.raises(IterationError) as told:
        wait_for_stop(bench.store, run, asked, timeout_seconds=None, tell=print)
    stopped = bench.drive()

    assert str(told.value).endswith("; the request stays: whoever drives it next runs the epoch in progress at most")
    assert (RunStatus.FAILED, RunStatus.STOPPED, failed.epochs + 1) == (failed.status, stopped.status, stopped.epochs)
    assert [str(epoch) for epoch in range(stopped.epochs)] == (tmp_path / "broken-heard").read_text().split()


def test_state_location_with_a_password_is_refused_and_the_password_told_to_nobody() -> None:
    """Everybody who may read the store would see it."""
    settings = Settings(store_url=None, state_uri="memory://ann:b@d@host/state")

    with pytest.raises(StateLocationError) as caught:
        new_run(settings, run_key="k", reference="m:o", definition={}, params={})

    assert str(caught.value).startswith("state location 'memory://***@host/state' holds a password, which the store")


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("", "the run key is empty; give the run's name"),
        ("a\0b", r"the run key 'a\x00b' is no text that can be kept; give another one"),
        ("caf\udce9", r"the run key 'caf\udce9' is no text that can be kept; give another one"),
        (
            "é" * 1_001,
            f"the run key '{'é' * 40}'... has 2002 bytes, and 2000 have room; give a shorter one",
        ),
    ],
    ids=["empty", "with a NUL", "no UTF-8", "too long"],
)
def test_key_that_no_run_can_have_is_refused_before_anything_is_written(tmp_path: Path, key: str, said: str) -> None:
    state = tmp_path / "state"

    with pytest.raises(UsageError) as caught:
        new_run(Settings(store_url=None, state_uri=str(state)), run_key=key, reference="m:o", definition={}, params={})

    assert (said, False) == (str(caught.value), state.exists())


@pytest.mark.parametrize("epochs", [True, 0, 2.0, 2**31])
def test_number_of_epochs_that_is_none_is_refused_by_its_name(epochs: object) -> None:
    with pytest.raises(ParameterError, match=r"'max_epochs' is .*; it is a whole number from 1 to 2147483647"):
        max_epochs_of({"max_epochs": epochs})


KEEPING_BEST = SOURCE.replace(
    "params=Params)", 'params=Params, checkpointing=Checkpointing(retain_best=3, retain_metric="loss"))'
).replace("from iteration_lib import Iteration,", "from iteration_lib import Checkpointing, Iteration,")


@pytest.mark.parametrize(
    ("given", "said"),
    [({"retain_best": 5}, None), ({"retain_metric": None}, "retain_metric"), ({"every_epochs": 0}, "every_epochs")],
    ids=["fits what is declared", "does not", "never does"],
)
def test_checkpointing_is_checked_with_what_the_iteration_declares_before_the_run_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, object], said: str | None
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    bench = InMemory(tmp_path)
    bench.write_input()
    bench.write_iteration(KEEPING_BEST)

    refused = pytest.raises(ParameterError, match=said) if said is not None else nullcontext()
    with refused:
        bench.open(checkpointing=given)

    assert (said is None) == (bench.store.find_run(KEY) is not None)


def test_command_that_drives_a_run_says_which_parameters_it_has_none_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else they would be what the iteration declares, and the run another one."""
    monkeypatch.syspath_prepend(str(tmp_path))
    bench = InMemory(tmp_path)
    bench.write_input()
    bench.write_iteration(SOURCE.replace("max_epochs: int = 3", "max_epochs: int | None = 3"))
    bench.open(max_epochs=None)

    params = params_of(tuple(shlex.split(command_to_drive(bench.run, store_url=None))[6::2]))

    assert {"input": str(bench.input), "broken": str(tmp_path / "broken"), "max_epochs": ""} == params
    assert bench.run == bench.open(**params)
