"""I1 to I21 of iteration_lib/protocol, one test each: the shortest story in which a broken one would show."""

from __future__ import annotations

import copy
import dataclasses
import re

import pytest

import iteration_lib.protocol
from iteration_lib.errors import IterationError, ProtocolViolationError, RunStoppedError, SupersededError
from iteration_lib.protocol import RunState, decide
from iteration_lib.protocol.alignment import decide_termination
from iteration_lib.protocol.command import AlignEpoch, DiscardCheckpoints, FinishOperator, RecordNotice
from iteration_lib.protocol.status import AttemptOutcome, CheckpointStatus, EpochStatus, RunStatus, TerminatedBy
from tests.protocol_script import (
    FIRST,
    LATER,
    NOW,
    SECOND,
    Sender,
    aborts,
    asks,
    claim,
    commands_of,
    discards,
    keeps,
    new_run,
    part,
    play,
    prepared,
    refusal,
    resumes,
    started,
    stops,
)


def test_i1_each_attempt_gets_the_next_token_and_only_the_last_is_live() -> None:
    state, tokens = new_run(), []
    for number in range(1, 5):
        state = play(state, claim(number, takeover=True))
        tokens.append(state.attempt.fencing_token if state.attempt is not None else None)
        if number == 2:
            state = play(state, Sender(2, 2).ends())

    assert ([1, 2, 3, 4], 4) == (tokens, state.fencing_token)


def test_i2_event_of_a_superseded_attempt_changes_nothing_though_it_would_be_legal_from_the_live_one() -> None:
    state = play(started(), claim(2, takeover=True), SECOND.opens(0))

    assert isinstance(refusal(state, FIRST.reports(0)), SupersededError)
    assert state != play(state, SECOND.reports(0))


def test_i3_epoch_that_leaves_a_gap_is_refused_and_so_is_one_before_the_last() -> None:
    state = started(*FIRST.passes(0, 1), FIRST.opens(1), FIRST.reports(1))

    assert "epoch 3 cannot open: the last one is 1 (I3)" == str(refusal(state, FIRST.opens(3)))
    assert "epoch -1 cannot open: the last one is 1 (I3)" == str(refusal(state, FIRST.opens(-1)))
    assert "epoch 2 cannot open: epoch 1 is open (I3)" == str(
        refusal(started(*FIRST.passes(0, 1), FIRST.opens(1)), FIRST.opens(2))
    )


def test_i3_next_epoch_after_a_takeover_follows_the_last_durable_one() -> None:
    state = play(started(*FIRST.passes(0, 1), FIRST.opens(1), FIRST.reports(1)), claim(2, takeover=True))

    assert "epoch 2 cannot open: the last one is 0 (I3)" == str(refusal(state, SECOND.opens(2)))
    assert 1 == play(state, SECOND.opens(1)).last_epoch


def test_i4_epoch_aligns_exactly_with_its_last_report_and_once_per_token() -> None:
    reports = [FIRST.reports(0, {"centroids": {index: index}}) for index in (2, 0, 1, 1, 0, 2)]
    state, aligned = started(FIRST.opens(0, centroids=3)), []

    for report in reports:
        state, commands = decide(state, report, NOW)
        aligned.append(any(isinstance(command, AlignEpoch) for command in commands))

    assert [False, False, True, False, False, False] == aligned


def test_i4_epoch_that_was_aligned_under_an_old_token_aligns_again_under_the_new_one() -> None:
    state = started(FIRST.opens(0), FIRST.reports(0, {"centroids": {0: 1}}))

    after = play(state, claim(2, takeover=True), SECOND.opens(0), SECOND.reports(0, {"centroids": {0: 2}}))

    assert [EpochStatus.ALIGNED] == [epoch.status for epoch in after.epochs]
    assert [{"centroids": 2}] == [epoch.decision.records for epoch in after.epochs if epoch.decision is not None]


def test_i5_stored_decision_can_be_made_again_from_what_is_stored_with_it() -> None:
    state = started(
        FIRST.opens(0, centroids=2, criteria=1),
        FIRST.reports(0, {"centroids": {0: 2, 1: 0}, "criteria": {0: 0}}),
        max_epochs=9,
    )

    epoch = state.epochs[0]
    assert epoch.decision is not None
    assert epoch.decision == decide_termination(0, epoch.heads, max_epochs=9)
    assert {"centroids": 2, "criteria": 0} == dict(epoch.decision.records)


