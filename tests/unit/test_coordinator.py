"""Does the coordinator send events again when the connection or a commit is lost, and give up in the end?"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from iteration_lib.clock import SystemClock
from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import (
    CheckpointNotFoundError,
    CommitLostError,
    OutcomeUnknownError,
    SupersededError,
)
from iteration_lib.protocol import Command, Event, RunState
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.state import RunId
from iteration_lib.requesting import find_answer
from iteration_lib.store.memory import MemoryStore, MemoryTransaction
from iteration_lib.store.memory_rows import MemoryRun
from iteration_lib.store.seam import RunVersion
from tests.overtaken_store import Overtaken
from tests.protocol_script import FIRST, SECOND, aborts, asks, claim, drains, stops
from tests.store_script import DEFINITION, a_run, added, history, read_state, timeless_state


class LossyStore(MemoryStore):
    """Loses the connection as often as it is told to: at once, or after the commit."""

    def __init__(self, *losses: str) -> None:
        super().__init__(SystemClock())
        self.losses = list(losses)

    @contextmanager
    def transaction(self, run_id: RunId) -> Iterator[MemoryTransaction]:
        loss = self.losses.pop(0) if self.losses else None
        if loss == "at once":
            raise OutcomeUnknownError("connection reset")
        with super().transaction(run_id) as transaction:
            yield transaction
        if loss == "after the commit":
            raise OutcomeUnknownError("connection reset")


class RestorableStore(MemoryStore):
    """Can be put back to what it was."""

    def backup(self, run_id: RunId) -> MemoryRun:
        """Return a run's rows."""
        return self._runs[run_id].copy()

    def restore(self, run_id: RunId, rows: MemoryRun) -> None:
        """Put a run's rows back."""
        self._runs[run_id] = rows


class ForgetfulStore(MemoryStore):
    """Forgets what it has not flushed when its server crashes. `waits` says of each write whether it was flushed.

    `between` is what others do between the next write and its answer.
    """

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.waits: list[bool] = []
        self.between: Callable[[], object] | None = None
        self._flushed: dict[str, MemoryRun] = {}

    def write(  # as the twin does
        self,
        run_id: RunId,
        commands: Sequence[Command],
        fencing_token: int,
        *,
        known: RunVersion,
        is_flushed: bool = True,
    ) -> int | None:
        flushed = self._flushed
        written = super().write(run_id, commands, fencing_token, known=known, is_flushed=is_flushed)
        self.waits.append(is_flushed)
        if not is_flushed:
            self._flushed = flushed
        between, self.between = self.between, None
        if between is not None:
            between()
        return written

    @contextmanager
    def transaction(self, run_id: RunId) -> Iterator[MemoryTransaction]:
        with super().transaction(run_id) as transaction:
            yield transaction
        self.flush()

    def flush(self) -> None:
        """Have another session commit."""
        self._flushed = dict(self._runs)

    def crash(self) -> None:
        """Have the server crash, and come back."""
        self._runs = dict(self._flushed)


@pytest.mark.parametrize("loss", ["at once", "after the commit"])
def test_events_are_sent_again_and_happen_once_when_the_connection_is_lost(loss: str) -> None:
    undisturbed, lossy, slept = LossyStore(), LossyStore(loss, loss, loss), list[float]()
    for store in (undisturbed, lossy):
        run_id = added(store)
        coordinator = Coordinator(store, sleep=slept.append)
        coordinator.apply(run_id, claim(), *FIRST.passes(0, 1))

    assert [0.1, 0.2, 0.5] == slept
    assert history(undisturbed, undisturbed.list_runs()[0].run_id)["epochs"] == history(lossy, run_id)["epochs"]


def test_coordinator_gives_up_when_the_store_stays_away() -> None:
    store, slept = LossyStore(), list[float]()
    run_id = added(store)
    store.losses = ["at once"] * 100

    with pytest.raises(OutcomeUnknownError):
        Coordinator(store, sleep=slept.append).apply(run_id, claim())

    assert 8 == 100 - len(store.losses)
    assert sorted(slept) == slept
    assert 7 == len(slept)


def test_state_that_was_kept_does_not_hold_in_a_store_that_was_restored() -> None:
    """Its revision is the same again, under another attempt."""
    store = RestorableStore(SystemClock())
    run_id, coordinator = added(store), Coordinator(store)
    empty = store.backup(run_id)
    coordinator.apply(run_id, claim(1))
    store.restore(run_id, empty)
    Coordinator(store).apply(run_id, claim(2))
    before = history(store, run_id)

    with pytest.raises(SupersededError):
        coordinator.apply(run_id, FIRST.opens(0))

    assert before == history(store, run_id)


