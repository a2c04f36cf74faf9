"""What does a driver that is told to end leave to the next one? Plain-Python runs on a real store.

Whatever has finished inside the open epoch becomes a durable edge, with any alignment timeout and with none; the
attempt is released, and the retry starts behind the edges.
"""

from __future__ import annotations

import logging
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pytest

from iteration_lib.coordinator import Publish
from iteration_lib.driver.background import Job
from iteration_lib.interrupt import ToldToEnd
from iteration_lib.protocol import Event, RunState
from iteration_lib.protocol.event import PartsFinished
from iteration_lib.protocol.state import NO_EPOCH, RunId
from iteration_lib.protocol.status import AttemptOutcome, EpochStatus, RunStatus, UnalignedBy
from iteration_lib.runner.seam import Invocation, Materialised, PartListener, Stream
from iteration_lib.state.saved import SavedStream
from iteration_lib.store.postgres import PostgresStore
from tests.command_line import CommandLine
from tests.driven_here import (
    DEADLINE_SECONDS,
    MAX_BUCKETS,
    Here,
    Killed,
    Latch,
    MortalCoordinator,
    Script,
    SlowRunner,
    be_told_to_end,
)
from tests.failover.driven import wait_until
from tests.iterations.fused import fused
from tests.iterations.steered import PER_EPOCH, steered

pytestmark = pytest.mark.postgres

EPOCHS = 3
NEVER: dict[str, Any] = {}
AT_ONCE = {"alignment_timeout_seconds": 0.0}
LATER = {"alignment_timeout_seconds": 3600.0}
VARIABLES = ("drifts", "pace", "ranks")


@pytest.fixture
def here(store: PostgresStore, tmp_path: Path) -> Here:
    return Here.begin(store, tmp_path, steered, epochs=EPOCHS)


@pytest.fixture(scope="module")
def undisturbed(store: PostgresStore, tmp_path_factory: pytest.TempPathFactory) -> Here:
    here = Here.begin(store, tmp_path_factory.mktemp("undisturbed"), steered, epochs=EPOCHS)
    assert RunStatus.FINISHED is here.drive().status
    return here


def until_durable(here: Here) -> Script:
    """Let epoch 1 begin once epoch 0 is durable."""
    return {"epoch_opened@1": lambda: wait_until(lambda: here.found.last_durable_epoch == 0, "epoch 0 to be durable")}


def tell_to_end(here: Here, line: str | None = None, *, script: Script | None = None, **options: Any) -> None:
    """Drive until the process is told to end: in the body that writes a line, or where the script says."""
    if line is not None:
        here.order("end", line)
    error = here.drive_and_fail(script={**until_durable(here), **(script or {})}, **options)
    (here.desk / "end").unlink(missing_ok=True)
    assert isinstance(error, ToldToEnd), error
    assert 143 == error.code
    attempt = here.store.list_attempts(here.run.run_id)[-1]
    assert (AttemptOutcome.RELEASED, "interrupted") == (attempt.outcome, attempt.reason)
    assert here.found.failure is None


def told_to_end_before(act: Callable[[], None]) -> Callable[[], None]:
    """Return what is told to end where the driver waits, and acts whenever it waits after that."""
    told = list[bool]()

    def be_told_or_act() -> None:
        if told:
            act()
            return
        told.append(True)
        be_told_to_end()

    return be_told_or_act


def buckets_of(here: Here, epoch: int) -> dict[str, int]:
    """Count the marked buckets of an epoch's operators."""
    found: Counter[str] = Counter()
    for part in here.parts:
        if part.epoch == epoch:
            found[part.operator_id] += part.end_bucket - part.first_bucket
    return dict(found)


def runs_of(here: Here, epoch: int) -> dict[str, int]:
    """Count how often the bodies of an epoch ran, by operator, since the log was last counted."""
    found: Counter[str] = Counter()
    for line, count in here.log().items():
        if line.split()[1] == str(epoch):
            found[line.split()[0]] += count
    return dict(found)


ALL = {"shares": 4, "total": 1, "ranked": 4, "paced": 1, "going": 1, "drifted": 4}


def without(marked: dict[str, int]) -> dict[str, int]:
    """Return how often each body of an epoch has to run beside what is marked."""
    return {name: ALL[name] - marked.get(name, 0) for name in PER_EPOCH if ALL[name] > marked.get(name, 0)}


