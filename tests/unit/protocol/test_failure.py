"""Which failures of checkpoints count, and when are there too many? (I13)"""

from __future__ import annotations

import pytest

from iteration_lib.errors import ProtocolViolationError
from iteration_lib.protocol import Event, RunState
from iteration_lib.protocol.alignment import has_failed
from iteration_lib.protocol.status import CheckpointFailure, CheckpointKind
from tests.protocol_script import (
    FIRST,
    SECOND,
    aborts,
    asks,
    claim,
    commands_of,
    play,
    refusal,
    started,
)


def pending(*, tolerable_failures: int = 0) -> RunState:
    """A run whose first checkpoint is pending."""
    return started(FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0), tolerable_failures=tolerable_failures)


@pytest.mark.parametrize("event", [FIRST.declines(1), FIRST.lets_expire(1)], ids=["declined", "expired"])
def test_checkpoint_that_fails_is_counted_once(event: Event) -> None:
    state = pending(tolerable_failures=5)

    state = play(state, event, event, FIRST.declines(1), FIRST.lets_expire(1))
    assert 1 == state.checkpoint_failures


@pytest.mark.parametrize("tolerable", [0, 1, 3])
def test_attempt_opens_no_epoch_after_one_failure_more_than_it_puts_up_with(tolerable: int) -> None:
    state = started(FIRST.opens(0), FIRST.reports(0), tolerable_failures=tolerable)

    for number in range(1, tolerable + 2):
        assert not has_failed(state)
        assert 1 == play(state, FIRST.opens(1)).last_epoch
        state = play(state, FIRST.triggers(0), FIRST.declines(number))

    assert has_failed(state)
    assert "epoch 1 cannot open: too many checkpoints have failed (I13)" == str(refusal(state, FIRST.opens(1)))
    assert () == commands_of(state, FIRST.opens_if_ready(1))


def test_success_ends_the_row_of_failures() -> None:
    state = play(pending(tolerable_failures=1), FIRST.declines(1), FIRST.triggers(0))

    state = play(state, FIRST.completes(2))

    assert 0 == state.checkpoint_failures
    assert not has_failed(play(state, FIRST.opens(1), FIRST.reports(1), FIRST.triggers(1), FIRST.declines(3)))


@pytest.mark.parametrize("asked", [(), (asks(),)], ids=["due", "asked for"])
def test_attempt_that_has_failed_begins_no_checkpoint_that_nobody_would_write(asked: tuple[Event, ...]) -> None:
    """What a person asks for waits for the next attempt."""
    state = play(pending(), FIRST.declines(1), *asked)

    assert () == commands_of(state, FIRST.triggers(0))
    state = play(state, FIRST.fails(), claim(2), SECOND.opens(0), SECOND.reports(0), SECOND.triggers(0))
    assert [2] == [known.checkpoint_id for known in state.pending]
    assert [2] * len(asked) == list(state.requests.values())


def test_success_after_too_many_failures_forgives_nothing() -> None:
    state = started(FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0), max_pending=2)
    state = play(state, FIRST.opens(1), FIRST.reports(1), FIRST.triggers(1), FIRST.declines(1))

    state = play(state, FIRST.completes(2))

    assert (1, True) == (state.checkpoint_failures, has_failed(state))
    assert "epoch 2 cannot open: too many checkpoints have failed (I13)" == str(refusal(state, FIRST.opens(2)))


def test_failure_of_a_hand_made_checkpoint_outlives_the_success_of_one_written_beside_it() -> None:
    state = started(FIRST.opens(0), FIRST.reports(0), asks(1), max_pending=2, tolerable_failures=3)
    state = play(state, FIRST.triggers(0), FIRST.opens(1), FIRST.reports(1), FIRST.triggers(1))
    assert [CheckpointKind.MANUAL, CheckpointKind.PERIODIC] == [known.kind for known in state.pending]

    state = play(state, FIRST.declines(1), FIRST.completes(2))

    assert (4, True) == (state.checkpoint_failures, has_failed(state))


