"""Which operators inside an open epoch have left a durable edge, so that a retry starts behind it? (I15)"""

from __future__ import annotations

import pytest

from iteration_lib.errors import ProtocolViolationError
from iteration_lib.protocol import Event, RunState, decide
from iteration_lib.protocol.command import RecordParts, SwitchToUnaligned, VoidEdges, VoidParts
from iteration_lib.protocol.event import FinishedPart
from iteration_lib.protocol.state import NO_EPOCH, EdgeState
from iteration_lib.protocol.status import EpochStatus, OperatorStatus, UnalignedBy
from tests.protocol_script import (
    FIRST,
    NOW,
    SECOND,
    assert_harmless_again,
    claim,
    commands_of,
    is_written,
    part,
    play,
    refusal,
    started,
)

SWITCHED = started(FIRST.opens(0), FIRST.switches(0))


def edges(state: RunState) -> dict[tuple[int, str], tuple[tuple[int, int], ...]]:
    return {(edge.epoch, edge.operator_id): edge.finished for edge in state.edges}


@pytest.mark.parametrize("by", UnalignedBy)
def test_open_epoch_switches_to_unaligned_and_says_why(by: UnalignedBy) -> None:
    state, written = decide(started(FIRST.opens(0)), FIRST.switches(0, by), NOW)

    assert (SwitchToUnaligned(epoch=0, by=by),) == written
    assert [by] == [epoch.unaligned_by for epoch in state.epochs]


def test_epoch_switches_once() -> None:
    """The timer that comes after the process was told to end, or the other way round, finds it done."""
    state = assert_harmless_again(started(FIRST.opens(0)), FIRST.switches(0, UnalignedBy.PREEMPTION))

    assert (state, ()) == decide(state, FIRST.switches(0, UnalignedBy.TIMEOUT), NOW)


@pytest.mark.parametrize("events", [(FIRST.opens(0), FIRST.reports(0)), FIRST.passes(0, 1)], ids=["aligned", "durable"])
def test_epoch_that_has_aligned_meanwhile_switches_no_more(events: tuple[Event, ...]) -> None:
    state = started(*events)

    assert (state, ()) == decide(state, FIRST.switches(0), NOW)


@pytest.mark.parametrize("epoch", [NO_EPOCH, 1, -2])
def test_epoch_that_never_opened_cannot_switch(epoch: int) -> None:
    assert f"epoch {epoch} is not open; the last one is 0" == str(refusal(SWITCHED, FIRST.switches(epoch)))


def test_next_epoch_starts_aligned_again() -> None:
    state = play(SWITCHED, FIRST.reports(0), FIRST.triggers(0), FIRST.opens(1))

    assert [(0, UnalignedBy.TIMEOUT), (1, None)] == [(epoch.epoch, epoch.unaligned_by) for epoch in state.epochs]
    state = play(state, FIRST.completes(1))
    assert "epoch 1 is aligned: it has no durable edges (I15)" == str(refusal(state, FIRST.marks(1, part("sums"))))


def test_epoch_starts_aligned_again_under_the_next_attempt() -> None:
    state = play(SWITCHED, FIRST.marks(0, part("sums")), claim(2, takeover=True), SECOND.opens(0))

    assert {(0, "sums"): ((0, 1),)} == edges(state)
    assert "epoch 0 is aligned: it has no durable edges (I15)" == str(refusal(state, SECOND.marks(0, part("means"))))
    assert [None] == [epoch.unaligned_by for epoch in state.epochs]


def test_part_is_marked_only_after_the_switch() -> None:
    error = refusal(started(FIRST.opens(0)), FIRST.marks(0, part("sums")))

    said = "epoch 0 is aligned: it has no durable edges (I15)"
    assert (ProtocolViolationError, said) == (type(error), str(error))
    assert {(0, "sums"): ((0, 1),)} == edges(play(SWITCHED, FIRST.marks(0, part("sums"))))


