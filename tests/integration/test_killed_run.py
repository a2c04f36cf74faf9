"""What is left of a run that is killed, stopped or overtaken anywhere? Plain-Python runs on a real store.

Bodies append a line to a file each time that they run; nothing that was durable may run again.
"""

from __future__ import annotations

import json
import re
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from iteration_lib.crash_point import CrashPoint
from iteration_lib.errors import LeaseHeldError, SupersededError
from iteration_lib.protocol.status import AttemptOutcome, EpochStatus
from iteration_lib.store.postgres import PostgresStore
from tests.failover.driven import Bench, Driver, wait_until
from tests.size import IS_NIGHTLY

pytestmark = pytest.mark.postgres

EPOCHS = 4
LAST = EPOCHS - 1
P = CrashPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What has to be done again after a crash: epochs whose bodies run twice, and the operator that finishes.

    Of the `maybe` epochs nobody can tell: a checkpoint was being written beside them.
    """

    epochs: frozenset[int] = frozenset()
    maybe: frozenset[int] = frozenset()
    scaled: bool = False


NOTHING = Loss()


def lost(*epochs: int, maybe: tuple[int, ...] = ()) -> Loss:
    return Loss(epochs=frozenset(epochs), maybe=frozenset(maybe))


# Reached only where operators leave edges, listeners are told, sinks publish, checkpoints go, or a person stops a run:
# these kill there.
ELSEWHERE = {
    P.EDGE_MARKED: "test_durable_edges.py",
    P.LISTENER_CALLED: "test_listeners.py",
    P.LISTENER_NOTIFIED: "test_listeners.py",
    P.ORIGIN_KEPT: "test_branching.py",
    P.CHECKPOINTS_DISCARDED: "test_branching.py",
    P.STOP_REACHED: "test_stopping.py",
    P.SINK_ABORTED: "test_sinks_of_runs.py",
    P.SINK_PREPARED: "test_sinks_of_runs.py",
    P.SINK_COMMITTED: "test_sinks_of_runs.py",
}


@pytest.mark.parametrize(("point", "file"), ELSEWHERE.items(), ids=lambda known: getattr(known, "value", known))
def test_crash_point_that_this_run_does_not_reach_is_met_elsewhere(point: CrashPoint, file: str) -> None:
    text = (Path(__file__).parent / file).read_text()

    assert re.search(rf"CrashPoint\.{point.name}\b|\"{point.value}[@\"]", text), f"nothing of {file} kills there"


def losses() -> dict[str, Loss]:
    """Return every crash point as the test setting names it, and what a crash there loses."""
    once = {
        P.ATTEMPT_OPENED: NOTHING,
        P.DATA_PINNED: NOTHING,
        P.OPERATOR_WRITTEN: Loss(scaled=True),  # it ran to its end, but its marker did not commit
        P.OPERATOR_FINISHED: NOTHING,
        P.POINTER_WRITTEN: NOTHING,
        P.RUN_FINISHED: NOTHING,
    }
    each = {
        P.EPOCH_OPENED: lambda epoch: lost(maybe=(epoch - 1,)),
        P.EPOCH_WRITTEN: lambda epoch: lost(epoch, maybe=(epoch - 1,)),
        P.EPOCH_ALIGNED: lost,  # it was not held, so the checkpoint before it was complete
        P.OUTPUTS_WRITTEN: lost,
        P.MANIFEST_WRITTEN: lambda epoch: lost(epoch, maybe=(epoch + 1,)),
        P.CHECKPOINT_COMPLETED: lambda epoch: lost(maybe=(epoch + 1, epoch + 2)),
    }
    assert set(CrashPoint) == {*once, *each, *ELSEWHERE}, "a crash point has no test"
    epochs = range(EPOCHS) if IS_NIGHTLY else (1, LAST)
    return {point.value: loss for point, loss in once.items()} | {
        f"{point.value}@{epoch}": loss_at(epoch)
        for point, loss_at in each.items()
        for epoch in epochs
        if IS_NIGHTLY or (point is P.OUTPUTS_WRITTEN) == (epoch == LAST) or point is P.CHECKPOINT_COMPLETED
    }


@pytest.fixture
def bench(store_url: str, tmp_path: Path) -> Bench:
    return Bench(store_url=store_url, folder=tmp_path, runner="local")


@pytest.fixture(scope="module")
def undisturbed(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a run answers that nothing happened to."""
    bench = Bench(store_url=store_url, folder=tmp_path_factory.mktemp("undisturbed"), runner="local")
    answer = bench.finish(bench.folder.name, *SHORT)
    assert runs_of_each() == bench.bodies()
    return answer


