"""What would the next attempt skip, restore, go on with and run?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iteration_lib.errors import ProtocolViolationError
from iteration_lib.protocol import RunState, decide
from iteration_lib.protocol.bucket_range import Ranges, count_buckets, show_buckets
from iteration_lib.protocol.event import FinishedPart, PartsFinished
from iteration_lib.protocol.legality import Markers, check_restore
from iteration_lib.protocol.resume import Action, ResumePlan, Trigger, UnusedEdge, plan_resume, usable_edges
from iteration_lib.protocol.state import NO_EPOCH, EdgeState
from iteration_lib.protocol.topology import Exchange, Input, Topology, Vertex
from tests.protocol_script import FIRST, NOW, claim, play, started
from tests.topologies import BUCKETS, CENTRES, KMEANS, MOVED, SCALED, SHARES, SUMS, WHOLE, any_topology, edge

FOR_GOOD = frozenset({"scaled"})


def actions(plan: ResumePlan) -> dict[str, tuple[Action, Ranges]]:
    return {step.vertex.operator_id: (step.action, step.running) for step in plan.steps}


def reasons(plan: ResumePlan) -> dict[str, str]:
    return {step.vertex.operator_id: step.reason for step in plan.steps}


def test_run_that_nobody_has_driven_begins_with_what_takes_no_operator() -> None:
    plan = plan_resume(KMEANS, Markers(epoch=0))

    assert {
        "scaled": (Action.RUN, WHOLE),
        "centres": (Action.RUN, ((0, 1),)),
        "sums": (Action.RUN, WHOLE),
        "shares": (Action.RUN, WHOLE),
        "moved": (Action.RUN, ((0, 1),)),
    } == actions(plan)
    assert (Trigger(operator_id="scaled", buckets=WHOLE),) == plan.frontier
    assert {
        "scaled": "it has not finished",
        "centres": "its value before epoch 0 is in no checkpoint yet",
        "sums": "epoch 0 has not begun",
        "shares": "epoch 0 has not begun",
        "moved": "epoch 0 has not begun",
    } == reasons(plan)


def test_epoch_goes_on_behind_its_durable_edges() -> None:
    """Skipped for good, restored from the checkpoint, restored from an edge, gone on with, run: all at once."""
    edges = (edge(SUMS, epoch=3), edge(SHARES, (0, 1), (2, 3), epoch=3))
    markers = Markers(epoch=3, finished=FOR_GOOD, edges=edges, was_unaligned=True)

    plan = plan_resume(KMEANS, markers)

    assert {
        "scaled": (Action.SKIPPED, ()),
        "centres": (Action.RESTORED, ()),
        "sums": (Action.RESTORED, ()),
        "shares": (Action.CONTINUED, ((1, 2), (3, 4))),
        "moved": (Action.RUN, ((0, 1),)),
    } == actions(plan)
    assert (Trigger(operator_id="shares", buckets=((1, 2), (3, 4))),) == plan.frontier
    assert {
        "scaled": "it has finished for good",
        "centres": "its value after epoch 2 is in the checkpoint",
        "sums": "its edge is durable",
        "shares": "buckets 0, 2 of 4 are durable",
        "moved": "it had not finished",
    } == reasons(plan)


def test_bucket_of_a_narrow_input_is_enough_to_begin_and_one_of_a_wide_input_that_runs_is_enough_to_wait() -> None:
    """FLIP-147: pointwise edges count subtask by subtask, all-to-all ones as a whole."""
    markers = Markers(epoch=3, finished=FOR_GOOD, edges=(edge(SUMS, (0, 3), epoch=3),))

    plan = plan_resume(KMEANS, markers)

    assert (
        Trigger(operator_id="sums", buckets=((3, 4),)),
        Trigger(operator_id="shares", buckets=((0, 3),)),
    ) == plan.frontier


def test_one_bucket_of_a_wide_input_that_runs_keeps_all_of_an_operator_waiting() -> None:
    """Also where both have as many buckets, so that nothing but the wiring tells it from a narrow one."""
    wide = replace(SHARES, inputs=(Input(operator_id="sums", exchange=Exchange.WIDE),))
    topology = Topology(vertices=(SCALED, CENTRES, SUMS, wide))
    some, every = (Markers(epoch=3, finished=FOR_GOOD, edges=(edge(SUMS, (0, end), epoch=3),)) for end in (3, 4))

    waiting, ready = (plan_resume(topology, markers).frontier for markers in (some, every))

    assert (Trigger(operator_id="sums", buckets=((3, 4),)),) == waiting
    assert (Trigger(operator_id="shares", buckets=WHOLE),) == ready


def test_epoch_that_had_not_switched_runs_as_a_whole() -> None:
    plan = plan_resume(KMEANS, Markers(epoch=3, finished=FOR_GOOD, was_unaligned=False))

    assert "the last attempt at epoch 3 had not switched to unaligned, so it left no edge" == reasons(plan)["sums"]
    assert (Trigger(operator_id="sums", buckets=WHOLE),) == plan.frontier


def test_operator_that_is_never_captured_says_so() -> None:
    topology = Topology(vertices=(SCALED, CENTRES, replace(SUMS, is_capturable=False)))

    plan = plan_resume(topology, Markers(epoch=3, finished=FOR_GOOD, was_unaligned=True))

    assert "its output is never captured" == reasons(plan)["sums"]


def test_edge_of_an_operator_that_is_captured_no_more_is_used() -> None:
    """What was computed from it is durable too, and must not see two results."""
    topology = Topology(vertices=(SCALED, CENTRES, replace(SUMS, is_capturable=False), SHARES))
    markers = Markers(epoch=3, finished=FOR_GOOD, edges=(edge(SUMS, epoch=3), edge(SHARES, epoch=3)))

    assert [Action.RESTORED, Action.RESTORED] == [step.action for step in plan_resume(topology, markers).steps[2:]]


def test_operator_that_runs_in_part_for_good_goes_on() -> None:
    plan = plan_resume(KMEANS, Markers(epoch=0, edges=(edge(SCALED, (0, 3)),)))

    assert (Action.CONTINUED, ((3, 4),)) == actions(plan)["scaled"]


def test_operator_all_of_whose_buckets_are_durable_is_restored_before_it_is_marked_for_good() -> None:
    plan = plan_resume(KMEANS, Markers(epoch=0, edges=(edge(SCALED),)))

    assert (Action.RESTORED, ()) == actions(plan)["scaled"]
    assert (Trigger(operator_id="centres", buckets=((0, 1),)),) == plan.frontier


def test_edges_of_epoch_0_are_used_only_with_the_first_values_that_they_were_computed_from() -> None:
    """No checkpoint holds these yet: computed again, they may come out differently."""
    without = Markers(epoch=0, finished=FOR_GOOD, edges=(edge(SUMS), edge(SHARES, (0, 2))))
    beside = replace(without, edges=(edge(CENTRES), *without.edges))

    unused = usable_edges(KMEANS, without)
    assert () == unused.used
    assert (
        UnusedEdge(operator_id="sums", buckets=WHOLE, reason="its input 'centres' runs again"),
        UnusedEdge(operator_id="shares", buckets=((0, 2),), reason="its input 'sums' runs again"),
    ) == unused.unused
    assert "its edge is not used: its input 'centres' runs again" == reasons(plan_resume(KMEANS, without))["sums"]
    assert (beside.edges, ()) == (usable_edges(KMEANS, beside).used, usable_edges(KMEANS, beside).unused)


@pytest.mark.parametrize(
    ("stray", "reason"),
    [
        (edge(replace(SUMS, operator_id="gone"), epoch=3), "no operator has this id now"),
        (edge(replace(SUMS, finishes=True)), "the operator now runs in every epoch"),
        (edge(replace(SCALED, finishes=False), epoch=3), "the operator finishes for good now"),
        (edge(replace(SUMS, total=2), epoch=3), "it has 2 buckets, and the operator now 4"),
        (edge(replace(MOVED, total=1), (0, 1), epoch=3), "its input 'shares' runs again"),
    ],
)
def test_edge_that_does_not_fit_the_operators_is_not_used_and_says_why(stray: EdgeState, reason: str) -> None:
    usable = usable_edges(KMEANS, Markers(epoch=3, edges=(stray,)))

    assert ((), [(stray.operator_id, stray.finished, reason)]) == (
        usable.used,
        [(known.operator_id, known.buckets, known.reason) for known in usable.unused],
    )


def test_edge_is_used_where_the_same_buckets_of_its_input_are_there() -> None:
    edges = (edge(SUMS, (0, 2), epoch=3), edge(SHARES, (1, 4), epoch=3))

    usable = usable_edges(KMEANS, Markers(epoch=3, finished=FOR_GOOD, edges=edges))

    assert (edges[0], edge(SHARES, (1, 2), epoch=3)) == usable.used
    assert (UnusedEdge(operator_id="shares", buckets=((2, 4),), reason="its input 'sums' runs again"),) == usable.unused


def test_input_of_another_number_of_buckets_is_taken_as_a_whole() -> None:
    topology = Topology(vertices=(SCALED, CENTRES, replace(SUMS, total=8), SHARES))
    some, every = (edge(replace(SUMS, total=8), (0, end), epoch=3) for end in (7, 8))
    markers = Markers(epoch=3, finished=FOR_GOOD, edges=(some,))

    waiting, ready = (plan_resume(topology, replace(markers, edges=(known,))).frontier for known in (some, every))

    assert (("sums", ((7, 8),)), ("shares", WHOLE)) == tuple((t.operator_id, t.buckets) for t in waiting + ready)


def test_operator_behind_one_that_nobody_knows_waits() -> None:
    lost = replace(SUMS, inputs=(Input(operator_id="unknown", exchange=Exchange.NARROW),))
    markers = Markers(epoch=3, edges=(edge(lost, (0, 1), epoch=3),))

    plan = plan_resume(Topology(vertices=(lost,)), markers)

    assert ((Action.RUN, WHOLE), ()) == (actions(plan)["sums"], plan.frontier)


def test_part_of_a_global_operator_is_not_used() -> None:
    half = replace(MOVED, total=2, inputs=())

    usable = usable_edges(Topology(vertices=(half,)), Markers(epoch=3, edges=(edge(half, (0, 1), epoch=3),)))

    assert ((), ["it gives its output as a whole, and only a part is there"]) == (
        usable.used,
        [known.reason for known in usable.unused],
    )


def test_edge_of_an_operator_that_has_finished_for_good_is_not_asked_for() -> None:
    plan = plan_resume(KMEANS, Markers(epoch=0, finished=FOR_GOOD, edges=(edge(SCALED, (0, 2)),)))

    assert ((Action.SKIPPED, ()), ()) == (actions(plan)["scaled"], plan.unused)


def test_step_is_found_by_its_operator() -> None:
    plan = plan_resume(KMEANS, Markers(epoch=0))

    assert (plan.steps[2], None) == (plan.step("sums"), plan.step("nobody"))


# For any operators, whatever is sent


@st.composite
def any_part(draw: st.DrawFn, topology: Topology, epoch: int, *, with_variables: bool) -> tuple[int, FinishedPart]:
    """Return a part that a driver could report, whether its inputs are finished or not, and its epoch."""
    vertex = draw(st.sampled_from(topology.vertices))
    first = draw(st.integers(0, vertex.total - 1))
    after = {
        name: exchange
        for name, exchange in vertex.predecessors.items()
        if not _of(topology, name).is_variable or with_variables
    }
    part = FinishedPart(
        operator_id=vertex.operator_id,
        total=vertex.total,
        first_bucket=first,
        end_bucket=draw(st.integers(first + 1, vertex.total)),
        output={},
        after_narrow=tuple(name for name, exchange in after.items() if exchange is Exchange.NARROW),
        after_wide=tuple(name for name, exchange in after.items() if exchange is Exchange.WIDE),
    )
    return NO_EPOCH if vertex.finishes else epoch, part


@given(data=st.data(), topology=any_topology())
def test_whatever_the_protocol_accepts_is_legal_and_used(data: st.DataObject, topology: Topology) -> None:
    """I15 is enough: no order of parts, of honest drivers, is accepted that could not be resumed from."""
    state = _an_unaligned_epoch(0)
    for _ in range(data.draw(st.integers(0, 25))):
        epoch, part = data.draw(any_part(topology, 0, with_variables=True))
        state = _sent(state, FIRST.marks(epoch, part))
        state = _marked_for_good(topology, state)

        markers = Markers.of(play(state, claim(2, takeover=True)))

        assert () == check_restore(topology, markers)
        assert_plan_is_sound(topology, markers)
        assert () == usable_edges(topology, markers).unused


@given(data=st.data(), topology=any_topology())
def test_whatever_the_protocol_accepts_later_is_used(data: st.DataObject, topology: Topology) -> None:
    """After epoch 0 the checkpoint holds the variables: nobody has to mark them."""
    state = _an_unaligned_epoch(1)
    for _ in range(data.draw(st.integers(0, 25))):
        epoch, part = data.draw(any_part(topology, 1, with_variables=False))
        if not _of(topology, part.operator_id).is_variable:
            state = _sent(state, FIRST.marks(epoch, part))
        state = _marked_for_good(topology, state)
    markers = Markers.of(state)

    assert ((), ()) == (check_restore(topology, markers), usable_edges(topology, markers).unused)
    assert_plan_is_sound(topology, markers)


@given(data=st.data(), topology=any_topology(), epoch=st.integers(0, 1))
def test_plan_of_any_markers_uses_no_edge_whose_input_runs_again(
    data: st.DataObject, topology: Topology, epoch: int
) -> None:
    """Also of markers that could never be; those of operators that finished for good are left to the check."""
    edges = [
        replace(edge(vertex, epoch=epoch), finished=finished)
        for vertex in topology.vertices
        if (finished := data.draw(_any_ranges(vertex.total)))
    ]
    finished = data.draw(st.sets(st.sampled_from([v.operator_id for v in topology.vertices if v.finishes] or ["-"])))
    markers = Markers(epoch=epoch, finished=frozenset(finished - {"-"}), edges=tuple(edges))

    if not finished or not check_restore(topology, replace(markers, edges=())):
        assert_plan_is_sound(topology, markers)


def assert_plan_is_sound(topology: Topology, markers: Markers) -> None:
    """See P1, P3 and P4 hold, bucket by bucket, in a way of their own."""
    plan = plan_resume(topology, markers)
    durable = {(step.vertex.operator_id, bucket) for step in plan.steps for bucket in _buckets(step.durable)}
    running = {(step.vertex.operator_id, bucket) for step in plan.steps for bucket in _buckets(step.running)}
    everything = {(v.operator_id, bucket) for v in topology.vertices for bucket in range(v.total)}
    assert (everything, set()) == (durable | running, durable & running)
    skipped = {step.vertex.operator_id for step in plan.steps if step.vertex.operator_id in markers.finished}
    for operator_id, bucket in durable:
        vertex = _of(topology, operator_id)
        if operator_id not in skipped and not (vertex.is_variable and markers.epoch > 0):
            assert set(_needed(topology, vertex, bucket)) <= durable, f"P1: {operator_id}, bucket {bucket}"
    used = {(e.operator_id, b) for e in usable_edges(topology, markers).used for b in _buckets(e.finished)}
    assert not used & running, "P3"
    can_begin = {
        (operator_id, bucket)
        for operator_id, bucket in running
        if set(_needed(topology, _of(topology, operator_id), bucket)) <= durable
    }
    assert can_begin == {(t.operator_id, bucket) for t in plan.frontier for bucket in _buckets(t.buckets)}, "P4"
    assert bool(running) == bool(plan.frontier), "P4"


def _needed(topology: Topology, vertex: Vertex, bucket: int) -> Iterator[tuple[str, int]]:
    for name, exchange in vertex.predecessors.items():
        total = _of(topology, name).total
        yield from [(name, bucket)] if exchange is Exchange.NARROW else [(name, one) for one in range(total)]


def _an_unaligned_epoch(epoch: int) -> RunState:
    before = FIRST.passes(0, 1) if epoch else ()
    return started(*before, FIRST.opens(epoch), FIRST.switches(epoch))


def _sent(state: RunState, event: PartsFinished) -> RunState:
    try:
        return decide(state, event, NOW)[0]
    except ProtocolViolationError:
        return state


def _marked_for_good(topology: Topology, state: RunState) -> RunState:
    """Mark, as a driver does, every operator for good all of whose buckets are durable."""
    done = [
        vertex.operator_id
        for vertex in topology.vertices
        if vertex.finishes and (found := state.edge(NO_EPOCH, vertex.operator_id)) and found.covers(0, vertex.total)
    ]
    return play(state, *(FIRST.finishes(operator_id) for operator_id in done))


def _of(topology: Topology, operator_id: str) -> Vertex:
    found = topology.vertex(operator_id)
    assert found is not None
    return found


def _buckets(ranges: Ranges) -> Iterator[int]:
    for first, end in ranges:
        yield from range(first, end)


def _any_ranges(total: int) -> st.SearchStrategy[Ranges]:
    everything = 2**total - 1
    bits = st.sampled_from((0, everything, everything)) | st.integers(0, everything)
    return bits.map(lambda drawn: _as_ranges([bucket for bucket in range(total) if drawn >> bucket & 1]))


def _as_ranges(buckets: list[int]) -> Ranges:
    found: list[tuple[int, int]] = []
    for bucket in buckets:
        if found and found[-1][1] == bucket:
            found[-1] = (found[-1][0], bucket + 1)
        else:
            found.append((bucket, bucket + 1))
    return tuple(found)


def test_buckets_are_shown_and_counted() -> None:
    assert ("0, 2 to 3", 3) == (show_buckets(((0, 1), (2, 4))), count_buckets(((0, 1), (2, 4))))
    assert ("none", 0) == (show_buckets(()), count_buckets(()))
    assert (f"0 to {BUCKETS - 1}", BUCKETS) == (show_buckets(WHOLE), count_buckets(WHOLE))