def test_i6_durable_epochs_survive_every_takeover_and_only_they_do() -> None:
    state = started(*FIRST.passes(0, 1), *FIRST.passes(1, 2), FIRST.opens(2), FIRST.reports(2), FIRST.triggers(2))

    after = play(state, claim(2, takeover=True), claim(3, takeover=True))

    assert (1, (), 2) == (
        after.last_durable_epoch,
        after.epochs,
        after.completed.checkpoint_id if after.completed else 0,
    )


def test_i6_completing_checkpoints_in_any_order_never_takes_durable_epochs_back() -> None:
    state = started(FIRST.opens(0), FIRST.reports(0), FIRST.opens(1), FIRST.reports(1), max_pending=2)
    state = play(state, FIRST.triggers(1), FIRST.triggers(0))

    state = play(state, FIRST.completes(1))

    assert (1, (), 1) == (state.last_durable_epoch, state.pending, state.last_checkpoint_id)


def test_i7_checkpoint_id_is_never_used_again_whatever_became_of_the_checkpoint() -> None:
    aligned = started(FIRST.opens(0), FIRST.reports(0), tolerable_failures=1)
    declined = play(aligned, FIRST.triggers(0), FIRST.declines(1), FIRST.triggers(0))

    superseded = play(declined, claim(2, takeover=True), SECOND.opens(0), SECOND.reports(0), SECOND.triggers(0))

    assert [2] == [checkpoint.checkpoint_id for checkpoint in declined.pending]
    assert [3] == [checkpoint.checkpoint_id for checkpoint in superseded.pending]


def test_i8_checkpoint_completes_only_with_every_acknowledgement_and_its_manifest() -> None:
    state = started(FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0, a=1, b=2))

    without_manifest = play(state, FIRST.acknowledges(1, a=(0,), b=(0, 1)))
    error = refusal(state, FIRST.completes(1, a=(0,), b=(1,)))

    assert (None, -1) == (without_manifest.completed, without_manifest.last_durable_epoch)
    assert "checkpoint 1 has a manifest, but not every acknowledgement (I8)" == str(error)
    assert 0 == play(state, FIRST.completes(1, a=(0,), b=(0, 1))).last_durable_epoch


def test_i9_no_epoch_opens_after_one_that_terminates_the_run() -> None:
    """Neither while the decision waits for its checkpoint nor once it binds."""
    aligned = started(FIRST.opens(0), FIRST.reports(0, {"centroids": {0: 0}}))
    durable = play(aligned, FIRST.triggers(0), FIRST.completes(1))

    assert "epoch 1 cannot open: the run terminates (I9)" == str(refusal(aligned, FIRST.opens(1)))
    assert "epoch 1 cannot open: the run terminates (I9)" == str(refusal(durable, FIRST.opens(1)))


def test_i9_decision_that_was_voided_with_its_epoch_does_not_bind() -> None:
    state = play(started(FIRST.opens(0), FIRST.reports(0, {"centroids": {0: 0}})), claim(2, takeover=True))

    state = play(state, *SECOND.passes(0, 1, records=4), SECOND.opens(1))

    assert (RunStatus.RUNNING, 1) == (state.status, state.last_epoch)


def test_i10_run_finishes_only_from_terminating() -> None:
    pending = started(FIRST.opens(0), FIRST.reports(0, {"centroids": {0: 0}}), FIRST.triggers(0))
    terminating = play(pending, FIRST.completes(1))

    assert isinstance(refusal(pending, FIRST.publishes()), ProtocolViolationError)
    assert (RunStatus.TERMINATING, TerminatedBy.EMPTY_FEEDBACK) == (terminating.status, terminating.terminated_by)
    assert RunStatus.FINISHED == play(terminating, FIRST.publishes()).status


def test_i11_operator_finishes_once_and_its_marker_outlives_every_attempt() -> None:
    state = started(FIRST.finishes())

    later = play(state, FIRST.fails(), claim(2), claim(3, takeover=True), *Sender(3, 3).passes(0, 1))

    assert frozenset({"scaled"}) == later.finished_operators
    assert [] == [c for c in commands_of(later, Sender(3, 3).finishes()) if isinstance(c, FinishOperator)]


TOUR = (
    new_run(max_epochs=2),
    started(FIRST.pins(), FIRST.opens(0, centroids=2), max_epochs=2),
    started(FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0), FIRST.opens(1), max_epochs=2),
    started(*FIRST.passes(0, 1), FIRST.finishes(), max_epochs=2),
    started(*FIRST.passes(0, 1), *FIRST.passes(1, 2), max_epochs=2),
    play(started(*FIRST.passes(0, 1), *FIRST.passes(1, 2), max_epochs=2), FIRST.publishes()),
    play(started(FIRST.opens(0)), FIRST.fails()),
    play(
        started(FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0), FIRST.opens(1)),
        FIRST.reports(1),
        FIRST.switches(1),
    ),
    started(FIRST.opens(0), FIRST.switches(0), FIRST.marks(0, part("sums", 1, 2, total=4)), asks()),
)


