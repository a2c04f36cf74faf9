"""Do the store in Postgres and its twin answer every sequence of events alike?"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis.stateful import invariant, run_state_machine_as_test

from iteration_lib.clock import SystemClock
from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import IterationError
from iteration_lib.protocol import Event, RunState
from iteration_lib.protocol.event import AttemptOpened, FellBack
from iteration_lib.protocol.state import NO_EPOCH
from iteration_lib.store.memory import MemoryStore
from iteration_lib.store.postgres import PostgresStore
from iteration_lib.store.seam import StoreWithHistory
from tests.fixture.store import NO_SYNC
from tests.protocol_machine import LONG_SECONDS, EventMachine
from tests.size import IS_NIGHTLY
from tests.store_script import DEFINITION, a_run, an_origin, history, new_family, read_state, timeless_state

pytestmark = pytest.mark.postgres

_PORTIONS, _EXAMPLES = (20, 1_000) if IS_NIGHTLY else (1, 300)  # hours in all at night: a portion can be run by itself
_STEPS = 30 if IS_NIGHTLY else 20  # of one example, each some events


class BothStores(EventMachine):
    """Sends each event to both stores, whose answers have to be equal, by the state and by every row."""

    postgres: ClassVar[PostgresStore]

    def __init__(self) -> None:
        super().__init__()
        self.stores: tuple[StoreWithHistory, ...] = (MemoryStore(SystemClock()), self.postgres)
        self.coordinators = [Coordinator(store) for store in self.stores]
        self.family = new_family()

    def start(self, max_epochs: int | None, origin_epoch: int, sinks: Mapping[str, bool]) -> RunState:
        run = a_run(max_epochs=max_epochs, definition={**DEFINITION, "sinks": dict(sinks)})
        self.run_id = run.run_id
        origin_run = a_run()
        for store in self.stores:
            origin = an_origin(store, origin_run, epoch=origin_epoch) if origin_epoch != NO_EPOCH else None
            assert store.add_run(run, origin)
        return read_state(self.stores[0], run.run_id)

    def published(self, *, after_epoch: int) -> Collection[str]:
        stored = self.stores[0].list_committables(self.run_id)
        return {known.output for known in stored if known.epoch > after_epoch}

    def answer(self, event: Event) -> RunState | None:
        if isinstance(event, AttemptOpened):  # two clocks: no lease may run out between them
            event = dataclasses.replace(event, lease_ttl_seconds=LONG_SECONDS)
        answers = [self.answer_of(place, event) for place in range(len(self.stores))]
        assert answers[0] == answers[1]
        refusal, state = answers[0]
        if refusal is None:
            return state
        assert timeless_state(self.state) == state, "a refused event left something"
        return None

    def answer_of(self, place: int, event: Event) -> tuple[type[Exception] | None, RunState]:
        """Return how an event was refused, if it was, and the state that the rows say afterwards."""
        try:
            answered = self.apply(self.coordinators[place], event)
        except IterationError as err:
            return type(err), timeless_state(read_state(self.stores[place], self.run_id))
        committed = read_state(self.stores[place], self.run_id)
        assert answered == committed, "what was returned is not what was committed"
        return None, timeless_state(committed)

    @invariant()
    def every_row_is_the_same(self) -> None:
        one, other = (history(store, self.run_id) for store in self.stores)
        assert one == other

    def apply(self, coordinator: Coordinator, event: Event) -> RunState:
        if not isinstance(event, FellBack):
            return coordinator.apply(self.run_id, event)
        checkpoint_id, reason = event.checkpoint.checkpoint_id, event.reason  # its times are each store's own
        guard = (event.attempt_id, event.fencing_token)
        return coordinator.fall_back(self.run_id, *guard, checkpoint_id=checkpoint_id, reason=reason)


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
