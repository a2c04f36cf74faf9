"""When is an epoch aligned, and does the run terminate after it?"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from iteration_lib.errors import ProtocolViolationError
from iteration_lib.protocol import RunState
from iteration_lib.protocol.alignment import decide_termination
from iteration_lib.protocol.command import AlignEpoch, OpenEpoch, RecordReports
from iteration_lib.protocol.state import NO_EPOCH, Decision, EpochState, Reports
from iteration_lib.protocol.status import EpochStatus, TerminatedBy
from tests.protocol_script import FIRST, assert_harmless_again, commands_of, play, refusal, started


def heads(**values: tuple[int | None, ...]) -> tuple[Reports, ...]:
    return tuple(Reports(name=name, values=found) for name, found in sorted(values.items()))


def test_opened_epoch_waits_for_every_subtask_of_every_head() -> None:
    nothing_heard = heads(centroids=(None, None), criteria=(None,))

    state = started(FIRST.opens(0, centroids=2, criteria=1))

    assert (EpochState(epoch=0, status=EpochStatus.OPEN, heads=nothing_heard),) == state.epochs


def test_opening_an_epoch_writes_its_heads_in_the_order_of_their_names() -> None:
    written = commands_of(started(), FIRST.opens(0, weights=1, bias=2))

    assert (OpenEpoch(epoch=0, heads=heads(bias=(None, None), weights=(None,))),) == written


def test_epoch_aligns_with_the_last_report_of_several_heads_of_different_parallelism() -> None:
    opened = started(FIRST.opens(0, centroids=3, weights=1, criteria=2))
    reported = play(
        opened,
        FIRST.reports(0, {"centroids": {0: 1, 2: 0}}),
        FIRST.reports(0, {"criteria": {1: 0}, "weights": {0: 4}}),
        FIRST.reports(0, {"criteria": {0: 5}}),
    )
    assert [EpochStatus.OPEN] == [epoch.status for epoch in reported.epochs]

    state = play(reported, FIRST.reports(0, {"centroids": {1: 2}}))

    decision = Decision(records={"centroids": 3, "criteria": 5, "weights": 4}, terminated_by=None)
    all_heard = heads(centroids=(1, 2, 0), criteria=(5, 0), weights=(4,))
    assert (EpochState(epoch=0, status=EpochStatus.ALIGNED, heads=all_heard, decision=decision),) == state.epochs


def test_report_that_leaves_the_epoch_open_writes_the_reports_alone() -> None:
    state = started(FIRST.opens(0, centroids=2))

    written = commands_of(state, FIRST.reports(0, {"centroids": {1: 4}}, shift=0.5))

    assert (RecordReports(epoch=0, heads=heads(centroids=(None, 4))),) == written


def test_report_that_completes_one_head_of_several_writes_the_reports_alone() -> None:
    """What was measured is of the whole epoch, and is written once."""
    state = started(FIRST.opens(0, centroids=1, weights=2), FIRST.reports(0, {"weights": {0: 1}}))

    written = commands_of(state, FIRST.reports(0, {"centroids": {0: 4}}, shift=0.5))

    assert (RecordReports(epoch=0, heads=heads(centroids=(4,), weights=(1, None))),) == written


def test_report_that_aligns_the_epoch_writes_what_was_measured_and_the_decision() -> None:
    state = started(FIRST.opens(0, centroids=2), FIRST.reports(0, {"centroids": {0: 1}}))

    written = commands_of(state, FIRST.reports(0, {"centroids": {1: 4}}, shift=0.5))

    decision = Decision(records={"centroids": 5}, terminated_by=None)
    assert (
        RecordReports(epoch=0, heads=heads(centroids=(1, 4)), metrics={"shift": 0.5}, seconds=0.25),
        AlignEpoch(epoch=0, decision=decision),
    ) == written


def test_order_and_batches_of_reports_do_not_show() -> None:
    opened = started(FIRST.opens(0, centroids=2, criteria=1))
    at_once = FIRST.reports(0, {"criteria": {0: 1}, "centroids": {1: 2, 0: 3}})
    one_by_one = [FIRST.reports(0, {head: {0: value}}) for head, value in (("centroids", 3), ("criteria", 1))]

    assert play(opened, at_once) == play(opened, FIRST.reports(0, {"centroids": {1: 2}}), *one_by_one)


def test_repeated_opening_and_reports_are_harmless() -> None:
    assert_harmless_again(
        started(),
        FIRST.opens(0, centroids=2),
        FIRST.reports(0, {"centroids": {0: 1}}),
        FIRST.reports(0, {"centroids": {0: 1, 1: 0}}),
        FIRST.opens(0, centroids=2),
        FIRST.opens(1, centroids=2),
    )


def test_repeated_opening_and_reports_are_harmless_when_the_epoch_is_durable() -> None:
    """Who repeats them never heard the answer; what they said then is not kept, so that it is not compared."""
    assert_harmless_again(started(*FIRST.passes(0, 1)), FIRST.opens(0), FIRST.reports(0))


@pytest.mark.parametrize(
    ("reports", "said"),
    [
        ({"weights": {0: 1}}, "epoch 0 has no 'weights'; there are: centroids, criteria (I4)"),
        ({"centroids": {2: 1}}, "epoch 0: 'centroids' has 2 subtasks and counts from 0, not 1 from subtask 2 (I4)"),
        ({"centroids": {-1: 1}}, "epoch 0: 'centroids' has 2 subtasks and counts from 0, not 1 from subtask -1 (I4)"),
        ({"centroids": {1: -1}}, "epoch 0: 'centroids' has 2 subtasks and counts from 0, not -1 from subtask 1 (I4)"),
        ({"centroids": {0: 9}}, "epoch 0: subtask 0 of 'centroids' reported 7 before, now 9 (I4)"),
        ({"centroids": {1: 1}, "criteria": {5: 1}}, "'criteria' has 1 subtasks and counts from 0, not 1 from"),
    ],
    ids=["unknown head", "unknown subtask", "negative subtask", "negative records", "contradiction", "second is bad"],
)
def test_report_that_cannot_be_true_is_refused(reports: Mapping[str, Mapping[int, int]], said: str) -> None:
    state = started(FIRST.opens(0, centroids=2, criteria=1), FIRST.reports(0, {"centroids": {0: 7}}))

    error = refusal(state, FIRST.reports(0, reports))

    assert isinstance(error, ProtocolViolationError)
    assert said in str(error)


def test_report_that_contradicts_an_aligned_epoch_is_refused() -> None:
    state = started(FIRST.opens(0), FIRST.reports(0, {"centroids": {0: 3}}))

    error = refusal(state, FIRST.reports(0, {"centroids": {0: 0}}))

    assert "epoch 0: subtask 0 of 'centroids' reported 3 before, now 0 (I4)" == str(error)


@pytest.mark.parametrize("epoch", [1, -1])
def test_report_of_an_epoch_that_never_opened_is_refused(epoch: int) -> None:
    error = refusal(started(FIRST.opens(0)), FIRST.reports(epoch))

    assert f"epoch {epoch} is not open; the last one is 0 (I4)" == str(error)


@pytest.mark.parametrize("parallelism", [{"centroids": 0}, {"centroids": -1}, {"centroids": 2, "criteria": 0}])
def test_epoch_with_a_head_that_nobody_can_report_is_refused(parallelism: dict[str, int]) -> None:
    """It would be aligned from the start, or never."""
    error = refusal(started(), FIRST.opens(0, **parallelism))

    assert "epoch 0 needs heads with at least one subtask each" == str(error)


def test_epoch_without_heads_is_refused() -> None:
    event = FIRST.opens(0)
    headless = type(event)(attempt_id=event.attempt_id, fencing_token=1, epoch=0, heads={})

    assert "epoch 0 needs heads with at least one subtask each" == str(refusal(started(), headless))


def test_epoch_cannot_open_again_with_another_parallelism() -> None:
    error = refusal(started(FIRST.opens(0, centroids=2)), FIRST.opens(0, centroids=3))

    assert "epoch 0 cannot open: the last one is 0 (I3)" == str(error)


def test_epoch_may_have_another_parallelism_than_the_one_before() -> None:
    state = started(*FIRST.passes(0, 1), FIRST.opens(1, centroids=4))

    assert heads(centroids=(None,) * 4) == state.epochs[0].heads


def test_epoch_may_open_while_the_one_before_waits_for_its_checkpoint() -> None:
    state = started(FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0), FIRST.opens(1))

    assert [(0, EpochStatus.ALIGNED), (1, EpochStatus.OPEN)] == [(e.epoch, e.status) for e in state.epochs]


@pytest.mark.parametrize(
    "state",
    [
        started(),
        started(FIRST.opens(0)),
        started(FIRST.opens(0), FIRST.reports(0, {"centroids": {0: 0}})),
        started(*FIRST.passes(0, 1, records=0)),
        started(FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0), FIRST.declines(1)),
    ],
    ids=["nothing before", "open", "terminates", "terminating", "a checkpoint failed"],
)
def test_epoch_opens_if_ready_only_where_it_may_open(state: RunState) -> None:
    """A driver that answers a report asks for the next epoch in the same breath, whatever the report led to."""
    if not state.epochs and state.last_durable_epoch == NO_EPOCH:
        assert play(state, FIRST.opens(0)) == play(state, FIRST.opens_if_ready(0))
        return

    refusal(state, FIRST.opens(1))
    assert () == commands_of(state, FIRST.opens_if_ready(1))


def test_epoch_that_opens_if_ready_is_still_the_next_one() -> None:
    state = started(FIRST.opens(0), FIRST.reports(0))

    assert "epoch 2 cannot open: the last one is 0 (I3)" == str(refusal(state, FIRST.opens_if_ready(2)))


@pytest.mark.parametrize(
    ("records", "max_epochs", "terminated_by"),
    [
        ({"centroids": (0,)}, None, TerminatedBy.EMPTY_FEEDBACK),
        ({"centroids": (0, 0), "weights": (0,)}, None, TerminatedBy.EMPTY_FEEDBACK),
        ({"centroids": (0, 1), "weights": (0,)}, None, None),
        ({"centroids": (0,), "criteria": (0,)}, None, TerminatedBy.EMPTY_FEEDBACK),
        ({"centroids": (0,), "criteria": (1,)}, None, None),
        ({"centroids": (3,), "criteria": (0, 0)}, None, TerminatedBy.CRITERIA),
        ({"centroids": (3,), "criteria": (0, 1)}, None, None),
        ({"centroids": (3,)}, 6, None),
        ({"centroids": (3,)}, 5, TerminatedBy.MAX_EPOCHS),
        ({"centroids": (3,)}, 4, TerminatedBy.MAX_EPOCHS),
        ({"centroids": (0,)}, 5, TerminatedBy.EMPTY_FEEDBACK),
        ({"centroids": (3,), "criteria": (0,)}, 5, TerminatedBy.CRITERIA),
        ({"centroids": (3,), "criteria": (2,)}, 5, TerminatedBy.MAX_EPOCHS),
    ],
)
def test_termination_follows_the_table(
    records: dict[str, tuple[int, ...]], max_epochs: int | None, terminated_by: TerminatedBy | None
) -> None:
    """Of epoch 4. No records at all, or none of the criteria, or the last epoch allowed; the first of them names it."""
    expected = Decision(records={name: sum(found) for name, found in records.items()}, terminated_by=terminated_by)

    assert expected == decide_termination(4, heads(**records), max_epochs=max_epochs)


def test_epoch_0_terminates_like_any_other() -> None:
    """The decision after a pass counts what that pass fed back, so that epoch 0 needs no exception."""
    state = started(
        FIRST.opens(0, centroids=1, criteria=1), FIRST.reports(0, {"centroids": {0: 3}, "criteria": {0: 0}})
    )

    decision = Decision(records={"centroids": 3, "criteria": 0}, terminated_by=TerminatedBy.CRITERIA)
    assert [decision] == [epoch.decision for epoch in state.epochs]


@pytest.mark.parametrize("max_epochs", [1, 2, 3])
def test_max_epochs_n_runs_n_passes(max_epochs: int) -> None:
    state = started(max_epochs=max_epochs)

    for epoch in range(max_epochs):
        assert state.terminated_by is None
        state = play(state, *FIRST.passes(epoch, epoch + 1))

    assert (max_epochs - 1, TerminatedBy.MAX_EPOCHS) == (state.last_durable_epoch, state.terminated_by)
