"""Who may drive a run, and what becomes of the one who drove it before?"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, get_args

import pytest

from iteration_lib.errors import LeaseHeldError, ProtocolViolationError, RunFinishedError, SupersededError
from iteration_lib.protocol import Event, RunState
from iteration_lib.protocol.command import (
    AbortCheckpoint,
    EndAttempt,
    OpenAttempt,
    SetRunStatus,
    VoidEpochs,
)
from iteration_lib.protocol.event import GuardedEvent
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.state import AttemptState, CheckpointState, FailedOperator
from iteration_lib.protocol.status import (
    AttemptOutcome,
    CheckpointFailure,
    CheckpointKind,
    CheckpointStatus,
    RunStatus,
    TerminatedBy,
)
from tests.protocol_script import (
    FIRST,
    HOLDER,
    LATER,
    LEASE_SECONDS,
    NOW,
    SECOND,
    Sender,
    assert_harmless_again,
    attempt_id,
    claim,
    commands_of,
    new_run,
    part,
    play,
    refusal,
    started,
)

JUST_BEFORE = LATER - timedelta(microseconds=1)
TERMINATING = started(*FIRST.passes(0, 1, records=0))
FINISHED = play(TERMINATING, FIRST.publishes())


def test_first_attempt_gets_token_1_and_a_lease() -> None:
    live = AttemptState(attempt_id=attempt_id(1), fencing_token=1, holder=HOLDER, lease_expires_at=LATER)
    opened = OpenAttempt(
        attempt_id=attempt_id(1),
        fencing_token=1,
        holder=HOLDER,
        lease_expires_at=LATER,
        policy=CheckpointPolicy(),
    )

    assert dataclasses.replace(new_run(), fencing_token=1, attempt=live) == play(new_run(), claim())
    assert (opened,) == commands_of(new_run(), claim())


def test_attempt_that_asks_again_keeps_its_token_and_the_work_under_way() -> None:
    state = started(FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0), FIRST.opens(1))

    assert () == commands_of(state, claim(1))
    assert state == play(state, claim(1, takeover=True), now=LATER)


def test_live_attempt_whose_lease_holds_is_not_superseded() -> None:
    error = refusal(started(), claim(2), JUST_BEFORE)

    assert (
        f"run {started().run_id} is being driven by process 7 on here (lease until 2026-01-02T03:04:35+00:00); "
        f"wait for it, end it with `iteration stop {started().run_id}`, "
        "or drive it with --takeover (in a script takeover=True) if you know that it is gone"
    ) == str(error)
    assert (LeaseHeldError, 3) == (type(error), error.exit_code)


@pytest.mark.parametrize(
    ("event", "at", "reason"),
    [
        (claim(2), LATER, "its holder is gone or its lease ran out"),
        (claim(2, gone=1), NOW, "its holder is gone or its lease ran out"),
        (claim(2, takeover=True), NOW, "taken over"),
    ],
    ids=["the lease ran out", "the holder is proved to be gone", "a person takes over"],
)
def test_live_attempt_is_superseded_when(event: Event, at: datetime, reason: str) -> None:
    state, written = play(started(), event, now=at), commands_of(started(), event, at)

    expires_at = at + timedelta(seconds=LEASE_SECONDS)
    live = AttemptState(attempt_id=attempt_id(2), fencing_token=2, holder=HOLDER, lease_expires_at=expires_at)
    assert (live, 2, None) == (state.attempt, state.fencing_token, state.ended_attempt_id)
    assert EndAttempt(fencing_token=1, outcome=AttemptOutcome.SUPERSEDED, reason=reason) == written[0]


@pytest.mark.parametrize(
    ("durable", "kept", "what"),
    [
        (1, {}, "what it would go on with is of epoch 0"),
        (-1, {}, "what it would go on with is of epoch 0"),
        (0, {"completed": None}, "there is no checkpoint to go on with"),
        (4, {"completed": None, "origin_epoch": 3, "holds_origin": True}, "what it would go on with is of epoch 3"),
        (3, {"completed": None, "origin_epoch": 3}, "there is no checkpoint to go on with"),
    ],
    ids=["a newer one is missing", "it makes nothing durable", "none is left", "a branch's own", "an origin let go"],
)
def test_run_whose_checkpoint_is_not_of_its_last_durable_epoch_is_not_driven(
    durable: int, kept: Mapping[str, Any], what: str
) -> None:
    state = dataclasses.replace(started(*FIRST.passes(0, 1), FIRST.ends()), last_durable_epoch=durable, **kept)

    error = refusal(state, claim(2))

    advice = "somebody has changed the store's rows: put its backup back, or branch a checkpoint under another run key"
    assert f"run {state.run_id}: epoch {durable} is its last durable one, and {what} (I6); {advice}" == str(error)
    assert isinstance(error, ProtocolViolationError)


def test_branch_that_has_no_checkpoint_of_its_own_is_driven_behind_its_origin() -> None:
    branch = dataclasses.replace(new_run(), last_durable_epoch=3, origin_epoch=3, holds_origin=True)

    assert 1 == play(branch, claim(1)).fencing_token


def test_proof_that_another_attempt_is_gone_proves_nothing_of_the_live_one() -> None:
    """Between the proof and the claim a third attempt may have taken the run."""
    state = play(started(), claim(2, takeover=True))

    assert isinstance(refusal(state, claim(3, gone=1)), LeaseHeldError)


def test_run_whose_attempt_has_ended_is_free_at_once() -> None:
    ended = play(started(), FIRST.ends())

    state = play(ended, claim(2))

    assert (2, attempt_id(2)) == (state.fencing_token, state.attempt.attempt_id if state.attempt is not None else None)
    assert (attempt_id(1), None) == (ended.ended_attempt_id, state.ended_attempt_id)
    assert [OpenAttempt] == [type(command) for command in commands_of(ended, claim(2))]


def test_new_attempt_voids_what_is_not_durable_and_aborts_what_is_pending() -> None:
    state = started(
        *FIRST.passes(0, 1), FIRST.opens(1), FIRST.reports(1), FIRST.triggers(1), FIRST.opens(2), FIRST.reports(2)
    )

    after, written = play(state, claim(2, takeover=True)), commands_of(state, claim(2, takeover=True))

    assert (
        EndAttempt(fencing_token=1, outcome=AttemptOutcome.SUPERSEDED, reason="taken over"),
        OpenAttempt(
            attempt_id=attempt_id(2),
            fencing_token=2,
            holder=HOLDER,
            lease_expires_at=LATER,
            policy=CheckpointPolicy(),
        ),
        AbortCheckpoint(checkpoint_id=2, failure=CheckpointFailure.ATTEMPT_ENDED, reason="its attempt was superseded"),
        VoidEpochs(after=0),
    ) == written
    assert ((), (), 0, state.completed) == (after.epochs, after.pending, after.last_epoch, after.completed)


def test_new_attempt_voids_nothing_where_everything_is_durable() -> None:
    assert [EndAttempt, OpenAttempt] == [
        type(command) for command in commands_of(started(*FIRST.passes(0, 1)), claim(2, takeover=True))
    ]


def test_new_attempt_keeps_pins_and_operators_that_finished_for_good() -> None:
    state = play(started(FIRST.pins(), FIRST.finishes()), claim(2, takeover=True))

    assert ({"points": "f1"}, frozenset({"scaled"})) == (state.pins, state.finished_operators)


@pytest.mark.parametrize(
    ("ended", "newer"),
    [(play(started(), FIRST.ends()), None), (play(started(), FIRST.fails()), None)],
    ids=["released", "failed"],
)
def test_attempt_that_has_ended_cannot_come_back(ended: RunState, newer: None) -> None:
    """Its claim was delayed on the way: it is an old one that arrives late, and its token is spent."""
    error = refusal(ended, claim(1, takeover=True))

    assert isinstance(error, SupersededError)
    assert (1, newer) == (error.held, error.current)


EVENTS_OF_FIRST: tuple[Event, ...] = (
    FIRST.pins(),
    FIRST.opens(0),
    FIRST.reports(0),
    FIRST.switches(0),
    FIRST.marks(0, part("sums")),
    FIRST.changes("points"),
    FIRST.commits((0, "rows")),
    FIRST.falls_back(
        CheckpointState(
            checkpoint_id=1,
            epoch=0,
            kind=CheckpointKind.PERIODIC,
            status=CheckpointStatus.SUBSUMED,
            participants=(),
        )
    ),
    FIRST.notifies(0),
    FIRST.finishes(),
    FIRST.triggers(0),
    FIRST.acknowledges(1, centroids=(0,)),
    FIRST.completes(1),
    FIRST.declines(1),
    FIRST.publishes(),
    FIRST.ends(),
    FIRST.fails(),
)


@pytest.mark.parametrize("event", EVENTS_OF_FIRST, ids=lambda event: type(event).__name__)
def test_superseded_attempt_is_refused_whatever_it_says(event: Event) -> None:
    state = play(started(), claim(2, takeover=True), SECOND.opens(0), SECOND.reports(0), SECOND.triggers(0))

    error = refusal(state, event)

    assert isinstance(error, SupersededError)
    assert (state.run_id, 1, 2, 3) == (error.run_id, error.held, error.current, error.exit_code)
    assert str(error).startswith(f"superseded: this attempt holds token 1 of run {state.run_id}, but token 2 is in")


def test_everything_an_attempt_can_say_is_tried_by_one_that_may_not() -> None:
    """Otherwise a new event could be let through from anybody."""
    guarded = {kind for kind in get_args(Event) if issubclass(kind, GuardedEvent)}

    assert guarded == {type(event) for event in EVENTS_OF_FIRST}


def test_new_attempt_brings_its_own_policy() -> None:
    """How checkpoints are paced is no part of the run: the next attempt may do it in another way."""
    state = play(started(max_pending=2), claim(2, takeover=True, every_epochs=5, tolerable_failures=3))

    assert CheckpointPolicy(every_epochs=5, tolerable_failures=3) == state.policy
    assert CheckpointPolicy() == play(state, SECOND.ends()).policy


@pytest.mark.parametrize("impostor", [Sender(1, 2), Sender(2, 1), Sender(2, 3), Sender(3, 2), Sender(3, 0)], ids=repr)
def test_only_the_right_attempt_with_the_right_token_is_heard(impostor: Sender) -> None:
    """Tokens alone may be issued twice when a store lost its last second; attempt ids alone say nothing of order."""
    state = play(started(), claim(2, takeover=True))

    assert isinstance(refusal(state, impostor.opens(0)), SupersededError)


@pytest.mark.parametrize("event", EVENTS_OF_FIRST[:-3], ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("how", ["released", "finished"])
def test_attempt_that_has_ended_is_refused_whatever_it_says(event: Event, how: str) -> None:
    pending = started(FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0))

    error = refusal(play(pending, FIRST.ends()) if how == "released" else FINISHED, event)

    assert isinstance(error, SupersededError)
    assert (1, None) == (error.held, error.current)


def test_ending_aborts_what_is_pending_and_leaves_the_epochs_to_the_next_attempt() -> None:
    state = started(FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0))

    after, written = play(state, FIRST.ends()), commands_of(state, FIRST.ends())

    assert (
        AbortCheckpoint(checkpoint_id=1, failure=CheckpointFailure.ATTEMPT_ENDED, reason="its attempt ended: RELEASED"),
        EndAttempt(fencing_token=1, outcome=AttemptOutcome.RELEASED, reason=None),
    ) == written
    assert (None, attempt_id(1), (), state.epochs, RunStatus.RUNNING) == (
        after.attempt,
        after.ended_attempt_id,
        after.pending,
        after.epochs,
        after.status,
    )
    assert VoidEpochs(after=-1) in commands_of(after, claim(2))


def test_last_word_of_an_attempt_is_harmless_again() -> None:
    assert_harmless_again(started(), FIRST.ends())
    assert_harmless_again(started(), FIRST.fails())
    assert_harmless_again(TERMINATING, FIRST.publishes(), FIRST.ends())


def test_outputs_of_an_attempt_that_ended_without_publishing_are_refused() -> None:
    """They are no repetition: nothing was published, and the caller must not believe that it was."""
    error = refusal(play(TERMINATING, FIRST.ends()), FIRST.publishes())

    assert isinstance(error, SupersededError)


@pytest.mark.parametrize("impostor", [Sender(1, 2), Sender(2, 1)], ids=repr)
def test_last_word_is_a_repetition_only_under_its_own_token(impostor: Sender) -> None:
    assert isinstance(refusal(play(started(), FIRST.ends()), impostor.ends()), SupersededError)


def test_failed_attempt_marks_the_run_failed_with_the_reason() -> None:
    state, written = play(started(), FIRST.fails("no space")), commands_of(started(), FIRST.fails("no space"))

    assert (
        EndAttempt(fencing_token=1, outcome=AttemptOutcome.FAILED, reason="no space"),
        SetRunStatus(status=RunStatus.FAILED, failure="no space"),
    ) == written
    assert (RunStatus.FAILED, None) == (state.status, state.attempt)


def test_failed_attempt_says_which_operator_failed() -> None:
    failed = FailedOperator(operator_id="sums", epoch=0)

    ended = commands_of(started(), FIRST.fails("no space", failed=failed))[0]

    assert EndAttempt(fencing_token=1, outcome=AttemptOutcome.FAILED, reason="no space", failed=failed) == ended


def test_attempt_that_did_not_fail_has_no_operator_that_did() -> None:
    failed = FailedOperator(operator_id="sums", epoch=0)

    error = refusal(started(), FIRST.ends(AttemptOutcome.RELEASED, None, failed))

    assert "an attempt that is RELEASED has no operator that failed" == str(error)


@pytest.mark.parametrize("reason", [None, ""])
def test_failure_without_a_reason_is_refused(reason: str | None) -> None:
    error = refusal(started(), FIRST.ends(AttemptOutcome.FAILED, reason))

    assert "an attempt that FAILED says why" == str(error)


@pytest.mark.parametrize("outcome", [AttemptOutcome.FINISHED, AttemptOutcome.SUPERSEDED])
def test_outcome_that_others_decide_is_refused(outcome: AttemptOutcome) -> None:
    """An attempt is FINISHED by publishing, SUPERSEDED by another."""
    error = refusal(started(), FIRST.ends(outcome))

    assert f"an attempt cannot end itself as {outcome.value}; it is RELEASED or FAILED" == str(error)


def test_failed_run_goes_on_from_its_last_durable_epoch() -> None:
    failed = started(*FIRST.passes(0, 1), FIRST.opens(1), FIRST.fails())

    state, written = play(failed, claim(2)), commands_of(failed, claim(2))

    assert (RunStatus.RUNNING, 0, ()) == (state.status, state.last_durable_epoch, state.epochs)
    assert SetRunStatus(status=RunStatus.RUNNING) == written[-1]
    assert 1 == play(state, SECOND.opens(1)).last_epoch


def test_run_that_failed_while_terminating_goes_on_terminating() -> None:
    """It only has to publish; no epoch may open again."""
    failed = play(TERMINATING, FIRST.fails())
    assert (RunStatus.FAILED, TerminatedBy.EMPTY_FEEDBACK) == (failed.status, failed.terminated_by)

    state, written = play(failed, claim(2)), commands_of(failed, claim(2))

    assert RunStatus.TERMINATING == state.status
    assert SetRunStatus(status=RunStatus.TERMINATING, terminated_by=TerminatedBy.EMPTY_FEEDBACK) == written[-1]
    assert RunStatus.FINISHED == play(state, SECOND.publishes()).status


def test_failure_keeps_the_rule_that_terminated_the_run() -> None:
    written = commands_of(TERMINATING, FIRST.fails("no space"))

    assert (
        SetRunStatus(status=RunStatus.FAILED, terminated_by=TerminatedBy.EMPTY_FEEDBACK, failure="no space")
        == written[-1]
    )


def test_finished_run_cannot_be_driven() -> None:
    error = refusal(FINISHED, claim(2, takeover=True))

    assert (
        f"run {FINISHED.run_id} is finished; nothing is left to drive or to stop, "
        f"`iteration show {FINISHED.run_id}` says how it ended"
    ) == str(error)
    assert isinstance(error, RunFinishedError)
