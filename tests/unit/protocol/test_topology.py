"""What does an operator wait for: everything of an input, or the same buckets of it?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from iteration_lib.protocol.topology import Exchange, Input, Topology, Vertex


def vertex(operator_id: str, *inputs: Input) -> Vertex:
    return Vertex(operator_id=operator_id, name=operator_id, total=4, inputs=inputs, is_global=False)


@pytest.mark.parametrize("order", [(Exchange.NARROW, Exchange.WIDE), (Exchange.WIDE, Exchange.NARROW)])
def test_of_several_inputs_from_one_operator_the_wide_one_counts(order: tuple[Exchange, Exchange]) -> None:
    sums = vertex("sums", *(Input(operator_id="scaled", exchange=exchange) for exchange in order))

    assert {"scaled": Exchange.WIDE} == sums.predecessors


def test_global_operator_takes_every_input_as_a_whole() -> None:
    sums = replace(vertex("sums", Input(operator_id="scaled", exchange=Exchange.NARROW)), is_global=True)

    assert {"scaled": Exchange.WIDE} == sums.predecessors


def test_operator_that_comes_before_its_input_is_no_topology() -> None:
    late = vertex("sums", Input(operator_id="scaled", exchange=Exchange.WIDE))

    with pytest.raises(ValueError, match="'sums' comes before its input 'scaled'"):
        Topology(vertices=(late, vertex("scaled")))


def test_operator_that_is_there_twice_is_no_topology() -> None:
    with pytest.raises(ValueError, match="'sums'"):
        Topology(vertices=(vertex("sums"), vertex("sums")))


def test_input_that_nobody_knows_is_left_to_the_check_of_restoring() -> None:
    topology = Topology(vertices=(vertex("sums", Input(operator_id="gone", exchange=Exchange.WIDE)),))

    assert (None, "sums") == (topology.vertex("gone"), topology.vertices[0].operator_id)


def test_what_neither_finishes_nor_runs_in_every_epoch_is_a_variable() -> None:
    kinds = [
        Vertex(operator_id="x", name="x", finishes=finishes, is_per_epoch=is_per_epoch)
        for finishes, is_per_epoch in ((False, True), (True, False), (False, False))
    ]

    assert [False, False, True] == [kind.is_variable for kind in kinds]