@pytest.mark.parametrize("options", [NEVER, LATER, AT_ONCE], ids=["no timeout", "timeout to come", "timeout 0"])
@pytest.mark.parametrize("epoch", [0, 1])
def test_what_an_open_epoch_has_computed_is_captured_and_the_retry_starts_behind_it(
    here: Here, undisturbed: Here, epoch: int, options: dict[str, Any]
) -> None:
    """Without a timeout `ranked` is not computed yet: it is lazy, and so nothing of it is there to capture."""
    tell_to_end(here, f"paced {epoch} -", **options)
    marked, by = buckets_of(here, epoch), here.epochs[epoch].unaligned_by
    here.log()

    run = here.drive(parallelism=3)
    ran = runs_of(here, epoch)

    expected = {"shares": 4, "total": 1} | ({"ranked": 4} if options else {})
    first_values = {"drifts": 4, "pace": 1, "ranks": 4} if epoch == 0 else {}
    assert expected | first_values == marked
    assert (UnalignedBy.TIMEOUT if options is AT_ONCE else UnalignedBy.PREEMPTION) is by
    assert without(marked) == ran
    assert undisturbed.found.state_digest == run.state_digest


class FusingRunner(SlowRunner):
    """Computes some operators inside what takes them, as Spark does, so that nothing of them is there to capture."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._fused: list[Stream] = []

    def compute(self, invocation: Invocation) -> Stream:
        """See Runner."""
        stream = super().compute(invocation)
        if invocation.operator.name in ("shares", "features", "weights"):
            self._fused.append(stream)
        return stream

    def is_computed(self, stream: Stream) -> bool:
        """See Runner."""
        return all(stream is not fused for fused in self._fused) and super().is_computed(stream)


@pytest.mark.parametrize(
    ("line", "marked"),
    [("paced 1 -", {}), ("drifted 1 0", {"shares": 4, "total": 1, "ranked": 4, "paced": 1, "going": 1})],
    ids=["while somebody still asks for it", "when all who took it are whole"],
)
def test_operator_that_was_computed_inside_what_takes_it_needs_no_files_once_that_is_whole(
    here: Here, undisturbed: Here, line: str, marked: dict[str, int]
) -> None:
    tell_to_end(here, line, runner_class=FusingRunner)
    parts = [part for part in here.parts if part.epoch == 1]
    left = buckets_of(here, 1)
    here.log()

    run = here.drive(parallelism=3, runner_class=FusingRunner)

    assert marked == left
    assert [] == [file for part in parts if part.operator_id == "shares" for file in part.output["files"]]
    assert without(marked) == runs_of(here, 1)
    assert undisturbed.found.state_digest == run.state_digest


@pytest.mark.parametrize(
    ("operator_id", "left"),
    [("loss", {"idle": 1}), ("idle", {})],
    ids=["one of its users is not whole", "nobody takes it, and it has not run"],
)
def test_what_was_fused_is_not_passed_over_for_a_user_that_could_not_be_marked(
    store: PostgresStore, tmp_path: Path, operator_id: str, left: dict[str, int]
) -> None:
    """`moved` is whole, but `weights`, which `loss` still asks for, is not: neither `moved` nor `features` is left."""
    here, whole = (Here.begin(store, tmp_path, fused, epochs=EPOCHS) for _ in range(2))
    tell_to_end(here, f"{operator_id} 1 -", runner_class=FusingRunner, until_epoch=EPOCHS)
    marked = buckets_of(here, 1)
    here.log()

    here.drive(runner_class=FusingRunner, until_epoch=EPOCHS)
    whole.drive(until_epoch=EPOCHS)

    assert left == marked
    assert 1 == runs_of(here, 1)[operator_id]
    assert [epoch.metrics for epoch in whole.epochs] == [epoch.metrics for epoch in here.epochs]
    assert whole.checkpoints[-1].size_bytes == here.checkpoints[-1].size_bytes


@pytest.mark.parametrize("options", [LATER, AT_ONCE], ids=["timeout to come", "timeout 0"])
def test_finished_parts_of_the_operator_that_is_told_to_end_are_captured(
    here: Here, undisturbed: Here, options: dict[str, Any]
) -> None:
    tell_to_end(here, "ranked 1 2", **options)
    marked = buckets_of(here, 1)
    here.log()

    run = here.drive(parallelism=4)

    assert {"shares": 4, "total": 1, "ranked": 2} == marked
    assert without(marked) == runs_of(here, 1)
    assert undisturbed.found.state_digest == run.state_digest


class UnheardRunner(SlowRunner):
    """Is told to end between the writing of an operator's last part and the telling of it."""

    unheard: tuple[str, int | None]  # the operator, and in which epoch

    def compute(self, invocation: Invocation) -> Stream:
        """See Runner."""
        stream = super().compute(invocation)
        if (invocation.operator.name, invocation.epoch) == self.unheard:
            self._unheard = stream
        return stream

    def materialise(self, stream: Stream, *, on_part: PartListener | None = None, **options: Any) -> Materialised:
        """See Runner."""

        def tell(part: SavedStream) -> None:
            if stream is getattr(self, "_unheard", None) and part.files[0].end_bucket == MAX_BUCKETS:
                del self._unheard
                be_told_to_end()
            assert on_part is not None
            on_part(part)

        return super().materialise(stream, on_part=tell if on_part is not None else None, **options)


