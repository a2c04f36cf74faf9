"""When are checkpoints taken, and what becomes of an epoch while one is being written? On a real store.

The asynchronous part of a checkpoint is held at a latch, aborted from another connection, or finds something in its
way; the epochs beside it go on as far as they may, and the run ends with the same bits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import psycopg2
import pytest

from iteration_lib.coordinator import Coordinator, Publish
from iteration_lib.driver.background import Job
from iteration_lib.driver.restore import read_manifest
from iteration_lib.errors import (
    CheckpointFailedError,
    OperatorFailedError,
    OutcomeUnknownError,
    StateLocationError,
    StoreUnavailableError,
    SupersededError,
)
from iteration_lib.protocol import Event, RunState
from iteration_lib.protocol.event import CheckpointAborted, CheckpointDeclined, CheckpointRequested, SubtasksAligned
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.state import RunId
from iteration_lib.protocol.status import AttemptOutcome, RunStatus
from iteration_lib.state.location import StateLocation
from iteration_lib.store.postgres import PostgresStore
from tests.driven_here import DEADLINE_SECONDS, KILL, TIMER, Here, Latch, MortalCoordinator
from tests.failover.driven import wait_until
from tests.iterations.reusing import reusing
from tests.iterations.steered import steered
from tests.sink_reader import dsn
from tests.store_script import history

pytestmark = pytest.mark.postgres

EPOCHS = 3
MANIFEST_0, MANIFEST_1 = "manifest_written@0", "manifest_written@1"


@pytest.fixture
def elsewhere(store_url: str) -> Iterator[Coordinator]:
    """What another process has: a connection of its own."""
    with closing(PostgresStore(store_url)) as opened:
        yield Coordinator(opened)


@pytest.fixture
def here(store: PostgresStore, tmp_path: Path) -> Here:
    return Here.begin(store, tmp_path, steered, epochs=EPOCHS)


@pytest.fixture(scope="module")
def undisturbed(store: PostgresStore, tmp_path_factory: pytest.TempPathFactory) -> Here:
    """A run that nothing happened to."""
    here = Here.begin(store, tmp_path_factory.mktemp("undisturbed"), steered, epochs=EPOCHS)
    assert RunStatus.FINISHED is here.drive().status
    return here


def is_held(here: Here, epoch: int) -> Callable[[], bool]:
    """Return whether an epoch has reported everything and waits."""
    return lambda: len(here.epochs) > epoch and here.epochs[epoch].held_at is not None


def ends_of_checkpoints(here: Here) -> list[tuple[int, str, str, str | None]]:
    """Return of each checkpoint its epoch, kind, status and failure."""
    return [
        (known.epoch, known.kind.value, known.status.value, known.failure.value if known.failure is not None else None)
        for known in here.checkpoints
    ]


# Beside the next epoch


def test_next_epoch_computes_but_does_not_align_while_a_checkpoint_is_being_written(
    here: Here, undisturbed: Here
) -> None:
    latch = Latch()
    with here.driving(script={MANIFEST_0: latch}) as driving, latch:
        wait_until(is_held(here, 1), "epoch 1 to be held")
        statuses, bodies = here.statuses, here.log()
        latch.open()
        run = driving.result(DEADLINE_SECONDS)

    assert ["ALIGNED", "OPEN"] == statuses
    assert {"shares 1 0", "total 1 -", "drifted 1 0"} <= set(bodies)
    assert {"-", "0", "1"} == {line.split()[1] for line in bodies}
    assert ["DURABLE"] * EPOCHS == here.statuses
    assert here.epochs[1].aligned_at > here.epochs[1].held_at
    assert undisturbed.found.state_digest == run.state_digest


def test_run_is_locked_by_nobody_while_an_operator_runs_and_a_checkpoint_is_written(here: Here) -> None:
    """Whoever wants to abort, to stop or to take over waits for no body and no file (B1.20)."""
    here.order("hold", "paced 1 -")
    latch = Latch()
    with here.driving(script={MANIFEST_0: latch}) as driving, latch:
        wait_until((here.desk / "held").exists, "epoch 1 to be computed")
        with closing(psycopg2.connect(dsn(str(here.store.url)))) as other, other.cursor() as cursor:
            cursor.execute("SELECT 1 FROM runs WHERE run_id = %s FOR UPDATE SKIP LOCKED", (here.run.run_id,))
            found = cursor.fetchall()
        here.clear("hold")
        latch.open()
        driving.exception(DEADLINE_SECONDS)

    assert [(1,)] == found


def test_manifest_says_of_each_operator_whether_it_has_finished_and_so_do_later_ones(here: Here) -> None:
    """One that runs in every epoch has finished with the last of them; a later attempt repeats what it found."""
    here.drive(until_epoch=1)
    here.drive()

    location = StateLocation(here.run.state_uri).below(here.run.run_id)
    first, second, final = (read_manifest(location, known).operators for known in here.checkpoints)

    for_good = {known.operator_id for known in here.iteration.graph().operators if known.finishes}
    assert for_good
    assert {name: "FINISHED" if name in for_good else "RUNNING" for name in first} == first
    assert first == second
    assert dict.fromkeys(first, "FINISHED") == final


def test_alignment_is_held_for_nobody_where_the_checkpoint_is_quick(undisturbed: Here) -> None:
    assert [("PERIODIC", "SUBSUMED"), ("PERIODIC", "SUBSUMED"), ("FINAL", "COMPLETED")] == [
        (kind, status) for _, kind, status, _ in ends_of_checkpoints(undisturbed)
    ]
    assert {"DURABLE"} == set(undisturbed.statuses)


def test_abort_from_another_connection_releases_the_held_epoch_in_its_own_transaction(
    here: Here, undisturbed: Here, elsewhere: Coordinator
) -> None:
    """The process that drives may hang for ever: the other one's commit alone aligns the epoch."""
    latch = Latch()
    with here.driving(script={MANIFEST_0: latch}) as driving, latch:
        wait_until(is_held(here, 1), "epoch 1 to be held")
        aborted = elsewhere.apply(here.run.run_id, CheckpointAborted(checkpoint_id=1, aborted_by="somebody"))
        run = driving.result(DEADLINE_SECONDS)  # nobody has opened the latch

    assert ["ALIGNED", "ALIGNED"] == [epoch.status.value for epoch in aborted.epochs]
    assert undisturbed.found.state_digest == run.state_digest
    assert [
        (0, "PERIODIC", "ABORTED", "ABORTED_BY_USER"),
        (1, "PERIODIC", "SUBSUMED", None),
        (2, "FINAL", "COMPLETED", None),
    ] == ends_of_checkpoints(here)
    assert "aborted by somebody" == here.checkpoints[0].reason