def test_marking_writes_the_parts_with_their_files() -> None:
    first, second = part("sums", 0, 2, total=4), part("sums", 3, 4, total=4)

    assert (RecordParts(epoch=0, parts=(first, second)),) == commands_of(SWITCHED, FIRST.marks(0, first, second))


def test_part_that_comes_after_the_epoch_is_durable_is_not_marked() -> None:
    """Nobody needs it any more."""
    state = play(SWITCHED, *FIRST.passes(0, 1)[1:])

    assert (state, ()) == decide(state, FIRST.marks(0, part("sums")), NOW)


def test_part_that_comes_after_the_epoch_has_aligned_without_a_switch_is_not_marked() -> None:
    state = started(FIRST.opens(0), FIRST.reports(0))

    assert (state, ()) == decide(state, FIRST.marks(0, part("sums")), NOW)


def test_part_of_an_epoch_that_switched_and_has_aligned_is_marked_until_it_is_durable() -> None:
    """It may have waited for the epoch before, whose checkpoint held the alignment."""
    state = play(SWITCHED, FIRST.reports(0))

    assert (RecordParts(epoch=0, parts=(part("sums"),)),) == commands_of(state, FIRST.marks(0, part("sums")))


@pytest.mark.parametrize("epoch", [1, -2])
def test_part_in_an_epoch_that_never_opened_is_refused(epoch: int) -> None:
    error = refusal(SWITCHED, FIRST.marks(epoch, part("sums")))

    assert f"epoch {epoch} is not open; the last one is 0" == str(error)


def test_part_is_marked_once() -> None:
    both = FIRST.marks(0, part("sums", 0, 2, total=4), part("means"))

    state = assert_harmless_again(SWITCHED, both, FIRST.marks(0, part("means")))

    assert {(0, "means"): ((0, 1),), (0, "sums"): ((0, 2),)} == edges(state)


def test_of_parts_that_come_again_only_the_new_ones_are_written() -> None:
    old, new = part("sums", 0, 2, total=4), part("sums", 2, 3, total=4)
    state = play(SWITCHED, FIRST.marks(0, old))

    assert (RecordParts(epoch=0, parts=(new,)),) == commands_of(state, FIRST.marks(0, old, new))


@pytest.mark.parametrize(
    ("marked", "merged", "status"),
    [
        ([(2, 3)], ((2, 3),), OperatorStatus.PARTIALLY_FINISHED),
        ([(0, 1), (1, 2)], ((0, 2),), OperatorStatus.PARTIALLY_FINISHED),
        ([(3, 4), (0, 1)], ((0, 1), (3, 4)), OperatorStatus.PARTIALLY_FINISHED),
        ([(0, 1), (2, 3), (1, 2)], ((0, 3),), OperatorStatus.PARTIALLY_FINISHED),
        ([(2, 4), (0, 2)], ((0, 4),), OperatorStatus.FINISHED),
        ([(3, 4), (1, 2), (0, 1), (2, 3)], ((0, 4),), OperatorStatus.FINISHED),
    ],
)
def test_parts_that_touch_become_one_range(
    marked: list[tuple[int, int]], merged: tuple[tuple[int, int], ...], status: OperatorStatus
) -> None:
    state = SWITCHED

    for first, end in marked:
        state = play(state, FIRST.marks(0, part("sums", first, end, total=4)))

    edge = EdgeState(epoch=0, operator_id="sums", total=4, finished=merged)
    assert ((edge,), status) == (state.edges, edge.status)
    assert OperatorStatus.RUNNING is EdgeState(epoch=0, operator_id="sums", total=4).status


def test_buckets_that_are_all_marked_are_no_news_however_they_are_cut() -> None:
    """A retry with another number of partitions cuts them in another way."""
    state = play(SWITCHED, FIRST.marks(0, part("sums", 0, 1, total=4)), FIRST.marks(0, part("sums", 1, 3, total=4)))

    assert () == commands_of(state, FIRST.marks(0, part("sums", 0, 2, total=4)))


