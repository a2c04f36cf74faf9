"""Do an iteration's operators fit together? Every rule refuses with a sentence that names the operator."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from iteration_lib.errors import DefinitionError
from iteration_lib.model.iteration import Iteration
from iteration_lib.model.operator import Function, Kind, StateScope

Wire = Callable[[Iteration], None]


def sound(name: str = "km") -> Iteration:
    """An iteration of one data stream, one operator that finishes, one variable and its feedback."""
    iteration = Iteration(name)

    @iteration.data
    def points() -> None: ...

    @iteration.map_buckets(finishes=True, operator_id="scaled-points")
    def scaled(points: Any) -> None: ...

    @iteration.variable(operator_id="first-centroids")
    def centroids(scaled: Any) -> None: ...

    @iteration.map_buckets(parallelism=3)
    def sums(scaled: Any, centroids: Any, bucket: Any) -> None: ...

    @iteration.operator
    def moved(sums: Any, metrics: Any, epoch: Any) -> None: ...

    iteration.feedback(centroids=moved)
    return iteration


def refused(*wires: Wire, iteration: Iteration | None = None) -> str:
    """Return the sentence with which the wiring is refused."""

    def make() -> None:
        wired = iteration or sound()
        for wire in wires:
            wire(wired)
        wired.graph()

    with pytest.raises(DefinitionError) as caught:
        make()
    return str(caught.value)


def test_operators_run_in_an_order_in_which_each_comes_after_its_inputs() -> None:
    graph = sound().graph()

    assert ("points", "scaled", "centroids", "sums", "moved") == tuple(o.name for o in graph.operators)
    assert ("sums", "moved") == tuple(o.name for o in graph.per_epoch())
    assert ("points",) == tuple(o.name for o in graph.data)
    assert ("centroids",) == tuple(o.name for o in graph.variables)


def test_variables_are_published_where_no_output_is_named() -> None:
    assert {"centroids": "moved"} == sound().graph().outputs


def test_variable_takes_kind_and_parallelism_of_its_tail() -> None:
    iteration = Iteration("km")

    @iteration.data
    def points() -> None: ...

    @iteration.variable
    def ranks(points: Any) -> None: ...

    @iteration.map_buckets(parallelism=5)
    def spread(points: Any, ranks: Any) -> None: ...

    iteration.feedback(ranks=spread)

    found = iteration.graph().operator("ranks")
    assert (Kind.BUCKETS, 5) == (found.kind, found.parallelism)


def test_variable_keeps_a_parallelism_of_its_own() -> None:
    iteration = Iteration("km")

    @iteration.variable(parallelism=2)
    def ranks(bucket: Any) -> None: ...

    @iteration.map_buckets(parallelism=5)
    def spread(ranks: Any) -> None: ...

    iteration.feedback(ranks=spread)

    assert 2 == iteration.graph().operator("ranks").parallelism


def test_uses_of_a_stream_are_its_consumers_its_feedback_and_the_criteria() -> None:
    iteration = sound()

    @iteration.operator
    def moving(moved: Any, centroids: Any) -> None: ...

    iteration.criteria(moving)

    graph = iteration.graph()
    assert {"points": 1, "scaled": 2, "centroids": 2, "sums": 1, "moved": 2, "moving": 1} == {
        operator.name: graph.uses(operator.name) for operator in graph.operators
    }
    assert ("centroids", "criteria") == graph.heads


def test_result_that_is_an_output_alone_is_used_once_for_each_name() -> None:
    """Written under two names it is computed once all the same: what is used twice is kept."""
    iteration = sound()

    @iteration.map_buckets
    def distances(scaled: Any, moved: Any) -> None: ...

    iteration.output(distances=distances)
    once = iteration.graph()
    iteration.output(again=distances)

    assert (1, 2) == (once.uses("distances"), iteration.graph().uses("distances"))
    assert ("centroids",) == once.heads


def test_result_that_feeds_two_variables_is_used_twice() -> None:
    iteration = Iteration("km")

    @iteration.variable
    def one() -> None: ...

    @iteration.variable
    def other() -> None: ...

    @iteration.operator
    def both(one: Any, other: Any) -> None: ...

    iteration.feedback(one=both, other=both)

    graph = iteration.graph()
    assert (2, {"one": "both", "other": "both"}) == (graph.uses("both"), graph.feedback)


@pytest.mark.parametrize("output", ["", "..", "a/b", "with space"])
def test_output_that_cannot_name_a_folder_is_refused(output: str) -> None:
    iteration = sound()
    moved = next(operator.function for operator in iteration.graph().operators if operator.name == "moved")

    assert f"iteration 'km': the name of an output is made of letters, digits and ._-=+, not {output!r}" == refused(
        lambda wired: wired.output(**{output: moved}), iteration=iteration
    )


def test_input_that_is_not_there_names_the_operator_and_what_there_is() -> None:
    def wire(iteration: Iteration) -> None:
        @iteration.operator(operator_id="the-stray")
        def stray(sumz: Any) -> None: ...

    assert (
        "iteration 'km', operator 'the-stray': names an input 'sumz' that is not there; there are: "
        "centroids, moved, points, scaled, stray, sums"
    ) == refused(wire)


def test_cycle_names_an_operator_in_it_and_the_whole_way_round() -> None:
    def wire(iteration: Iteration) -> None:
        @iteration.operator
        def chicken(egg: Any) -> None: ...

        @iteration.operator
        def egg(chicken: Any) -> None: ...

    sentence = refused(wire)

    assert re.match(
        r"iteration 'km', operator '(chicken|egg)': takes part in a cycle: "
        r"(chicken -> egg -> chicken|egg -> chicken -> egg);",
        sentence,
    )
    assert sentence.endswith("only feedback(...) leads back, to a variable")


def test_operator_that_takes_itself_is_a_cycle() -> None:
    def wire(iteration: Iteration) -> None:
        @iteration.operator
        def looping(looping: Any) -> None: ...

    assert refused(wire).startswith("iteration 'km', operator 'looping': takes part in a cycle: looping -> looping;")


def test_two_operators_with_one_id_are_refused_by_the_id() -> None:
    def wire(iteration: Iteration) -> None:
        @iteration.operator(operator_id="scaled-points")
        def other(sums: Any) -> None: ...

    assert "iteration 'km', operator 'scaled-points': two operators have this id; give one another" == refused(wire)


def test_two_operators_with_one_name_are_refused_by_the_name() -> None:
    def wire(iteration: Iteration) -> None:
        @iteration.operator(operator_id="another")
        def sums(scaled: Any) -> None: ...

    assert "iteration 'km', operator 'sums': two operators have this name; give one another" == refused(wire)


@pytest.mark.parametrize("operator_id", ["", ".", "..", "a/b", "../up", "with space", "nul\0", "Ünï/code"])
def test_operator_id_that_cannot_name_a_folder_is_refused_before_anything_runs(operator_id: str) -> None:
    def wire(iteration: Iteration) -> None:
        @iteration.operator(operator_id=operator_id or "?")
        def other(sums: Any) -> None: ...

    assert refused(wire).endswith("an operator's id is made of letters, digits and ._-=+; choose another")


@pytest.mark.parametrize("name", ["params", "epoch", "metrics", "rng", "bucket", "spark", "criteria"])
def test_reserved_name_is_refused(name: str) -> None:
    def wire(iteration: Iteration) -> None:
        def function(sums: Any) -> None: ...

        function.__name__ = name
        iteration.operator(operator_id="other")(function)

    assert f"iteration 'km', operator 'other': the name {name!r} is reserved; choose another" == refused(wire)


def test_iteration_without_variable_is_refused() -> None:
    iteration = Iteration("empty")

    assert "iteration 'empty': has no variable; declare one with @iteration.variable" == refused(iteration=iteration)


def test_variable_that_nothing_feeds_back_is_refused_by_its_id() -> None:
    def wire(iteration: Iteration) -> None:
        @iteration.variable(operator_id="first-weights")
        def weights() -> None: ...

    assert (
        "iteration 'km', operator 'first-weights': is a variable that nothing feeds back; add "
        "iteration.feedback(weights=...)"
    ) == refused(wire)


def test_feedback_to_what_is_no_variable_is_refused() -> None:
    def wire(iteration: Iteration) -> None:
        @iteration.operator
        def more(sums: Any) -> None: ...

        iteration.feedback(sums=more)

    assert "iteration 'km': feedback(sums=...) names no variable; there are: centroids" == refused(wire)


def test_function_that_was_not_declared_cannot_feed_back() -> None:
    def stranger() -> None: ...

    assert "iteration 'km': 'stranger' is not declared here; decorate it with @km.operator first" == refused(
        lambda iteration: iteration.feedback(centroids=stranger)
    )


@pytest.mark.parametrize("role", ["data", "variable"])
@pytest.mark.parametrize("use", ["feedback", "criteria", "output"])
def test_data_or_variable_can_neither_feed_back_nor_be_criteria_nor_output(role: str, use: str) -> None:
    """A variable's function gives its value before epoch 0: published, it would be the untrained model."""
    iteration = Iteration("km")

    @iteration.data
    def points() -> None: ...

    @iteration.variable(operator_id="first")
    def centroids(points: Any) -> None: ...

    @iteration.operator
    def moved(points: Any, centroids: Any) -> None: ...

    iteration.feedback(centroids=moved)
    functions: dict[str, Function] = {"data": points, "variable": centroids}
    function = functions[role]
    {
        "feedback": lambda: iteration.feedback(centroids=function),
        "criteria": lambda: iteration.criteria(function),
        "output": lambda: iteration.output(model=function),
    }[use]()

    operator_id = {"data": "points", "variable": "first"}[role]
    what = {"feedback": "feed back; feed back", "criteria": "feed back; feed back", "output": "be published; publish"}
    assert (
        f"iteration 'km', operator '{operator_id}': is a {role} and cannot {what[use]} an operator's result"
    ) == refused(iteration=iteration)


