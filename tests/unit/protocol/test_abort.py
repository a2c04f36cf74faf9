"""Who may abort a checkpoint, and what follows from it?"""

from __future__ import annotations

import pytest

from iteration_lib.errors import CheckpointNotFoundError, RunFinishedError
from iteration_lib.protocol import RunState, decide
from iteration_lib.protocol.command import (
    AbortCheckpoint,
    AbortThrough,
    AlignEpoch,
    AnswerRequests,
    TriggerCheckpoint,
)
from iteration_lib.protocol.status import CheckpointFailure, CheckpointKind, RunStatus
from tests.protocol_script import (
    FIRST,
    NOW,
    SECOND,
    aborts,
    asks,
    assert_harmless_again,
    claim,
    commands_of,
    part,
    play,
    refusal,
    started,
)


def pending(count: int, *, max_pending: int = 3) -> RunState:
    """A run with so many checkpoints pending, of the epochs from 0."""
    state = started(max_pending=max_pending)
    for epoch in range(count):
        state = play(state, FIRST.opens(epoch), FIRST.reports(epoch), FIRST.triggers(epoch))
    return state


def ids(state: RunState) -> list[int]:
    return [known.checkpoint_id for known in state.pending]


def by_ann(checkpoint_id: int) -> AbortCheckpoint:
    failure = CheckpointFailure.ABORTED_BY_USER
    return AbortCheckpoint(checkpoint_id=checkpoint_id, failure=failure, reason="aborted by ann")


@pytest.mark.parametrize(("checkpoint_id", "left"), [(1, [2, 3]), (2, [3]), (3, [])])
def test_person_aborts_a_checkpoint_and_all_that_are_pending_before_it(checkpoint_id: int, left: list[int]) -> None:
    state, written = decide(pending(3), aborts(checkpoint_id), NOW)

    aborted = (by_ann(number) for number in range(1, checkpoint_id + 1))
    assert (*aborted, AbortThrough(checkpoint_id=checkpoint_id)) == written
    assert (left, 3, checkpoint_id) == (ids(state), state.last_checkpoint_id, state.aborted_through)


def test_person_needs_no_token_and_no_live_attempt() -> None:
    released = play(pending(1), FIRST.ends())

    assert () == commands_of(released, aborts(1))
    assert (AbortThrough(checkpoint_id=2),) == commands_of(released, aborts(2))


def test_abort_by_a_person_is_harmless_again() -> None:
    assert_harmless_again(pending(2), aborts(1), aborts(2), aborts(3), aborts(1))


def test_abort_of_an_old_checkpoint_does_not_hurt_a_newer_one() -> None:
    """It is over; what is pending now has an id of its own."""
    state = play(pending(1), FIRST.completes(1), FIRST.opens(1), FIRST.reports(1), FIRST.triggers(1))
    state = play(state, FIRST.opens(2), FIRST.switches(2))

    assert (state, ()) == decide(state, aborts(1), NOW)
    assert ([2], [1, 2]) == (ids(state), [epoch.epoch for epoch in state.epochs])


def test_abort_leaves_the_edges_of_the_epoch() -> None:
    """They hang on the epoch, not on the checkpoint that is being written of it."""
    state = started(FIRST.opens(0), FIRST.switches(0), FIRST.marks(0, part("sums")), FIRST.reports(0))
    state = play(state, FIRST.triggers(0))

    assert state.edges == play(state, aborts(1)).edges == play(state, FIRST.declines(1)).edges
    assert [(0, "sums")] == [(edge.epoch, edge.operator_id) for edge in state.edges]


def test_aborted_checkpoint_stays_aborted_whatever_arrives_late() -> None:
    state = play(pending(1), aborts(1))

    for late in (FIRST.acknowledges(1, centroids=(0,)), FIRST.completes(1), FIRST.declines(1), FIRST.lets_expire(1)):
        assert (state, ()) == decide(state, late, NOW)
    assert ([], None, -1) == (ids(state), state.completed, state.last_durable_epoch)


def test_next_checkpoint_may_be_aborted_before_it_begins() -> None:
    aligned = started(FIRST.opens(0), FIRST.reports(0))
    state = play(aligned, aborts(1))
    assert (AbortThrough(checkpoint_id=1), 1) == (commands_of(aligned, aborts(1))[0], state.aborted_through)

    after, written = decide(state, FIRST.triggers(0), NOW)

    assert [TriggerCheckpoint, AbortCheckpoint] == [type(command) for command in written]
    failure = CheckpointFailure.ABORTED_BY_USER
    assert AbortCheckpoint(checkpoint_id=1, failure=failure, reason="aborted before it began") == written[1]
    assert ([], 1, 0) == (ids(after), after.last_checkpoint_id, after.checkpoint_failures)