def test_late_acknowledgement_of_an_aborted_checkpoint_changes_nothing(here: Here, elsewhere: Coordinator) -> None:
    first, late, second = Latch(), Latch(), Latch()
    script = {MANIFEST_0: first, "checkpoint_completed@0": late, MANIFEST_1: second}
    with here.driving(script=script) as driving, first:
        wait_until(is_held(here, 1), "epoch 1 to be held")
        elsewhere.apply(here.run.run_id, CheckpointAborted(checkpoint_id=1, aborted_by="somebody"))
        with second:
            wait_until(is_held(here, 2), "epoch 2 to be held")
            before = history(here.store, here.run.run_id)
            first.open()
            with late:
                after = history(here.store, here.run.run_id)
        driving.result(DEADLINE_SECONDS)

    assert before == after


def test_checkpoint_that_takes_too_long_expires_and_the_run_goes_on_where_a_failure_is_tolerable(
    here: Here, undisturbed: Here
) -> None:
    latch = Latch()
    with here.driving(script={MANIFEST_0: latch}, timeout_seconds=5.0, tolerable_failures=1) as driving, latch:
        run = driving.result(DEADLINE_SECONDS)

    assert undisturbed.found.state_digest == run.state_digest
    assert (0, "PERIODIC", "ABORTED", "EXPIRED") == ends_of_checkpoints(here)[0]
    assert "it took longer than 5 seconds" == here.checkpoints[0].reason
    assert ["DURABLE"] * EPOCHS == here.statuses


def test_checkpoint_that_takes_too_long_ends_the_attempt_where_no_failure_is_tolerable(here: Here) -> None:
    latch = Latch()
    with here.driving(script={MANIFEST_0: latch}, timeout_seconds=5.0) as driving, latch:
        error = driving.exception(DEADLINE_SECONDS)

    assert isinstance(error, CheckpointFailedError)
    assert "took too long" in str(error)
    assert (RunStatus.FAILED, str(error), -1) == (here.found.status, here.found.failure, here.found.last_durable_epoch)


def test_two_checkpoints_may_be_pending_and_the_newer_one_subsumes_the_older(here: Here, undisturbed: Here) -> None:
    older, newer = Latch(), Latch()
    with here.driving(script={MANIFEST_0: older, MANIFEST_1: newer}, max_pending=2) as driving, older, newer:
        wait_until(is_held(here, 2), "epoch 2 to be held")
        statuses = here.statuses
        newer.open()
        run = driving.result(DEADLINE_SECONDS)

    assert ["ALIGNED", "ALIGNED", "OPEN"] == statuses
    assert undisturbed.found.state_digest == run.state_digest
    assert [(0, "ABORTED", "SUBSUMED"), (1, "SUBSUMED", None), (2, "COMPLETED", None)] == [
        (epoch, status, failure) for epoch, _, status, failure in ends_of_checkpoints(here)
    ]


