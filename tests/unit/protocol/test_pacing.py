"""Is a checkpoint due after an epoch, and of which kind?"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from iteration_lib.errors import RunFinishedError
from iteration_lib.protocol import Event, RunState, decide
from iteration_lib.protocol.command import AnswerRequests, RecordRequest, TriggerCheckpoint
from iteration_lib.protocol.status import CheckpointKind, RunStatus
from tests.protocol_script import (
    FIRST,
    NOW,
    SECOND,
    aborts,
    asks,
    assert_harmless_again,
    claim,
    commands_of,
    play,
    refusal,
    started,
)

PAUSE_SECONDS = 90.0
PAUSED = NOW + timedelta(seconds=PAUSE_SECONDS)  # the first instant at which the pause is over


def aligned(state: RunState, epoch: int) -> RunState:
    return play(state, FIRST.opens(epoch), FIRST.reports(epoch))


def kind_of(state: RunState, epoch: int, now: datetime = NOW) -> CheckpointKind | None:
    """Return the kind of checkpoint that begins, when the driver asks for one."""
    begun = [c for c in commands_of(state, FIRST.triggers(epoch), now) if isinstance(c, TriggerCheckpoint)]
    return begun[0].kind if begun else None


@pytest.mark.parametrize(
    ("every_epochs", "covered"), [(1, [0, 1, 2, 3, 4, 5, 6]), (2, [1, 3, 5]), (3, [2, 5]), (7, [6]), (8, [])]
)
def test_checkpoint_is_due_every_so_many_epochs(every_epochs: int, covered: list[int]) -> None:
    state, found = started(every_epochs=every_epochs), []

    for epoch in range(7):
        state = aligned(state, epoch)
        if kind_of(state, epoch) is not None:
            found.append(epoch)
            state = play(state, FIRST.triggers(epoch), FIRST.completes(len(found)))

    assert covered == found


def test_pace_counts_from_a_pending_checkpoint_too() -> None:
    """It will cover its epoch; a second one beside it would come too early."""
    state = play(aligned(started(every_epochs=2, max_pending=2), 0), FIRST.opens(1), FIRST.reports(1))
    state = aligned(play(state, FIRST.triggers(1)), 2)

    assert (None, CheckpointKind.PERIODIC) == (kind_of(state, 2), kind_of(aligned(state, 3), 3))


def test_pace_counts_from_the_last_durable_epoch_when_a_checkpoint_failed() -> None:
    state = aligned(aligned(started(every_epochs=2, tolerable_failures=1), 0), 1)

    failed = play(state, FIRST.triggers(1), FIRST.declines(1))

    assert CheckpointKind.PERIODIC == kind_of(aligned(failed, 2), 2)


def test_checkpoint_that_is_not_due_begins_by_no_event_and_is_asked_for_without_harm() -> None:
    state = aligned(started(every_epochs=2), 0)

    assert_harmless_again(state, FIRST.triggers(0))
    assert () == commands_of(state, FIRST.triggers(0))


@pytest.mark.parametrize(
    ("now", "kind"),
    [
        (NOW, None),
        (PAUSED - timedelta(microseconds=1), None),
        (PAUSED, CheckpointKind.PERIODIC),
        (NOW - timedelta(microseconds=1), CheckpointKind.PERIODIC),
    ],
    ids=["at once", "just before", "when it is over", "the clock was set back"],
)
def test_pause_runs_from_the_last_completion_by_the_clock_that_decides(
    now: datetime, kind: CheckpointKind | None
) -> None:
    state = play(aligned(started(min_pause_seconds=PAUSE_SECONDS), 0), FIRST.triggers(0), FIRST.completes(1))

    assert kind == kind_of(aligned(state, 1), 1, now)


def test_pause_outlives_the_attempt_that_completed_the_checkpoint() -> None:
    state = play(started(*FIRST.passes(0, 1)), claim(2, takeover=True, min_pause_seconds=PAUSE_SECONDS))
    state = play(state, SECOND.opens(1), SECOND.reports(1))

    assert () == commands_of(state, SECOND.triggers(1))
    assert [TriggerCheckpoint] == [type(command) for command in commands_of(state, SECOND.triggers(1), PAUSED)]


def test_first_checkpoint_waits_for_no_pause() -> None:
    assert CheckpointKind.PERIODIC == kind_of(aligned(started(min_pause_seconds=PAUSE_SECONDS), 0), 0)


def test_with_a_pause_nothing_begins_beside_a_pending_checkpoint() -> None:
    """The pause runs from its completion, which has not been."""
    state = play(aligned(started(min_pause_seconds=PAUSE_SECONDS, max_pending=2), 0), FIRST.triggers(0))

    assert kind_of(aligned(state, 1), 1, PAUSED) is None


def test_both_the_epochs_and_the_pause_have_to_be_over() -> None:
    state = started(every_epochs=2, min_pause_seconds=PAUSE_SECONDS)
    state = play(aligned(aligned(state, 0), 1), FIRST.triggers(1), FIRST.completes(1))

    one_more, two_more = aligned(state, 2), aligned(aligned(state, 2), 3)

    assert [None, None] == [kind_of(one_more, 2, PAUSED), kind_of(two_more, 3, NOW)]
    assert CheckpointKind.PERIODIC == kind_of(two_more, 3, PAUSED)


@pytest.mark.parametrize(("every_epochs", "pause_seconds"), [(5, 0.0), (1, PAUSE_SECONDS)], ids=["epochs", "pause"])
def test_whatever_the_pace_some_checkpoints_are_due(every_epochs: int, pause_seconds: float) -> None:
    """The one that terminates the run, the attempt's last, and what a person asks for."""
    state = started(asks(1), every_epochs=every_epochs, min_pause_seconds=pause_seconds)
    state = play(state, FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0), FIRST.completes(1))
    final = play(state, FIRST.opens(1), FIRST.reports(1, {"centroids": {0: 0}}))

    assert kind_of(aligned(state, 1), 1) is None
    assert CheckpointKind.FINAL == kind_of(final, 1)
    assert CheckpointKind.MANUAL == kind_of(play(aligned(state, 1), asks(2)), 1)
    begun = commands_of(aligned(state, 1), FIRST.triggers_last(1))
    assert [CheckpointKind.PERIODIC] == [c.kind for c in begun if isinstance(c, TriggerCheckpoint)]