def test_part_that_the_end_came_too_soon_to_tell_of_is_captured_with_what_was_told_of(
    here: Here, undisturbed: Here
) -> None:
    """It is written once more, and what was told of is not: of three parts there are four files."""

    class OfRanked(UnheardRunner):
        unheard = ("ranked", 1)

    tell_to_end(here, runner_class=OfRanked, **LATER)
    marked, files = buckets_of(here, 1), list(here.folder.glob("*/epoch-000001/ranked/*"))
    here.log()

    run = here.drive()

    assert {"shares": 4, "total": 1, "ranked": 4} == marked
    assert 4 == len(files)
    assert without(marked) == runs_of(here, 1)
    assert undisturbed.found.state_digest == run.state_digest


def assert_scaled_is_captured_whole(here: Here, undisturbed: Here) -> None:
    """See that an operator that finishes for good is durable, bucket by bucket, and does not run again."""
    marked = buckets_of(here, NO_EPOCH)
    here.log()

    run = here.drive()

    assert {"scaled": 4} == marked
    assert 0 == sum(count for line, count in here.log().items() if line.startswith("scaled"))
    assert undisturbed.found.state_digest == run.state_digest


def test_part_of_an_operator_that_finishes_for_good_is_captured_though_it_was_not_told_of(
    here: Here, undisturbed: Here
) -> None:
    class OfScaled(UnheardRunner):
        unheard = ("scaled", None)

    tell_to_end(here, runner_class=OfScaled, **LATER)

    assert_scaled_is_captured_whole(here, undisturbed)


@pytest.mark.parametrize("options", [NEVER, LATER, AT_ONCE], ids=["no timeout", "timeout to come", "timeout 0"])
def test_operator_that_finishes_for_good_is_captured_though_the_end_came_before_its_marker(
    here: Here, undisturbed: Here, options: dict[str, Any]
) -> None:
    tell_to_end(here, script={"operator_written": be_told_to_end}, **options)

    assert_scaled_is_captured_whole(here, undisturbed)


@pytest.mark.parametrize("options", [NEVER, LATER, AT_ONCE], ids=["no timeout", "timeout to come", "timeout 0"])
def test_finished_parts_of_an_operator_that_finishes_for_good_are_captured(
    here: Here, undisturbed: Here, options: dict[str, Any]
) -> None:
    tell_to_end(here, "scaled - 3", **options)
    marked = buckets_of(here, NO_EPOCH)
    here.log()

    run = here.drive()
    log = here.log()

    assert {"scaled": 2} == marked
    assert [0, 0, 1, 1] == [log[f"scaled - {bucket}"] for bucket in range(MAX_BUCKETS)]
    assert undisturbed.found.state_digest == run.state_digest


def test_nothing_is_captured_of_an_epoch_behind_one_that_no_checkpoint_holds(here: Here, undisturbed: Here) -> None:
    tell_to_end(here, "paced 1 -", script={"epoch_opened@1": lambda: None}, every_epochs=2)

    assert ({}, None) == (buckets_of(here, 1), here.epochs[1].unaligned_by)
    assert undisturbed.found.state_digest == here.drive().state_digest