def test_checkpoint_holds_what_the_epoch_returned_whatever_the_next_one_does_to_the_same_memory(
    store: PostgresStore, tmp_path: Path
) -> None:
    """An operator may return one buffer again and again: the next epoch writes to it before the checkpoint is."""
    undisturbed, here = (Here.begin(store, tmp_path, reusing) for _ in range(2))
    latch = Latch()

    expected = undisturbed.drive().state_digest
    with here.driving(script={"checkpoint-1": latch, "checkpoint_completed@0": KILL}) as driving, latch:
        wait_until(is_held(here, 1), "epoch 1 to be held")
        latch.open()
        driving.exception(DEADLINE_SECONDS)

    assert 0 == here.found.last_durable_epoch
    assert expected == here.drive().state_digest


# Failures


def put_in_the_way(here: Here, epoch: int, operator_id: str = "paced") -> Callable[[], None]:
    """Return what makes it impossible to write an operator's result after an epoch: a file where its folder goes."""

    def put() -> None:
        (attempt,) = here.folder.glob(f"{here.found.fencing_token:06d}-*")
        (attempt / f"epoch-{epoch:06d}").mkdir(parents=True, exist_ok=True)
        (attempt / f"epoch-{epoch:06d}" / operator_id).touch()

    return put


def test_error_of_the_write_is_the_error_that_is_shown_and_the_run_can_be_resumed(
    here: Here, undisturbed: Here
) -> None:
    error = here.drive_and_fail(script={"epoch_aligned@1": put_in_the_way(here, 1)})
    failed = here.found
    resumed = here.drive()

    assert isinstance(error, StateLocationError)
    assert "epoch-000001/paced" in str(error)
    assert (RunStatus.FAILED, str(error), 0) == (failed.status, failed.failure, failed.last_durable_epoch)
    assert (1, "PERIODIC", "ABORTED", "DECLINED") == ends_of_checkpoints(here)[1]
    assert str(error) == here.checkpoints[1].reason
    assert undisturbed.found.state_digest == resumed.state_digest


@pytest.mark.parametrize(
    ("failing", "goes_on"), [((0,), True), ((0, 2), True), ((0, 1), False)], ids=["one", "every other", "two in a row"]
)
def test_as_many_failures_in_a_row_as_are_tolerable_do_not_end_the_attempt(
    store: PostgresStore, tmp_path: Path, failing: tuple[int, ...], *, goes_on: bool
) -> None:
    here = Here.begin(store, tmp_path, steered, epochs=4)
    script = {f"epoch_aligned@{epoch}": put_in_the_way(here, epoch) for epoch in failing}

    error = None if goes_on else here.drive_and_fail(script=script, tolerable_failures=1)
    run = here.drive(script=script, tolerable_failures=1) if goes_on else here.found

    assert (RunStatus.FINISHED if goes_on else RunStatus.FAILED) is run.status
    assert goes_on or isinstance(error, StateLocationError)
    assert list(failing) == [epoch for epoch, _, _, failure in ends_of_checkpoints(here) if failure == "DECLINED"]


def test_failure_to_write_what_executors_hold_is_no_checkpoints_and_never_tolerable(here: Here) -> None:
    """No checkpoint has begun by then: the epoch itself has failed."""
    script = {"epoch_opened@1": put_in_the_way(here, 1, "ranked")}

    error = here.drive_and_fail(script=script, tolerable_failures=9)

    assert isinstance(error, StateLocationError)
    assert (RunStatus.FAILED, 0) == (here.found.status, here.found.last_durable_epoch)
    assert [(0, "PERIODIC", "COMPLETED", None)] == ends_of_checkpoints(here)


def test_failure_of_the_final_checkpoint_is_never_tolerable(here: Here) -> None:
    error = here.drive_and_fail(script={"epoch_aligned@2": put_in_the_way(here, 2)}, tolerable_failures=9)

    assert isinstance(error, StateLocationError)
    assert (RunStatus.FAILED, 1) == (here.found.status, here.found.last_durable_epoch)
    assert (2, "FINAL", "ABORTED", "DECLINED") == ends_of_checkpoints(here)[-1]


def test_checkpoint_that_expires_and_then_cannot_be_written_has_expired(here: Here) -> None:
    """Of two ends the first one is stored, and it is the one that is told."""
    jobs: list[Job] = []

    def expire_and_fail() -> None:
        here.clock.seconds += 5.0
        wait_until(lambda: ends_of_checkpoints(here)[-1][3] == "EXPIRED", "the checkpoint to expire")
        put_in_the_way(here, 2)()

    script = {f"checkpoint-{EPOCHS}": expire_and_fail, "waiting": lambda: wait(jobs, timeout=DEADLINE_SECONDS)}

    error = here.drive_and_fail(script=script, jobs=jobs, timeout_seconds=5.0)

    assert (2, "FINAL", "ABORTED", "EXPIRED") == ends_of_checkpoints(here)[-1]
    assert isinstance(error, CheckpointFailedError)
    assert "the checkpoint of epoch 2 failed (it took too long)" in str(error)
    assert str(error) == here.found.failure


