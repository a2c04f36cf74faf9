"""What stands for a loop that is not ours to see?"""

from __future__ import annotations

import pytest

from iteration_lib.errors import DefinitionError
from iteration_lib.model.definition import describe
from iteration_lib.model.loop import BODY, graph_of_loop, loop_differences, loop_graph


def test_body_takes_every_variable_and_feeds_each_back() -> None:
    graph = loop_graph(["centres", "best"])

    assert {"best": BODY, "centres": BODY} == graph.feedback == graph.outputs
    assert (BODY, ("best", "centres")) == (graph.criteria, graph.operator(BODY).inputs)


def test_loop_is_found_again_in_the_definition_that_it_left_whatever_the_order() -> None:
    graph = graph_of_loop(describe(loop_graph(["centres", "best"])))

    assert graph == loop_graph(["best", "centres"])
    assert () == loop_differences(graph, loop_graph(["best", "centres"]))


def test_definition_of_a_loop_does_not_change_with_this_code() -> None:
    """Else runs that have begun could not go on."""
    operators = describe(loop_graph(["x"]))["operators"]

    assert {"x": CODE, BODY: CODE} == {name: found["code"] for name, found in operators.items()}


CODE = "f43a325932c9cbf88b20f50125c79992398914d55e7775e2ba6fe23ebc77d22a"


def test_variables_that_only_one_of_two_loops_has_are_named() -> None:
    differences = loop_differences(loop_graph(["a", "b"]), loop_graph(["b", "c"]))

    assert ("variable 'a' is gone", "variable 'c' is new") == differences


@pytest.mark.parametrize("name", ["number", "metrics", "stop", "criteria", "_own"])
def test_name_that_means_something_else_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match=f"cannot have a variable '{name}', which means something else"):
        loop_graph(["fine", name])


@pytest.mark.parametrize("name", ["", "a b", "a/b", "..", "loop.body", "x" * 101, "ü" * 51])
def test_name_that_no_attribute_or_folder_can_have_is_refused_before_the_run_has_come_to_its_end(name: str) -> None:
    with pytest.raises(DefinitionError, match=r"cannot have a variable .*; choose a Python name of at most 100 bytes"):
        loop_graph(["fine", name])


def test_loop_without_variables_is_refused() -> None:
    with pytest.raises(DefinitionError, match="has no variable; give the first value of one"):
        loop_graph([])
