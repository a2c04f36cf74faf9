"""What becomes of an operator that carries state? Four operators that carry none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from iteration_lib.model.carry import no_state
from iteration_lib.model.graph import Graph
from iteration_lib.model.iteration import Iteration
from iteration_lib.model.operator import Kind, Operator, Pair, Role, StateScope


def remembering() -> Iteration:
    """An iteration whose operator `sums` remembers."""
    iteration = Iteration("km")

    @iteration.data
    def points() -> None: ...

    @iteration.variable
    def centroids(points: Any) -> None: ...

    @iteration.map_buckets(state="carry", operator_id="summed", parallelism=3, capture=False)
    def sums(points: Any, state: Any, centroids: Any, rng: Any) -> Any: ...

    @iteration.operator
    def moved(sums: Any) -> None: ...

    iteration.feedback(centroids=moved)
    return iteration


def declared(graph: Graph, operator_id: str) -> Operator:
    return next(operator for operator in graph.operators if operator.operator_id == operator_id)


def test_operator_that_carries_state_becomes_a_variable_a_call_and_its_two_halves() -> None:
    graph = remembering().graph()
    call = declared(graph, "summed")
    half = Operator(
        operator_id="summed.result",
        name="sums",
        role=Role.OPERATOR,
        kind=Kind.BUCKETS,
        function=call.function,
        inputs=("sums.call",),
        injected=(),
        parallelism=3,
        capture=False,
        pair=Pair.RESULT,
        part_of="summed",
    )

    assert (
        replace(
            half,
            operator_id="summed",
            name="sums.call",
            inputs=("points", "centroids", "sums.state"),
            injected=("rng",),
            state=StateScope.CARRY,
            pair=Pair.CALL,
            part_of=None,
        )
        == call
    )
    assert half == graph.operator("sums")
    assert replace(half, operator_id="summed.state-next", name="sums.state-next", pair=Pair.STATE) == graph.operator(
        "sums.state-next"
    )
    assert replace(
        half,
        operator_id="summed.state",
        name="sums.state",
        role=Role.VARIABLE,
        function=no_state,
        inputs=(),
        pair=None,
    ) == graph.operator("sums.state")


def test_each_of_the_four_comes_after_its_inputs_and_is_used() -> None:
    graph = remembering().graph()
    order = [operator.name for operator in graph.operators]

    assert ["sums.state", "sums.call", "sums", "sums.state-next"] == [name for name in order if "sums" in name]
    assert all(order.index(name) < order.index(o.name) for o in graph.operators for name in o.inputs)
    assert {"sums.state": 1, "sums.call": 2, "sums": 1, "sums.state-next": 1} == {
        name: graph.uses(name) for name in order if "sums" in name
    }
    assert ("sums.call", "sums", "sums.state-next", "moved") == tuple(o.name for o in graph.per_epoch())


def test_carried_state_is_no_head_but_is_handed_to_the_next_epoch() -> None:
    """A run whose variables feed nothing back terminates, whatever its operators remember."""
    graph = remembering().graph()

    assert ("centroids",) == graph.heads
    assert {"centroids": "moved"} == graph.feedback == graph.outputs
    assert {"sums.state": "sums.state-next"} == graph.states
    assert {"centroids": "moved", "sums.state": "sums.state-next"} == graph.tails
    assert ("centroids", "sums.state") == tuple(sorted(o.name for o in graph.variables))


@pytest.mark.parametrize("use", ["feedback", "criteria", "output"])
def test_result_of_an_operator_that_carries_state_may_be_used_as_any_other(use: str) -> None:
    iteration = remembering()

    @iteration.variable
    def count() -> None: ...

    @iteration.operator(state="carry")
    def counted(count: Any, state: Any) -> Any: ...

    iteration.feedback(count=counted)
    if use == "criteria":
        iteration.criteria(counted)
    if use == "output":
        iteration.output(count=counted)

    graph = iteration.graph()
    assert Pair.RESULT is graph.operator("counted").pair
    assert (Kind.VALUE, Kind.VALUE) == (graph.operator("count").kind, graph.operator("counted.state").kind)
    assert (
        "counted"
        in {"feedback": graph.feedback.values(), "criteria": [graph.criteria], "output": graph.outputs.values()}[use]
    )


def test_operator_without_state_stays_as_it_was_declared() -> None:
    found = remembering().graph().operator("moved")

    assert (None, None, None, ("sums",)) == (found.state, found.pair, found.part_of, found.inputs)