@pytest.mark.parametrize("every_epochs", [1, EPOCHS], ids=["periodic", "final"])
def test_write_that_fails_when_the_expiry_could_not_be_stored_is_what_is_told(
    store: PostgresStore, tmp_path: Path, every_epochs: int
) -> None:
    here, jobs, is_refused = Here.begin(store, tmp_path, steered, epochs=EPOCHS), list[Job](), threading.Event()

    class Away(MortalCoordinator):
        def apply(self, run_id: RunId, *events: Event, publish: Publish | None = None) -> RunState:
            if threading.current_thread().name == TIMER and not is_refused.is_set():
                is_refused.set()
                raise StoreUnavailableError("postgresql://here", "it is away for a moment")
            return super().apply(run_id, *events, publish=publish)

    def expire_and_fail() -> None:
        here.clock.seconds += 5.0
        assert is_refused.wait(DEADLINE_SECONDS)
        put_in_the_way(here, 0 if every_epochs == 1 else EPOCHS - 1)()

    def hold_the_driver() -> None:
        """Else it would decline the checkpoint itself."""
        wait(jobs, timeout=DEADLINE_SECONDS)

    script = {"checkpoint-1": expire_and_fail, "waiting": hold_the_driver, "epoch_written@1": hold_the_driver}

    error = here.drive_and_fail(
        script=script, jobs=jobs, timeout_seconds=5.0, every_epochs=every_epochs, coordinator_class=Away
    )

    assert "DECLINED" == ends_of_checkpoints(here)[-1][3]
    assert (here.checkpoints[-1].reason, StateLocationError) == (str(error), type(error))


def test_failure_of_a_checkpoint_that_a_person_asked_for_is_never_tolerable(here: Here, elsewhere: Coordinator) -> None:
    script = {"epoch_written@0": ask(here, elsewhere), "epoch_aligned@0": put_in_the_way(here, 0)}

    error = here.drive_and_fail(script=script, tolerable_failures=9)

    assert isinstance(error, StateLocationError)
    assert (0, "MANUAL", "ABORTED", "DECLINED") == ends_of_checkpoints(here)[0]


def test_failure_that_ends_the_attempt_is_the_one_that_is_told_though_a_newer_checkpoint_has_failed_before(
    store: PostgresStore, tmp_path: Path
) -> None:
    """One that a person asked for is still being written while others come and go; of that none is tolerable."""
    here, latch = Here.begin(store, tmp_path, steered, epochs=6), Latch()
    script = {
        "epoch_written@0": ask(here, Coordinator(store)),
        "checkpoint-1": latch,
        "epoch_aligned@1": put_in_the_way(here, 1),
    }

    with here.driving(script=script, seconds={3: 1.0}, max_pending=2, tolerable_failures=3) as driving, latch:
        wait_until(lambda: here.found.last_durable_epoch >= 2, "the third checkpoint to complete")
        put_in_the_way(here, 0)()
        latch.open()
        error = driving.exception(DEADLINE_SECONDS)

    ends = [(0, "MANUAL", "ABORTED", "DECLINED"), (1, "PERIODIC", "ABORTED", "DECLINED")]
    assert ends == ends_of_checkpoints(here)[:2]
    assert isinstance(error, StateLocationError)
    assert "epoch-000000/paced" in str(error)


@pytest.mark.parametrize("tolerable", [3, 0], ids=["one that was asked for", "any"])
def test_failure_that_is_not_tolerable_is_the_one_that_is_told_whatever_fails_behind_it(
    store: PostgresStore, tmp_path: Path, tolerable: int
) -> None:
    """In a long epoch nobody looks while another checkpoint expires."""
    here, first, second = Here.begin(store, tmp_path, steered, epochs=6), Latch(), Latch()

    def be_long() -> None:
        wait_until(lambda: is_over_by(here, "DECLINED"), "the checkpoint that was asked for to fail")
        here.clock.seconds += 5.0
        wait_until(lambda: is_over_by(here, "EXPIRED"), "the one behind it to expire")

    script = {"checkpoint-1": first, "checkpoint-2": second, "epoch_written@2": be_long}
    if tolerable:
        script["epoch_written@0"] = ask(here, Coordinator(store))
    options = {"max_pending": 2, "tolerable_failures": tolerable, "timeout_seconds": 5.0}

    with here.driving(script=script, **options) as driving, first, second:
        put_in_the_way(here, 0)()
        first.open()
        error = driving.exception(DEADLINE_SECONDS)

    assert isinstance(error, StateLocationError), error