@pytest.mark.parametrize("state", TOUR, ids=range(len(TOUR)))
def test_i12_refused_event_leaves_the_state_as_it_was(state: RunState) -> None:
    """Of every kind, from everybody, in every status; also inside, where a mapping could have been changed."""
    refused = 0
    for sender in (FIRST, SECOND, Sender(1, 2)):
        for event in (
            claim(2),
            sender.pins(fingerprint="other"),
            sender.opens(7),
            sender.reports(0, {"centroids": {0: 1, 9: 1}}),
            sender.triggers(9),
            sender.acknowledges(1, centroids=(0, 4)),
            sender.completes(9),
            sender.declines(9),
            sender.switches(9),
            sender.marks(0, part("means"), part("sums", 0, 4, total=4)),
            sender.changes("points", dropped=("scaled",)),
            sender.notifies(9),
            aborts(9),
            asks(),
            dataclasses.replace(sender.publishes(), state_digest=""),
            sender.ends(AttemptOutcome.SUPERSEDED),
        ):
            before = copy.deepcopy(state)
            try:
                decide(state, event, NOW)
            except IterationError:
                refused += 1
            assert before == state

    assert refused >= 30


def test_i13_attempt_stops_opening_epochs_after_more_failures_in_a_row_than_it_puts_up_with() -> None:
    """One is put up with: of two in a row the second is too much, unless one completed or was aborted in between."""
    aligned = started(FIRST.opens(0), FIRST.reports(0), tolerable_failures=1)
    once = play(aligned, FIRST.triggers(0), FIRST.declines(1), FIRST.triggers(0))

    twice = play(once, FIRST.lets_expire(2))

    assert "epoch 1 cannot open: too many checkpoints have failed (I13)" == str(refusal(twice, FIRST.opens(1)))
    assert 1 == play(once, aborts(2), FIRST.opens(1)).last_epoch
    assert 1 == play(once, FIRST.completes(2), FIRST.opens(1)).last_epoch


def test_i14_held_epoch_aligns_in_the_step_that_ends_the_checkpoint_before_it() -> None:
    state = started(FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0), FIRST.opens(1))

    held, released = play(state, FIRST.reports(1)), play(state, FIRST.reports(1), FIRST.completes(1))

    assert ([EpochStatus.ALIGNED, EpochStatus.OPEN], [False, True]) == (
        [epoch.status for epoch in held.epochs],
        [epoch.is_held for epoch in held.epochs],
    )
    assert [(1, EpochStatus.ALIGNED)] == [(epoch.epoch, epoch.status) for epoch in released.epochs]


def test_i15_part_comes_after_the_switch_and_after_its_inputs_and_a_takeover_keeps_it() -> None:
    opened = started(*FIRST.passes(0, 1), FIRST.opens(1))
    means = part("means", wide=("sums",))

    refusal(opened, FIRST.marks(1, part("sums")))
    refusal(play(opened, FIRST.switches(1)), FIRST.marks(1, means))
    state = play(opened, FIRST.switches(1), FIRST.marks(1, part("sums"), means), claim(2, takeover=True))

    assert [(1, "means"), (1, "sums")] == [(edge.epoch, edge.operator_id) for edge in state.edges]


def test_i16_listener_hears_of_each_durable_epoch_once_in_order_and_once_of_the_end() -> None:
    state = started(*FIRST.passes(0, 1), *FIRST.passes(1, 2, records=0))
    said = [
        FIRST.notifies(0),
        FIRST.notifies(0),
        FIRST.notifies(1),
        FIRST.notifies(1, "end", is_final=True),
        FIRST.notifies(1, "end", is_final=True),
    ]
    heard = []

    for event in said:
        state, commands = decide(state, event, NOW)
        heard += [(c.listener_id, c.epoch) for c in commands if isinstance(c, RecordNotice)]

    assert [("log", 0), ("log", 1), ("end", 1)] == heard


def test_i17_checkpoint_that_was_aborted_before_it_began_is_never_pending() -> None:
    state = started(FIRST.opens(0), FIRST.reports(0), aborts(1), FIRST.triggers(0))

    assert ((), 1) == (state.pending, state.last_checkpoint_id)
    assert state == play(state, FIRST.completes(1))


