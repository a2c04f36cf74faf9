"""What is done once and for all: operators that finished for good, pinned data, published outputs?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from iteration_lib.errors import InputError, ProtocolViolationError
from iteration_lib.protocol import Event, RunState, decide
from iteration_lib.protocol.command import (
    EndAttempt,
    FinishOperator,
    PinData,
    PublishOutputs,
    ReplaceDefinition,
    VoidEdges,
)
from iteration_lib.protocol.event import DefinitionChanged
from iteration_lib.protocol.state import NO_EPOCH
from iteration_lib.protocol.status import AttemptOutcome, RunStatus
from tests.protocol_script import (
    FIRST,
    NOW,
    SECOND,
    assert_harmless_again,
    attempt_id,
    claim,
    commands_of,
    part,
    play,
    refusal,
    started,
)

TERMINATING = started(*FIRST.passes(0, 1, records=0))


def test_operator_finishes_in_the_epoch_that_is_not_durable_yet() -> None:
    assert (
        FinishOperator(operator_id="scaled", epoch=0, output={"files": [{"path": "scaled-0.arrow"}]}),
    ) == commands_of(started(), FIRST.finishes())
    assert [2] == [
        command.epoch
        for command in commands_of(started(*FIRST.passes(0, 1), *FIRST.passes(1, 2)), FIRST.finishes())
        if isinstance(command, FinishOperator)
    ]


def test_operator_that_finished_stays_finished_with_its_first_output() -> None:
    state = assert_harmless_again(started(), FIRST.finishes(output="first.arrow"), FIRST.finishes(output="other.arrow"))

    assert () == commands_of(state, FIRST.finishes(output="other.arrow"))
    assert () == commands_of(play(state, claim(2, takeover=True)), SECOND.finishes())
    assert frozenset({"scaled"}) == state.finished_operators


def test_several_operators_finish_one_after_another() -> None:
    state = started(FIRST.finishes("scaled"), FIRST.finishes("features"))

    assert frozenset({"features", "scaled"}) == state.finished_operators


def test_data_stream_is_pinned_once() -> None:
    state = assert_harmless_again(started(), FIRST.pins("points", "f1"), FIRST.pins("labels", "f2"))

    assert {"points": "f1", "labels": "f2"} == state.pins
    assert (PinData(name="labels", fingerprint="f2", pin={"files": ["labels.parquet"]}),) == commands_of(
        started(), FIRST.pins("labels", "f2")
    )


def test_data_stream_that_would_read_something_else_is_refused_by_name() -> None:
    error = refusal(started(FIRST.pins("points", "f1")), FIRST.pins("points", "f2"))

    assert isinstance(error, InputError)
    assert str(error).startswith("data stream 'points' is not what it was when the run started; restore its files")


def test_publishing_finishes_the_run_and_its_attempt() -> None:
    state, written = play(TERMINATING, FIRST.publishes()), commands_of(TERMINATING, FIRST.publishes())

    assert (
        EndAttempt(fencing_token=1, outcome=AttemptOutcome.FINISHED, reason=None),
        PublishOutputs(outputs={"model": "/state/model"}, state_digest="cd" * 32),
    ) == written
    assert (RunStatus.FINISHED, None, attempt_id(1)) == (state.status, state.attempt, state.ended_attempt_id)


def test_publishing_is_harmless_again() -> None:
    assert_harmless_again(TERMINATING, FIRST.publishes())


@pytest.mark.parametrize(
    "state",
    [
        started(),
        started(*FIRST.passes(0, 1)),
        started(FIRST.opens(0), FIRST.reports(0, {"centroids": {0: 0}}), FIRST.triggers(0)),
    ],
    ids=["no epoch", "an epoch that goes on", "the last epoch is not durable"],
)
def test_run_that_is_not_terminating_cannot_publish(state: RunState) -> None:
    error = refusal(state, FIRST.publishes())

    assert (ProtocolViolationError, "outputs of a run that is RUNNING cannot be published (I10)") == (
        type(error),
        str(error),
    )


def test_newer_attempt_publishes_what_the_older_one_made_durable() -> None:
    state = play(TERMINATING, claim(2, takeover=True), SECOND.publishes())

    assert (RunStatus.FINISHED, attempt_id(2), 2) == (state.status, state.ended_attempt_id, state.fencing_token)


def test_definition_may_change_before_an_attempt_opens_an_epoch() -> None:
    event = FIRST.changes("points", "sums")

    state, written = play(started(), event), commands_of(started(), event)

    assert (ReplaceDefinition(definition=event.definition, changes=event.changes, dropped=()),) == written
    assert changed(started(), event) == state


@pytest.mark.parametrize(
    "events",
    [
        (FIRST.opens(0),),
        (FIRST.opens(0), FIRST.reports(0)),
        FIRST.passes(0, 1, records=0),
        (FIRST.changes("points", "sums"),),
    ],
    ids=["an open epoch", "an aligned epoch", "a run that terminates", "another change"],
)
def test_definition_cannot_change_under_an_epoch_after_the_last_one_or_twice(events: tuple[Event, ...]) -> None:
    """Half of it would be computed by other operators than the rest."""
    error = refusal(started(*events), FIRST.changes("points"))

    assert "the operators of a run change only once, before an attempt's first epoch" == str(error)


def test_dropped_operator_loses_its_marker_and_its_parts() -> None:
    state = started(FIRST.finishes("scaled"), FIRST.finishes("features"))
    state = play(state, FIRST.marks(NO_EPOCH, part("pairs", total=4), part("words", total=4)))
    event = FIRST.changes("features", "words", dropped=("scaled", "pairs"))

    after, written = play(state, event), commands_of(state, event)

    dropped = ("scaled", "pairs")
    assert (ReplaceDefinition(definition=event.definition, changes=event.changes, dropped=dropped),) == written
    assert (frozenset({"features"}), ["words"]) == (after.finished_operators, [e.operator_id for e in after.edges])


def test_changed_definition_voids_what_was_durable_inside_the_open_epoch() -> None:
    """Other operators left it; what is finished for good stays, for its operator is still the same."""
    state = started(*FIRST.passes(0, 1), FIRST.marks(NO_EPOCH, part("words", total=4)))
    state = play(state, FIRST.opens(1), FIRST.switches(1), FIRST.marks(1, part("sums")), claim(2, takeover=True))
    assert ["words", "sums"] == [edge.operator_id for edge in state.edges]

    after, written = play(state, SECOND.changes("words")), commands_of(state, SECOND.changes("words"))

    assert [ReplaceDefinition, VoidEdges(after=0)] == [type(written[0]), written[1]]
    assert [(NO_EPOCH, "words")] == [(edge.epoch, edge.operator_id) for edge in after.edges]


def test_changed_definition_keeps_the_edges_that_its_attempt_says_are_as_they_were() -> None:
    """Not those of an operator that is dropped, whatever is said of it."""
    state = started(*FIRST.passes(0, 1), FIRST.opens(1), FIRST.switches(1))
    parts = (part("counts"), part("sums"), part("sizes"))
    state = play(state, FIRST.marks(1, *parts), claim(2, takeover=True))
    event = SECOND.changes("counts", "sums", dropped=("sizes",), kept=("sums", "sizes"))

    after, written = play(state, event), commands_of(state, event)

    assert [ReplaceDefinition, VoidEdges(after=0, keeping=("sums",))] == [type(written[0]), written[1]]
    assert [(1, "sums")] == [(edge.epoch, edge.operator_id) for edge in after.edges]


def test_changed_definition_that_keeps_every_edge_voids_none() -> None:
    state = started(*FIRST.passes(0, 1), FIRST.opens(1), FIRST.switches(1), FIRST.marks(1, part("sums")))
    state = play(state, claim(2, takeover=True))
    event = SECOND.changes("sums", kept=("sums",))

    assert changed(state, event) == play(state, event)
    assert [ReplaceDefinition] == [type(command) for command in commands_of(state, event)]


def test_changed_definition_leaves_what_is_durable_and_pinned() -> None:
    state = play(started(*FIRST.passes(0, 1), FIRST.pins(), FIRST.notifies(0)), claim(2, takeover=True))

    assert changed(state, SECOND.changes("points")) == play(state, SECOND.changes("points"))


def test_changed_definition_takes_no_new_marker_away_when_it_comes_again() -> None:
    """The operator that was dropped may have finished since, with other files (I11)."""
    state = play(started(FIRST.finishes()), FIRST.changes("points", dropped=("scaled",)), FIRST.finishes())

    for again in (state, play(state, FIRST.opens(0))):
        assert (again, ()) == decide(again, FIRST.changes("points", dropped=("scaled",)), NOW)


def changed(state: RunState, event: DefinitionChanged) -> RunState:
    """The state in which nothing but the attempt's word on its operators is another."""
    assert state.attempt is not None
    return replace(state, attempt=replace(state.attempt, definition_changes=event.changes))