def test_last_checkpoint_of_an_attempt_is_the_one_that_is_told_though_an_older_one_fails_behind_it(
    store: PostgresStore, tmp_path: Path
) -> None:
    here, latch = Here.begin(store, tmp_path, steered, epochs=4), Latch()
    script = {"checkpoint-1": latch, "epoch_aligned@1": put_in_the_way(here, 1)}

    with here.driving(script=script, max_pending=2, tolerable_failures=3, until_epoch=2) as driving, latch:
        wait_until(lambda: is_over_by(here, "DECLINED"), "the last one to fail")
        put_in_the_way(here, 0)()
        latch.open()
        error = driving.exception(DEADLINE_SECONDS)

    assert isinstance(error, StateLocationError), error
    assert "epoch-000001/paced" in str(error)


def is_over_by(here: Here, failure: str) -> bool:
    """Tell whether a checkpoint has failed so."""
    return any(failure == end[3] for end in ends_of_checkpoints(here))


def test_expiry_is_the_error_that_is_shown_also_after_a_write_that_failed_and_was_tolerated(
    store: PostgresStore, tmp_path: Path
) -> None:
    here, latch = Here.begin(store, tmp_path, steered, epochs=4), Latch()
    script = {"epoch_aligned@0": put_in_the_way(here, 0), "manifest_written@1": latch}

    with here.driving(script=script, timeout_seconds=5.0, tolerable_failures=1) as driving, latch:
        error = driving.exception(DEADLINE_SECONDS)

    assert isinstance(error, CheckpointFailedError)
    assert "the checkpoint of epoch 1 failed (it took too long)" in str(error)


def test_checkpoint_that_hangs_is_a_failure_also_where_nobody_waits_for_it(here: Here) -> None:
    """Another may be pending beside it, which would subsume it."""
    latch = Latch()
    options = {"max_pending": 2, "timeout_seconds": 5.0, "tolerable_failures": 1}
    with here.driving(script={MANIFEST_0: latch}, seconds={1: 5.0}, **options) as driving, latch:
        driving.result(DEADLINE_SECONDS)

    assert (0, "PERIODIC", "ABORTED", "EXPIRED") == ends_of_checkpoints(here)[0]


def test_checkpoint_that_is_written_after_its_time_has_expired(here: Here) -> None:
    def take_long() -> None:
        here.clock.seconds += 5.0

    jobs: list[Job] = []
    script = {MANIFEST_0: take_long, "epoch_opened@1": lambda: wait(jobs, timeout=DEADLINE_SECONDS)}

    here.drive(script=script, jobs=jobs, max_pending=2, timeout_seconds=5.0, tolerable_failures=1)

    assert (0, "PERIODIC", "ABORTED", "EXPIRED") == ends_of_checkpoints(here)[0]


def has_expired(here: Here) -> bool:
    """Tell whether the first checkpoint was given up because it took too long."""
    return (0, "PERIODIC", "ABORTED", "EXPIRED") == ends_of_checkpoints(here)[0]


def test_checkpoint_that_hangs_expires_on_time_also_while_the_next_epoch_is_computed(
    here: Here, undisturbed: Here
) -> None:
    """An operator may take hours, and a checkpoint's time is the one that was set."""
    latch = Latch()
    script = {
        "checkpoint-1": latch,
        "epoch_written@1": lambda: wait_until(
            lambda: has_expired(here), "the checkpoint to expire", timeout_seconds=20
        ),
    }

    with here.driving(script=script, seconds={1: 1.0}, timeout_seconds=5.0, tolerable_failures=1) as driving, latch:
        run = driving.result(DEADLINE_SECONDS)

    assert undisturbed.found.state_digest == run.state_digest
    assert "it took longer than 5 seconds" == here.checkpoints[0].reason


def test_checkpoint_that_a_person_asks_an_attempt_for_that_has_failed_is_taken_by_the_next_one(
    here: Here, undisturbed: Here, elsewhere: Coordinator
) -> None:
    """The one before expired while the epoch was computed: what began behind it nobody would write."""
    latch = Latch()

    def ask_once_it_has_expired() -> None:
        wait_until(lambda: has_expired(here), "the checkpoint to expire", timeout_seconds=20)
        ask(here, elsewhere)()

    script = {"checkpoint-1": latch, "epoch_written@1": ask_once_it_has_expired}
    with here.driving(script=script, seconds={1: 1.0}, timeout_seconds=5.0) as driving, latch:
        error = driving.exception(DEADLINE_SECONDS)
    begun = len(here.checkpoints)
    run = here.drive(every_epochs=9)

    assert "took too long" in str(error)
    assert (1, (0, "MANUAL", "SUBSUMED", None)) == (begun, ends_of_checkpoints(here)[1])  # by the final one
    assert undisturbed.found.state_digest == run.state_digest


def test_expiry_releases_the_held_epoch_though_the_driver_itself_hangs(here: Here) -> None:
    latch, driver, is_asked = Latch(), Latch(), []

    def hang() -> None:
        if not is_asked:
            is_asked.append(True)
            here.clock.seconds += 5.0
            driver()

    script = {"checkpoint-1": latch, "waiting": hang}
    with here.driving(script=script, timeout_seconds=5.0, tolerable_failures=1) as driving, latch, driver:
        wait_until(lambda: here.statuses == ["ALIGNED", "ALIGNED"], "epoch 1 to align", timeout_seconds=20)
        is_over = has_expired(here)
        driver.open()
        run = driving.result(DEADLINE_SECONDS)

    assert is_over
    assert RunStatus.FINISHED is run.status