class Moved:
    """Not a function, though it can be called."""

    def __call__(self, sums: Any) -> None: ...


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (functools.partial(max, 1), "is a partial, not a function"),
        (Moved(), "is a Moved, not a function"),
        (Moved, "Moved is a type, not a function"),
    ],
)
def test_operator_is_a_function(given: Any, problem: str) -> None:
    assert problem in refused(lambda iteration: iteration.operator(given))
    assert problem in refused(lambda iteration: iteration.on_epoch_durable(given))


def test_operator_is_no_coroutine_and_no_generator() -> None:
    async def later(sums: Any) -> None: ...

    def bit_by_bit(sums: Any) -> Iterator[Any]:
        yield sums

    for function in (later, bit_by_bit):
        problem = f"{function.__name__!r} gives a coroutine or a generator, which nobody runs; write a plain function"
        assert f"iteration 'km': {problem}" == refused(lambda iteration, f=function: iteration.operator(f))


def test_data_stream_cannot_take_an_input() -> None:
    def wire(iteration: Iteration) -> None:
        @iteration.data
        def labels(points: Any) -> None: ...

    assert (
        "iteration 'km', operator 'labels': is a data stream and cannot take the input 'points'; make it an operator"
    ) == refused(wire)


def test_operator_that_finishes_for_good_cannot_depend_on_what_changes() -> None:
    def wire(iteration: Iteration) -> None:
        @iteration.operator(finishes=True)
        def done(centroids: Any) -> None: ...

    assert (
        "iteration 'km', operator 'done': finishes for good, but its input 'centroids' changes every epoch; drop "
        "finishes=True"
    ) == refused(wire)


