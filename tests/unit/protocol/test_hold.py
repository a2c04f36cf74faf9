"""When does an epoch that all heads have reported wait with its alignment, and what lets it go on? (I14)"""

from __future__ import annotations

import pytest

from iteration_lib.protocol import Event, RunState, decide
from iteration_lib.protocol.command import AlignEpoch, RecordReports
from iteration_lib.protocol.state import Decision, Reports
from iteration_lib.protocol.status import AttemptOutcome, EpochStatus, TerminatedBy, UnalignedBy
from tests.protocol_script import (
    FIRST,
    LATER,
    NOW,
    SECOND,
    aborts,
    asks,
    assert_harmless_again,
    claim,
    commands_of,
    is_written,
    part,
    play,
    refusal,
    started,
)

PENDING = started(FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0), FIRST.opens(1, centroids=2))
HELD = play(PENDING, FIRST.reports(1, {"centroids": {0: 3, 1: 4}}, shift=0.5))
DECISION = Decision(records={"centroids": 7}, terminated_by=None)


def statuses(state: RunState) -> list[tuple[int, EpochStatus, bool]]:
    return [(epoch.epoch, epoch.status, epoch.is_held) for epoch in state.epochs]


def test_epoch_whose_heads_have_all_reported_is_held_while_a_checkpoint_is_pending() -> None:
    assert [(0, EpochStatus.ALIGNED, False), (1, EpochStatus.OPEN, True)] == statuses(HELD)
    assert HELD.epochs[1].decision is None


def test_epoch_that_still_waits_for_a_report_is_not_held() -> None:
    state = play(PENDING, FIRST.reports(1, {"centroids": {0: 3}}))

    assert [(0, EpochStatus.ALIGNED, False), (1, EpochStatus.OPEN, False)] == statuses(state)


def test_held_epoch_keeps_its_reports_and_what_it_measured() -> None:
    written = commands_of(PENDING, FIRST.reports(1, {"centroids": {0: 3, 1: 4}}, shift=0.5))

    assert (
        RecordReports(epoch=1, heads=(Reports(name="centroids", values=(3, 4)),), metrics={"shift": 0.5}, seconds=0.25),
    ) == written


ENDS_OF_A_CHECKPOINT = pytest.mark.parametrize(
    "event",
    [FIRST.completes(1), FIRST.declines(1), FIRST.lets_expire(1), aborts(1), aborts(2)],
    ids=["completed", "declined", "expired", "aborted by a person", "aborted by a person, with the next one"],
)


@ENDS_OF_A_CHECKPOINT
def test_what_ends_the_checkpoint_aligns_the_held_epoch_in_the_same_step(event: Event) -> None:
    """Also a person in another process: a head that hangs in its checkpoint could not say anything."""
    state, written = decide(HELD, event, NOW)

    assert AlignEpoch(epoch=1, decision=DECISION) == written[-1]
    assert [(1, EpochStatus.ALIGNED, DECISION)] == [(e.epoch, e.status, e.decision) for e in state.epochs[-1:]]


@ENDS_OF_A_CHECKPOINT
def test_decision_of_a_held_epoch_is_made_once(event: Event) -> None:
    state = play(HELD, event)

    for again in (event, FIRST.reports(1, {"centroids": {0: 3, 1: 4}}, shift=0.5), FIRST.completes(1), aborts(1)):
        state, written = decide(state, again, NOW)
        assert not is_written(AlignEpoch, written)
    assert [DECISION] == [e.decision for e in state.epochs if e.epoch == 1]


@pytest.mark.parametrize(
    "event",
    [
        FIRST.reports(1, {"centroids": {0: 3, 1: 4}}),
        FIRST.opens(1, centroids=2),
        FIRST.opens_if_ready(2),
        FIRST.triggers(0),
        FIRST.triggers(1),
        FIRST.triggers_last(1),
        FIRST.acknowledges(1, centroids=(0,)),
        FIRST.switches(1),
        FIRST.finishes(),
        FIRST.pins(),
        asks(),
        claim(1),
        FIRST.ends(),
        FIRST.fails(),
        claim(2, takeover=True),
    ],
    ids=lambda event: type(event).__name__,
)
def test_nothing_but_the_end_of_a_checkpoint_aligns_a_held_epoch(event: Event) -> None:
    state, written = decide(HELD, event, LATER)

    assert not is_written(AlignEpoch, written)
    assert not [epoch for epoch in state.epochs if epoch.epoch == 1 and epoch.status is EpochStatus.ALIGNED]


def test_late_word_on_another_checkpoint_does_not_align_a_held_epoch() -> None:
    """Checkpoints 1 and 2 were over before checkpoint 3 began to hold the epoch."""
    state = started(FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0), FIRST.declines(1), tolerable_failures=1)
    state = play(state, FIRST.triggers(0), FIRST.completes(2), FIRST.opens(1), FIRST.reports(1), FIRST.triggers(1))
    held = play(state, FIRST.opens(2), FIRST.reports(2))
    assert [2] == [epoch.epoch for epoch in held.epochs if epoch.is_held]

    for event in (FIRST.declines(1), FIRST.completes(2), aborts(2), FIRST.acknowledges(1, centroids=(0,))):
        assert (held, ()) == decide(held, event, NOW)