def test_checkpoint_that_could_not_be_declined_on_time_is_declined_where_the_driver_looks(
    here: Here, undisturbed: Here, caplog: pytest.LogCaptureFixture
) -> None:
    latch = Latch()

    class Away(MortalCoordinator):
        """A store that cannot be reached, but by the driver itself."""

        def apply(self, run_id: RunId, *events: Event, publish: Publish | None = None) -> RunState:
            if threading.current_thread().name == TIMER:
                raise OutcomeUnknownError("the store is away")
            return super().apply(run_id, *events, publish=publish)

    options = {"timeout_seconds": 5.0, "tolerable_failures": 1, "coordinator_class": Away}
    script = {
        "checkpoint-1": latch,
        "epoch_written@1": lambda: wait_until(
            lambda: "not_expired" in caplog.text, "the timer to fail", timeout_seconds=20
        ),
    }
    with here.driving(script=script, seconds={1: 1.0}, **options) as driving, latch:
        run = driving.result(DEADLINE_SECONDS)

    assert undisturbed.found.state_digest == run.state_digest
    assert has_expired(here)


@pytest.mark.parametrize("hangs", [False, True], ids=["which all completed", "of which one hangs"])
def test_no_timer_outlives_an_attempts_checkpoints(here: Here, *, hangs: bool) -> None:
    latch = Latch()
    script = {"checkpoint-1": latch} if hangs else {}
    before = set(threading.enumerate())

    if hangs:
        here.order("end", "total 1 -")
        here.drive_and_fail(script=script)
    else:
        here.drive(script=script)
    timers = [thread for thread in set(threading.enumerate()) - before if thread.name == TIMER]
    wait_until(lambda: not any(thread.is_alive() for thread in timers), "the timers to end", timeout_seconds=5)
    latch.open()


def test_expiry_of_a_checkpoint_that_a_person_has_aborted_hides_no_error(here: Here, elsewhere: Coordinator) -> None:
    latch = Latch()
    jobs: list[Job] = []
    script = {
        MANIFEST_0: latch,
        "waiting": lambda: elsewhere.apply(here.run.run_id, CheckpointAborted(checkpoint_id=1, aborted_by="somebody")),
        "epoch_aligned@1": put_in_the_way(here, 1),
        "epoch_opened@2": lambda: wait(jobs[1:], timeout=DEADLINE_SECONDS),
    }

    error = here.drive_and_fail(script=script, seconds={2: 5.0}, jobs=jobs, timeout_seconds=5.0)
    latch.open()
    wait(jobs, timeout=DEADLINE_SECONDS)

    assert isinstance(error, StateLocationError), error


def test_failure_that_comes_while_another_checkpoint_releases_the_epoch_ends_the_attempt_before_the_next_one(
    here: Here,
) -> None:
    """Between the release and the next epoch's opening the other of two checkpoints fails."""
    first, second, is_sent = Latch(), Latch(), []

    class Meanwhile(MortalCoordinator):
        def apply(self, run_id: RunId, *events: Event, publish: Publish | None = None) -> RunState:
            opens = [event for event in events if getattr(event, "if_ready", False) and event.epoch == EPOCHS]
            if opens and not is_sent:
                reported = (event for event in events if isinstance(event, SubtasksAligned))
                state = self.apply_now(run_id, *reported)  # one step, so that no release comes between it and the look
                if state.epoch_state(2).decision is None:
                    return state
                is_sent.append(events)
                guard = {"attempt_id": state.attempt.attempt_id, "fencing_token": state.fencing_token}
                self.apply_now(run_id, CheckpointDeclined(**guard, checkpoint_id=2, reason="it cannot be written"))
            return super().apply(run_id, *events, publish=publish)

        def apply_now(self, run_id: RunId, *events: Event) -> RunState:
            return super().apply(run_id, *events)

    longer = Here.begin(here.store, here.desk, steered, epochs=EPOCHS + 1)
    script = {MANIFEST_0: first, MANIFEST_1: second}
    with longer.driving(script=script, max_pending=2, coordinator_class=Meanwhile) as driving, first, second:
        wait_until(is_held(longer, 2), "epoch 2 to be held")
        first.open()
        error = driving.exception(DEADLINE_SECONDS)

    assert isinstance(error, CheckpointFailedError), error
    assert "the checkpoint of epoch 1 failed (it cannot be written)" in str(error), (
        "it ends because it has failed, and not for want of a checkpoint"
    )
    assert "3" not in longer.epochs_that_ran
    assert EPOCHS == len(longer.epochs)