def test_operator_that_finishes_for_good_cannot_ask_for_the_epoch() -> None:
    def wire(iteration: Iteration) -> None:
        @iteration.operator(finishes=True)
        def done(scaled: Any, epoch: Any) -> None: ...

    assert "operator 'done': finishes for good, but its input 'epoch' changes every epoch" in refused(wire)


def test_first_value_of_a_variable_cannot_depend_on_what_changes() -> None:
    def wire(iteration: Iteration) -> None:
        @iteration.variable
        def weights(sums: Any) -> None: ...

        @iteration.operator
        def next_weights(weights: Any) -> None: ...

        iteration.feedback(weights=next_weights)

    assert (
        "iteration 'km', operator 'weights': is a variable's first value, but its input 'sums' changes every epoch; "
        "take what finishes for good"
    ) == refused(wire)


def test_what_depends_on_a_changing_operator_changes_too() -> None:
    def wire(iteration: Iteration) -> None:
        @iteration.operator
        def between(sums: Any) -> None: ...

        @iteration.operator(finishes=True)
        def done(between: Any) -> None: ...

    assert "operator 'done': finishes for good, but its input 'between' changes every epoch" in refused(wire)


@pytest.mark.parametrize(
    ("decorate", "injected", "kind"),
    [
        ("operator", "bucket", "value"),
        ("operator", "spark", "value"),
        ("map_buckets", "metrics", "buckets"),
        ("map_buckets", "spark", "buckets"),
        ("transform", "rng", "frame"),
        ("transform", "metrics", "frame"),
        ("transform", "bucket", "frame"),
        ("data", "epoch", "data"),
        ("data", "metrics", "data"),
    ],
)
def test_injection_that_its_kind_cannot_have_is_refused(decorate: str, injected: str, kind: str) -> None:
    def wire(iteration: Iteration) -> None:
        space: dict[str, Any] = {}
        taken = injected if decorate == "data" else f"points, {injected}"
        exec(f"def other({taken}): ...", space)  # noqa: S102 - a parameter whose name is a parameter
        getattr(iteration, decorate)(space["other"])

    assert f"iteration 'km', operator 'other': works on {kind} and cannot take {injected!r}" == refused(wire)


