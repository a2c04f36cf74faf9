"""What is stored of what epochs publish, when, and what becomes of it?"""

from __future__ import annotations

from iteration_lib.protocol import RunState
from iteration_lib.protocol.command import MarkCommitted, RecordCommittables
from iteration_lib.protocol.event import Event
from iteration_lib.protocol.status import RunStatus
from tests.protocol_script import FIRST, SECOND, claim, commands_of, deletes, new_run, play, prepared, refusal

SINKS = {"rows": True, "model": False}


def begun(*events: Event, **policy: float) -> RunState:
    return play(new_run(sinks=SINKS), claim(**policy), *events)  # type: ignore[arg-type]  # fields of a policy


def two_epochs() -> RunState:
    """Epochs 0 and 1 are aligned, and a checkpoint of epoch 1 is pending."""
    return begun(FIRST.opens(0), FIRST.reports(0), FIRST.opens(1), FIRST.reports(1), FIRST.triggers_last(1))


def test_checkpoint_stores_what_every_epoch_that_it_covers_publishes() -> None:
    rows = (prepared(0, "rows"), prepared(1, "rows"))

    commands = commands_of(two_epochs(), FIRST.completes(1, committables=rows))
    state = play(two_epochs(), FIRST.completes(1, committables=rows))

    assert [RecordCommittables(committables=rows)] == [c for c in commands if isinstance(c, RecordCommittables)]
    assert frozenset({(0, "rows"), (1, "rows")}) == state.uncommitted


def test_checkpoint_does_not_complete_without_what_its_epochs_publish_or_with_more() -> None:
    state = two_epochs()
    lacking = (prepared(1, "rows"),)
    more = (prepared(0, "rows"), prepared(1, "rows"), prepared(1, "model"))

    for wrong in ((), lacking, more, (*lacking, *lacking)):
        assert "(I19)" in str(refusal(state, FIRST.completes(1, committables=wrong)))


def test_final_epoch_publishes_every_output() -> None:
    state = begun(FIRST.opens(0), FIRST.reports(0, {"centroids": {0: 0}}), FIRST.triggers(0))

    state = play(state, FIRST.completes(1, committables=(prepared(0, "rows"), prepared(0, "model"))))

    assert (RunStatus.TERMINATING, frozenset({(0, "rows"), (0, "model")})) == (state.status, state.uncommitted)


def test_what_was_stored_with_an_earlier_checkpoint_may_come_again() -> None:
    """Two checkpoints were pending, and the attempt does not know which of them completed first."""
    state = begun(FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0), FIRST.opens(1), max_pending=2)
    state = play(state, FIRST.reports(1), FIRST.triggers(1), FIRST.completes(1, committables=(prepared(0, "rows"),)))

    state = play(state, FIRST.completes(2, committables=(prepared(0, "rows"), prepared(1, "rows"))))

    assert frozenset({(0, "rows"), (1, "rows")}) == state.uncommitted


def test_late_checkpoint_stores_nothing() -> None:
    state = begun(FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0), FIRST.opens(1), max_pending=2)
    state = play(state, FIRST.reports(1), FIRST.triggers(1))
    state = play(state, FIRST.completes(2, committables=(prepared(0, "rows"), prepared(1, "rows"))))

    assert state == play(state, FIRST.completes(1, committables=(prepared(0, "rows"),)))


def test_what_lies_in_the_store_is_committed_by_being_stored() -> None:
    rows = (prepared(0, "rows", in_store=True), prepared(1, "rows", in_store=True))

    state = play(two_epochs(), FIRST.completes(1, committables=rows))

    assert frozenset() == state.uncommitted


def test_commit_is_recorded_once() -> None:
    state = play(two_epochs(), FIRST.completes(1, committables=(prepared(0, "rows"), prepared(1, "rows"))))

    commands = commands_of(state, FIRST.commits((0, "rows"), (7, "rows")))
    state = play(state, FIRST.commits((0, "rows")))

    assert (MarkCommitted(committed=((0, "rows"),)),) == commands
    assert frozenset({(1, "rows")}) == state.uncommitted
    assert () == commands_of(state, FIRST.commits((0, "rows")))


def test_next_attempt_commits_what_the_one_before_left() -> None:
    state = play(two_epochs(), FIRST.completes(1, committables=(prepared(0, "rows"), prepared(1, "rows"))))

    taken = play(state, claim(2, takeover=True), SECOND.commits((0, "rows"), (1, "rows")))

    assert frozenset() == taken.uncommitted


def test_outputs_that_go_to_sinks_are_those_of_the_definition_in_force() -> None:
    state = play(
        begun(), FIRST.changes("x", sinks={"other": True}), FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0)
    )

    state = play(state, FIRST.completes(1, committables=(prepared(0, "other"),)))

    assert frozenset({(0, "other")}) == state.uncommitted


def test_run_is_deleted_with_what_is_not_committed() -> None:
    state = play(two_epochs(), FIRST.completes(1, committables=(prepared(0, "rows"), prepared(1, "rows"))))

    deleted = play(state, FIRST.ends(), deletes())

    assert (RunStatus.DELETED, state.uncommitted) == (deleted.status, deleted.uncommitted)
