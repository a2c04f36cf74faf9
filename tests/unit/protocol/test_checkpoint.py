"""What becomes of a checkpoint: pending, completed, aborted, subsumed?"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from iteration_lib.errors import ProtocolViolationError, SupersededError
from iteration_lib.protocol import Event, decide
from iteration_lib.protocol.command import (
    AbortCheckpoint,
    CompleteCheckpoint,
    MakeEpochsDurable,
    RecordAcknowledgements,
    SetRunStatus,
    SubsumeCheckpoint,
    TriggerCheckpoint,
)
from iteration_lib.protocol.state import CheckpointState, Reports, RunState
from iteration_lib.protocol.status import CheckpointFailure, CheckpointKind, CheckpointStatus, RunStatus, TerminatedBy
from tests.protocol_script import (
    DIGEST,
    FIRST,
    LATER,
    MANIFEST,
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

OTHER_DIGEST = "ef" * 32


def participants(**values: tuple[int | None, ...]) -> tuple[Reports, ...]:
    return tuple(Reports(name=name, values=found) for name, found in sorted(values.items()))


def checkpoint(checkpoint_id: int, epoch: int, *, kind: CheckpointKind = CheckpointKind.PERIODIC) -> CheckpointState:
    """A pending checkpoint of the one participant with one subtask."""
    return CheckpointState(
        checkpoint_id=checkpoint_id,
        epoch=epoch,
        kind=kind,
        status=CheckpointStatus.PENDING,
        participants=participants(centroids=(None,)),
    )


def completed(checkpoint_id: int, epoch: int, *, kind: CheckpointKind = CheckpointKind.PERIODIC) -> CheckpointState:
    return dataclasses.replace(
        checkpoint(checkpoint_id, epoch, kind=kind),
        status=CheckpointStatus.COMPLETED,
        participants=participants(centroids=(1,)),
        manifest_sha256=DIGEST,
        completed_at=NOW,
    )


def aligned(*, through: int = 0, terminating: bool = False, **policy: int) -> RunState:
    """A run whose epochs up to `through` are aligned, none durable."""
    state = started(max_epochs=through + 1 if terminating else None, **{"max_pending": 2, **policy})
    for epoch in range(through + 1):
        state = play(state, FIRST.opens(epoch), FIRST.reports(epoch))
    return state


def both_pending() -> RunState:
    """A run whose epochs 0 and 1 have a checkpoint each, and both are pending."""
    return play(aligned(), FIRST.triggers(0), FIRST.opens(1), FIRST.reports(1), FIRST.triggers(1))


def test_triggered_checkpoint_is_pending_under_the_next_id() -> None:
    state = play(aligned(), FIRST.triggers(0))

    assert ((checkpoint(1, 0),), 1) == (state.pending, state.last_checkpoint_id)


def test_triggering_writes_every_participant_in_the_order_of_their_names() -> None:
    written = commands_of(aligned(), FIRST.triggers(0, weights=1, bias=2))

    nothing_heard = participants(bias=(None, None), weights=(None,))
    assert (
        TriggerCheckpoint(checkpoint_id=1, epoch=0, kind=CheckpointKind.PERIODIC, participants=nothing_heard),
    ) == written


def test_checkpoint_of_the_epoch_that_terminates_the_run_is_final() -> None:
    state = play(aligned(terminating=True), FIRST.triggers(0))

    assert (checkpoint(1, 0, kind=CheckpointKind.FINAL),) == state.pending


@pytest.mark.parametrize("epoch", [0, 1, -1], ids=["open", "not there", "negative"])
def test_checkpoint_of_an_epoch_that_is_not_aligned_is_refused(epoch: int) -> None:
    error = refusal(started(FIRST.opens(0)), FIRST.triggers(epoch))

    assert f"a checkpoint of epoch {epoch} cannot begin: it is not aligned (I6)" == str(error)


@pytest.mark.parametrize("wanted", [{}, {"centroids": 0}, {"centroids": 1, "weights": -1}])
def test_checkpoint_that_nobody_could_acknowledge_is_refused(wanted: dict[str, int]) -> None:
    event = dataclasses.replace(FIRST.triggers(0), participants=wanted)

    error = refusal(aligned(), event)

    assert "a checkpoint of epoch 0 needs participants with at least one subtask each (I8)" == str(error)


def test_acknowledgements_gather_until_the_manifest_completes_the_checkpoint() -> None:
    state = play(aligned(), FIRST.triggers(0, centroids=2, weights=1))

    partly = play(state, FIRST.acknowledges(1, centroids=(1,)))
    wholly = play(partly, FIRST.acknowledges(1, centroids=(0,), weights=(0,)))

    assert participants(centroids=(None, 1), weights=(None,)) == partly.pending[0].participants
    assert participants(centroids=(1, 1), weights=(1,)) == wholly.pending[0].participants
    assert -1 == wholly.last_durable_epoch


def test_acknowledgement_without_manifest_writes_the_acknowledgements_alone() -> None:
    state = play(aligned(), FIRST.triggers(0))

    written = commands_of(state, FIRST.acknowledges(1, centroids=(0,)))

    assert (RecordAcknowledgements(checkpoint_id=1, participants=participants(centroids=(1,))),) == written


def test_manifest_completes_the_checkpoint_and_makes_its_epoch_durable_in_one_step() -> None:
    pending = play(aligned(), FIRST.triggers(0))

    state, written = play(pending, FIRST.completes(1)), commands_of(pending, FIRST.completes(1))

    assert (completed(1, 0), (), (), 0) == (state.completed, state.pending, state.epochs, state.last_durable_epoch)
    assert (
        RecordAcknowledgements(checkpoint_id=1, participants=participants(centroids=(1,))),
        CompleteCheckpoint(
            checkpoint_id=1, manifest_path=MANIFEST, manifest_sha256=DIGEST, size_bytes=64, completed_at=NOW
        ),
        MakeEpochsDurable(through=0),
    ) == written


def test_manifest_that_comes_after_the_acknowledgements_completes_the_checkpoint() -> None:
    state = play(aligned(), FIRST.triggers(0), FIRST.acknowledges(1, centroids=(0,)))
    manifest_alone = dataclasses.replace(FIRST.completes(1), acknowledgements={})

    assert completed(1, 0) == play(state, manifest_alone).completed


def test_manifest_before_every_acknowledgement_is_refused() -> None:
    state = play(aligned(), FIRST.triggers(0, centroids=2))

    error = refusal(state, FIRST.completes(1, centroids=(0,)))

    assert "checkpoint 1 has a manifest, but not every acknowledgement (I8)" == str(error)


@pytest.mark.parametrize("field", ["manifest_path", "manifest_sha256"])
def test_manifest_without_its_path_or_its_digest_is_refused(field: str) -> None:
    state = play(aligned(), FIRST.triggers(0))
    half: dict[str, None] = {field: None}
    event = dataclasses.replace(FIRST.completes(1), **half)  # type: ignore[arg-type]  # both fields may be None

    assert "checkpoint 1: a manifest has a path and a digest, or there is none (I8)" == str(refusal(state, event))


@pytest.mark.parametrize(
    ("acknowledgements", "said"),
    [
        ({"weights": (0,)}, "checkpoint 1 has no 'weights'; there are: centroids (I4)"),
        ({"centroids": (1,)}, "checkpoint 1: 'centroids' has 1 subtasks and counts from 0, not 1 from subtask 1 (I4)"),
    ],
)
def test_acknowledgement_of_an_unknown_participant_is_refused(
    acknowledgements: Mapping[str, tuple[int, ...]], said: str
) -> None:
    state = play(aligned(), FIRST.triggers(0))

    error = refusal(state, FIRST.acknowledges(1, **acknowledgements))

    assert (ProtocolViolationError, said) == (type(error), str(error))


@pytest.mark.parametrize("checkpoint_id", [2, 0, -1])
def test_checkpoint_that_was_never_triggered_can_neither_be_acknowledged_nor_declined(checkpoint_id: int) -> None:
    state = play(aligned(), FIRST.triggers(0))
    said = f"checkpoint {checkpoint_id} was never triggered; the last one is 1 (I7)"

    assert said == str(refusal(state, FIRST.completes(checkpoint_id)))
    assert said == str(refusal(state, FIRST.declines(checkpoint_id)))


def test_completing_subsumes_the_checkpoint_before_first() -> None:
    """At most one is completed, so the older one has to give way before."""
    state = play(started(*FIRST.passes(0, 1)), FIRST.opens(1), FIRST.reports(1), FIRST.triggers(1))

    written = commands_of(state, FIRST.completes(2))

    assert [SubsumeCheckpoint, RecordAcknowledgements, CompleteCheckpoint] == [type(command) for command in written[:3]]
    assert SubsumeCheckpoint(checkpoint_id=1) == written[0]
    assert completed(2, 1) == play(state, FIRST.completes(2)).completed


def test_completing_covers_every_aligned_epoch_before() -> None:
    state = play(aligned(through=2), FIRST.triggers(2), FIRST.completes(1))

    assert (2, (), completed(1, 2)) == (state.last_durable_epoch, state.epochs, state.completed)


def test_completing_aborts_older_checkpoints_that_are_still_pending() -> None:
    state = both_pending()

    written = commands_of(state, FIRST.completes(2))

    assert AbortCheckpoint(checkpoint_id=1, failure=CheckpointFailure.SUBSUMED, reason="subsumed by 2") in written
    assert ((), completed(2, 1)) == ((after := play(state, FIRST.completes(2))).pending, after.completed)


def test_completing_an_older_checkpoint_leaves_a_newer_one_pending() -> None:
    state = play(both_pending(), FIRST.completes(1))

    assert ((checkpoint(2, 1),), completed(1, 0)) == (state.pending, state.completed)
    assert [1] == [epoch.epoch for epoch in state.epochs]


def test_triggering_is_harmless_where_a_pending_checkpoint_covers_the_epoch() -> None:
    """Otherwise a checkpoint with a greater id would cover less, and completing it would take durable epochs back."""
    state = play(aligned(through=1), FIRST.triggers(1))

    assert () == commands_of(state, FIRST.triggers(0))
    assert () == commands_of(state, FIRST.triggers_last(0))


def test_triggering_is_harmless_where_the_epoch_is_durable() -> None:
    assert () == commands_of(started(*FIRST.passes(0, 1)), FIRST.triggers(0))


def test_declined_checkpoint_is_aborted_with_its_reason() -> None:
    state = play(aligned(), FIRST.triggers(0))

    written = commands_of(state, FIRST.declines(1, "disk full"))

    aborted = AbortCheckpoint(checkpoint_id=1, failure=CheckpointFailure.DECLINED, reason="disk full")
    assert (aborted,) == written
    assert () == play(state, FIRST.declines(1)).pending


def test_checkpoint_may_be_triggered_again_under_another_id_after_it_was_declined() -> None:
    state = play(aligned(tolerable_failures=1), FIRST.triggers(0), FIRST.declines(1), FIRST.triggers(0))

    assert (checkpoint(2, 0),) == state.pending


def test_declining_an_older_checkpoint_does_not_hurt_a_newer_one() -> None:
    state = play(both_pending(), FIRST.declines(1))

    assert (checkpoint(2, 1),) == state.pending


@pytest.mark.parametrize("how", ["declined", "subsumed while pending", "completed", "subsumed"])
def test_late_word_on_a_closed_checkpoint_changes_nothing(how: str) -> None:
    state = {
        "declined": play(aligned(), FIRST.triggers(0), FIRST.declines(1)),
        "subsumed while pending": play(both_pending(), FIRST.completes(2)),
        "completed": started(*FIRST.passes(0, 1)),
        "subsumed": started(*FIRST.passes(0, 1), *FIRST.passes(1, 2)),
    }[how]

    assert_harmless_again(state, FIRST.acknowledges(1, centroids=(0,)), FIRST.completes(1), FIRST.declines(1))
    assert state == play(state, FIRST.completes(1), FIRST.declines(1))


def test_second_manifest_for_a_completed_checkpoint_is_refused() -> None:
    error = refusal(started(*FIRST.passes(0, 1)), FIRST.completes(1, sha256=OTHER_DIGEST))

    assert "checkpoint 1 is completed with another manifest (I8)" == str(error)


def test_next_checkpoint_has_a_manifest_of_its_own() -> None:
    state = started(*FIRST.passes(0, 1), FIRST.opens(1), FIRST.reports(1), FIRST.triggers(1))

    state = play(state, FIRST.completes(2, sha256=OTHER_DIGEST))

    assert OTHER_DIGEST == (state.completed.manifest_sha256 if state.completed is not None else None)


def test_final_checkpoint_makes_the_run_terminate() -> None:
    pending = play(aligned(terminating=True), FIRST.triggers(0))

    state, written = play(pending, FIRST.completes(1)), commands_of(pending, FIRST.completes(1))

    assert SetRunStatus(status=RunStatus.TERMINATING, terminated_by=TerminatedBy.MAX_EPOCHS) == written[-1]
    assert (RunStatus.TERMINATING, TerminatedBy.MAX_EPOCHS) == (state.status, state.terminated_by)
    assert completed(1, 0, kind=CheckpointKind.FINAL) == state.completed


def test_run_goes_on_after_a_periodic_checkpoint() -> None:
    state = started(*FIRST.passes(0, 1))

    assert (RunStatus.RUNNING, None) == (state.status, state.terminated_by)


def test_decision_to_terminate_does_not_bind_before_its_epoch_is_durable() -> None:
    state = play(aligned(terminating=True), FIRST.triggers(0))

    assert (RunStatus.RUNNING, None) == (state.status, state.terminated_by)


def test_every_event_of_a_checkpoint_is_harmless_again() -> None:
    assert_harmless_again(
        aligned(tolerable_failures=1),
        FIRST.triggers_after(0, 0, centroids=2),
        FIRST.acknowledges(1, centroids=(1,)),
        FIRST.declines(1),
        FIRST.triggers_after(1, 0),
        FIRST.completes(2),
    )


def manual_behind(newer: int = 1) -> RunState:
    """A run whose checkpoint 1 is hand-made and pending, with so many newer ones pending behind it."""
    state = started(asks(), FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0), max_pending=9)
    for epoch in range(1, newer + 1):
        state = play(state, FIRST.opens(epoch), FIRST.reports(epoch), FIRST.triggers(epoch))
    return state


def test_hand_made_checkpoint_is_not_aborted_by_a_newer_one_that_completes() -> None:
    """A person asked for it; what is periodic and older gives way."""
    state = play(manual_behind(2), FIRST.completes(3))

    assert (checkpoint(1, 0, kind=CheckpointKind.MANUAL),) == state.pending
    assert (completed(3, 2), 2) == (state.completed, state.last_durable_epoch)


def test_hand_made_checkpoint_that_completes_after_a_newer_one_is_subsumed_at_once() -> None:
    """Its epoch has long been durable: completing it takes nothing back, and moves nothing."""
    state = play(manual_behind(), FIRST.completes(2))

    after, written = play(state, FIRST.completes(1)), commands_of(state, FIRST.completes(1))

    late = CompleteCheckpoint(
        checkpoint_id=1,
        manifest_path=MANIFEST,
        manifest_sha256=DIGEST,
        size_bytes=64,
        completed_at=NOW,
        is_subsumed=True,
    )
    assert [late] == [command for command in written if not isinstance(command, RecordAcknowledgements)]
    assert dataclasses.replace(state, pending=()) == after
    assert_harmless_again(after, FIRST.completes(1), FIRST.declines(1))


def test_late_hand_made_checkpoint_needs_every_acknowledgement_too() -> None:
    state = started(asks(), FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0, centroids=2), max_pending=9)
    state = play(state, FIRST.opens(1), FIRST.reports(1), FIRST.triggers(1), FIRST.completes(2))

    error = refusal(state, FIRST.completes(1, centroids=(1,)))

    assert "checkpoint 1 has a manifest, but not every acknowledgement (I8)" == str(error)


def test_hand_made_checkpoint_that_completes_first_is_the_completed_one() -> None:
    state = play(manual_behind(), FIRST.completes(1))

    assert completed(1, 0, kind=CheckpointKind.MANUAL) == state.completed
    assert completed(2, 1) == play(state, FIRST.completes(2)).completed


def test_run_publishes_nothing_while_a_hand_made_checkpoint_is_pending() -> None:
    """It waits for what is being written, and then ends (I10)."""
    state = play(manual_behind(), FIRST.opens(2), FIRST.reports(2, {"centroids": {0: 0}}), FIRST.triggers(2))
    state = play(state, FIRST.completes(3))
    assert (RunStatus.TERMINATING, [1]) == (state.status, [known.checkpoint_id for known in state.pending])

    assert "outputs of a run that is TERMINATING cannot be published (I10)" == str(refusal(state, FIRST.publishes()))
    assert RunStatus.FINISHED == play(state, FIRST.completes(1), FIRST.publishes()).status


def test_run_ends_only_with_the_checkpoint_that_covers_its_last_epoch() -> None:
    """Not with the one before, though its last epoch is aligned by then (I10)."""
    begun = started(max_epochs=2, max_pending=2)
    state = play(begun, FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0), FIRST.opens(1), FIRST.reports(1))
    state = play(state, FIRST.triggers(1), FIRST.completes(1))

    assert (RunStatus.RUNNING, None, 0) == (state.status, state.terminated_by, state.last_durable_epoch)
    assert isinstance(refusal(state, FIRST.publishes()), ProtocolViolationError)
    assert RunStatus.FINISHED == play(state, FIRST.completes(2), FIRST.publishes()).status


def test_newer_attempt_cannot_complete_what_an_older_one_left_pending() -> None:
    """It was aborted with its attempt; the word on it arrives late, whoever says it."""
    state = play(aligned(), FIRST.triggers(0), claim(2, takeover=True))

    assert isinstance(refusal(state, FIRST.completes(1)), SupersededError)
    assert () == commands_of(state, SECOND.completes(1))
    assert (None, -1) == (state.completed, state.last_durable_epoch)


def test_acknowledgement_that_comes_twice_is_counted_once() -> None:
    state = play(aligned(), FIRST.triggers(0, centroids=2), FIRST.acknowledges(1, centroids=(0,)))

    assert () == commands_of(state, FIRST.acknowledges(1, centroids=(0,)))
    assert "not every acknowledgement" in str(refusal(state, FIRST.completes(1, centroids=(0,))))


def test_completion_is_timed_by_the_clock_that_decides() -> None:
    state = play(aligned(), FIRST.triggers(0))

    after = play(state, FIRST.completes(1), now=LATER)

    assert LATER == (after.completed.completed_at if after.completed is not None else None)
    assert () == commands_of(after, FIRST.completes(1), now=NOW)


@pytest.mark.parametrize(
    "over",
    [aborts(1), FIRST.declines(1), FIRST.lets_expire(1), FIRST.completes(1)],
    ids=["aborted by a person", "declined", "expired", "completed"],
)
def test_trigger_that_comes_again_after_its_checkpoint_is_over_begins_no_other(over: Event) -> None:
    """Its sender never saw the other one, so that nobody would ever write it."""
    trigger = FIRST.triggers_after(0, 0)
    state = play(aligned(), trigger, over)

    assert (state, ()) == decide(state, trigger, NOW)


def test_trigger_that_comes_again_after_a_person_aborted_the_next_one_begins_nothing() -> None:
    trigger = FIRST.triggers_after(0, 0)

    state = assert_harmless_again(play(aligned(), aborts(1)), trigger)

    assert ((), 1) == (state.pending, state.last_checkpoint_id)


def test_trigger_after_the_last_checkpoint_that_is_known_begins_the_next_one() -> None:
    again = (FIRST.triggers_after(0, 0), FIRST.declines(1), FIRST.triggers_after(1, 0))
    state = play(aligned(tolerable_failures=1), *again)

    assert (checkpoint(2, 0),) == state.pending


def test_no_checkpoint_of_an_epoch_begins_once_the_next_one_is_open() -> None:
    """The driver has gone on, and holds another epoch's variables now."""
    state = play(aligned(), FIRST.opens(1))

    assert (state, ()) == decide(state, FIRST.triggers(0), NOW)
    assert [1] == [known.epoch for known in play(state, FIRST.reports(1), FIRST.triggers(1)).pending]