@pytest.mark.parametrize("ended", [(claim(2, takeover=True),), (FIRST.ends(), claim(2)), (FIRST.fails(), claim(2))])
def test_next_attempt_begins_without_failures(ended: tuple[Event, ...]) -> None:
    state = play(pending(), FIRST.declines(1), *ended)

    assert 0 == state.checkpoint_failures
    assert 0 == play(state, SECOND.opens(0)).last_epoch


def test_ended_attempt_has_no_failures() -> None:
    assert 0 == play(pending(), FIRST.declines(1), FIRST.ends()).checkpoint_failures


@pytest.mark.parametrize("kind", [CheckpointKind.FINAL, CheckpointKind.MANUAL])
def test_no_failure_of_a_final_or_hand_made_checkpoint_is_put_up_with(kind: CheckpointKind) -> None:
    records = 0 if kind is CheckpointKind.FINAL else 3
    state = started(FIRST.opens(0), FIRST.reports(0, {"centroids": {0: records}}), tolerable_failures=3)
    if kind is CheckpointKind.MANUAL:
        state = play(state, asks())
    state = play(state, FIRST.triggers(0))
    assert [kind] == [known.kind for known in state.pending]

    state = play(state, FIRST.declines(1))

    assert (4, True) == (state.checkpoint_failures, has_failed(state))


def test_failure_of_a_hand_made_checkpoint_takes_back_no_failures() -> None:
    state = started(FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0), max_pending=3)
    state = play(state, FIRST.opens(1), FIRST.reports(1), FIRST.triggers(1), asks())
    state = play(state, FIRST.opens(2), FIRST.reports(2), FIRST.triggers(2), FIRST.declines(1), FIRST.declines(2))
    assert [CheckpointKind.MANUAL] == [known.kind for known in state.pending]

    assert 3 == play(state, FIRST.declines(3)).checkpoint_failures


def test_what_a_person_aborts_is_no_failure() -> None:
    assert 0 == play(pending(), aborts(1), FIRST.declines(1)).checkpoint_failures


def test_what_a_person_aborts_does_not_end_the_row_of_failures_either() -> None:
    state = play(pending(tolerable_failures=1), FIRST.declines(1), FIRST.triggers(0), aborts(2), FIRST.triggers(0))

    assert has_failed(play(state, FIRST.declines(3)))


def test_checkpoint_that_a_newer_one_subsumes_is_no_failure() -> None:
    state = started(FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0), max_pending=2)
    state = play(state, FIRST.opens(1), FIRST.reports(1), FIRST.triggers(1), FIRST.completes(2))

    assert ((), 0) == (state.pending, state.checkpoint_failures)
    assert 0 == play(state, FIRST.declines(1)).checkpoint_failures


def test_checkpoint_that_was_aborted_before_it_began_is_no_failure() -> None:
    state = started(FIRST.opens(0), FIRST.reports(0), aborts(1), FIRST.triggers(0), FIRST.lets_expire(1))

    assert 0 == state.checkpoint_failures


@pytest.mark.parametrize("failure", [f for f in CheckpointFailure if f.name not in ("DECLINED", "EXPIRED")])
def test_attempt_cannot_give_a_reason_that_others_have(failure: CheckpointFailure) -> None:
    """It would hide a failure behind somebody else's decision."""
    error = refusal(pending(), FIRST.declines(1, "no", failure))

    said = f"an attempt declines a checkpoint, or it expires; not {failure.value}"
    assert (ProtocolViolationError, said) == (type(error), str(error))


def test_older_checkpoint_that_completes_late_does_not_end_the_row_of_failures() -> None:
    """What fails now is newer than what it shows to have worked (as Flink counts)."""
    state = started(asks(), FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0), max_pending=3, tolerable_failures=1)
    state = play(state, FIRST.opens(1), FIRST.reports(1), FIRST.triggers(1), FIRST.completes(2))
    state = play(state, FIRST.opens(2), FIRST.reports(2), FIRST.triggers(2), FIRST.declines(3))

    assert 1 == play(state, FIRST.completes(1)).checkpoint_failures