def test_epoch_that_is_held_is_captured_whole_and_needs_no_body_again(here: Here, undisturbed: Here) -> None:
    """Its predecessor's checkpoint completes in the time that is left; tails in files are not written again."""
    latch = Latch()
    waiting = told_to_end_before(latch.open)
    script = {"epoch_opened@1": lambda: None, "manifest_written@0": latch, "waiting": waiting}

    tell_to_end(here, script=script, patience_seconds=2.0)
    marked, durable = buckets_of(here, 1), here.found.last_durable_epoch
    written = Counter(path.parent.name for path in here.folder.glob("*/epoch-000001/*/*"))
    parts = Counter(part.operator_id for part in here.parts if part.epoch == 1)
    here.log()

    run = here.drive()

    assert (ALL, 0) == (marked, durable)
    assert parts == written
    assert {} == runs_of(here, 1)
    assert undisturbed.found.state_digest == run.state_digest


class ActingRunner(SlowRunner):
    """Acts once it has written the whole of `shares` in epoch 1, which happens while the epoch is captured."""

    act: Callable[[], None]

    def materialise(self, stream: Stream, *, folder: str | None, **options: Any) -> Materialised:
        """See Runner."""
        written = super().materialise(stream, folder=folder, **options)
        if folder is not None and folder.endswith("epoch-000001/shares"):
            type(self).act()
        return written


def test_epoch_that_aligns_while_it_is_captured_is_captured_whole(
    here: Here, undisturbed: Here, caplog: pytest.LogCaptureFixture
) -> None:
    """The checkpoint that held it completes meanwhile: until the epoch is durable too, what is noted is marked."""
    latch, told = Latch(), list[bool]()

    class CompletesMeanwhile(ActingRunner):
        @staticmethod
        def act() -> None:
            latch.open()
            wait_until(lambda: here.found.last_durable_epoch == 0, "epoch 0 to be durable")

    def be_told_once() -> None:
        if not told:
            told.append(True)
            be_told_to_end()

    script = {
        "epoch_opened@1": lambda: None,
        "manifest_written@0": latch,
        "waiting": be_told_once,
    }
    caplog.set_level(logging.INFO)
    tell_to_end(here, script=script, patience_seconds=2.0, runner_class=CompletesMeanwhile)
    marked, status = buckets_of(here, 1), here.epochs[1].status
    said = [record.getMessage() for record in caplog.records if "event=part_finished" in record.getMessage()]
    here.log()

    run = here.drive()

    assert (EpochStatus.ALIGNED, ALL) == (status, marked)
    assert len([part for part in here.store.list_parts(run.run_id) if part.epoch == 1]) == len(said)
    assert {} == runs_of(here, 1)
    assert undisturbed.found.state_digest == run.state_digest


@pytest.mark.parametrize("place", ["data_pinned", "operator_written", "epoch_aligned@1", "outputs_written@2"])
def test_driver_that_is_told_to_end_outside_of_an_operator_is_released_and_resumes_to_the_same_bits(
    here: Here, undisturbed: Here, place: str
) -> None:
    tell_to_end(here, script={place: be_told_to_end})
    epochs = here.store.list_epochs(here.run.run_id)

    run = here.drive()

    assert all(epoch.unaligned_by is None for epoch in epochs)
    assert undisturbed.found.state_digest == run.state_digest


def test_aligned_epoch_that_is_not_durable_is_read_back_where_its_edges_were_marked(
    here: Here, undisturbed: Here
) -> None:
    tell_to_end(here, script={"epoch_aligned@1": be_told_to_end}, **AT_ONCE)
    status, marked = here.epochs[1].status, buckets_of(here, 1)
    here.log()

    run = here.drive()

    assert (EpochStatus.ALIGNED, ALL) == (status, marked)
    assert {} == runs_of(here, 1)
    assert undisturbed.found.state_digest == run.state_digest


# The grace period


def until_clock(here: Here, seconds: float) -> Callable[[], None]:
    """Return what takes until the clock in the hand has come that far."""
    return lambda: wait_until(lambda: here.clock.seconds >= seconds, f"second {seconds}", timeout_seconds=20)


def let_go(hanging: Latch, jobs: list[Job]) -> None:
    """End what an attempt left hanging."""
    hanging.open()
    wait(jobs, timeout=DEADLINE_SECONDS)


