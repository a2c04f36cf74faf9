"""May an attempt start from these markers?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from iteration_lib.protocol.event import FinishedPart
from iteration_lib.protocol.legality import Markers, Offence, Rule, check_restore
from iteration_lib.protocol.state import NO_EPOCH, EdgeState
from iteration_lib.protocol.status import OperatorStatus
from iteration_lib.protocol.topology import Exchange, Input, Topology
from tests.protocol_script import FIRST, SECOND, claim, play, started
from tests.topologies import CENTRES, KMEANS, MOVED, SCALED, SHARES, SUMS, edge

FOR_GOOD = frozenset({"scaled"})


@pytest.mark.parametrize(
    "markers",
    [
        Markers(epoch=0),
        Markers(epoch=0, finished=FOR_GOOD),
        Markers(epoch=0, edges=(edge(SCALED, (0, 2)),)),
        Markers(epoch=0, finished=FOR_GOOD, edges=(edge(CENTRES), edge(SUMS))),
        Markers(
            epoch=0,
            finished=FOR_GOOD,
            edges=(edge(CENTRES), edge(SUMS, (0, 1), (2, 4)), edge(SHARES, (0, 1), (3, 4))),
        ),
        Markers(epoch=3, finished=FOR_GOOD, edges=(edge(SUMS, epoch=3), edge(SHARES, epoch=3), edge(MOVED, epoch=3))),
    ],
)
def test_markers_behind_which_nothing_runs_are_legal(markers: Markers) -> None:
    assert () == check_restore(KMEANS, markers)


def test_finished_operator_with_an_input_that_is_not_is_refused() -> None:
    """Whether the input has not begun or is finished in part."""
    for left in ((), (edge(SCALED, (0, 3)),)):
        markers = Markers(epoch=3, edges=(*left, edge(SUMS, epoch=3)))

        assert (Offence(rule=Rule.FINISHED_AFTER_RUNNING, operator_id="sums", input_id="scaled"),) == check_restore(
            KMEANS, markers
        )


def test_part_of_an_operator_whose_wide_input_is_not_finished_is_refused() -> None:
    """One bucket that is missing is enough, whichever it is."""
    wide = replace(SHARES, inputs=(Input(operator_id="sums", exchange=Exchange.WIDE),))
    topology = Topology(vertices=(SCALED, CENTRES, SUMS, wide))
    markers = Markers(epoch=3, finished=FOR_GOOD, edges=(edge(SUMS, (0, 3), epoch=3), edge(wide, (0, 1), epoch=3)))

    assert (Offence(rule=Rule.PART_AFTER_WIDE, operator_id="shares", input_id="sums"),) == check_restore(
        topology, markers
    )


def test_part_of_an_operator_whose_narrow_input_lacks_those_buckets_is_refused() -> None:
    markers = Markers(epoch=3, finished=FOR_GOOD, edges=(edge(SUMS, (0, 2), epoch=3), edge(SHARES, (1, 4), epoch=3)))

    assert (
        Offence(rule=Rule.PART_AFTER_NARROW, operator_id="shares", input_id="sums", buckets=((2, 4),)),
    ) == check_restore(KMEANS, markers)


def test_part_of_an_operator_whose_narrow_input_has_not_begun_is_refused() -> None:
    markers = Markers(epoch=0, finished=FOR_GOOD, edges=(edge(SHARES, (1, 2)),))

    assert (
        Offence(rule=Rule.PART_AFTER_NARROW, operator_id="shares", input_id="sums", buckets=((1, 2),)),
    ) == check_restore(KMEANS, markers)


def test_narrow_input_of_another_number_of_buckets_counts_as_wide() -> None:
    other = replace(SUMS, total=8)
    topology = Topology(vertices=(SCALED, CENTRES, other, SHARES))
    markers = Markers(epoch=0, finished=FOR_GOOD, edges=(edge(other, (0, 4)), edge(SHARES, (0, 2))))

    assert (Offence(rule=Rule.PART_AFTER_WIDE, operator_id="sums", input_id="scaled"),) == tuple(
        replace(offence, operator_id="sums", input_id="scaled")
        for offence in check_restore(topology, markers)
        if offence.operator_id == "shares"
    )


def test_global_operator_that_is_half_finished_is_refused() -> None:
    half = replace(MOVED, total=2)
    topology = Topology(vertices=(SCALED, CENTRES, SUMS, SHARES, half))
    edges = (edge(CENTRES), edge(SUMS), edge(SHARES), edge(half, (0, 1)))

    assert (Offence(rule=Rule.HALF_OF_GLOBAL, operator_id="moved"),) == check_restore(
        topology, Markers(epoch=0, finished=FOR_GOOD, edges=edges)
    )


def test_edge_of_epoch_0_without_the_first_values_that_it_was_computed_from_is_refused() -> None:
    """No checkpoint holds these yet: computed again, they may come out differently (P1)."""
    expected = Offence(rule=Rule.FINISHED_AFTER_RUNNING, operator_id="sums", input_id="centres")

    assert (expected,) == check_restore(KMEANS, Markers(epoch=0, finished=FOR_GOOD, edges=(edge(SUMS),)))
    assert () == check_restore(KMEANS, Markers(epoch=1, finished=FOR_GOOD, edges=(edge(SUMS, epoch=1),)))


@pytest.mark.parametrize("left", [(), (edge(SCALED, (0, 3)),)], ids=["nothing", "a part"])
def test_first_value_of_a_variable_whose_input_is_not_finished_is_refused(left: tuple[EdgeState, ...]) -> None:
    """In epoch 0 a variable is an output as any other; later the checkpoint holds it, whatever its input became."""
    expected = Offence(rule=Rule.FINISHED_AFTER_RUNNING, operator_id="centres", input_id="scaled")

    assert (expected,) == check_restore(KMEANS, Markers(epoch=0, edges=(*left, edge(CENTRES))))
    assert () == check_restore(KMEANS, Markers(epoch=1, edges=left))


def test_unknown_operator_counts_as_one_that_runs() -> None:
    """Also when a marker says that it has finished: nobody would compute it any more."""
    after = replace(SUMS, inputs=(Input(operator_id="unknown", exchange=Exchange.NARROW),))
    markers = Markers(epoch=0, finished=frozenset({"unknown"}), edges=(edge(after, (0, 1)),))

    assert (Offence(rule=Rule.PART_AFTER_WIDE, operator_id="sums", input_id="unknown"),) == check_restore(
        Topology(vertices=(after,)), markers
    )


def test_new_operator_before_one_that_finished_is_refused_by_name() -> None:
    """As when somebody edits the iteration between two attempts."""
    before = replace(SCALED, operator_id="cleaned", name="cleaned")
    after = replace(SCALED, inputs=(Input(operator_id="cleaned", exchange=Exchange.NARROW),))

    offences = check_restore(Topology(vertices=(before, after)), Markers(epoch=2, finished=FOR_GOOD))

    assert ["operator 'scaled' is finished, but its input 'cleaned' is not"] == [o.describe() for o in offences]


def test_every_offence_is_named() -> None:
    markers = Markers(epoch=0, edges=(edge(SUMS, (0, 1)), edge(MOVED)))

    assert [
        "operator 'sums' is finished in part, but the buckets 0 of its input 'scaled' are not",
        "operator 'sums' is finished in part, but 'centres', of which every part needs all, is not",
        "operator 'moved' is finished, but its input 'shares' is not",
        "operator 'moved' is finished, but its input 'centres' is not",
    ] == [offence.describe() for offence in check_restore(KMEANS, markers)]


@pytest.mark.parametrize("rule", Rule)
def test_offence_names_the_operators(rule: Rule) -> None:
    said = Offence(rule=rule, operator_id="b", input_id="a", buckets=((0, 2),)).describe()

    assert said.startswith("operator 'b' is finished")
    assert ("'a'" in said) is (rule is not Rule.HALF_OF_GLOBAL)


def test_variable_is_computed_before_epoch_0_and_comes_from_the_checkpoint_afterwards() -> None:
    statuses = [Markers(epoch=epoch).status(CENTRES) for epoch in (0, 1)]

    assert [OperatorStatus.RUNNING, OperatorStatus.FINISHED] == statuses
    assert OperatorStatus.FINISHED is Markers(epoch=0, edges=(edge(CENTRES),)).status(CENTRES)


def test_markers_of_a_run_are_those_of_the_epoch_that_comes_next() -> None:
    """Whoever takes the run over finds the same; what a later epoch left is nobody's."""
    part = FinishedPart(operator_id="sums", total=4, first_bucket=0, end_bucket=2, output={})
    state = started(
        FIRST.finishes("scaled"),
        FIRST.opens(0),
        FIRST.switches(0),
        FIRST.marks(0, part),
        FIRST.marks(NO_EPOCH, replace(part, operator_id="cleaned")),
    )
    cleaned = replace(SCALED, operator_id="cleaned")
    expected = Markers(epoch=0, finished=FOR_GOOD, edges=(edge(cleaned, (0, 2)), edge(SUMS, (0, 2))))

    assert replace(expected, was_unaligned=True) == Markers.of(state)
    assert expected == Markers.of(play(state, claim(2, takeover=True)))
    assert replace(expected, was_unaligned=True) == Markers.of(
        play(
            state,
            FIRST.reports(0),
            FIRST.opens(1),
            FIRST.switches(1),
            FIRST.marks(1, part),
        )
    )
    assert replace(expected, was_unaligned=False) == Markers.of(play(state, claim(2, takeover=True), SECOND.opens(0)))
