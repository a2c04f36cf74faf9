"""How does a person stop a run, and let it go on?"""

from __future__ import annotations

import pytest

from iteration_lib.errors import (
    IterationError,
    RunDeletedError,
    RunFinishedError,
    RunNotStoppedError,
    RunStoppedError,
    StopRefusedError,
)
from iteration_lib.protocol import RunState, decide
from iteration_lib.protocol.command import (
    AbortCheckpoint,
    EndAttempt,
    OpenAttempt,
    OpenEpoch,
    RecordStop,
    ResumeRun,
    SetRunStatus,
    StopRun,
    TriggerCheckpoint,
    VoidEpochs,
)
from iteration_lib.protocol.status import (
    AttemptOutcome,
    CheckpointFailure,
    CheckpointKind,
    EpochStatus,
    RunStatus,
    StopKind,
    TerminatedBy,
)
from tests.protocol_script import (
    FIRST,
    LATER,
    NOW,
    SECOND,
    asks,
    assert_harmless_again,
    claim,
    commands_of,
    deletes,
    drains,
    is_written,
    new_run,
    part,
    play,
    prepared,
    refusal,
    resumes,
    started,
    stop_id,
    stops,
)

STOPPED = StopRun(stop_id=stop_id(1))


def asked(kind: StopKind = StopKind.STOP) -> RecordStop:
    return RecordStop(stop_id=stop_id(1), kind=kind, requested_by="ann")


def ended(outcome: AttemptOutcome, reason: str | None = None) -> EndAttempt:
    return EndAttempt(fencing_token=1, outcome=outcome, reason=reason)


def in_epoch_1() -> RunState:
    """A run whose first epoch is durable, and whose second one is open."""
    return started(*FIRST.passes(0, 1), FIRST.opens(1))


def stopped() -> RunState:
    """A run that was stopped after epoch 0."""
    return play(started(*FIRST.passes(0, 1)), FIRST.ends(), stops())


def test_request_changes_nothing_in_the_epoch_in_progress() -> None:
    state, written = decide(in_epoch_1(), stops(), NOW)

    assert (asked(),) == written
    assert (RunStatus.RUNNING, StopKind.STOP, 1) == (state.status, state.asked_to, state.last_epoch)


def test_epoch_in_progress_gets_a_hand_made_checkpoint_whatever_the_pace_and_no_other_one_opens() -> None:
    slow = started(FIRST.opens(0), every_epochs=10)
    state = play(slow, stops(), FIRST.reports(0))

    triggered = commands_of(state, FIRST.triggers(0))
    state = play(state, FIRST.triggers(0), FIRST.opens_if_ready(1))

    assert [CheckpointKind.MANUAL] == [c.kind for c in triggered if isinstance(c, TriggerCheckpoint)]
    assert [(0, EpochStatus.ALIGNED)] == [(epoch.epoch, epoch.status) for epoch in state.epochs]
    assert "epoch 1 cannot open: the run is asked to stop (I20)" == str(refusal(state, FIRST.opens(1)))
    assert () == commands_of(play(state, FIRST.completes(1)), FIRST.opens_if_ready(1))


def test_no_failure_of_the_last_checkpoint_is_put_up_with() -> None:
    state = started(FIRST.opens(0), stops(), FIRST.reports(0), FIRST.triggers(0), tolerable_failures=5)

    state = play(state, FIRST.declines(1))

    assert 6 == state.checkpoint_failures


def test_epoch_that_is_held_when_the_request_comes_is_the_last_one() -> None:
    held = started(FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0), FIRST.opens(1), FIRST.reports(1), stops())

    state = play(held, FIRST.completes(1))
    begun = commands_of(state, FIRST.triggers(1))

    assert [CheckpointKind.MANUAL] == [c.kind for c in begun if isinstance(c, TriggerCheckpoint)]
    assert () == commands_of(play(state, FIRST.triggers(1)), FIRST.opens_if_ready(2))


def test_attempt_that_lets_the_run_go_stops_it_in_the_same_step() -> None:
    state = play(in_epoch_1(), stops(), FIRST.reports(1), FIRST.triggers(1), FIRST.completes(2))

    state, written = decide(state, FIRST.ends(), NOW)

    assert (ended(AttemptOutcome.RELEASED, "its run was asked to stop"), STOPPED) == written
    assert (RunStatus.STOPPED, 1, None) == (state.status, state.last_durable_epoch, state.attempt)
    assert_harmless_again(state, FIRST.ends(), stops(), stops(2, by="bob"))


def test_attempt_that_is_interrupted_stops_the_run_at_its_last_durable_epoch_and_keeps_the_edges() -> None:
    state = play(in_epoch_1(), FIRST.switches(1), FIRST.marks(1, part("sums")), stops())

    state, written = decide(state, FIRST.ends(reason="interrupted"), NOW)

    assert (ended(AttemptOutcome.RELEASED, "interrupted"), VoidEpochs(after=0), STOPPED) == written
    assert ([], ["sums"]) == ([*state.epochs], [edge.operator_id for edge in state.edges])


