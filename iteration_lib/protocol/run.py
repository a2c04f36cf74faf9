"""What follows from an event? The one door to the protocol: `decide`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeAlias

from iteration_lib.protocol.abort import abort_by_user, request_checkpoint
from iteration_lib.protocol.alignment import align_subtasks, open_epoch
from iteration_lib.protocol.checkpoint import acknowledge_checkpoint, decline_checkpoint, trigger_checkpoint
from iteration_lib.protocol.command import Command
from iteration_lib.protocol.committable import commit_committables
from iteration_lib.protocol.edge import finish_parts, switch_to_unaligned
from iteration_lib.protocol.event import (
    AlignmentTimedOut,
    AttemptEnded,
    AttemptOpened,
    CheckpointAborted,
    CheckpointAcknowledged,
    CheckpointDeclined,
    CheckpointPinned,
    CheckpointReleased,
    CheckpointRequested,
    CheckpointsDiscarded,
    CheckpointTriggered,
    CommittablesCommitted,
    DataPinned,
    DefinitionChanged,
    EpochOpened,
    Event,
    FellBack,
    GuardedEvent,
    ListenerNotified,
    OperatorFinished,
    OutputsPublished,
    PartsFinished,
    RunDeleted,
    RunResumed,
    StopRequested,
    SubtasksAligned,
)
from iteration_lib.protocol.fallback import fall_back
from iteration_lib.protocol.finished import (
    change_definition,
    finish_operator,
    notify_listener,
    pin_data,
    publish_outputs,
)
from iteration_lib.protocol.lease import check_token, end_attempt, is_last_word_again, open_attempt
from iteration_lib.protocol.retention import delete_run, discard_checkpoints, pin_checkpoint, release_checkpoint
from iteration_lib.protocol.state import RunState
from iteration_lib.protocol.stop import request_stop, resume_run

Decided: TypeAlias = tuple[RunState, tuple[Command, ...]]
Rule: TypeAlias = Callable[[RunState, Any], Decided]  # Any: the event of its own key
TimedRule: TypeAlias = Callable[[RunState, Any, Any], Decided]  # Any: as above; the instant, as `decide` gets it

_RULES: dict[type[Event], Rule] = {
    CheckpointRequested: request_checkpoint,
    CheckpointAborted: abort_by_user,
    CheckpointsDiscarded: discard_checkpoints,
    CheckpointPinned: pin_checkpoint,
    CheckpointReleased: release_checkpoint,
    RunResumed: resume_run,
    DefinitionChanged: change_definition,
    FellBack: fall_back,
    DataPinned: pin_data,
    EpochOpened: open_epoch,
    SubtasksAligned: align_subtasks,
    AlignmentTimedOut: switch_to_unaligned,
    PartsFinished: finish_parts,
    OperatorFinished: finish_operator,
    CheckpointDeclined: decline_checkpoint,
    CommittablesCommitted: commit_committables,
    ListenerNotified: notify_listener,
    OutputsPublished: publish_outputs,
    AttemptEnded: end_attempt,
}
_TIMED_RULES: dict[type[Event], TimedRule] = {
    AttemptOpened: open_attempt,
    CheckpointTriggered: trigger_checkpoint,
    CheckpointAcknowledged: acknowledge_checkpoint,
    RunDeleted: delete_run,
    StopRequested: request_stop,
}


def needs_clock(state: RunState, event: Event) -> bool:
    """Tell whether what follows from an event depends on when it is decided: of a lease, or where a pause is made."""
    if isinstance(event, CheckpointTriggered | CheckpointAcknowledged):
        return state.policy.min_pause_seconds > 0
    return type(event) in _TIMED_RULES


def decide(state: RunState, event: Event, now: datetime | None) -> Decided:
    """Return the state after the event and what has to be written for it; none if the event was heard before.

    `now` is the store's clock; it may be None for what does not need it.
    Raises SupersededError, LeaseHeldError, RunFinishedError, RunStoppedError, CheckpointNotFoundError, InputError or
    ProtocolViolationError among others, and then nothing has changed (I12).
    """
    if isinstance(event, GuardedEvent):
        if is_last_word_again(state, event):
            return state, ()
        check_token(state, event)
    timed = _TIMED_RULES.get(type(event))
    return timed(state, event, now) if timed is not None else _RULES[type(event)](state, event)