GRACE: dict[str, Any] = {"termination_grace_seconds": 30.0}
NOT_DURABLE: Script = {"epoch_opened@1": lambda: None}  # epoch 0 is not, when epoch 1 begins


def test_edges_behind_a_checkpoint_that_is_still_being_written_are_saved_by_a_longer_grace_period(
    here: Here, undisturbed: Here
) -> None:
    script = {**NOT_DURABLE, "checkpoint-1": until_clock(here, 5.0)}
    tell_to_end(here, "paced 1 -", script=script, patience_seconds=0.3, **AT_ONCE, **GRACE)
    durable, marked = here.found.last_durable_epoch, buckets_of(here, 1)
    here.log()

    run = here.drive()

    assert (0, {"shares": 4, "total": 1, "ranked": 4}) == (durable, marked)
    assert without(marked) == runs_of(here, 1)
    assert here.clock.seconds < 10.0
    assert undisturbed.found.state_digest == run.state_digest


def test_last_second_of_the_grace_period_is_kept_for_the_end_and_what_is_captured_takes_its_part(here: Here) -> None:
    hanging, jobs = Latch(), list[Job]()

    taken = list[float]()

    class TakesLong(ActingRunner):
        @staticmethod
        def act() -> None:
            here.clock.seconds += 20.0
            taken.append(here.clock.seconds)

    script = {**NOT_DURABLE, "checkpoint-1": hanging}
    tell_to_end(here, "paced 1 -", script=script, jobs=jobs, runner_class=TakesLong, **GRACE)
    let_go(hanging, jobs)

    assert ([20.0], 29.0) == (taken, here.clock.seconds)
    assert -1 == here.found.last_durable_epoch


def test_grace_period_runs_from_the_signal_however_late_the_driver_hears_of_it(here: Here) -> None:
    """What the exception passes through may take its time: a job of pyspark's that is waited for, say."""
    hanging, jobs = Latch(), list[Job]()

    def be_told_and_take_long() -> None:
        told = ToldToEnd(told_seconds=here.clock.seconds)
        here.clock.seconds += 20.0
        raise told

    script = {**NOT_DURABLE, "checkpoint-1": hanging, "epoch_written@1": be_told_and_take_long}
    tell_to_end(here, script=script, jobs=jobs, **GRACE)
    let_go(hanging, jobs)

    assert 29.0 == here.clock.seconds


def test_process_that_is_not_known_to_have_longer_waits_two_seconds(here: Here) -> None:
    hanging, jobs = Latch(), list[Job]()

    tell_to_end(here, "paced 1 -", script={**NOT_DURABLE, "checkpoint-1": hanging}, jobs=jobs, **AT_ONCE)
    let_go(hanging, jobs)

    assert 2.0 == here.clock.seconds


@pytest.mark.parametrize("order", ["end", "fail"], ids=["told to end", "it failed"])
def test_grace_period_is_used_by_nobody_whom_it_saves_nothing(here: Here, order: str) -> None:
    """What follows a completion the next attempt does as well."""
    hanging, jobs = Latch(), list[Job]()

    here.order(order, "paced 1 -")
    here.drive_and_fail(script={**until_durable(here), "checkpoint_completed@0": hanging}, jobs=jobs, **GRACE)
    let_go(hanging, jobs)

    assert 2.0 == here.clock.seconds


def test_grace_period_begins_also_while_an_attempt_that_failed_waits_for_its_checkpoint(here: Here) -> None:
    hanging, jobs, told = Latch(), list[Job](), list[float]()

    def be_told_once() -> None:
        if here.clock.seconds >= 3.0 and not told:
            told.append(here.clock.seconds)
            be_told_to_end()

    here.order("fail", "paced 1 -")
    script = {**NOT_DURABLE, "checkpoint-1": hanging, "waiting": be_told_once}
    error = here.drive_and_fail(script=script, jobs=jobs, **GRACE)
    let_go(hanging, jobs)

    assert isinstance(error, SystemExit)
    assert ([3.0], 32.0) == (told, here.clock.seconds)


