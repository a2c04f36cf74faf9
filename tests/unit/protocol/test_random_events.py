"""Do the invariants hold after any sequence of events: legal, illegal, stale, duplicated, late?"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import get_args

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from iteration_lib.errors import (
    CheckpointNotFoundError,
    FallbackRefusedError,
    InputError,
    LeaseHeldError,
    ProtocolViolationError,
    RunDeletedError,
    RunFinishedError,
    RunNotStoppedError,
    RunStoppedError,
    StopRefusedError,
    SupersededError,
)
from iteration_lib.protocol import Event, RunState, decide
from iteration_lib.protocol.event import AttemptOpened, CheckpointsDiscarded, GuardedEvent
from iteration_lib.protocol.state import NO_EPOCH
from iteration_lib.protocol.status import CheckpointStatus, RunStatus
from tests.protocol_ledger import Ledger
from tests.protocol_machine import LONG_SECONDS, EventMachine
from tests.protocol_script import LEASE_SECONDS, NOW, new_run

_REFUSALS = (
    CheckpointNotFoundError,
    FallbackRefusedError,
    InputError,
    LeaseHeldError,
    ProtocolViolationError,
    RunDeletedError,
    RunFinishedError,
    RunNotStoppedError,
    RunStoppedError,
    StopRefusedError,
    SupersededError,
)


class AnyEvents(EventMachine):
    """Asks the protocol itself; the ledger checks every answer."""

    leases_seconds = (LEASE_SECONDS,)

    def start(self, max_epochs: int | None, origin_epoch: int, sinks: Mapping[str, bool]) -> RunState:
        self.now = NOW
        self.ledger = Ledger(
            max_epochs=max_epochs,
            last_durable_epoch=origin_epoch,
            origin_epoch=origin_epoch,
            holds_origin=origin_epoch != NO_EPOCH,
            sinks=sinks,
        )
        return new_run(max_epochs=max_epochs, origin_epoch=origin_epoch, sinks=sinks)

    @rule(seconds=st.sampled_from([1.0, 29.0, 30.0, 31.0, LONG_SECONDS, -1.0, -LONG_SECONDS]))
    def time_passes(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def published(self, *, after_epoch: int) -> Collection[str]:
        return {output for epoch, output in self.ledger.committables if epoch > after_epoch}

    def answer(self, event: Event) -> RunState | None:
        before = what_could_change(self.state)
        try:
            after, commands = decide(self.state, event, self.now)
        except _REFUSALS:
            assert before == what_could_change(self.state), "I12: a refused event changed the state"
            return None
        assert before == what_could_change(self.state), "a decision changed the state that it was made from"
        if isinstance(event, GuardedEvent) and not is_from_live_attempt(self.state, event):
            assert (self.state, ()) == (after, commands), "I2: somebody else changed the run"
        self.ledger.record(event, commands, self.now)
        self.ledger.check(after)
        self.see_that_it_may_come_again(event, after)
        return after

    def see_that_it_may_come_again(self, event: Event, after: RunState) -> None:
        """See that the same event changes nothing the second time; only the store knows what is discarded already."""
        if isinstance(event, AttemptOpened) and after.status is RunStatus.STOPPED:
            return  # it was stopped instead, which is what the second one is told
        again, written = decide(after, event, self.now)
        assert after == again, "a repeated event did something"
        assert isinstance(event, CheckpointsDiscarded) or written == (), "a repeated event wrote something"


def what_could_change(state: RunState) -> object:
    """Return copies of the mappings inside a state; all else of it is frozen."""
    records = [dict(epoch.decision.records) for epoch in state.epochs if epoch.decision is not None]
    return dict(state.pins), dict(state.notified), records


def is_from_live_attempt(state: RunState, event: GuardedEvent) -> bool:
    """Tell whether an event comes from the live attempt."""
    live = state.attempt
    return live is not None and (live.attempt_id, live.fencing_token) == (event.attempt_id, event.fencing_token)


def test_every_kind_of_event_takes_effect_and_none_breaks_an_invariant() -> None:
    """One that took none anywhere would not have been tried."""
    effective = set[type[Event]]()

    class Noting(AnyEvents):
        def answer(self, event: Event) -> RunState | None:
            before, statuses = self.state, self.statuses()
            after = super().answer(event)
            if after is not None and (before, statuses) != (after, self.statuses()):
                effective.add(type(event))
            return after

        def statuses(self) -> list[CheckpointStatus]:
            """Only the rows tell that checkpoints are discarded."""
            return [row.status for row in self.ledger.checkpoints.values()]

    examples = max(1_000, settings().max_examples)  # the rarest takes effect in one of fifty
    run_state_machine_as_test(Noting, settings=settings(max_examples=examples, stateful_step_count=30))

    assert set(get_args(Event)) == effective