@pytest.mark.parametrize(
    ("checkpoint_id", "said"),
    [
        (1, "checkpoint 1 of run {} has no files, or none any more; choose another one"),
        (3, "checkpoint 3 of run {} has no files, or none any more; choose another one"),
        (4, "run {} has no checkpoint 4; its checkpoints are 1 to 3"),
        (2**63, f"run {{}} has no checkpoint {2**63}; its checkpoints are 1 to 3"),
    ],
    ids=["discarded", "pending", "never there", "more than a database can hold"],
)
def test_checkpoint_that_nobody_can_keep_is_not_pinned_and_said_to_be_so(checkpoint_id: int, said: str) -> None:
    store = MemoryStore(SystemClock())
    run_id, coordinator = added(store), Coordinator(store)
    coordinator.apply(run_id, claim(), *FIRST.passes(0, 1), *FIRST.passes(1, 2), FIRST.opens(2))
    coordinator.apply(run_id, FIRST.reports(2), FIRST.triggers(2))
    coordinator.discard(run_id, CheckpointPolicy(retain_last=1))
    before = history(store, run_id)

    with pytest.raises(CheckpointNotFoundError) as refused:
        coordinator.pin(run_id, checkpoint_id, pinned_by="ann")

    assert f"{said.format(run_id)} (see: iteration checkpoints {run_id})" == str(refused.value)
    assert before == history(store, run_id)


# A server that crashes


def test_answer_that_the_server_forgot_while_it_was_read_is_none_yet() -> None:
    store = ForgetfulStore()
    run_id, coordinator = added(store), Coordinator(store)
    coordinator.apply(run_id, claim(), FIRST.opens(0), asks())
    coordinator.apply(run_id, FIRST.reports(0), FIRST.triggers(0), FIRST.opens(1))
    run = store.list_runs()[0]
    asked = asks().request_id
    before = find_answer(store, run, asked)

    assert before is not None
    assert find_answer(Overtaken(store, "list_requests", store.crash), run, asked) is None


ALIGNS = (FIRST.reports(1), FIRST.triggers(1), FIRST.opens(2))


def begun(store: ForgetfulStore) -> tuple[RunId, Coordinator]:
    """Return a run whose second epoch has aligned, and whose second checkpoint has begun."""
    run_id, coordinator = added(store), Coordinator(store)
    coordinator.apply(run_id, claim(), *FIRST.passes(0, 1), FIRST.opens(1))
    coordinator.apply(run_id, *ALIGNS)
    return run_id, coordinator


def state_of(store: ForgetfulStore, run_id: RunId) -> RunState:
    """Return what the rows say, but for what tells two runs apart."""
    return dataclasses.replace(timeless_state(read_state(store, run_id)), run_id=RunId("a run"))


def test_commit_that_begins_a_checkpoint_is_the_only_one_that_is_not_flushed() -> None:
    store = ForgetfulStore()
    run_id, coordinator = added(store), Coordinator(store)
    coordinator.apply(run_id, claim(every_epochs=2))

    for events in (
        (FIRST.opens(0),),
        (FIRST.reports(0), FIRST.triggers(0), FIRST.opens(1)),
        ALIGNS,
        (FIRST.completes(1),),
    ):
        coordinator.apply(run_id, *events)

    assert [True, True, False, True] == store.waits


def test_commit_by_which_sinks_go_is_flushed() -> None:
    """They prepare before the checkpoint completes: an alignment that was lost would leave what nobody aborts."""
    store = ForgetfulStore()
    run, coordinator = a_run(definition={**DEFINITION, "sinks": {"rows": True}}), Coordinator(store)
    store.add_run(run)

    coordinator.apply(run.run_id, claim())
    coordinator.apply(run.run_id, FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0))

    assert [True] == store.waits


def test_checkpoint_that_is_aborted_before_it_begins_is_flushed() -> None:
    store = ForgetfulStore()
    run_id, coordinator = added(store), Coordinator(store)
    coordinator.apply(run_id, claim(), FIRST.opens(0), aborts(1))

    coordinator.apply(run_id, FIRST.reports(0), FIRST.triggers(0), FIRST.opens(1))

    assert [True] == store.waits


