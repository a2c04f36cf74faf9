"""When does a run go on from an older checkpoint than its newest one?"""

from __future__ import annotations

import dataclasses

import pytest

from iteration_lib.errors import FallbackRefusedError, ProtocolViolationError
from iteration_lib.protocol import RunState, decide
from iteration_lib.protocol.command import FallBack, OpenEpoch
from iteration_lib.protocol.state import NO_EPOCH, CheckpointState
from iteration_lib.protocol.status import CheckpointStatus
from tests.protocol_script import (
    FIRST,
    NOW,
    SECOND,
    assert_harmless_again,
    claim,
    commands_of,
    keeps,
    part,
    play,
    refusal,
    releases,
    started,
)


def driven_again(epochs: int, *events: object) -> tuple[RunState, CheckpointState]:
    """A run with so many durable epochs that a second attempt has just taken over; and its first checkpoint."""
    passes = [event for epoch in range(epochs) for event in FIRST.passes(epoch, epoch + 1)]
    first = started(*passes[:4]).completed
    assert first is not None
    state = play(started(*passes), *events, claim(2, takeover=True))  # type: ignore[arg-type]  # events
    return state, dataclasses.replace(first, status=CheckpointStatus.SUBSUMED)


def test_older_checkpoint_is_the_completed_one_again_and_what_was_durable_since_is_given_up() -> None:
    broken, older = driven_again(3)

    state, written = decide(broken, SECOND.falls_back(older), NOW)

    assert (FallBack(from_checkpoint_id=3, to_checkpoint_id=1, epoch=0, reason="a file is missing"),) == written
    assert (0, 0, 3, 1) == (
        state.last_durable_epoch,
        state.last_epoch,
        state.last_checkpoint_id,
        state.completed.checkpoint_id if state.completed is not None else None,
    )
    assert (OpenEpoch,) == tuple(type(command) for command in commands_of(state, SECOND.opens(1)))
    assert_harmless_again(broken, SECOND.falls_back(older))


def test_ids_go_on_behind_those_that_were_given_up() -> None:
    broken, older = driven_again(3)

    state = play(broken, SECOND.falls_back(older), *SECOND.passes(1, 4))

    assert (1, 4) == (state.last_durable_epoch, state.last_checkpoint_id)


def test_edges_of_the_open_epoch_go_and_those_of_operators_that_finish_stay() -> None:
    begun = (FIRST.marks(NO_EPOCH, part("scaled", 0, 1, total=2)), FIRST.opens(2), FIRST.switches(2))
    broken, older = driven_again(2, *begun, FIRST.marks(2, part("x")))

    state = play(broken, SECOND.falls_back(older))

    assert ["scaled", "x"] == [edge.operator_id for edge in broken.edges]
    assert ["scaled"] == [edge.operator_id for edge in state.edges]


def test_run_of_which_a_listener_has_heard_more_is_refused_by_the_listeners_name() -> None:
    heard, older = driven_again(2, FIRST.notifies(0), FIRST.notifies(1))
    unheard, _ = driven_again(2, FIRST.notifies(0))

    error = refusal(heard, SECOND.falls_back(older))

    assert isinstance(error, FallbackRefusedError)
    assert "listener 'log' has heard of epochs after 0" == error.reason
    assert 0 == play(unheard, SECOND.falls_back(older)).last_durable_epoch


def test_run_that_publishes_its_epochs_is_refused_by_the_outputs_name() -> None:
    broken, older = driven_again(2)

    error = refusal(broken, SECOND.falls_back(older, published=["rows", "model"]))

    assert isinstance(error, FallbackRefusedError)
    assert "output 'model', 'rows' is published of epochs after 0" == error.reason


def test_run_whose_sink_has_published_nothing_yet_falls_back() -> None:
    broken, older = driven_again(2)

    state = play(dataclasses.replace(broken, sinks={"rows": True}), SECOND.falls_back(older))

    assert 0 == state.last_durable_epoch


def test_checkpoint_that_a_branch_pins_is_not_given_up() -> None:
    broken, older = driven_again(3)

    error = refusal(dataclasses.replace(broken, pinned=frozenset({1, 2})), SECOND.falls_back(older))

    assert isinstance(error, FallbackRefusedError)
    assert "a branch needs checkpoint 2, which would go" == error.reason
    assert error.release is None


def test_checkpoints_that_a_person_pins_are_not_given_up_until_they_are_released() -> None:
    broken, older = driven_again(3)
    pinned = play(broken, keeps(2), keeps(3, CheckpointStatus.COMPLETED))

    error = refusal(pinned, SECOND.falls_back(older))

    assert isinstance(error, FallbackRefusedError)
    assert "a person has pinned checkpoint 2, 3, which would go" == error.reason
    assert f"`iteration release {broken.run_id} 2` and `iteration release {broken.run_id} 3`" == error.release
    assert f"which would go; {error.release}, or restore the files, or start another run from" in str(error)
    assert 0 == play(pinned, releases(2), releases(3), SECOND.falls_back(older)).last_durable_epoch


@pytest.mark.parametrize(
    "how",
    [
        "an epoch is open",
        "it terminates",
        "it has a newer id",
        "it is of a newer epoch",
        "it is of the same",
        "it is none",
    ],
)
def test_run_falls_back_only_where_nothing_stands_against_it(how: str) -> None:
    broken, older = driven_again(2)
    ended = play(started(*FIRST.passes(0, 1), *FIRST.passes(1, 2, records=0)), claim(2, takeover=True))
    state, checkpoint = {
        "an epoch is open": (play(broken, SECOND.opens(2)), older),
        "it terminates": (ended, older),
        "it has a newer id": (broken, dataclasses.replace(older, checkpoint_id=3)),
        "it is of a newer epoch": (broken, dataclasses.replace(older, epoch=2)),
        "it is of the same": (broken, dataclasses.replace(older, epoch=1)),
        "it is none": (play(started(), claim(2, takeover=True)), older),
    }[how]

    assert isinstance(refusal(state, SECOND.falls_back(checkpoint)), ProtocolViolationError)