@pytest.mark.parametrize(("first", "end"), [(0, 2), (1, 4), (2, 4), (0, 4)])
def test_part_that_is_marked_in_part_is_refused(first: int, end: int) -> None:
    """Two files would hold the same bucket."""
    state = play(SWITCHED, FIRST.marks(0, part("sums", 1, 3, total=4)))

    error = refusal(state, FIRST.marks(0, part("sums", first, end, total=4)))

    assert f"buckets {first} to {end} of 'sums' in epoch 0 are finished in part: ((1, 3),) (I15)" == str(error)


@pytest.mark.parametrize(
    "impossible",
    [
        part("sums", 2, 2, total=4),
        part("sums", 3, 2, total=4),
        part("sums", -1, 2, total=4),
        part("sums", 2, 5, total=4),
    ],
    ids=["empty", "backwards", "negative", "too far"],
)
def test_part_of_buckets_that_are_not_there_is_refused(impossible: FinishedPart) -> None:
    first, end = impossible.first_bucket, impossible.end_bucket

    error = refusal(SWITCHED, FIRST.marks(0, impossible))

    assert f"buckets {first} to {end} of 'sums' in epoch 0: there are 4 (I15)" == str(error)


def test_number_of_buckets_of_an_edge_never_changes() -> None:
    state = play(SWITCHED, FIRST.marks(0, part("sums", 0, 1, total=4)))

    error = refusal(state, FIRST.marks(0, part("sums", 1, 2, total=8)))

    assert "buckets 1 to 2 of 'sums' in epoch 0: there are 4 (I15)" == str(error)


HALF = play(SWITCHED, FIRST.marks(0, part("pairs", 0, 2, total=4)))
WHOLE = play(HALF, FIRST.marks(0, part("pairs", 2, 4, total=4)))


@pytest.mark.parametrize(
    ("state", "marked"),
    [
        (HALF, part("sums", 0, 2, total=4, narrow=("pairs",))),
        (HALF, part("sums", 1, 2, total=4, narrow=("pairs",))),
        (WHOLE, part("sums", 0, 4, total=4, narrow=("pairs",))),
        (WHOLE, part("sums", 0, 1, total=4, wide=("pairs",))),
        (WHOLE, part("sums", 0, 1, total=2, narrow=("pairs",))),
        (WHOLE, part("means", wide=("pairs",))),
        (SWITCHED, part("sums")),
    ],
    ids=["narrow", "narrower", "whole", "wide", "other buckets", "no buckets", "from the variables alone"],
)
def test_part_is_marked_after_what_it_was_computed_from(state: RunState, marked: FinishedPart) -> None:
    assert (RecordParts(epoch=0, parts=(marked,)),) == commands_of(state, FIRST.marks(0, marked))


@pytest.mark.parametrize(
    ("state", "marked"),
    [
        (SWITCHED, part("sums", 0, 2, total=4, narrow=("pairs",))),
        (HALF, part("sums", 2, 4, total=4, narrow=("pairs",))),
        (HALF, part("sums", 1, 3, total=4, narrow=("pairs",))),
        (HALF, part("sums", 0, 1, total=4, wide=("pairs",))),
        (HALF, part("sums", 0, 1, total=4, narrow=("pairs",), wide=("pairs",))),
        (HALF, part("sums", 0, 1, total=2, narrow=("pairs",))),
        (HALF, part("sums", 0, 1, total=8, narrow=("pairs",))),
        (HALF, part("means", wide=("pairs",))),
    ],
    ids=[
        "nothing of it",
        "other buckets of it",
        "some of the buckets",
        "half of a wide one",
        "of two edges the wide one counts",
        "fewer buckets cannot be told apart",
        "more buckets cannot be told apart",
        "half of one for a value",
    ],
)
def test_part_before_what_it_was_computed_from_is_refused(state: RunState, marked: FinishedPart) -> None:
    """A retry would compute that anew, perhaps with another result, and keep what came from the first (FLIP-147)."""
    error = refusal(state, FIRST.marks(0, marked))

    assert str(error).endswith("cannot be finished: 'pairs' before it is not (I15)")


