"""Do the store in Postgres and its twin answer every sequence of calls alike?"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar, TypeAlias, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from iteration_lib.clock import SystemClock
from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import IterationError
from iteration_lib.protocol import Event, RunState
from iteration_lib.protocol.event import CheckpointPinned, FellBack
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.state import NO_EPOCH, RunId
from iteration_lib.protocol.status import RunStatus
from iteration_lib.store.memory import MemoryStore
from iteration_lib.store.postgres import PostgresStore
from iteration_lib.store.record import NewRun
from iteration_lib.store.seam import StoreWithHistory
from tests.fixture.store import NO_SYNC
from tests.protocol_machine import LONG_SECONDS, EventMachine, chances, definition
from tests.size import IS_NIGHTLY
from tests.store_script import (
    SOME_TIME,
    a_run,
    an_origin,
    history,
    new_family,
    origin_of,
    read_state,
    timeless_state,
)

pytestmark = pytest.mark.postgres

_PORTIONS, _EXAMPLES = (20, 1_000) if IS_NIGHTLY else (1, 300)  # hours in all at night: a portion can be run by itself
_STEPS = 30 if IS_NIGHTLY else 15  # of one example, each some events
_SOME = st.integers(0, 5)
_SEEDS = st.integers(0, 2**32 - 1)
_LAST_ONE = CheckpointPolicy(retain_last=1)

T = TypeVar("T")
Answer: TypeAlias = RunState | tuple[int, ...]


class BothStores(EventMachine):
    """Sends each call to both stores, whose answers have to be equal, by the state and by every row.

    Two clocks: a lease has run out as soon as it is taken, or it does not during a test.
    """

    postgres: ClassVar[PostgresStore]
    leases_seconds = (LONG_SECONDS, LONG_SECONDS, LONG_SECONDS, 0.0)

    def __init__(self) -> None:
        super().__init__()
        self.stores: tuple[StoreWithHistory, ...] = (MemoryStore(SystemClock()), self.postgres)
        self.remembers = Coordinator(self.postgres)
        self.family = new_family()
        self.run = a_run()
        self.origin: NewRun | None = None
        self.gone_of_origin: set[int] = set()
        self.origin_seen: tuple[bool, int] | None = None

    def start(self, max_epochs: int | None, origin_epoch: int, sinks: Mapping[str, bool]) -> RunState:
        """Make the run; an origin has gone on for one more epoch."""
        self.run = dataclasses.replace(self.run, max_epochs=max_epochs, definition=definition(sinks))
        origin = None
        if origin_epoch != NO_EPOCH:
            self.origin, family = a_run(), new_family()
            for store in self.stores:
                an_origin(store, self.origin, epoch=origin_epoch + 1, family=family)
            origin = origin_of(self.origin, checkpoint_id=origin_epoch + 1, epoch=origin_epoch)
        for store in self.stores:
            assert store.add_run(self.run, origin)
        return read_state(self.stores[0], self.run_id)

    @property
    def run_id(self) -> RunId:
        return self.run.run_id

    @property
    def coordinators(self) -> tuple[Coordinator, Coordinator]:
        """The twin's reads every state anew."""
        return Coordinator(self.stores[0]), self.remembers

    def published(self, *, after_epoch: int) -> Collection[str]:
        stored = self.stores[0].list_committables(self.run_id)
        return {known.output for known in stored if known.epoch > after_epoch}

    @rule(steps=_SOME, seed=_SEEDS)
    def somebody_renews_a_lease(self, steps: int, seed: int) -> None:
        """Or lets it run out."""
        self.go_on(steps, seed)
        last, chance = self.senders[-1], self.chance
        others = [*self.senders, self.sender(last.number, last.token + 1), self.sender(99, last.token)]
        one, seconds = chance.choice([last, chance.choice(others)]), chance.choice([0.0, LONG_SECONDS])
        live = self.state.attempt
        is_live = live is not None and (live.attempt_id, live.fencing_token) == (one.attempt_id, one.token)
        for store in self.stores:
            renewed = store.renew_lease(self.run_id, one.attempt_id, fencing_token=one.token, lease_ttl_seconds=seconds)
            assert is_live is renewed

    @rule(steps=_SOME, seed=_SEEDS)
    def somebody_discards_by_a_policy(self, steps: int, seed: int) -> None:
        """A person by any, or an attempt by its own."""
        self.go_on(steps + 4, seed)
        chance = self.chance
        metric = chance.choice([None, None, "loss", "lost"])
        policy = CheckpointPolicy(
            retain_last=chance.choice([None, 1, 1, 2]),
            retain_best=0 if metric is None else chance.choice([1, 2]),
            retain_metric=metric,
            retain_mode=chance.choice(["min", "max"]),
        )
        attempt_id = chance.choice([None, None, self.senders[-1].attempt_id, chance.choice(self.senders).attempt_id])
        gone = self.ask(lambda coordinator: coordinator.discard(self.run_id, policy, attempt_id=attempt_id))
        if isinstance(gone, tuple):
            self.discarded.update(gone)
            self.state = timeless_state(read_state(self.stores[0], self.run_id))

    @precondition(lambda self: self.origin is not None)
    @rule(steps=_SOME, seed=_SEEDS)
    def somebody_discards_what_its_origin_does_not_need(self, steps: int, seed: int) -> None:
        """What the run started from stays until it has a checkpoint of its own, or is deleted."""
        self.go_on(steps, seed)
        assert self.origin is not None
        one, other = (coordinator.discard(self.origin.run_id, _LAST_ONE) for coordinator in self.coordinators)
        assert one == other
        self.gone_of_origin.update(one)
        assert (self.state.origin_epoch + 1 in self.gone_of_origin) is not self.state.holds_origin

    @rule(seed=_SEEDS)
    def somebody_adds_a_run_of_its_key(self, seed: int) -> None:
        """The run itself again, or another one, which gets the key only once the run is deleted."""
        self.chance = chances(seed)
        run = self.chance.choice([self.run, dataclasses.replace(self.run, run_id=a_run().run_id)])
        answers = [answered(partial(store.add_run, run)) for store in self.stores]
        assert answers[0] == answers[1]
        if self.state.status is not RunStatus.DELETED:
            assert answers[0] is (run is self.run)
        elif answers[0] is True:
            assert_same_rows(self.stores, run.run_id)

    def answer(self, event: Event) -> RunState | None:
        state = self.ask(lambda coordinator: self.apply(coordinator, event))
        assert not isinstance(state, tuple)
        return state

    def apply(self, coordinator: Coordinator, event: Event) -> RunState:
        """Send an event, by the call that reads in the locked run what the event says of it, if there is one."""
        if isinstance(event, CheckpointPinned):
            return coordinator.pin(self.run_id, event.checkpoint_id, pinned_by=event.pinned_by)
        if not isinstance(event, FellBack):
            return coordinator.apply(self.run_id, event)
        checkpoint_id, reason = event.checkpoint.checkpoint_id, event.reason
        guard = (event.attempt_id, event.fencing_token)
        return coordinator.fall_back(self.run_id, *guard, checkpoint_id=checkpoint_id, reason=reason)

    def ask(self, call: Callable[[Coordinator], Answer]) -> Answer | None:
        """Return what both stores answer, None where both refuse."""
        answers = [self.answer_of(place, call) for place in range(len(self.stores))]
        assert answers[0] == answers[1]
        answer, state = answers[0]
        if not isinstance(answer, type):
            return answer
        assert timeless_state(self.state) == state, "a refused call left something"
        return None

    def answer_of(
        self, place: int, call: Callable[[Coordinator], Answer]
    ) -> tuple[Answer | type[IterationError], RunState]:
        """Return what a store answers, or how it refuses, and the state that the rows say afterwards."""
        answer = answered(partial(call, self.coordinators[place]))
        committed = read_state(self.stores[place], self.run_id)
        if isinstance(answer, RunState):
            assert but_for_the_lease(answer) == but_for_the_lease(committed), (
                "what was returned is not what was committed"
            )
            answer = timeless_state(answer)
        return answer, timeless_state(committed)

    @invariant()
    def every_row_is_the_same(self) -> None:
        """Also the origin's, where the run or somebody who discards has touched it."""
        assert_same_rows(self.stores, self.run_id)
        seen = (self.state.holds_origin, len(self.gone_of_origin))
        if self.origin is not None and self.origin_seen != seen:
            assert_same_rows(self.stores, self.origin.run_id)
        self.origin_seen = seen


