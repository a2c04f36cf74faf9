"""Who may drive a run, and what becomes of the one who drove it before?

The lease's times are the database's, read under the run's lock, and under its own where it is over. They decide only
how long a dead holder keeps others waiting; what a superseded holder still does is stopped by its token.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from iteration_lib.errors import (
    ProtocolViolationError,
    RunDeletedError,
    RunFinishedError,
    RunStoppedError,
    SupersededError,
)
from iteration_lib.protocol.abort import abort_checkpoints
from iteration_lib.protocol.command import Command, EndAttempt, OpenAttempt, SetRunStatus, VoidEpochs
from iteration_lib.protocol.edge import ignore_edges
from iteration_lib.protocol.event import (
    AttemptEnded,
    AttemptOpened,
    GuardedEvent,
    ListenerNotified,
    OutputsPublished,
)
from iteration_lib.protocol.legality import check_restored_epoch
from iteration_lib.protocol.state import NO_EPOCH, AttemptState, RunState
from iteration_lib.protocol.status import AttemptOutcome, CheckpointFailure, RunStatus, check_transition
from iteration_lib.protocol.stop import may_stop, stop_now
from iteration_lib.protocol.undriven import check_undriven


def open_attempt(state: RunState, event: AttemptOpened, now: datetime) -> tuple[RunState, tuple[Command, ...]]:
    """Issue the next token (I1) and void what the attempt before did not make durable (I6).

    Raises LeaseHeldError while another attempt is live, unless its lease ran out, its holder is proved to be gone, or
    a person takes over. Repeating it with the same attempt_id is harmless while the attempt is live; one that has ended
    never comes back (SupersededError). Where the run is asked to stop, no epoch is in progress and nothing is to be
    committed, it is stopped at once, and nobody gets a token (I20).
    """
    _check_drivable(state)
    if state.ended_attempt_id == event.attempt_id:
        raise SupersededError(run_id=state.run_id, held=state.fencing_token, current=None)
    live = state.attempt
    if live is not None and live.attempt_id == event.attempt_id:
        return state, ()
    commands: list[Command] = []
    if live is not None:
        if not event.takeover:
            check_undriven(state, now, gone_attempt_id=event.gone_attempt_id)
        reason = "taken over" if event.takeover else "its holder is gone or its lease ran out"
        commands.append(EndAttempt(fencing_token=live.fencing_token, outcome=AttemptOutcome.SUPERSEDED, reason=reason))
    if may_stop(state) and not state.epochs and not state.uncommitted:
        return _stop_unopened(state, commands)
    opened = AttemptState(
        attempt_id=event.attempt_id,
        fencing_token=state.fencing_token + 1,
        holder=event.holder,
        lease_expires_at=now + timedelta(seconds=event.lease_ttl_seconds),
        policy=event.policy,
    )
    commands.append(
        OpenAttempt(
            attempt_id=opened.attempt_id,
            fencing_token=opened.fencing_token,
            holder=opened.holder,
            lease_expires_at=opened.lease_expires_at,
            policy=opened.policy,
            ignores_edges=event.ignore_edges,
        )
    )
    state, aborted = _abort_all(state, "its attempt was superseded")
    state, voided = ignore_edges(state) if event.ignore_edges else (state, ())
    commands += [*aborted, *voided]
    if state.epochs:
        commands.append(VoidEpochs(after=state.last_durable_epoch))
    status = state.status
    if status is RunStatus.FAILED:
        status = RunStatus.RUNNING if state.terminated_by is None else RunStatus.TERMINATING
        commands.append(SetRunStatus(status=status, terminated_by=state.terminated_by))
    return (
        replace(
            state,
            status=status,
            fencing_token=opened.fencing_token,
            attempt=opened,
            ended_attempt_id=None,
            epochs=(),
            checkpoint_failures=0,
        ),
        tuple(commands),
    )


def _check_drivable(state: RunState) -> None:
    if state.status is RunStatus.FINISHED:
        raise RunFinishedError(state.run_id)
    if state.status is RunStatus.DELETED:
        raise RunDeletedError(state.run_id)
    if state.status is RunStatus.STOPPED:
        raise RunStoppedError(state.run_id)
    origin_epoch = state.origin_epoch if state.holds_origin else NO_EPOCH
    restored = state.completed.epoch if state.completed is not None else origin_epoch
    check_restored_epoch(state.run_id, restored=restored, last_durable=state.last_durable_epoch)


def _stop_unopened(state: RunState, ending: list[Command]) -> tuple[RunState, tuple[Command, ...]]:
    """Stop a run instead of opening an attempt; `ending` ends the one that held it."""
    state, aborted = _abort_all(state, "its attempt was superseded")
    if state.attempt is not None:
        state = replace(state, attempt=None, ended_attempt_id=state.attempt.attempt_id, checkpoint_failures=0)
    state, stopped = stop_now(state)
    return state, (*ending, *aborted, *stopped)


def check_token(state: RunState, event: GuardedEvent) -> None:
    """Raise SupersededError unless the event comes from the live attempt (I2)."""
    live = state.attempt
    if live is None or (live.attempt_id, live.fencing_token) != (event.attempt_id, event.fencing_token):
        raise SupersededError(
            run_id=state.run_id,
            held=event.fencing_token,
            current=live.fencing_token if live is not None else None,
        )


def is_last_word_again(state: RunState, event: GuardedEvent) -> bool:
    """Tell whether an attempt that has ended repeats what ended it, because it never heard the answer.

    The listeners of the end are told in the same breath as the outputs are published.
    """
    finishes = isinstance(event, OutputsPublished) or (isinstance(event, ListenerNotified) and event.is_final)
    can_be_last = isinstance(event, AttemptEnded) or (finishes and state.status is RunStatus.FINISHED)
    ended = (state.ended_attempt_id, state.fencing_token)  # the id is None while an attempt is live
    return can_be_last and ended == (event.attempt_id, event.fencing_token)


def end_attempt(state: RunState, event: AttemptEnded) -> tuple[RunState, tuple[Command, ...]]:
    """End the live attempt; what it left pending is aborted, and its epochs wait to be voided by the next one.

    One that lets go a run that is asked to stop makes it STOPPED, in the same step.
    """
    if event.outcome not in (AttemptOutcome.RELEASED, AttemptOutcome.FAILED):
        raise ProtocolViolationError(f"an attempt cannot end itself as {event.outcome.value}; it is RELEASED or FAILED")
    if event.outcome is AttemptOutcome.FAILED and not event.reason:
        raise ProtocolViolationError("an attempt that FAILED says why")
    if event.outcome is not AttemptOutcome.FAILED and event.failed is not None:
        raise ProtocolViolationError(f"an attempt that is {event.outcome.value} has no operator that failed")
    state, aborted = _abort_all(state, f"its attempt ended: {event.outcome.value}")
    stops = event.outcome is AttemptOutcome.RELEASED and may_stop(state)
    reason = "its run was asked to stop" if stops and event.reason is None else event.reason
    commands: list[Command] = [*aborted]
    commands.append(
        EndAttempt(fencing_token=event.fencing_token, outcome=event.outcome, reason=reason, failed=event.failed)
    )
    status = state.status
    if event.outcome is AttemptOutcome.FAILED:
        check_transition(status, RunStatus.FAILED)
        status = RunStatus.FAILED
        commands.append(SetRunStatus(status=status, terminated_by=state.terminated_by, failure=event.reason))
    state = replace(state, status=status, attempt=None, ended_attempt_id=event.attempt_id, checkpoint_failures=0)
    if stops:
        state, stopped = stop_now(state)
        commands += stopped
    return state, tuple(commands)


def _abort_all(state: RunState, reason: str) -> tuple[RunState, tuple[Command, ...]]:
    return abort_checkpoints(state, state.pending, CheckpointFailure.ATTEMPT_ENDED, reason)