def test_attempt_that_fails_leaves_the_request_to_the_next_one_which_stops_after_one_epoch() -> None:
    failed = play(in_epoch_1(), stops(), FIRST.fails())
    state = play(failed, claim(2), SECOND.opens(1), SECOND.reports(1), SECOND.triggers(1), SECOND.completes(2))

    state = play(state, SECOND.opens_if_ready(2), SECOND.ends())

    assert (RunStatus.FAILED, StopKind.STOP) == (failed.status, failed.asked_to)
    assert (RunStatus.STOPPED, 1, 1) == (state.status, state.last_durable_epoch, state.last_epoch)


@pytest.mark.parametrize("claims", [claim(2, takeover=True), claim(2, gone=1)])
def test_takeover_stops_at_once_where_no_epoch_was_in_progress(claims: object) -> None:
    crashed = play(in_epoch_1(), stops(), FIRST.reports(1), FIRST.triggers(1), FIRST.completes(2))

    state, written = decide(crashed, claims, NOW)  # type: ignore[arg-type]  # one of the claims above

    assert [EndAttempt, StopRun] == [type(command) for command in written]
    assert (RunStatus.STOPPED, None, 1) == (state.status, state.attempt, state.fencing_token)
    assert isinstance(refusal(state, claim(2)), RunStoppedError)


def test_attempt_opens_to_commit_what_waits_though_the_run_is_asked_to_stop() -> None:
    """Nobody else would: a run that is STOPPED is not driven."""
    begun = play(new_run(sinks={"rows": True}), claim(), FIRST.opens(0), stops(), FIRST.reports(0), FIRST.triggers(0))
    failed = play(begun, FIRST.completes(1, committables=(prepared(0, "rows"),)), FIRST.fails())

    state = play(failed, claim(2), SECOND.commits((0, "rows")), SECOND.ends())

    assert (RunStatus.STOPPED, 2, frozenset()) == (state.status, state.fencing_token, state.uncommitted)


def test_failed_run_stops_at_once_where_no_epoch_was_in_progress() -> None:
    failed = play(in_epoch_1(), stops(), FIRST.reports(1), FIRST.triggers(1), FIRST.completes(2), FIRST.fails())

    state, written = decide(failed, claim(2), NOW)

    assert (STOPPED,) == written
    assert RunStatus.STOPPED is state.status


def test_run_that_nobody_drives_is_stopped_at_once() -> None:
    for state, durable in ((new_run(), -1), (play(in_epoch_1(), FIRST.ends()), 0)):
        after, written = decide(state, stops(), NOW)

        assert ([RecordStop, StopRun], durable) == (
            [type(command) for command in written if not isinstance(command, VoidEpochs)],
            after.last_durable_epoch,
        )
        assert (RunStatus.STOPPED, ()) == (after.status, after.epochs)


@pytest.mark.parametrize(("gone", "now"), [(1, NOW), (None, LATER)])
def test_attempt_that_is_gone_or_whose_lease_ran_out_does_not_keep_the_run_from_stopping(
    gone: int | None, now: object
) -> None:
    state = started(FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0), FIRST.opens(1))

    written = commands_of(state, stops(gone=gone), now)  # type: ignore[arg-type]  # one of the times above

    aborted = AbortCheckpoint(checkpoint_id=1, failure=CheckpointFailure.ATTEMPT_ENDED, reason="its run was stopped")
    over = ended(AttemptOutcome.SUPERSEDED, "its run was stopped by ann")
    assert (asked(), aborted, over, VoidEpochs(after=-1), STOPPED) == written
    assert (asked(),) == commands_of(state, stops())


def test_request_that_is_repeated_stops_the_run_once_its_attempt_is_gone() -> None:
    waiting = play(in_epoch_1(), stops())

    assert () == commands_of(waiting, stops())
    assert STOPPED == commands_of(waiting, stops(gone=1))[-1]


def test_stopped_run_is_not_driven_and_not_asked_for_anything() -> None:
    state = stopped()

    for event in (claim(2), claim(2, takeover=True), asks(), drains(2)):
        assert isinstance(refusal(state, event), RunStoppedError)
    assert str(refusal(state, claim(2))).endswith(f"`iteration resume {state.run_id}` lets it go on")


def test_resumed_run_goes_on_after_its_last_durable_epoch() -> None:
    state, written = decide(stopped(), resumes(), NOW)

    assert (ResumeRun(stop_id=stop_id(1), resumed_by="bob"),) == written
    assert (RunStatus.RUNNING, None) == (state.status, state.asked_to)
    assert_harmless_again(state, resumes(), stops())
    assert (1, 2) == ((after := play(state, claim(2), SECOND.opens(1))).last_epoch, after.fencing_token)


def test_run_that_was_resumed_may_be_stopped_again() -> None:
    again = play(stopped(), resumes(), stops(2))

    assert (RunStatus.STOPPED, stop_id(2)) == (again.status, again.stop.stop_id if again.stop else None)
    assert isinstance(refusal(again, resumes(1)), RunNotStoppedError)