def test_variable_cannot_take_what_the_kind_of_its_tail_cannot() -> None:
    """Its kind is known once its tail is."""

    def wire(iteration: Iteration) -> None:
        @iteration.variable
        def weights(scaled: Any, metrics: Any) -> None: ...

        @iteration.map_buckets
        def next_weights(weights: Any) -> None: ...

        iteration.feedback(weights=next_weights)

    assert "iteration 'km', operator 'weights': works on buckets and cannot take 'metrics'" == refused(wire)


def test_operator_on_buckets_cannot_take_a_frame() -> None:
    def wire(iteration: Iteration) -> None:
        @iteration.transform
        def joined(points: Any) -> None: ...

        @iteration.map_buckets
        def counted(joined: Any) -> None: ...

    assert (
        "iteration 'km', operator 'counted': works on buckets, but its input 'joined' is a DataFrame; make it a "
        "transform"
    ) == refused(wire)


def test_operator_on_buckets_needs_an_input_that_has_any() -> None:
    def wire(iteration: Iteration) -> None:
        @iteration.map_buckets
        def lonely(moved: Any) -> None: ...

    assert (
        "iteration 'km', operator 'lonely': works on buckets, but no input of it has any; take a data stream, a "
        "bucketed stream, or `bucket`"
    ) == refused(wire)


def test_operator_on_buckets_may_make_its_own() -> None:
    iteration = sound()

    @iteration.map_buckets
    def noise(moved: Any, bucket: Any) -> None: ...

    iteration.output(noise=noise)
    assert Kind.BUCKETS == iteration.graph().operator("noise").kind


def test_lazy_operator_that_nothing_uses_is_refused() -> None:
    def wire(iteration: Iteration) -> None:
        @iteration.map_buckets
        def other(points: Any) -> None: ...

    advice = "has a result that nothing uses; feed it back, make it an output, or remove it"
    assert f"iteration 'km', operator 'other': {advice}" == refused(wire)


@pytest.mark.parametrize("parallelism", [0, -1])
def test_parallelism_below_one_is_refused(parallelism: int) -> None:
    def wire(iteration: Iteration) -> None:
        @iteration.map_buckets(parallelism=parallelism)
        def other(points: Any) -> None: ...

    assert f"iteration 'km', operator 'other': parallelism is {parallelism}; it is at least 1" == refused(wire)


def test_params_that_are_no_dataclass_are_refused() -> None:
    with pytest.raises(DefinitionError) as caught:
        Iteration("km", params=dict)

    assert "iteration 'km': params must be a dataclass, not <class 'dict'>" == str(caught.value)