@pytest.mark.parametrize("is_last", [False, True])
def test_nothing_begins_at_an_epoch_that_another_has_followed(*, is_last: bool) -> None:
    """Nothing was due there when it was said first; what a person asks for now is the driver's next one to write."""
    state = play(aligned(aligned(started(every_epochs=9), 0), 1), asks())

    again = replace(FIRST.triggers_after(0, 0), is_last=is_last)

    assert (state, ()) == decide(state, again, NOW)
    assert CheckpointKind.MANUAL == kind_of(state, 1)


def test_request_of_a_person_is_answered_by_the_next_checkpoint() -> None:
    state = play(aligned(started(every_epochs=5), 0), asks(1), asks(2))

    after, written = play(state, FIRST.triggers(0)), commands_of(state, FIRST.triggers(0))

    assert AnswerRequests(checkpoint_id=1) == written[-1]
    assert [CheckpointKind.MANUAL] == [known.kind for known in after.pending]
    assert {asks(1).request_id: 1, asks(2).request_id: 1} == after.requests


def test_final_checkpoint_answers_requests_too() -> None:
    state = started(FIRST.opens(0), FIRST.reports(0, {"centroids": {0: 0}}), asks())

    after, written = play(state, FIRST.triggers(0)), commands_of(state, FIRST.triggers(0))

    assert AnswerRequests(checkpoint_id=1) == written[-1]
    assert ([CheckpointKind.FINAL], {asks().request_id: 1}) == ([known.kind for known in after.pending], after.requests)