@pytest.mark.parametrize("state", [new_run(), play(in_epoch_1(), stops()), play(in_epoch_1(), FIRST.fails())])
def test_run_that_is_not_stopped_is_not_resumed(state: RunState) -> None:
    error = refusal(state, resumes())

    assert (
        f"run {state.run_id} is {state.status.value}, not STOPPED: there is nothing to resume; "
        f"`iteration plan {state.run_id}` says what comes next"
    ) == str(error)
    assert isinstance(error, RunNotStoppedError)


def test_drained_run_terminates_with_the_epoch_in_progress() -> None:
    state = play(in_epoch_1(), drains(), FIRST.reports(1))
    begun = commands_of(state, FIRST.triggers(1))

    state = play(state, FIRST.triggers(1), FIRST.opens_if_ready(2), FIRST.completes(2))

    assert [CheckpointKind.FINAL] == [c.kind for c in begun if isinstance(c, TriggerCheckpoint)]
    assert (RunStatus.TERMINATING, TerminatedBy.DRAINED, 1) == (state.status, state.terminated_by, state.last_epoch)
    assert RunStatus.FINISHED is play(state, FIRST.publishes()).status
    assert_harmless_again(state, drains())


@pytest.mark.parametrize(
    ("reports", "by"),
    [
        ({"centroids": {0: 0}, "criteria": {0: 0}}, TerminatedBy.EMPTY_FEEDBACK),
        ({"centroids": {0: 3}, "criteria": {0: 0}}, TerminatedBy.CRITERIA),
        ({"centroids": {0: 3}, "criteria": {0: 1}}, TerminatedBy.MAX_EPOCHS),
    ],
)
def test_rule_that_ends_the_run_anyway_is_the_one_that_is_named(
    reports: dict[str, dict[int, int]], by: TerminatedBy
) -> None:
    state = started(FIRST.opens(0, centroids=1, criteria=1), drains(), max_epochs=1)

    state = play(state, FIRST.reports(0, reports))

    assert [by] == [epoch.decision.terminated_by for epoch in state.epochs if epoch.decision]


def test_epoch_that_terminates_the_run_anyway_finishes_it_though_it_was_asked_to_stop() -> None:
    state = play(in_epoch_1(), stops(), FIRST.reports(1, {"centroids": {0: 0}}), FIRST.triggers(1), FIRST.completes(2))

    state = play(state, FIRST.ends())

    assert (RunStatus.TERMINATING, TerminatedBy.EMPTY_FEEDBACK) == (state.status, state.terminated_by)
    assert RunStatus.FINISHED is play(state, claim(2), SECOND.publishes()).status


def test_drain_waits_for_whoever_drives_the_run_next() -> None:
    state = play(started(*FIRST.passes(0, 1)), FIRST.ends(), drains())

    state = play(state, claim(2), SECOND.opens(1), SECOND.reports(1))

    assert [TerminatedBy.DRAINED] == [epoch.decision.terminated_by for epoch in state.epochs if epoch.decision]


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (play(started(*FIRST.passes(0, 1, records=0)), FIRST.publishes()), RunFinishedError),
        (started(*FIRST.passes(0, 1, records=0)), RunFinishedError),
        (started(FIRST.fails()), StopRefusedError),
        (play(new_run(), deletes()), RunDeletedError),
    ],
)
def test_run_that_does_not_go_on_cannot_be_stopped(state: RunState, kind: type[IterationError]) -> None:
    assert [kind, kind] == [type(refusal(state, event)) for event in (stops(), drains())]


def test_second_request_of_the_other_kind_is_refused() -> None:
    stopping, draining = play(in_epoch_1(), stops()), play(in_epoch_1(), drains())

    assert "it is asked to stop already, and cannot drain as well" in str(refusal(stopping, drains(2)))
    assert "it is asked to drain already, and cannot stop as well" in str(refusal(draining, stops(2)))
    assert () == commands_of(stopping, stops(2, by="bob"))


def test_stopped_run_may_be_deleted() -> None:
    assert RunStatus.DELETED is play(stopped(), deletes()).status


def test_first_epoch_of_the_next_attempt_opens_though_the_run_is_asked_to_stop() -> None:
    """The one that crashed had begun it: it is the epoch in progress."""
    state = play(in_epoch_1(), stops(), claim(2, takeover=True))

    assert is_written(OpenEpoch, commands_of(state, SECOND.opens(1)))
    assert not is_written(OpenEpoch, commands_of(state, SECOND.opens_if_ready(1)))


def test_takeover_of_a_run_that_is_asked_to_stop_is_a_takeover_as_any() -> None:
    written = commands_of(play(in_epoch_1(), stops(), FIRST.fails()), claim(2))

    assert [OpenAttempt, VoidEpochs, SetRunStatus] == [type(command) for command in written]


def test_run_that_failed_while_it_terminated_goes_on_terminating_though_it_was_asked_to_stop() -> None:
    ended = play(in_epoch_1(), stops(), FIRST.reports(1, {"centroids": {0: 0}}), FIRST.triggers(1), FIRST.completes(2))

    state = play(ended, FIRST.fails(), claim(2))

    assert (RunStatus.TERMINATING, 2) == (state.status, state.fencing_token)