def test_request_is_answered_by_a_checkpoint_that_was_aborted_before_it_began() -> None:
    """Its abort comes first: a store never has it pending."""
    state = started(FIRST.opens(0), FIRST.reports(0), asks(), aborts(1))

    after, written = decide(state, FIRST.triggers(0), NOW)

    assert [TriggerCheckpoint, AbortCheckpoint, AnswerRequests] == [type(command) for command in written]
    assert {asks().request_id: 1} == dict(after.requests)


def test_checkpoint_after_one_that_was_aborted_before_it_began_is_not_concerned() -> None:
    """The id is used up, and the epoch gets the next one when the driver asks again."""
    state = started(FIRST.opens(0), FIRST.reports(0), aborts(1), FIRST.triggers(0))

    state = play(state, FIRST.triggers(0))

    assert ([2], 2) == (ids(state), state.last_checkpoint_id)
    assert 0 == play(state, FIRST.completes(2)).last_durable_epoch


def test_abort_of_the_next_checkpoint_aborts_what_is_pending_before_it() -> None:
    state, written = decide(pending(2), aborts(3), NOW)

    assert (by_ann(1), by_ann(2), AbortThrough(checkpoint_id=3)) == written
    assert ([], 3) == (ids(state), state.aborted_through)


def test_checkpoint_that_was_aborted_before_it_began_holds_nothing() -> None:
    state = started(FIRST.opens(0), FIRST.reports(0), aborts(1), FIRST.triggers(0), FIRST.opens(1))

    assert AlignEpoch in [type(command) for command in commands_of(state, FIRST.reports(1))]


def test_abort_of_the_next_checkpoint_outlives_the_attempt() -> None:
    state = play(started(aborts(1)), claim(2, takeover=True), SECOND.opens(0), SECOND.reports(0))

    assert [TriggerCheckpoint, AbortCheckpoint] == [type(command) for command in commands_of(state, SECOND.triggers(0))]


@pytest.mark.parametrize("checkpoint_id", [-1, 0, 4, 99])
def test_abort_of_a_checkpoint_that_is_neither_there_nor_next_is_refused(checkpoint_id: int) -> None:
    state = pending(2)
    error = refusal(state, aborts(checkpoint_id))

    said = f"its checkpoints are 1 to 2 (see: iteration checkpoints {state.run_id})"
    assert isinstance(error, CheckpointNotFoundError)
    assert f"has no checkpoint {checkpoint_id}; {said}" in str(error)


TERMINATING = started(*FIRST.passes(0, 1, records=0))


@pytest.mark.parametrize(
    ("state", "said"),
    [(TERMINATING, "terminates: no epoch"), (play(TERMINATING, FIRST.publishes()), "is finished; nothing is left")],
    ids=["terminating", "finished"],
)
def test_run_that_takes_no_checkpoint_any_more_has_no_next_one_to_abort(state: RunState, said: str) -> None:
    error = refusal(state, aborts(2))

    assert isinstance(error, RunFinishedError)
    assert f"run {state.run_id} {said}" in str(error)
    assert () == commands_of(state, aborts(1))


def test_hand_made_checkpoint_is_aborted_while_the_run_terminates() -> None:
    """It is all that the run still waits for before it may publish."""
    state = started(asks(), FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0), max_pending=2)
    state = play(state, FIRST.opens(1), FIRST.reports(1, {"centroids": {0: 0}}), FIRST.triggers(1), FIRST.completes(2))
    assert (RunStatus.TERMINATING, [1]) == (state.status, ids(state))
    refusal(state, FIRST.publishes())

    assert RunStatus.FINISHED == play(state, aborts(1), FIRST.publishes()).status


def test_final_checkpoint_that_a_person_aborted_begins_again() -> None:
    """The decision does not bind before it is durable, and the run cannot end without it."""
    state = started(FIRST.opens(0), FIRST.reports(0, {"centroids": {0: 0}}), FIRST.triggers(0))

    state = play(state, aborts(1))

    assert (RunStatus.RUNNING, []) == (state.status, ids(state))
    again = play(state, FIRST.triggers(0))
    assert [(2, CheckpointKind.FINAL)] == [(known.checkpoint_id, known.kind) for known in again.pending]
