"""Has every event a rule, and every command a writer in both stores?"""

from __future__ import annotations

import dataclasses
from typing import get_args

import pytest

from iteration_lib.protocol import Command, Event, command, decide, event, run
from iteration_lib.protocol.command import (
    AbortCheckpoint,
    AbortThrough,
    CompleteCheckpoint,
    MakeEpochsDurable,
    RecordAcknowledgements,
    SubsumeCheckpoint,
    TriggerCheckpoint,
)
from iteration_lib.protocol.event import AttemptOpened, Committable, GuardedEvent, OpenEvent
from iteration_lib.store import command_sql, memory_write
from tests.protocol_script import FIRST, NOW, aborts, started

EVENTS = set(get_args(Event))
COMMANDS = set(get_args(Command))
# What is a part of an event or of several, and no event.
PARTS_OF_EVENTS = {event.FinishedPart, GuardedEvent, Committable}

ALIGNED = (*FIRST.passes(0, 1), FIRST.opens(1), FIRST.reports(1))
PENDING = (*ALIGNED, FIRST.triggers(1))
HEARD = (RecordAcknowledgements, 2)


def declared(module: object) -> set[type]:
    """Return the dataclasses that a module itself declares."""
    found = {value for value in vars(module).values() if isinstance(value, type) and dataclasses.is_dataclass(value)}
    return {kind for kind in found if kind.__module__ == getattr(module, "__name__", "")}


def test_every_event_has_one_rule() -> None:
    assert EVENTS == {*run._RULES, *run._TIMED_RULES}
    assert set() == run._RULES.keys() & run._TIMED_RULES.keys()


@pytest.mark.parametrize(
    ("before", "said", "written", "pending", "completed"),
    [
        (ALIGNED, FIRST.triggers(1), [(TriggerCheckpoint, 2)], [2], 1),
        (PENDING, FIRST.acknowledges(2, centroids=(0,)), [HEARD], [2], 1),
        (PENDING, FIRST.declines(2), [(AbortCheckpoint, 2)], [], 1),
        (
            PENDING,
            FIRST.completes(2),
            [(SubsumeCheckpoint, 1), HEARD, (CompleteCheckpoint, 2), (MakeEpochsDurable, None)],
            [],
            2,
        ),
        (PENDING, aborts(2), [(AbortCheckpoint, 2), (AbortThrough, 2)], [], 1),
    ],
    ids=["trigger", "acknowledge", "decline", "complete and subsume", "abort"],
)
def test_word_on_a_checkpoint_has_its_effect_and_has_it_once(
    before: tuple[Event, ...],
    said: Event,
    written: list[tuple[type, int | None]],
    pending: list[int],
    completed: int,
) -> None:
    after, commands = decide(started(*before, tolerable_failures=1), said, NOW)

    assert written == [(type(known), getattr(known, "checkpoint_id", None)) for known in commands]
    assert pending == [known.checkpoint_id for known in after.pending]
    assert completed == (after.completed.checkpoint_id if after.completed is not None else None)
    assert (after, ()) == decide(after, said, NOW)


def test_every_event_and_command_that_is_declared_is_one() -> None:
    assert EVENTS == declared(event) - PARTS_OF_EVENTS
    assert COMMANDS == declared(command)


def test_every_event_but_a_claim_and_a_persons_word_carries_a_token() -> None:
    assert {AttemptOpened, *get_args(OpenEvent)} == {kind for kind in EVENTS if not issubclass(kind, GuardedEvent)}


@pytest.mark.parametrize("writers", [memory_write._WRITERS, command_sql._WRITERS], ids=["memory", "postgres"])
def test_every_command_has_a_writer(writers: dict[type, object]) -> None:
    assert COMMANDS == set(writers)