def test_decorators_return_the_function_as_it_was() -> None:
    """Each operator can be called and tested by itself."""
    iteration = Iteration("km")

    def double(points: int) -> int:
        return 2 * points

    assert double is iteration.operator(double)
    assert double is iteration.map_buckets(operator_id="b")(double)
    assert double is iteration.transform(operator_id="f")(double)
    assert double is iteration.variable(operator_id="v")(double)
    assert 4 == double(2)


def test_parameters_with_a_default_are_the_functions_own() -> None:
    iteration = sound()

    @iteration.operator
    def scaled_sums(sums: Any, *rest: Any, factor: float = 2.0, **more: Any) -> None: ...

    assert ("sums",) == iteration.graph().operator("scaled_sums").inputs


@pytest.mark.parametrize(
    ("options", "parameters", "problem"),
    [
        (
            {"state": "carry"},
            "sums",
            'has state="carry", but does not take `state`',
        ),
        (
            {"state": "fresh"},
            "sums",
            'has state="fresh", but does not take `scratch`',
        ),
        (
            {"state": "carry", "finishes": True},
            "scaled, state",
            'finishes for good, before any epoch, so it has no state="carry"; drop one of them',
        ),
        (
            {"state": "fresh", "finishes": True},
            "scaled, scratch",
            'finishes for good, before any epoch, so it has no state="fresh"; drop one of them',
        ),
        (
            {"capture": False, "finishes": True},
            "scaled",
            "finishes for good, so what it computed has to be kept; drop capture=False",
        ),
        ({"state": "whole"}, "sums, state", 'state is \'whole\'; it is "carry" or "fresh", or left out'),
    ],
)
@pytest.mark.parametrize("decorate", ["operator", "map_buckets"])
def test_operator_that_keeps_what_it_cannot_is_refused(
    decorate: str, options: dict[str, Any], parameters: str, problem: str
) -> None:
    def wire(iteration: Iteration) -> None:
        space: dict[str, Any] = {}
        exec(f"def other({parameters}): ...", space)  # noqa: S102 - parameters that are parameters
        iteration.output(other=getattr(iteration, decorate)(**options)(space["other"]))

    assert f"iteration 'km', operator 'other': {problem}" == refused(wire)


@pytest.mark.parametrize(("state", "parameter"), [("carry", "state"), ("fresh", "scratch")])
def test_operator_that_takes_what_it_does_not_say_that_it_keeps_is_told_how(state: str, parameter: str) -> None:
    def wire(iteration: Iteration) -> None:
        space: dict[str, Any] = {}
        exec(f"def other(sums, {parameter}): ...", space)  # noqa: S102 - a parameter whose name is a parameter
        iteration.operator(space["other"])

    sentence = refused(wire)

    assert sentence.startswith(f"iteration 'km', operator 'other': names an input '{parameter}' that is not there;")
    assert sentence.endswith(f'; an operator takes `{parameter}` where it is declared with state="{state}"')


@pytest.mark.parametrize(("state", "parameter"), [("carry", "state"), ("fresh", "scratch")])
def test_name_of_what_an_operator_keeps_cannot_also_be_an_operators(state: Any, parameter: str) -> None:
    def wire(iteration: Iteration) -> None:
        space: dict[str, Any] = {}
        exec(f"def other(sums, {parameter}): ...\ndef {parameter}(sums): ...", space)  # noqa: S102 - as above
        iteration.operator(space[parameter])
        iteration.operator(state=state)(space["other"])

    assert (
        f"iteration 'km', operator 'other': takes `{parameter}`, its own, but another operator has that name; rename "
        "that one"
    ) == refused(wire)


def test_variable_called_state_is_no_state_of_its_consumers() -> None:
    """The name means what an operator keeps only where the operator says that it keeps something."""
    iteration = Iteration("km")

    @iteration.variable
    def state() -> None: ...

    @iteration.operator
    def moved(state: Any) -> None: ...

    iteration.feedback(state=moved)

    graph = iteration.graph()
    assert (("state",), (), {}) == (graph.operator("moved").inputs, graph.operator("moved").injected, graph.states)