def test_checkpoint_that_expires_is_not_waited_for_until_the_grace_period_is_over(here: Here) -> None:
    hanging, jobs = Latch(), list[Job]()

    tell_to_end(
        here, "paced 1 -", script={**NOT_DURABLE, "checkpoint-1": hanging}, timeout_seconds=5.0, jobs=jobs, **GRACE
    )
    let_go(hanging, jobs)

    assert 5.0 == here.clock.seconds


# Interrupted again


def marked_by(events: Sequence[Event]) -> list[str]:
    """Return the operators of which events mark edges in epoch 1."""
    marks = [event for event in events if isinstance(event, PartsFinished) and event.epoch == 1]
    return [part.operator_id for event in marks for part in event.parts]


class InterruptedCoordinator(MortalCoordinator):
    """Is interrupted by SIGTERM, once, around the call that marks an operator's edge in epoch 1."""

    is_told = False
    operator_id = "total"
    is_after_commit = False

    def apply(self, run_id: RunId, *events: Event, publish: Publish | None = None) -> RunState:
        """See Coordinator."""
        if self.is_told or self.operator_id not in marked_by(events):
            return super().apply(run_id, *events, publish=publish)
        type(self).is_told = True
        if self.is_after_commit:
            super().apply(run_id, *events, publish=publish)
        raise ToldToEnd


@pytest.mark.parametrize("is_after_commit", [False, True], ids=["before it is committed", "after"])
def test_marking_that_is_interrupted_is_done_in_the_time_that_is_left(
    here: Here, undisturbed: Here, *, is_after_commit: bool
) -> None:
    class Interrupted(InterruptedCoordinator):
        pass

    Interrupted.is_after_commit = is_after_commit
    tell_to_end(here, coordinator_class=Interrupted, **AT_ONCE)
    marked = buckets_of(here, 1)
    here.log()

    run = here.drive()

    assert {"shares": 4, "total": 1} == marked
    assert without(marked) == runs_of(here, 1)
    assert undisturbed.found.state_digest == run.state_digest


def test_second_sigterm_while_the_edges_are_marked_ends_the_attempt_in_order(here: Here, undisturbed: Here) -> None:
    class Interrupted(InterruptedCoordinator):
        pass

    tell_to_end(here, "paced 1 -", coordinator_class=Interrupted)
    marked = buckets_of(here, 1)
    here.log()

    run = here.drive()

    assert {"shares": 4} == marked
    assert without(marked) == runs_of(here, 1)
    assert undisturbed.found.state_digest == run.state_digest


def test_process_that_is_killed_within_its_grace_period_leaves_what_it_had_captured(
    here: Here, undisturbed: Here
) -> None:
    """Nobody knows when SIGKILL comes: each edge is marked as soon as its files are complete."""

    class KilledAtTotal(MortalCoordinator):
        def apply(self, run_id: RunId, *events: Event, publish: Publish | None = None) -> RunState:
            if "total" in marked_by(events):
                self.kill()
            return super().apply(run_id, *events, publish=publish)

    here.order("end", "paced 1 -")
    error = here.drive_and_fail(script=until_durable(here), coordinator_class=KilledAtTotal)
    (here.desk / "end").unlink()
    marked = buckets_of(here, 1)
    here.log()

    run = here.drive()

    assert isinstance(error, Killed)
    assert {"shares": 4} == marked
    assert without(marked) == runs_of(here, 1)
    assert undisturbed.found.state_digest == run.state_digest


def test_second_sigterm_after_an_edge_was_marked_keeps_it(here: Here, undisturbed: Here) -> None:
    tell_to_end(here, "paced 1 -", script={"edge_marked@1": be_told_to_end})
    marked = buckets_of(here, 1)
    here.log()

    run = here.drive()

    assert {"shares": 2} == marked
    assert without(marked) == runs_of(here, 1)
    assert undisturbed.found.state_digest == run.state_digest


class EndsBetweenComputingAndWriting(SlowRunner):
    """Is told to end once the buckets of `ranked` are computed, before they are written."""

    def materialise(self, stream: Stream, *, folder: str | None, **options: Any) -> Materialised:
        """See Runner."""
        if folder is not None and folder.endswith("epoch-000001/ranked") and not stream.is_computed:
            self._keep(stream, options["done"])
            stream.buckets(range(MAX_BUCKETS))
            raise ToldToEnd
        return super().materialise(stream, folder=folder, **options)