def test_every_input_of_a_part_has_to_be_marked() -> None:
    marked = part("means", narrow=("pairs",), wide=("words",))

    assert "'words' before it is not (I15)" in str(refusal(WHOLE, FIRST.marks(0, marked)))
    state = play(WHOLE, FIRST.marks(0, part("words")))
    assert is_written(RecordParts, commands_of(state, FIRST.marks(0, marked)))


def test_parts_of_one_event_may_come_after_each_other_but_not_before() -> None:
    pairs, sums = part("pairs"), part("sums", wide=("pairs",))

    assert (RecordParts(epoch=0, parts=(pairs, sums)),) == commands_of(SWITCHED, FIRST.marks(0, pairs, sums))
    refusal(SWITCHED, FIRST.marks(0, sums, pairs))


@pytest.mark.parametrize("edge", ["narrow", "wide"])
def test_operator_that_finished_for_good_is_behind_every_part(edge: str) -> None:
    marked = part("sums", 0, 1, total=4, **{edge: ("scaled",)})

    refusal(SWITCHED, FIRST.marks(0, marked))
    assert is_written(RecordParts, commands_of(play(SWITCHED, FIRST.finishes("scaled")), FIRST.marks(0, marked)))


def test_edge_of_another_epoch_is_behind_no_part() -> None:
    """Epoch 1 computes it anew."""
    state = started(FIRST.opens(0), FIRST.switches(0), FIRST.marks(0, part("pairs")), FIRST.reports(0), max_pending=2)
    state = play(state, FIRST.triggers(0), FIRST.opens(1), FIRST.switches(1), FIRST.completes(1))

    assert "'pairs' before it is not (I15)" in str(refusal(state, FIRST.marks(1, part("sums", wide=("pairs",)))))


FINISHING = (NO_EPOCH, "words")
OF_1 = FIRST.marks(1, part("pairs"), part("sums", wide=("pairs",)))


def ahead() -> RunState:
    """A run whose epoch 0 is being written; it has an edge, and so has one that finishes; epoch 1 has switched."""
    state = started(FIRST.marks(NO_EPOCH, part("words", 0, 1, total=4)), FIRST.opens(0), FIRST.switches(0))
    state = play(state, FIRST.marks(0, part("pairs")), FIRST.reports(0), FIRST.triggers(0))
    return play(state, FIRST.opens(1), FIRST.switches(1))


def durable() -> RunState:
    """The same once epoch 0 is durable, and epoch 1 has edges."""
    return play(ahead(), FIRST.completes(1), OF_1)


def test_nothing_is_marked_behind_an_epoch_that_is_not_durable() -> None:
    """It was computed from variables that may come out differently: a takeover would have it run again."""
    assert (ahead(), ()) == decide(ahead(), OF_1, NOW)


def test_part_is_marked_in_the_step_that_makes_the_epoch_before_durable() -> None:
    """Also where that step aligns its own epoch, which was held."""
    held = play(ahead(), FIRST.reports(1))

    state = play(held, FIRST.completes(1), OF_1)

    assert [EpochStatus.OPEN] == [epoch.status for epoch in held.epochs if epoch.epoch == 1]
    assert [EpochStatus.ALIGNED] == [epoch.status for epoch in state.epochs]
    assert {FINISHING, (1, "pairs"), (1, "sums")} == set(edges(state))


@pytest.mark.parametrize("state", [ahead(), durable()], ids=["of an epoch that is aligned", "of one that is open"])
def test_takeover_keeps_the_edges(state: RunState) -> None:
    assert state.edges == play(state, claim(2, takeover=True)).edges
    assert not is_written(VoidEdges, commands_of(state, claim(2, takeover=True)))