TAKEN_OVER = (AttemptOutcome.SUPERSEDED, AttemptOutcome.FINISHED)
SHORT = ("--param", f"max_epochs={EPOCHS}")


def runs_of_each(loss: Loss = NOTHING, *, likely: Counter[str] | None = None) -> Counter[str]:
    """How often each body runs when everything runs once, and again what is lost; of what may be lost, as `likely`."""
    bodies = Counter({"scaled None": 2 if loss.scaled else 1})
    for epoch in range(EPOCHS):
        for body in (f"sums {epoch}", f"moved {epoch}"):
            bodies[body] = 2 if epoch in loss.epochs else 1
            if epoch in loss.maybe and likely is not None:
                bodies[body] = min(max(likely[body], 1), 2)
    return bodies


@pytest.mark.parametrize(("place", "loss"), losses().items(), ids=losses())
def test_run_killed_at_any_point_resumes_to_the_same_bits_without_repeating_what_was_durable(
    bench: Bench, store: PostgresStore, undisturbed: dict[str, Any], place: str, loss: Loss
) -> None:
    key = bench.folder.name
    killed = bench.start(key, *SHORT, ITERATION_CRASH_POINT=f"{place}:kill")
    assert -signal.SIGKILL == killed.wait(), killed.errors()

    answer = bench.finish(key, *SHORT)

    same = ("status", "epochs", "terminated_by", "state_digest")
    assert {name: undisturbed[name] for name in same} == {name: answer[name] for name in same}
    bodies = bench.bodies()
    assert runs_of_each(loss, likely=bodies) == bodies
    epochs = store.list_epochs(answer["run_id"])
    assert list(range(EPOCHS)) == [epoch.epoch for epoch in epochs if epoch.status is EpochStatus.DURABLE]
    outcomes = [AttemptOutcome.FINISHED] if place == P.RUN_FINISHED.value else [*TAKEN_OVER]
    assert outcomes == [attempt.outcome for attempt in store.list_attempts(answer["run_id"])]
    assert {} == {name: count for name, count in published(bench, answer).items() if count != 1}


def published(bench: Bench, answer: dict[str, Any]) -> Counter[str]:
    """Count, for each output, the files that the pointer leads to, and their manifest's."""
    pointer = json.loads((run_folder(bench, answer) / "outputs.json").read_text())
    assert answer["state_digest"] == pointer["state_digest"]
    return Counter(
        name for name, folder in pointer["outputs"].items() for _ in (run_folder(bench, answer) / folder).iterdir()
    )


def run_folder(bench: Bench, answer: dict[str, Any]) -> Path:
    return bench.folder / "state" / str(answer["run_id"])


def test_run_killed_again_and_again_still_ends_with_the_same_bits(bench: Bench, undisturbed: dict[str, Any]) -> None:
    key = bench.folder.name
    for place in ("operator_finished", "epoch_aligned@0", "manifest_written@1", "outputs_written@3", "pointer_written"):
        killed = bench.start(key, *SHORT, ITERATION_CRASH_POINT=f"{place}:kill")
        assert -signal.SIGKILL == killed.wait(), killed.errors()

    answer = bench.finish(key, *SHORT)

    assert undisturbed["state_digest"] == answer["state_digest"]
    bodies = bench.bodies()
    assert runs_of_each(lost(0, 1, 3, maybe=(2,)), likely=bodies) == bodies
    assert [1, 2, 3, 4, 5, 6] == [attempt["attempt"] for attempt in bench.show(key)["attempts"]]


# Two attempts at once


@dataclass(frozen=True, slots=True)
class Held:
    """An older attempt that is held at a crash point and stopped, as a machine that pauses."""

    driver: Driver
    latch: Path

    def go_on(self) -> int:
        """Let it go on, and return how it ends."""
        self.latch.unlink()
        self.driver.send(signal.SIGCONT)
        return self.driver.wait()


# What else the pause may make it say: the heartbeat hears of the newer attempt, where the pause took longer than its
# interval; and the store has ended a transaction that was open, or the newer attempt could not have gone on.
BY_THE_PAUSE = re.compile(
    "ERROR event=superseded|WARNING event=store_retry run_id=.* error=lost the connection to the store .*"
)