@pytest.mark.parametrize("outcome", [AttemptOutcome.RELEASED, AttemptOutcome.FAILED])
def test_what_an_ended_attempt_left_held_is_aligned_by_nobody(outcome: AttemptOutcome) -> None:
    """Its checkpoints were aborted with it; a person's abort that comes later must not decide for a dead attempt."""
    ended = play(HELD, FIRST.ends(outcome, "it was told to"))

    state, written = decide(ended, aborts(1), NOW)

    assert (ended, ()) == (state, written)
    assert not is_written(AlignEpoch, commands_of(ended, aborts(2)))


def test_takeover_voids_a_held_epoch() -> None:
    state = play(HELD, claim(2, takeover=True))

    assert ((), (), -1) == (state.epochs, state.pending, state.last_epoch)
    again = play(state, SECOND.opens(0), SECOND.reports(0))
    assert [(0, EpochStatus.ALIGNED, False)] == statuses(again)


def test_held_epoch_that_terminates_the_run_decides_so_when_it_is_released() -> None:
    """While it is held nothing is decided, so the run does not terminate yet; afterwards nothing opens any more."""
    held = play(PENDING, FIRST.reports(1, {"centroids": {0: 0, 1: 0}}))
    assert () == commands_of(held, FIRST.opens_if_ready(2))

    state = play(held, FIRST.completes(1))

    assert [TerminatedBy.EMPTY_FEEDBACK] == [e.decision.terminated_by for e in state.epochs if e.decision is not None]
    assert "epoch 2 cannot open: the run terminates (I9)" == str(refusal(state, FIRST.opens(2)))


def test_next_epoch_cannot_open_behind_a_held_one() -> None:
    assert "epoch 2 cannot open: epoch 1 is open (I3)" == str(refusal(HELD, FIRST.opens(2)))


def test_no_checkpoint_of_a_held_epoch_begins() -> None:
    """It is nobody's mistake: the driver asks after each epoch, and the answer is not yet."""
    assert_harmless_again(HELD, FIRST.triggers(1), FIRST.triggers_last(1))

    assert () == commands_of(HELD, FIRST.triggers(1))


@pytest.mark.parametrize("max_pending", [1, 2, 3])
def test_as_many_checkpoints_as_the_policy_allows_are_pending_before_an_epoch_is_held(max_pending: int) -> None:
    state = started(max_pending=max_pending)

    for epoch in range(max_pending):
        state = play(state, FIRST.opens(epoch), FIRST.reports(epoch), FIRST.triggers(epoch))
        assert [EpochStatus.ALIGNED] == [e.status for e in state.epochs if e.epoch == epoch]
    state = play(state, FIRST.opens(max_pending), FIRST.reports(max_pending))

    assert [max_pending] == [e.epoch for e in state.epochs if e.is_held]
    assert [*range(1, max_pending + 1)] == [known.checkpoint_id for known in state.pending]
    assert [] == [e.epoch for e in play(state, FIRST.declines(max_pending)).epochs if e.is_held]


def test_late_manual_checkpoint_that_completes_releases_the_held_epoch() -> None:
    """It is subsumed at once, but it was pending all the same."""
    state = started(asks(), FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0), max_pending=2)
    state = play(state, FIRST.opens(1), FIRST.reports(1), FIRST.triggers(1), FIRST.completes(2))
    state = play(state, FIRST.opens(2), FIRST.reports(2), FIRST.triggers(2), FIRST.opens(3), FIRST.reports(3))
    assert ([1, 3], [3]) == ([c.checkpoint_id for c in state.pending], [e.epoch for e in state.epochs if e.is_held])

    released = play(state, FIRST.completes(1))

    assert ([3], []) == ([c.checkpoint_id for c in released.pending], [e.epoch for e in released.epochs if e.is_held])


def test_held_epoch_may_still_switch_and_marks_its_parts_when_it_is_released() -> None:
    """It is open, and the process may be told to end while it waits; the checkpoint that holds it may complete."""
    held = play(HELD, FIRST.switches(1, UnalignedBy.PREEMPTION), FIRST.marks(1, part("sums")))

    state = play(held, FIRST.completes(1), FIRST.marks(1, part("sums")))

    assert ((), [1]) == (held.edges, [epoch.epoch for epoch in held.epochs if epoch.is_held])
    assert [(1, "sums")] == [(edge.epoch, edge.operator_id) for edge in state.edges]


def test_held_epoch_that_has_switched_completes_as_one_that_has_not() -> None:
    """All that its checkpoint needs is there by then, so that nobody has to go behind what was captured."""
    switched = play(HELD, FIRST.switches(1, UnalignedBy.PREEMPTION), FIRST.marks(1, part("sums")))

    released = [play(state, FIRST.completes(1)) for state in (HELD, switched)]
    completed = [play(state, FIRST.triggers(1), FIRST.completes(2)) for state in released]

    assert [[DECISION]] * 2 == [[epoch.decision for epoch in state.epochs] for state in released]
    assert completed[0] == completed[1]
    assert (1, ()) == (completed[1].last_durable_epoch, completed[1].edges)
