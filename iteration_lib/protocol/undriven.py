"""Does anybody drive a run, and what is left of it when nobody does?

Who deletes or stops a run, and who takes it over, has to know that its attempt is dead: proved to be gone, or its lease
ran out by the store's clock.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from iteration_lib.errors import LeaseHeldError
from iteration_lib.protocol.abort import abort_checkpoints
from iteration_lib.protocol.command import Command, EndAttempt, VoidEpochs
from iteration_lib.protocol.state import AttemptId, AttemptState, RunState
from iteration_lib.protocol.status import AttemptOutcome, CheckpointFailure


def driven_by(state: RunState, now: datetime, *, gone_attempt_id: AttemptId | None) -> AttemptState | None:
    """Return the live attempt, unless its lease ran out or its holder is proved to be gone."""
    live = state.attempt
    is_dead = live is None or gone_attempt_id == live.attempt_id or live.lease_expires_at <= now
    return None if is_dead else live


def check_undriven(state: RunState, now: datetime, *, gone_attempt_id: AttemptId | None) -> None:
    """Raise LeaseHeldError where an attempt drives the run."""
    live = driven_by(state, now, gone_attempt_id=gone_attempt_id)
    if live is not None:
        raise LeaseHeldError(
            run_id=state.run_id,
            holder=live.holder.describe(),
            expires_at=live.lease_expires_at.isoformat(timespec="seconds"),
        )


def end_gone_attempt(state: RunState, reason: str, *, by: str) -> tuple[RunState, tuple[Command, ...]]:
    """End the attempt that counts as live, if there is one, and abort what it left pending."""
    live = state.attempt
    if live is None:
        return state, ()
    state, aborted = abort_checkpoints(state, state.pending, CheckpointFailure.ATTEMPT_ENDED, reason)
    ended = EndAttempt(fencing_token=live.fencing_token, outcome=AttemptOutcome.SUPERSEDED, reason=f"{reason} by {by}")
    state = replace(state, attempt=None, ended_attempt_id=live.attempt_id, checkpoint_failures=0)
    return state, (*aborted, ended)


def void_rest(state: RunState) -> tuple[RunState, tuple[Command, ...]]:
    """Void the epochs that are not durable; the edges of the first of them stay, as in a takeover (I15)."""
    if not state.epochs:
        return state, ()
    return replace(state, epochs=()), (VoidEpochs(after=state.last_durable_epoch),)
