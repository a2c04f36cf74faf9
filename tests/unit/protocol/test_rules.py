"""Has every event a rule, and every command a writer in both stores?"""

from __future__ import annotations

import dataclasses
from typing import get_args

import pytest

from iteration_lib.protocol import Command, Event, command, event, run
from iteration_lib.protocol.event import AttemptOpened, Committable, GuardedEvent, OpenEvent
from iteration_lib.store import command_sql, memory_write

EVENTS = set(get_args(Event))
COMMANDS = set(get_args(Command))
# What is a part of an event or of several, and no event.
PARTS_OF_EVENTS = {event.FinishedPart, GuardedEvent, Committable}


def declared(module: object) -> set[type]:
    """Return the dataclasses that a module itself declares."""
    found = {value for value in vars(module).values() if isinstance(value, type) and dataclasses.is_dataclass(value)}
    return {kind for kind in found if kind.__module__ == getattr(module, "__name__", "")}


def test_every_event_has_one_rule() -> None:
    assert EVENTS == {*run._RULES, *run._TIMED_RULES}
    assert set() == run._RULES.keys() & run._TIMED_RULES.keys()


def test_every_event_and_command_that_is_declared_is_one() -> None:
    assert EVENTS == declared(event) - PARTS_OF_EVENTS
    assert COMMANDS == declared(command)


def test_every_event_but_a_claim_and_a_persons_word_carries_a_token() -> None:
    assert {AttemptOpened, *get_args(OpenEvent)} == {kind for kind in EVENTS if not issubclass(kind, GuardedEvent)}


@pytest.mark.parametrize("writers", [memory_write._WRITERS, command_sql._WRITERS], ids=["memory", "postgres"])
def test_every_command_has_a_writer(writers: dict[type, object]) -> None:
    assert COMMANDS == set(writers)