def test_request_that_is_made_while_the_final_checkpoint_is_pending_is_answered_as_it_completes() -> None:
    state = started(FIRST.opens(0), FIRST.reports(0, {"centroids": {0: 0}}), FIRST.triggers(0), asks())

    after, written = play(state, FIRST.completes(1)), commands_of(state, FIRST.completes(1))

    assert AnswerRequests(checkpoint_id=1) == written[-1]
    assert (RunStatus.TERMINATING, {asks().request_id: 1}) == (after.status, after.requests)


def test_checkpoint_that_nobody_asked_for_answers_nothing() -> None:
    assert [TriggerCheckpoint] == [type(command) for command in commands_of(aligned(started(), 0), FIRST.triggers(0))]


def test_request_is_recorded_once_from_anywhere_and_without_a_token() -> None:
    """Nobody drives the run just now; whoever comes next finds the request."""
    request = asks()
    state = play(started(), FIRST.ends())

    assert (RecordRequest(request_id=request.request_id, requested_by="ann"),) == commands_of(state, request)
    state = assert_harmless_again(state, request)
    assert {request.request_id: None} == state.requests
    state = play(state, claim(2, every_epochs=9), SECOND.opens(0), SECOND.reports(0))
    assert [TriggerCheckpoint, AnswerRequests] == [type(c) for c in commands_of(state, SECOND.triggers(0))]


@pytest.mark.parametrize("records", [3, 0], ids=["the run goes on", "the run terminates"])
def test_request_that_comes_again_is_not_made_again(records: int) -> None:
    """Whoever asked did not hear that it was kept; it is answered by now."""
    state = started(FIRST.opens(0), FIRST.reports(0, {"centroids": {0: records}}), asks(), every_epochs=5)

    for event in (FIRST.triggers_after(0, 0), FIRST.completes(1)):
        state = play(state, event)

        assert (state, ()) == decide(state, asks(), NOW)


def test_requests_of_an_earlier_answer_are_forgotten() -> None:
    state = play(aligned(started(), 0), asks(1), FIRST.triggers(0), FIRST.completes(1))

    state = play(aligned(state, 1), asks(2), FIRST.triggers(1), asks(3))

    assert {asks(2).request_id: 2, asks(3).request_id: None} == state.requests


def test_request_that_is_made_while_an_epoch_is_open_waits_for_it() -> None:
    """What a person asks for is a boundary of epochs, never the middle of one."""
    state = play(started(FIRST.opens(0), asks(), FIRST.switches(0)))

    assert "a checkpoint of epoch 0 cannot begin: it is not aligned (I6)" == str(refusal(state, FIRST.triggers(0)))
    assert CheckpointKind.MANUAL == kind_of(play(state, FIRST.reports(0)), 0)


def test_request_whose_checkpoint_was_aborted_is_not_made_again_by_itself() -> None:
    state = play(aligned(started(every_epochs=5), 0), asks(), FIRST.triggers(0), aborts(1))

    assert kind_of(state, 0) is None


@pytest.mark.parametrize("ending", [(FIRST.ends(),), (FIRST.fails(),), ()], ids=["released", "failed", "died"])
def test_request_whose_checkpoint_went_with_its_attempt_is_not_made_again_by_the_next(
    ending: tuple[Event, ...],
) -> None:
    """It was answered when the checkpoint began, and whoever asked sees what became of that."""
    state = play(aligned(started(every_epochs=5), 0), asks(), FIRST.triggers(0), *ending)

    state = play(state, claim(2, takeover=True, every_epochs=5))

    assert ({asks().request_id: 1}, False) == (dict(state.requests), state.is_asked)


@pytest.mark.parametrize(
    "state",
    [
        started(*FIRST.passes(0, 1, records=0)),
        started(*FIRST.passes(0, 1, records=0), FIRST.fails()),
        started(*FIRST.passes(0, 1, records=0), FIRST.publishes()),
    ],
    ids=["terminating", "failed", "finished"],
)
def test_checkpoint_of_a_run_that_opens_no_epoch_any_more_cannot_be_asked_for(state: RunState) -> None:
    assert isinstance(refusal(state, asks()), RunFinishedError)