def test_takeover_that_ignores_edges_keeps_none_and_no_part_of_what_has_not_finished_for_good() -> None:
    """What has finished for good stays so."""
    before, ignoring = play(durable(), FIRST.finishes("scaled")), claim(2, takeover=True, ignore_edges=True)

    state, written = play(before, ignoring), commands_of(before, ignoring)

    assert (set(), {"scaled"}) == (set(edges(state)), set(state.finished_operators))
    assert [VoidEdges(after=0), VoidParts(operators=("words",))] == [
        command for command in written if isinstance(command, VoidEdges | VoidParts)
    ]


def test_takeover_that_ignores_edges_voids_nothing_where_there_are_none() -> None:
    ignoring = claim(2, takeover=True, ignore_edges=True)

    assert not is_written(VoidEdges, commands_of(SWITCHED, ignoring))
    assert not is_written(VoidParts, commands_of(SWITCHED, ignoring))


def test_edges_outlive_any_number_of_attempts() -> None:
    state = play(SWITCHED, FIRST.marks(0, part("pairs", 0, 2, total=4)), FIRST.fails(), claim(2), SECOND.opens(0))
    state = play(state, SECOND.switches(0), SECOND.marks(0, part("pairs", 2, 3, total=4)), claim(3, takeover=True))

    assert {(0, "pairs"): ((0, 3),)} == edges(state)


def test_attempt_that_ends_leaves_its_edges() -> None:
    assert durable().edges == play(durable(), FIRST.ends()).edges


def test_edges_are_dropped_once_their_epoch_is_durable() -> None:
    """Parts of what finishes for good stay."""
    state = play(ahead(), FIRST.completes(1))

    assert ({FINISHING, (0, "pairs")}, {FINISHING}) == (set(edges(ahead())), set(edges(state)))


def test_buckets_whose_edge_was_voided_may_be_marked_again() -> None:
    state = play(durable(), claim(2, takeover=True, ignore_edges=True), SECOND.opens(1), SECOND.switches(1))

    assert (RecordParts(epoch=1, parts=(part("pairs"),)),) == commands_of(state, SECOND.marks(1, part("pairs")))


def test_operator_that_finishes_for_good_is_marked_in_part_without_any_epoch() -> None:
    state = play(started(), FIRST.marks(NO_EPOCH, part("words", 0, 2, total=4)))
    state = play(state, FIRST.marks(NO_EPOCH, part("lemmas", 0, 2, total=4, narrow=("words",))))

    assert {(NO_EPOCH, "lemmas"): ((0, 2),), (NO_EPOCH, "words"): ((0, 2),)} == edges(state)
    refusal(state, FIRST.marks(NO_EPOCH, part("lemmas", 2, 4, total=4, narrow=("words",))))


def test_parts_of_an_operator_are_dropped_when_it_has_finished_for_good() -> None:
    """Its marker names the files; a part that comes after it says nothing new."""
    state = play(started(), FIRST.marks(NO_EPOCH, part("scaled", 0, 2, total=4)), FIRST.finishes("scaled"))

    assert ((), frozenset({"scaled"})) == (state.edges, state.finished_operators)
    assert (state, ()) == decide(state, FIRST.marks(NO_EPOCH, part("scaled", 2, 4, total=4)), NOW)


def test_operator_that_finished_takes_no_parts_of_others_with_it() -> None:
    state = play(ahead(), FIRST.finishes("pairs"))

    assert set(edges(ahead())) == set(edges(state))


def test_late_part_of_a_superseded_attempt_is_refused() -> None:
    state = play(ahead(), claim(2, takeover=True), SECOND.opens(0), SECOND.switches(0))

    assert str(refusal(state, FIRST.marks(0, part("sums")))).startswith("superseded")


def test_edges_change_nothing_of_how_the_epoch_aligns() -> None:
    state = play(durable(), FIRST.reports(1))

    assert [EpochStatus.ALIGNED] == [epoch.status for epoch in state.epochs]
    assert {(1, "pairs"), (1, "sums")} < set(edges(state))
