"""What follows from an event? The one door to the protocol: `decide`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeAlias

from iteration_lib.protocol.alignment import align_subtasks, open_epoch
from iteration_lib.protocol.checkpoint import acknowledge_checkpoint, decline_checkpoint, trigger_checkpoint
from iteration_lib.protocol.command import Command
from iteration_lib.protocol.event import (
    AttemptEnded,
    AttemptOpened,
    CheckpointAcknowledged,
    CheckpointDeclined,
    CheckpointTriggered,
    DataPinned,
    EpochOpened,
    Event,
    GuardedEvent,
    OperatorFinished,
    OutputsPublished,
    SubtasksAligned,
)
from iteration_lib.protocol.finished import finish_operator, pin_data, publish_outputs
from iteration_lib.protocol.lease import check_token, end_attempt, is_last_word_again, open_attempt
from iteration_lib.protocol.state import RunState

Rule: TypeAlias = Callable[[RunState, Any], tuple[RunState, tuple[Command, ...]]]  # Any: the event of its own key

_RULES: dict[type[GuardedEvent], Rule] = {
    DataPinned: pin_data,
    EpochOpened: open_epoch,
    SubtasksAligned: align_subtasks,
    OperatorFinished: finish_operator,
    CheckpointTriggered: trigger_checkpoint,
    CheckpointAcknowledged: acknowledge_checkpoint,
    CheckpointDeclined: decline_checkpoint,
    OutputsPublished: publish_outputs,
    AttemptEnded: end_attempt,
}


def decide(state: RunState, event: Event, now: datetime) -> tuple[RunState, tuple[Command, ...]]:
    """Return the state after the event and what has to be written for it; none if the event was heard before.

    Raises SupersededError, LeaseHeldError, InputError or ProtocolViolationError, and then nothing has changed (I12).
    """
    if isinstance(event, AttemptOpened):
        return open_attempt(state, event, now)
    if is_last_word_again(state, event):
        return state, ()
    check_token(state, event)
    return _RULES[type(event)](state, event)