def test_i18_checkpoint_that_its_run_or_a_branch_needs_is_not_discarded_and_a_branch_follows_its_origin() -> None:
    ran = started(*FIRST.passes(0, 1), *FIRST.passes(1, 2), *FIRST.passes(2, 3))
    branch = play(new_run(origin_epoch=1), claim())

    pinned = dataclasses.replace(ran, pinned=frozenset({2}))
    owning = play(branch, *FIRST.passes(2, 1))

    assert "checkpoint 3 cannot be discarded: it is needed (I18)" == str(refusal(ran, discards(3)))
    assert "checkpoint 2 cannot be discarded: it is needed (I18)" == str(refusal(pinned, discards(1, 2)))
    assert "checkpoint 2 cannot be discarded: it is needed (I18)" == str(refusal(play(ran, keeps(2)), discards(1, 2)))
    assert (DiscardCheckpoints(checkpoint_ids=(1,)),) == commands_of(pinned, discards(1))
    assert "epoch 3 cannot open: the last one is 1 (I3)" == str(refusal(branch, FIRST.opens(3)))
    assert (True, False) == (branch.holds_origin, owning.holds_origin)


def test_i19_epoch_is_durable_with_all_that_it_publishes_and_a_run_finishes_when_that_is_committed() -> None:
    sinks = {"rows": True, "model": False}
    aligned = play(new_run(sinks=sinks), claim(), FIRST.opens(0), FIRST.reports(0, {"centroids": {0: 0}}))
    pending = play(aligned, FIRST.triggers(0))
    both = (prepared(0, "model"), prepared(0, "rows"))

    durable = play(pending, FIRST.completes(1, committables=both))
    finished = play(durable, FIRST.commits((0, "rows"), (0, "model")), FIRST.publishes())

    assert "epochs publish [(0, 'model'), (0, 'rows')], and [(0, 'rows')] was prepared (I19)" == str(
        refusal(pending, FIRST.completes(1, committables=both[1:]))
    )
    assert "a run cannot finish: [(0, 'model'), (0, 'rows')] is not committed (I19)" == str(
        refusal(durable, FIRST.publishes())
    )
    assert RunStatus.FINISHED is finished.status


def test_i20_run_that_is_asked_to_stop_opens_no_further_epoch_and_is_stopped_by_the_step_that_lets_it_go() -> None:
    state = started(*FIRST.passes(0, 1), FIRST.opens(1), stops(), FIRST.reports(1), FIRST.triggers(1))

    stopped = play(state, FIRST.opens_if_ready(2), FIRST.completes(2), FIRST.ends())

    assert "epoch 2 cannot open: the run is asked to stop (I20)" == str(refusal(state, FIRST.opens(2)))
    assert (RunStatus.STOPPED, 1, ()) == (stopped.status, stopped.last_epoch, stopped.epochs)
    for event in (claim(2, takeover=True), asks(), aborts(3)):
        assert isinstance(refusal(stopped, event), RunStoppedError)
    assert RunStatus.RUNNING is play(stopped, resumes(), claim(2)).status


def test_i21_run_falls_back_only_before_an_epoch_is_open_and_where_nobody_has_had_anything_of_what_goes() -> None:
    ran = started(*FIRST.passes(0, 1))
    first = ran.completed
    assert first is not None
    older = dataclasses.replace(first, status=CheckpointStatus.SUBSUMED)
    broken = play(ran, *FIRST.passes(1, 2), *FIRST.passes(2, 3), claim(2, takeover=True))

    fallen = play(broken, SECOND.falls_back(older))

    assert (0, first) == (fallen.last_durable_epoch, fallen.completed)
    refusal(play(broken, SECOND.opens(3)), SECOND.falls_back(older))
    refusal(play(broken, SECOND.notifies(0), SECOND.notifies(1)), SECOND.falls_back(older))
    refusal(dataclasses.replace(broken, pinned=frozenset({2})), SECOND.falls_back(older))
    refusal(play(broken, keeps(3, CheckpointStatus.COMPLETED)), SECOND.falls_back(older))


def test_every_invariant_has_a_test_here() -> None:
    stated = re.findall(r"^(I\d+) ", iteration_lib.protocol.__doc__ or "", re.MULTILINE)

    tested = {name.split("_")[1].upper() for name in globals() if name.startswith("test_i")}
    assert set(stated) == tested
    assert [f"I{number}" for number in range(1, 22)] == stated


def test_no_rule_depends_on_the_lease_but_the_claim() -> None:
    """It serves liveness alone: an attempt whose lease ran out long ago still holds the run, until another claims."""
    state = play(started(), *FIRST.passes(0, 1), now=LATER.replace(year=2036))

    assert 0 == state.last_durable_epoch