def test_rest_of_an_operator_that_was_marked_in_part_is_captured_beside_it(here: Here, undisturbed: Here) -> None:
    """What is durable already is not written again."""
    tell_to_end(here, "ranked 1 2", **AT_ONCE)
    tell_to_end(here, runner_class=EndsBetweenComputingAndWriting)
    marked = buckets_of(here, 1)
    written = sorted(path.parent.name for path in here.folder.glob("000002-*/epoch-000001/*/*"))
    here.log()

    run = here.drive()

    assert {"shares": 4, "total": 1, "ranked": 4} == marked
    assert ["ranked", "ranked"] == written
    assert without(marked) == runs_of(here, 1)
    assert undisturbed.found.state_digest == run.state_digest


# What goes wrong meanwhile


def put_in_the_way(here: Here, operator_id: str) -> Callable[[], None]:
    """Return what makes it impossible to write an operator's output of epoch 1: a file where its folder goes."""

    def put() -> None:
        (attempt,) = here.folder.glob(f"{here.found.fencing_token:06d}-*")
        (attempt / "epoch-000001").mkdir(parents=True, exist_ok=True)
        (attempt / "epoch-000001" / operator_id).touch()

    return put


def test_capture_that_fails_keeps_what_it_got_and_does_not_hide_that_the_process_was_told_to_end(
    here: Here, undisturbed: Here
) -> None:
    def wait_and_put() -> None:
        wait_until(lambda: here.found.last_durable_epoch == 0, "epoch 0 to be durable")
        put_in_the_way(here, "total")()

    tell_to_end(here, "paced 1 -", script={"epoch_opened@1": wait_and_put})
    marked = buckets_of(here, 1)
    here.log()

    run = here.drive()

    assert {"shares": 4} == marked
    assert without(marked) == runs_of(here, 1)
    assert undisturbed.found.state_digest == run.state_digest


# In a process of its own


def test_sigterm_ends_a_process_with_143_and_the_retry_starts_behind_what_had_finished(
    store: PostgresStore, store_url: str, tmp_path: Path, undisturbed: Here
) -> None:
    shell = CommandLine(store_url=store_url, folder=tmp_path)
    options = ("--param", f"desk={tmp_path}", "--param", f"epochs={EPOCHS}", "--max-buckets", str(MAX_BUCKETS))
    (tmp_path / "hold").write_text("paced 1 -")

    process = shell.start("tests.iterations.steered:steered", "told", *options)
    wait_until((tmp_path / "held").exists, "the operator to be held")
    wait_until(lambda: store.find_run("told").last_durable_epoch == 0, "epoch 0 to be durable")
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=DEADLINE_SECONDS)
    (tmp_path / "hold").unlink()
    (tmp_path / "log").write_text("")
    run = store.find_run("told")
    outcomes = [(attempt.outcome, attempt.reason) for attempt in store.list_attempts(run.run_id)]
    epochs = [(epoch.status, epoch.unaligned_by) for epoch in store.list_epochs(run.run_id)]
    resumed = shell.run("tests.iterations.steered:steered", "told", *options)

    assert 143 == process.returncode, errors
    assert "Traceback" not in errors
    assert [(AttemptOutcome.RELEASED, "interrupted")] == outcomes
    assert [(EpochStatus.DURABLE, None), (EpochStatus.OPEN, UnalignedBy.PREEMPTION)] == epochs
    assert (0, undisturbed.found.state_digest) == (resumed.code, resumed.json["state_digest"]), resumed.err
    again = Counter(line.split()[0] for line in (tmp_path / "log").read_text().splitlines() if line.split()[1] == "1")
    assert without({"shares": 4, "total": 1}) == dict(again)


def test_process_that_is_told_to_end_while_it_settles_for_another_reason_has_its_grace_period(here: Here) -> None:
    """Somebody interrupts it, and a moment later it is told to end: the checkpoint that is being written completes."""
    latch = Latch()

    def interrupt() -> None:
        latch.wait_for_arrival()
        raise KeyboardInterrupt

    script = {
        "epoch_opened@1": lambda: None,
        "manifest_written@0": latch,
        "epoch_written@1": interrupt,
        "waiting": told_to_end_before(latch.open),
    }

    tell_to_end(here, script=script, patience_seconds=2.0)

    assert 0 == here.found.last_durable_epoch