@pytest.mark.parametrize("is_known_late", [False, True])
@pytest.mark.parametrize("pinned", [False, True], ids=["nobody", "a person's pin"])
@pytest.mark.parametrize(
    "events", [(), (FIRST.completes(2),), (FIRST.declines(2),), (FIRST.reports(2), FIRST.triggers(2))], ids=repr
)
def test_commit_that_the_server_forgot_is_repeated_before_what_goes_by_it(
    events: tuple[Event, ...],
    pinned: bool,  # noqa: FBT001 - a case
    is_known_late: bool,  # noqa: FBT001 - a case
) -> None:
    """Also where the run has the same revision again, and where another thread hears late what it committed before."""
    undisturbed, store = ForgetfulStore(), ForgetfulStore()
    other, told = begun(undisturbed)
    run_id, coordinator = begun(store)
    lost = store.list_checkpoints(run_id)
    store.crash()
    assert len(store.list_checkpoints(run_id)) < len(lost)
    for known, others in ((undisturbed, other), (store, run_id)):
        if pinned:
            Coordinator(known).pin(others, 1, pinned_by="ann")
    if is_known_late:
        coordinator._keep(run_id, store._runs[run_id].run["revision"], read_state(store, run_id))

    told.apply(other, *events)
    state = coordinator.apply(run_id, *events)

    assert state_of(undisturbed, other) == state_of(store, run_id)
    assert timeless_state(state) == timeless_state(read_state(store, run_id))


@pytest.mark.parametrize("lost", [1, 2])
def test_each_of_two_commits_that_the_server_forgot_is_repeated(lost: int) -> None:
    stores = ForgetfulStore(), ForgetfulStore()
    states = []
    for store in stores:
        run_id, coordinator = added(store), Coordinator(store)
        coordinator.apply(run_id, claim(max_pending=3), *FIRST.passes(0, 1), FIRST.opens(1))
        coordinator.apply(run_id, *ALIGNS)
        if lost == 1:
            store.flush()
        coordinator.apply(run_id, FIRST.reports(2), FIRST.triggers(2), FIRST.opens(3))
        if store is stores[0]:
            store.crash()
            assert 3 - lost == store.list_checkpoints(run_id)[-1].checkpoint_id
        coordinator.apply(run_id, FIRST.completes(2))
        coordinator.apply(run_id, FIRST.completes(3))
        states.append(state_of(store, run_id))
        assert not coordinator._unflushed[run_id]

    assert states[0] == states[1]


def test_commit_that_the_server_forgot_is_repeated_also_where_what_began_before_it_was_answered_after_it() -> None:
    """Three threads: one completes a checkpoint; two commit, the last one unflushed, before the first one hears."""
    store = ForgetfulStore()
    run_id, coordinator = added(store), Coordinator(store)
    coordinator.apply(run_id, claim(max_pending=3), *FIRST.passes(0, 1), FIRST.opens(1))
    coordinator.apply(run_id, *ALIGNS)

    def begin_another() -> None:
        coordinator.apply(run_id)
        coordinator.apply(run_id, FIRST.reports(2), FIRST.triggers(2), FIRST.opens(3))

    store.between = begin_another
    coordinator.apply(run_id, FIRST.completes(2))
    assert [False, True, False] == store.waits
    store.crash()

    state = coordinator.apply(run_id, FIRST.completes(3))

    assert (2, 3) == (state.last_durable_epoch, state.last_epoch)


def test_what_is_flushed_is_forgotten_by_whichever_way_it_is_written() -> None:
    store = ForgetfulStore()
    run_id, coordinator = begun(store)

    coordinator.discard(run_id, CheckpointPolicy())
    assert () == coordinator._unflushed[run_id]

    coordinator.apply(run_id, FIRST.completes(2), FIRST.reports(2))
    coordinator.apply(run_id, FIRST.triggers(2), FIRST.opens(3))
    assert 1 == len(coordinator._unflushed[run_id])
    coordinator.apply(run_id, FIRST.completes(3))
    assert () == coordinator._unflushed[run_id]


@pytest.mark.parametrize("ends", [FIRST.completes(1), FIRST.lets_expire(1)], ids=["completes", "expires"])
def test_commit_that_ends_a_checkpoint_is_flushed_also_where_it_begins_one(ends: Event) -> None:
    store = ForgetfulStore()
    run_id, coordinator = added(store), Coordinator(store)
    coordinator.apply(
        run_id, claim(tolerable_failures=3), FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0), FIRST.opens(1)
    )

    coordinator.apply(run_id, ends, FIRST.reports(1), FIRST.triggers(1), FIRST.opens(2))

    assert [True] == store.waits


def test_commit_that_ends_a_checkpoint_that_it_began_is_flushed_also_where_it_begins_another() -> None:
    store = ForgetfulStore()
    run_id, coordinator = added(store), Coordinator(store)
    coordinator.apply(run_id, claim(), FIRST.opens(0))

    coordinator.apply(run_id, *FIRST.passes(0, 1), FIRST.opens(1), FIRST.reports(1), FIRST.triggers(1), FIRST.opens(2))

    assert [True] == store.waits


