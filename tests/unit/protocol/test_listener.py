"""What has a listener heard of? Every durable epoch once, in order, and once that the run terminated. (I16)"""

from __future__ import annotations

import pytest

from iteration_lib.errors import ProtocolViolationError, SupersededError
from iteration_lib.protocol.command import RecordNotice
from tests.protocol_script import (
    FIRST,
    SECOND,
    assert_harmless_again,
    claim,
    commands_of,
    play,
    refusal,
    started,
)

TWO_DURABLE = started(*FIRST.passes(0, 1), *FIRST.passes(1, 2))
TERMINATING = started(*FIRST.passes(0, 1), *FIRST.passes(1, 2, records=0))


def test_notice_is_stored_with_what_the_listener_returned() -> None:
    effect = {"row": 7}

    assert (RecordNotice(listener_id="log", epoch=0, effect=effect),) == commands_of(
        TWO_DURABLE, FIRST.notifies(0, effect=effect)
    )
    assert {"log": 0} == play(TWO_DURABLE, FIRST.notifies(0)).notified


def test_listener_hears_of_each_durable_epoch_once_and_in_order() -> None:
    state = assert_harmless_again(TWO_DURABLE, FIRST.notifies(0), FIRST.notifies(1), FIRST.notifies(0))

    assert {"log": 1} == state.notified


def test_listener_cannot_leave_an_epoch_out() -> None:
    error = refusal(TWO_DURABLE, FIRST.notifies(1))

    assert (ProtocolViolationError, "listener 'log': epoch 0 comes first (I16)") == (type(error), str(error))


@pytest.mark.parametrize("epoch", [1, 2, 9])
def test_listener_does_not_hear_of_an_epoch_that_is_not_durable(epoch: int) -> None:
    """It might come out differently, and what the listener did cannot be taken back."""
    aligned = started(*FIRST.passes(0, 1), FIRST.notifies(0), FIRST.opens(1), FIRST.reports(1), FIRST.triggers(1))

    assert f"listener 'log': epoch {epoch} is not durable (I16)" == str(refusal(aligned, FIRST.notifies(epoch)))


def test_listeners_hear_one_by_one() -> None:
    state = play(TWO_DURABLE, FIRST.notifies(0, "log"), FIRST.notifies(1, "log"), FIRST.notifies(0, "mail"))

    assert {"log": 1, "mail": 0} == state.notified


def test_listener_hears_of_every_epoch_that_one_checkpoint_made_durable() -> None:
    state = started(FIRST.opens(0), FIRST.reports(0), FIRST.opens(1), FIRST.reports(1), every_epochs=2)
    state = play(state, FIRST.triggers(1), FIRST.completes(1))

    assert {"log": 1} == play(state, FIRST.notifies(0), FIRST.notifies(1)).notified


def test_next_attempt_notifies_from_where_the_last_one_stopped() -> None:
    state = play(TWO_DURABLE, FIRST.notifies(0), claim(2, takeover=True))

    assert () == commands_of(state, SECOND.notifies(0))
    assert {"log": 1} == play(state, SECOND.notifies(1)).notified


def test_listener_hears_once_that_the_run_terminated() -> None:
    """It need not have heard of the epochs before: who asks for the end alone hears of the end alone."""
    state = assert_harmless_again(TERMINATING, FIRST.notifies(1, "end", is_final=True))

    assert {"end": 1} == state.notified
    superseded = play(state, claim(2, takeover=True))
    assert () == commands_of(superseded, SECOND.notifies(1, "end", is_final=True))


def test_nobody_hears_of_the_end_before_it_is_durable() -> None:
    decided = started(FIRST.opens(0), FIRST.reports(0, {"centroids": {0: 0}}), FIRST.triggers(0))

    assert "listener 'end': epoch 0 is not durable (I16)" == str(
        refusal(decided, FIRST.notifies(0, is_final=True, listener_id="end"))
    )
    assert "listener 'end': the run did not end with 1 (I16)" == str(
        refusal(TWO_DURABLE, FIRST.notifies(1, "end", is_final=True))
    )


def test_run_terminated_after_its_last_epoch_and_after_no_other() -> None:
    """Otherwise a listener would hear of the end once per epoch that somebody names."""
    error = refusal(TERMINATING, FIRST.notifies(0, "end", is_final=True))

    assert "listener 'end': the run did not end with 0 (I16)" == str(error)


def test_notice_of_the_end_is_harmless_again_when_the_run_is_finished() -> None:
    """It is said in one breath with the outputs, and nobody heard the answer."""
    notice = FIRST.notifies(1, "end", is_final=True)
    state = play(TERMINATING, notice, FIRST.publishes())

    assert_harmless_again(state, notice, FIRST.publishes())
    assert isinstance(refusal(state, SECOND.notifies(1, "end", is_final=True)), SupersededError)
    assert isinstance(refusal(state, FIRST.notifies(1)), SupersededError)


def test_notice_of_the_end_by_an_attempt_that_did_not_finish_the_run_is_refused() -> None:
    state = play(TERMINATING, FIRST.ends())

    assert isinstance(refusal(state, FIRST.notifies(1, "end", is_final=True)), SupersededError)
