"""When does a run go on from an older checkpoint than its newest one? When that one is broken, and a person says so.

What the run has made durable since then is given up: this is the one way in which a durable epoch is run again (I21).
So nobody may have had anything of it: no listener has heard of such an epoch, no sink publishes any (I19), neither a
branch nor a person pins such a checkpoint.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from iteration_lib.errors import FallbackRefusedError, ProtocolViolationError
from iteration_lib.protocol.command import Command, FallBack
from iteration_lib.protocol.event import FellBack
from iteration_lib.protocol.state import NO_EPOCH, CheckpointState, RunState
from iteration_lib.protocol.status import CheckpointStatus, RunStatus, check_transition


def fall_back(state: RunState, event: FellBack) -> tuple[RunState, tuple[Command, ...]]:
    """Make an older checkpoint the completed one again, before any epoch is open; repeating it is harmless.

    Raises FallbackRefusedError that names who has had something of what would be given up.
    """
    older, newest = event.checkpoint, state.completed
    if newest is not None and newest.checkpoint_id == older.checkpoint_id:
        return state, ()
    if state.status is not RunStatus.RUNNING or state.epochs or state.pending:
        raise ProtocolViolationError("a run falls back before its attempt opens an epoch, and not once it terminates")
    if newest is None or older.checkpoint_id > newest.checkpoint_id or older.epoch >= newest.epoch:
        raise ProtocolViolationError(f"checkpoint {older.checkpoint_id} is not an older one than the newest (I21)")
    check_unheard(state, older, event.published)
    check_transition(older.status, CheckpointStatus.COMPLETED)
    fallen = replace(
        state,
        completed=replace(older, status=CheckpointStatus.COMPLETED),
        last_durable_epoch=older.epoch,
        edges=tuple(edge for edge in state.edges if edge.epoch == NO_EPOCH),
    )
    command = FallBack(
        from_checkpoint_id=newest.checkpoint_id,
        to_checkpoint_id=older.checkpoint_id,
        epoch=older.epoch,
        reason=event.reason,
    )
    return fallen, (command,)


def check_unheard(state: RunState, older: CheckpointState, published: Collection[str]) -> None:
    """Raise FallbackRefusedError where somebody has had something of what comes after a checkpoint."""
    heard = sorted(listener for listener, last in state.notified.items() if last > older.epoch)
    if heard:
        shown = ", ".join(map(repr, heard))
        raise FallbackRefusedError(state.run_id, f"listener {shown} has heard of epochs after {older.epoch}")
    if published:
        shown = ", ".join(map(repr, sorted(published)))
        raise FallbackRefusedError(state.run_id, f"output {shown} is published of epochs after {older.epoch}")
    for pinned, who in ((state.pinned, "a branch needs"), (state.pinned_by_hand, "a person has pinned")):
        gone = sorted(known for known in pinned if known > older.checkpoint_id)
        if gone:
            reason = f"{who} checkpoint {', '.join(map(str, gone))}, which would go"
            by_hand = [known for known in gone if known not in state.pinned]  # what a branch needs nobody can release
            raise FallbackRefusedError(state.run_id, reason, pinned_by_hand=by_hand)