def hold(bench: Bench, place: str) -> Held:
    latch = bench.folder / "held"
    driver = bench.start(
        bench.folder.name, *SHORT, ITERATION_CRASH_POINT=f"{place}:hold", ITERATION_CRASH_LATCH=str(latch)
    )
    wait_until(latch.exists, f"{place} to be reached")
    driver.send(signal.SIGSTOP)
    return Held(driver, latch)


# Where the older attempt is held, and what of its own folder was durable by then: that alone may be named.
DURABLE_BEFORE_2 = ("pins", "finished", "epoch-000000", "epoch-000001", "checkpoint-000001", "checkpoint-000002")
HELD = {
    "attempt_opened": (),
    "operator_written": ("pins",),
    "epoch_aligned@2": DURABLE_BEFORE_2,
    "manifest_written@2": DURABLE_BEFORE_2,
    "outputs_written@3": (*DURABLE_BEFORE_2, "epoch-000002", "checkpoint-000003"),
}


@pytest.mark.parametrize(("place", "durable"), HELD.items(), ids=HELD)
def test_older_attempt_that_goes_on_after_a_takeover_commits_nothing_and_says_that_it_was_superseded(
    bench: Bench, store: PostgresStore, undisturbed: dict[str, Any], place: str, durable: tuple[str, ...]
) -> None:
    older = hold(bench, place)
    answer = bench.finish(bench.folder.name, "--takeover", *SHORT)
    before = bench.show(bench.folder.name)
    pointer = (run_folder(bench, answer) / "outputs.json").read_bytes()

    code = older.go_on()

    assert SupersededError.exit_code == code
    errors = [line for line in older.driver.errors().splitlines() if not BY_THE_PAUSE.fullmatch(line)]
    assert 1 == len(errors), older.driver.errors()
    assert errors[0].startswith("error: superseded: this attempt holds token 1 of run ")
    assert before == bench.show(bench.folder.name)
    assert pointer == (run_folder(bench, answer) / "outputs.json").read_bytes()
    assert undisturbed["state_digest"] == answer["state_digest"]
    named = {part for path in named_files(bench, store, answer) for part in parts_of_older_attempt(path)}
    assert set(durable) == named
    assert undisturbed["outputs"].keys() == answer["outputs"].keys()
    assert "/000002-" in answer["outputs"]["centres"]


def named_files(bench: Bench, store: PostgresStore, answer: dict[str, Any]) -> list[str]:
    """Return every path that a checkpoint's manifest, the store or the pointer names."""
    run_id, folder = answer["run_id"], run_folder(bench, answer)
    manifests = [known.manifest_path for known in store.list_checkpoints(run_id) if known.manifest_path is not None]
    told: list[Any] = [json.loads((folder / path).read_text()) for path in manifests]
    told += [operator.output for operator in store.list_operators(run_id)]
    told += [pin.pin for pin in store.list_pins(run_id)]
    told.append(json.loads((folder / "outputs.json").read_text()))
    return [*manifests, *(text for found in told for text in texts(found))]


def texts(found: object) -> Iterator[str]:
    if isinstance(found, str):
        yield found
    elif isinstance(found, dict):
        for value in found.values():
            yield from texts(value)
    elif isinstance(found, list):
        for value in found:
            yield from texts(value)


def parts_of_older_attempt(path: str) -> Iterator[str]:
    """Yield what a path of the attempt with token 1 is for: an epoch, a checkpoint, pins, a finished operator."""
    parts = path.split("/")
    for place, part in enumerate(parts):
        if part.startswith("000001-"):
            yield Path(parts[place + 1]).stem if place + 1 < len(parts) else path


def test_newer_attempt_waits_its_turn_unless_it_is_told_to_take_over(bench: Bench) -> None:
    """The older process is there, and its lease holds; it is stopped where no thread of it may be in a transaction."""
    older = hold(bench, "epoch_opened@0")

    refused = bench.start(bench.folder.name, *SHORT)
    code = refused.wait()
    older.driver.send(signal.SIGCONT)
    older.latch.unlink()

    assert LeaseHeldError.exit_code == code
    assert f"is being driven by process {older.driver.process.pid} on " in refused.errors()
    assert 1 == len(refused.errors().splitlines())
    assert 0 == older.driver.wait()
    assert [1] == [attempt["attempt"] for attempt in bench.show(bench.folder.name)["attempts"]]
