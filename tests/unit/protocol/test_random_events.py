"""Do the invariants hold after any sequence of events: legal, illegal, stale, duplicated, late?"""

from __future__ import annotations

import copy
from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from iteration_lib.errors import (
    InputError,
    LeaseHeldError,
    ProtocolViolationError,
    RunFinishedError,
    SupersededError,
)
from iteration_lib.protocol import Event, RunState, decide
from iteration_lib.protocol.event import AttemptOpened
from tests.protocol_ledger import Ledger
from tests.protocol_machine import EventMachine
from tests.protocol_script import NOW, new_run

_REFUSALS = (ProtocolViolationError, SupersededError, LeaseHeldError, RunFinishedError, InputError)


class AnyEvents(EventMachine):
    """Asks the protocol itself; the ledger checks every answer."""

    def start(self, max_epochs: int | None) -> RunState:
        self.now = NOW
        self.ledger = Ledger(max_epochs=max_epochs)
        return new_run(max_epochs=max_epochs)

    @rule(seconds=st.sampled_from([1, 29, 30, 31]))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    def answer(self, event: Event) -> RunState | None:
        before = copy.deepcopy(self.state)
        try:
            after, commands = decide(self.state, event, self.now)
        except _REFUSALS:
            assert before == self.state, "I12: a refused event changed the state"
            return None
        if not isinstance(event, AttemptOpened) and not is_from_live_attempt(before, event):
            assert (before, ()) == (after, commands), "I2: somebody else changed the run"
        assert (after, ()) == decide(after, event, self.now), "a repeated event did something"
        assert before == self.state
        self.ledger.record(commands)
        self.ledger.check(after)
        return after


def is_from_live_attempt(state: RunState, event: Event) -> bool:
    """Tell whether an event comes from the live attempt."""
    live = state.attempt
    if isinstance(event, AttemptOpened) or live is None:
        return False
    return (live.attempt_id, live.fencing_token) == (event.attempt_id, event.fencing_token)


AnyEvents.TestCase.settings = settings(stateful_step_count=40)
TestAnyEvents = AnyEvents.TestCase