def test_error_in_the_asynchronous_part_that_nobody_foresaw_ends_the_attempt_and_no_durable_epoch(here: Here) -> None:
    def stumble() -> None:
        raise ZeroDivisionError("a bug")

    def lose_patience() -> None:
        assert here.clock.seconds < CheckpointPolicy().timeout_seconds, "the error is lost"

    error = here.drive_and_fail(script={MANIFEST_1: stumble, "waiting": lose_patience})

    assert isinstance(error, ZeroDivisionError)
    assert (RunStatus.FAILED, "ZeroDivisionError: a bug", 0) == (
        here.found.status,
        here.found.failure,
        here.found.last_durable_epoch,
    )


def test_attempt_that_fails_lets_the_pending_checkpoint_complete_first(here: Here) -> None:
    """The error that is shown is the one that ended the epochs, however long the checkpoint takes."""
    here.order("fail", "total 1 -")

    def go_on_long_after_it_has_failed() -> None:
        wait_until(lambda: here.clock.seconds >= 5.0, "5 seconds to pass once epoch 1 has failed")

    with here.driving(script={MANIFEST_0: go_on_long_after_it_has_failed}) as driving:
        error = driving.exception(DEADLINE_SECONDS)

    assert isinstance(error, OperatorFailedError)
    assert (RunStatus.FAILED, str(error)) == (here.found.status, here.found.failure)
    assert [(0, "PERIODIC", "COMPLETED", None)] == ends_of_checkpoints(here)
    assert ["DURABLE", "OPEN"] == here.statuses


@pytest.mark.parametrize("is_foreseen", [True, False], ids=["cannot be written", "meets a bug"])
def test_attempt_that_fails_lets_a_pending_checkpoint_complete_where_another_one_fails(
    here: Here,
    is_foreseen: bool,  # noqa: FBT001 - a case
) -> None:
    def fail_once_epoch_2_has_failed() -> None:
        wait_until(lambda: here.clock.seconds >= 1.0, "a second to pass")
        if is_foreseen:
            put_in_the_way(here, 0)()
        else:
            raise ZeroDivisionError("a bug")

    def go_on_long_after_it_has_failed() -> None:
        wait_until(lambda: here.clock.seconds >= 5.0, "5 seconds to pass")

    here.order("fail", "total 2 -")
    script = {"checkpoint-1": fail_once_epoch_2_has_failed, MANIFEST_1: go_on_long_after_it_has_failed}

    with here.driving(script=script, max_pending=2) as driving:
        error = driving.exception(DEADLINE_SECONDS)

    assert isinstance(error, OperatorFailedError)
    assert (RunStatus.FAILED, str(error)) == (here.found.status, here.found.failure)
    assert [(0, "ABORTED"), (1, "COMPLETED")] == [(known[0], known[2]) for known in ends_of_checkpoints(here)]
    assert ["DURABLE", "DURABLE", "OPEN"] == here.statuses


def test_attempt_that_fails_waits_for_a_checkpoint_that_hangs_until_it_expires(here: Here) -> None:
    hanging, jobs = Latch(), list[Job]()
    here.order("fail", "total 1 -")

    error = here.drive_and_fail(script={MANIFEST_0: hanging}, timeout_seconds=5.0, jobs=jobs)
    hanging.open()
    wait(jobs, timeout=DEADLINE_SECONDS)

    assert isinstance(error, OperatorFailedError)
    assert 5.0 == here.clock.seconds
    assert [(0, "PERIODIC", "ABORTED", "EXPIRED")] == ends_of_checkpoints(here)


def test_attempt_that_fails_does_not_wait_for_a_checkpoint_that_a_person_has_aborted(
    here: Here, elsewhere: Coordinator
) -> None:
    hanging, jobs = Latch(), list[Job]()
    here.order("fail", "total 1 -")
    script = {
        MANIFEST_0: hanging,
        "waiting": lambda: elsewhere.apply(here.run.run_id, CheckpointAborted(checkpoint_id=1, aborted_by="somebody")),
    }

    error = here.drive_and_fail(script=script, jobs=jobs)
    hanging.open()
    wait(jobs, timeout=DEADLINE_SECONDS)

    assert isinstance(error, OperatorFailedError)
    assert here.clock.seconds < 5.0
    assert "aborted by somebody" == here.checkpoints[0].reason


# Pacing


def test_every_second_epoch_gets_a_checkpoint_and_only_those_leave_files(
    store: PostgresStore, tmp_path: Path, undisturbed: Here
) -> None:
    here = Here.begin(store, tmp_path, steered, epochs=5)

    here.drive(every_epochs=2)

    assert [(1, "PERIODIC"), (3, "PERIODIC"), (4, "FINAL")] == [known[:2] for known in ends_of_checkpoints(here)]
    assert ["DURABLE"] * 5 == here.statuses
    assert ["epoch-000001", "epoch-000003", "epoch-000004"] == folders_of_epochs(here)
    assert ["epoch-000000", "epoch-000001", "epoch-000002"] == folders_of_epochs(undisturbed)