@pytest.mark.parametrize("opens", [(), (FIRST.opens_if_ready(3),)], ids=["no epoch", "an epoch"])
def test_commit_that_was_lost_before_anybody_noted_it_is_missed(opens: tuple[Event, ...]) -> None:
    """Another thread's commit came between; by now the attempt has failed, and nothing follows from the lost one."""
    store = ForgetfulStore()
    run_id, coordinator = added(store), Coordinator(store)
    coordinator.apply(run_id, claim(max_pending=2), *FIRST.passes(0, 1), FIRST.opens(1))
    coordinator.apply(run_id, *ALIGNS)
    coordinator.apply(run_id, FIRST.reports(2))
    coordinator.apply(run_id, FIRST.triggers(2), *opens)
    store.crash()
    Coordinator(store).apply(run_id, FIRST.lets_expire(2))

    with pytest.raises(CommitLostError):
        coordinator.apply(run_id, FIRST.completes(3))


def test_commit_that_the_server_kept_is_not_repeated_whatever_others_changed() -> None:
    store = ForgetfulStore()
    run_id, coordinator = begun(store)
    Coordinator(store).apply(run_id, asks(), drains(), aborts(2))
    before = history(store, run_id)["epochs"]

    state = coordinator.apply(run_id, FIRST.completes(2))

    assert before == history(store, run_id)["epochs"]
    assert (2, ()) == (state.last_checkpoint_id, state.pending)


@pytest.mark.parametrize("change", [asks(), drains(), stops(), aborts(2)], ids=lambda change: type(change).__name__)
def test_commit_that_would_not_be_the_same_again_ends_the_attempt(change: Event) -> None:
    """Whoever drives goes by an epoch that is not open, or a checkpoint of another kind; its last word still comes."""
    store = ForgetfulStore()
    run_id, coordinator = begun(store)
    store.crash()
    Coordinator(store).apply(run_id, change)
    before = history(store, run_id)

    for events in ((FIRST.completes(2),), (), (FIRST.declines(2),)):
        with pytest.raises(CommitLostError, match="nothing durable is lost: run the same command again to resume"):
            coordinator.apply(run_id, *events)

    assert before == history(store, run_id)
    assert coordinator.apply(run_id, FIRST.fails("lost")).attempt is None


TRIGGERS = (FIRST.reports(1), FIRST.triggers_after(1, 1))
READY_ALIGNS = (*TRIGGERS, FIRST.opens_if_ready(2))


@pytest.mark.parametrize(
    ("asked", "lost", "changes"),
    [
        ((), TRIGGERS, ((drains(),), TRIGGERS)),
        ((), TRIGGERS, ((drains(),), TRIGGERS, (aborts(2),))),
        ((asks(),), READY_ALIGNS, ((stops(),), READY_ALIGNS)),
        ((), READY_ALIGNS, ((stops(),), READY_ALIGNS, (aborts(2),))),
    ],
    ids=["another decision", "another decision, aborted", "no open epoch", "no open epoch, aborted"],
)
def test_commit_is_lost_where_a_copy_of_its_events_was_decided_otherwise(
    asked: tuple[Event, ...], lost: tuple[Event, ...], changes: tuple[tuple[Event, ...], ...]
) -> None:
    """Seed 926869: nothing follows from it any more, but the epoch is the run's last now, and its driver goes on."""
    store = ForgetfulStore()
    run_id, coordinator = added(store), Coordinator(store)
    coordinator.apply(run_id, claim(), *FIRST.passes(0, 1), FIRST.opens(1))
    coordinator.apply(run_id, *asked)
    coordinator.apply(run_id, *lost)
    store.crash()
    for events in changes:
        Coordinator(store).apply(run_id, *events)
    before = history(store, run_id)

    for events in ((FIRST.completes(2),), ()):
        with pytest.raises(CommitLostError):
            coordinator.apply(run_id, *events)

    assert before == history(store, run_id)
    assert coordinator.apply(run_id, FIRST.fails("lost")).attempt is None


def test_commit_that_a_copy_of_its_events_made_up_for_is_not_lost() -> None:
    store = ForgetfulStore()
    run_id, coordinator = begun(store)
    store.crash()
    Coordinator(store).apply(run_id, *ALIGNS)
    Coordinator(store).pin(run_id, 1, pinned_by="ann")

    state = coordinator.apply(run_id, FIRST.completes(2))

    assert (1, 2) == (state.last_durable_epoch, state.last_epoch)


def test_attempt_that_was_superseded_while_its_commit_was_lost_hears_that() -> None:
    store = ForgetfulStore()
    run_id, coordinator = begun(store)
    store.crash()
    Coordinator(store).apply(run_id, claim(2, takeover=True))
    before = history(store, run_id)

    with pytest.raises(SupersededError):
        coordinator.apply(run_id, FIRST.completes(2))

    assert before == history(store, run_id)
    assert SECOND.token == coordinator.apply(run_id).fencing_token