def test_operator_that_carries_state_still_needs_an_input_that_has_buckets() -> None:
    """Its own state has some, but nothing would tell one bucket from another."""

    def wire(iteration: Iteration) -> None:
        @iteration.map_buckets(state="carry")
        def lonely(moved: Any, state: Any) -> None: ...

    assert "operator 'lonely': works on buckets, but no input of it has any" in refused(wire)


@pytest.mark.parametrize("hidden", ["remembered.state", "remembered.result", "remembered.state-next"])
def test_operator_with_the_id_of_a_hidden_one_is_refused_by_the_id(hidden: str) -> None:
    def wire(iteration: Iteration) -> None:
        @iteration.operator(operator_id=hidden)
        def other(sums: Any) -> None: ...

        @iteration.operator(state="carry")
        def remembered(sums: Any, state: Any) -> Any: ...

    assert f"iteration 'km', operator '{hidden}': two operators have this id; give one another" == refused(wire)


def test_operator_gets_a_folder_for_the_epoch_only_where_it_says_so() -> None:
    iteration = sound()

    @iteration.operator(state="fresh")
    def sorted_sums(sums: Any, scratch: str) -> None: ...

    found = iteration.graph().operator("sorted_sums")
    assert (("sums",), ("scratch",), StateScope.FRESH) == (found.inputs, found.injected, found.state)


def test_operators_are_captured_and_data_is_replayed_unless_they_say_otherwise() -> None:
    iteration = sound()

    @iteration.data(replays=False, operator_id="latest-news")
    def news() -> None: ...

    @iteration.map_buckets(capture=False)
    def read(news: Any, points: Any) -> None: ...

    @iteration.operator(capture=False)
    def summed(read: Any) -> None: ...

    @iteration.transform(capture=False)
    def framed(read: Any) -> None: ...

    iteration.output(framed=framed)

    graph = iteration.graph()
    assert {"news"} == {o.name for o in graph.operators if not o.replays}
    assert {"read", "summed", "framed"} == {o.name for o in graph.operators if not o.capture}
    assert "latest-news" == graph.operator("news").operator_id


def open_ended(**options: Any) -> Iteration:
    iteration = Iteration("stream", open_ended=True, **options)

    @iteration.data(replays=False)
    def events() -> None: ...

    @iteration.variable
    def queue(events: Any) -> None: ...

    @iteration.operator
    def left(queue: Any) -> None: ...

    iteration.feedback(queue=left)
    return iteration


def test_iteration_says_whether_it_is_open_ended() -> None:
    assert (True, ("queue",), False) == (
        open_ended().graph().open_ended,
        open_ended().graph().heads,
        sound().graph().open_ended,
    )


def test_open_ended_iteration_has_no_criteria() -> None:
    def wire(iteration: Iteration) -> None:
        @iteration.operator(operator_id="enough")
        def is_enough(queue: Any) -> None: ...

        iteration.criteria(is_enough)

    assert (
        "iteration 'stream', operator 'enough': is the criteria of an open-ended iteration, which ends only when "
        "nothing is fed back; drop one of the two"
    ) == refused(wire, iteration=open_ended())


def test_open_ended_iteration_has_no_last_epoch() -> None:
    @dataclass
    class Limited:
        max_epochs: int = 3

    assert Limited is Iteration("km", params=Limited).params
    with pytest.raises(DefinitionError) as caught:
        open_ended(params=Limited)

    assert (
        "iteration 'stream': is open-ended, so it has no last epoch; drop the parameter `max_epochs`, or "
        "open_ended=True"
    ) == str(caught.value)


def test_operator_of_an_open_ended_iteration_may_carry_state_but_not_start_afresh() -> None:
    def wire(iteration: Iteration) -> None:
        @iteration.operator(state="carry")
        def remembered(queue: Any, state: Any) -> Any: ...

        iteration.graph()

        @iteration.operator(state="fresh", operator_id="sorter")
        def sorted_queue(queue: Any, scratch: str) -> None: ...

    assert (
        "iteration 'stream', operator 'sorter': has state=\"fresh\", but operators of an open-ended iteration live "
        'through all its epochs; use "carry"'
    ) == refused(wire, iteration=open_ended())