def folders_of_epochs(here: Here) -> list[str]:
    """Return which epochs' folders the attempts made, for state or edges."""
    return sorted(folder.name for folder in here.folder.glob("*/epoch-*"))


def test_resume_goes_on_behind_the_last_durable_epoch_and_runs_those_aligned_after_it_again(
    store: PostgresStore, tmp_path: Path
) -> None:
    undisturbed, here = (Here.begin(store, tmp_path, steered, epochs=6) for _ in range(2))
    expected = undisturbed.drive().state_digest
    here.drive_and_fail(every_epochs=2, script={"epoch_aligned@4": KILL})
    before, killed = here.statuses, here.log()

    run = here.drive(every_epochs=2)

    assert ["DURABLE"] * 4 + ["ALIGNED", "OPEN"] == before
    assert {1} == set(killed.values())
    assert {"4", "5"} == here.epochs_that_ran
    assert expected == run.state_digest
    voided = [epoch for epoch in store.list_epochs(run.run_id) if epoch.status.value == "VOIDED"]
    assert [(4, 1), (5, 1)] == [(epoch.epoch, epoch.fencing_token) for epoch in voided]


def test_pause_between_checkpoints_is_kept_and_epochs_without_one_leave_no_files(
    store: PostgresStore, tmp_path: Path
) -> None:
    here = Here.begin(store, tmp_path, steered, epochs=4)

    here.drive(min_pause_seconds=3600.0)

    assert [(0, "PERIODIC"), (3, "FINAL")] == [known[:2] for known in ends_of_checkpoints(here)]
    assert ["epoch-000000", "epoch-000003"] == folders_of_epochs(here)


def test_person_gets_a_checkpoint_of_the_next_epoch_whatever_the_pace(here: Here, elsewhere: Coordinator) -> None:
    script = {"epoch_written@1": ask(here, elsewhere)}

    here.drive(every_epochs=100, min_pause_seconds=3600.0, script=script)

    assert [(1, "MANUAL"), (2, "FINAL")] == [known[:2] for known in ends_of_checkpoints(here)]
    assert [("somebody", 1)] == [
        (request.requested_by, request.checkpoint_id) for request in here.store.list_requests(here.run.run_id)
    ]


def ask(here: Here, elsewhere: Coordinator) -> Callable[[], None]:
    """Return what asks for a checkpoint from another connection."""

    def request() -> None:
        elsewhere.apply(here.run.run_id, CheckpointRequested(request_id=str(uuid4()), requested_by="somebody"))

    return request


def test_last_epoch_of_an_attempt_is_durable_before_it_ends_whatever_the_pace(here: Here, undisturbed: Here) -> None:
    """Pending checkpoints are waited for: an attempt that succeeds leaves nothing that could still be lost."""
    latch = Latch()
    with here.driving(every_epochs=100, until_epoch=2, script={MANIFEST_1: latch}) as driving, latch:
        is_over, statuses = driving.done(), here.statuses
        latch.open()
        first = driving.result(DEADLINE_SECONDS)
    here.log()

    second = here.drive(every_epochs=100)
    again = here.epochs_that_ran

    assert (False, ["ALIGNED", "ALIGNED"]) == (is_over, statuses)
    assert (RunStatus.RUNNING, 2) == (first.status, first.epochs)
    assert (1, "PERIODIC", "SUBSUMED", None) == ends_of_checkpoints(here)[0]
    assert undisturbed.found.state_digest == second.state_digest
    assert {"2"} == again
    outcomes = [attempt.outcome for attempt in here.store.list_attempts(here.run.run_id)]
    assert [AttemptOutcome.RELEASED, AttemptOutcome.FINISHED] == outcomes


def test_run_that_is_aborted_at_its_last_epoch_says_so_and_can_be_resumed(
    here: Here, undisturbed: Here, elsewhere: Coordinator
) -> None:
    latch = Latch()
    with here.driving(script={"manifest_written@2": latch}) as driving, latch:
        elsewhere.apply(here.run.run_id, CheckpointAborted(checkpoint_id=3, aborted_by="somebody"))
        error = driving.exception(DEADLINE_SECONDS)
    resumed = here.drive()

    assert isinstance(error, CheckpointFailedError)
    assert "aborted" in str(error)
    assert undisturbed.found.state_digest == resumed.state_digest


def test_attempt_that_waits_for_its_last_checkpoint_hears_that_it_was_superseded(here: Here, undisturbed: Here) -> None:
    """What the newer attempt makes durable is not taken for its own."""
    latch = Latch()
    with here.driving(until_epoch=1, script={MANIFEST_0: latch}) as driving, latch:
        newer = here.drive()
        error = driving.exception(DEADLINE_SECONDS)

    assert isinstance(error, SupersededError), error
    assert undisturbed.found.state_digest == newer.state_digest
    assert 2 == here.found.fencing_token