def answered(call: Callable[[], T]) -> T | type[IterationError]:
    """Return what a call answers, or how it is refused."""
    try:
        return call()
    except IterationError as err:
        return type(err)


def but_for_the_lease(state: RunState) -> RunState:
    """Return a state with any lease: a renewed one counts in no revision, so that a coordinator does not hear of it."""
    attempt = state.attempt
    if attempt is None:
        return state
    return dataclasses.replace(state, attempt=dataclasses.replace(attempt, lease_expires_at=SOME_TIME))


def assert_same_rows(stores: Sequence[StoreWithHistory], run_id: RunId) -> None:
    """See that every record of a run is the same in both stores; and which leases have run out, which none compares."""
    one, other = (history(store, run_id) for store in stores)
    assert one == other
    assert [known.is_lease_over for known in one["attempts"]] == [known.is_lease_over for known in other["attempts"]]


@pytest.fixture
def postgres(store_url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(f"{store_url}&{NO_SYNC}")
    yield store
    store.close()


@pytest.mark.timeout(3600 if IS_NIGHTLY else 900)
@pytest.mark.parametrize("portion", range(_PORTIONS))
def test_both_stores_answer_alike_after_any_sequence_of_events(postgres: PostgresStore, portion: int) -> None:
    class Machine(BothStores):
        """On this database."""

    Machine.postgres = postgres
    run_state_machine_as_test(Machine, settings=settings(max_examples=_EXAMPLES, stateful_step_count=_STEPS))
