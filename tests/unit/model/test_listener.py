"""Who is told how a run goes on, and what may it take?"""

from __future__ import annotations

from typing import Any

import pytest

from iteration_lib.errors import DefinitionError
from iteration_lib.model.iteration import Iteration
from iteration_lib.model.listener import Listener, ListenerEvent
from tests.unit.model.test_checkpointing import one_variable

DURABLE = "epoch, params, metrics, records, effect_id"
TERMINATED = "epoch, params, terminated_by, effect_id"


def test_listeners_of_both_events_are_in_the_graph_in_the_order_of_their_declaration() -> None:
    iteration = one_variable()

    @iteration.on_terminated
    def announced(terminated_by: str, effect_id: str, attempts: int = 3) -> None: ...

    @iteration.on_epoch_durable
    def published(epoch: int, params: Any, metrics: Any, records: Any, effect_id: str) -> None: ...

    assert (
        Listener(
            listener_id="announced",
            event=ListenerEvent.TERMINATED,
            function=announced,
            injected=("terminated_by", "effect_id"),
        ),
        Listener(
            listener_id="published",
            event=ListenerEvent.EPOCH_DURABLE,
            function=published,
            injected=("epoch", "params", "metrics", "records", "effect_id"),
        ),
    ) == iteration.graph().listeners


@pytest.mark.parametrize("event", ["on_epoch_durable", "on_terminated"])
def test_decorator_returns_the_function_as_it_was(event: str) -> None:
    def told(epoch: int) -> int:
        return epoch + 1

    assert told is getattr(Iteration("km"), event)(told)


@pytest.mark.parametrize(
    ("event", "parameter", "known"),
    [
        ("on_epoch_durable", "centroids", DURABLE),
        ("on_epoch_durable", "terminated_by", DURABLE),
        ("on_epoch_durable", "rng", DURABLE),
        ("on_terminated", "metrics", TERMINATED),
        ("on_terminated", "records", TERMINATED),
        ("on_terminated", "spark", TERMINATED),
    ],
)
def test_parameter_that_a_listener_cannot_have_is_refused_with_those_that_it_can(
    event: str, parameter: str, known: str
) -> None:
    space: dict[str, Any] = {}
    exec(f"def told(epoch, {parameter}): ...", space)  # noqa: S102 - a parameter whose name is a parameter

    with pytest.raises(DefinitionError) as caught:
        getattr(Iteration("km"), event)(space["told"])

    assert f"iteration 'km': the listener 'told' cannot take '{parameter}'; it may take: {known}" == str(caught.value)


def test_two_listeners_of_one_name_are_refused_also_for_two_events() -> None:
    """What a listener has heard is stored under its id."""
    iteration = Iteration("km")

    @iteration.on_epoch_durable
    def told() -> None: ...

    with pytest.raises(DefinitionError) as caught:
        iteration.on_terminated(told)

    assert "iteration 'km': two listeners are called 'told'; give one of them another listener_id" == str(caught.value)


@pytest.mark.parametrize("event", ["on_epoch_durable", "on_terminated"])
def test_listener_may_have_an_id_of_its_own_and_stays_the_function_that_it_was(event: str) -> None:
    iteration = one_variable()

    def told() -> None: ...

    assert told is getattr(iteration, event)(listener_id="tell")(told) is getattr(iteration, event)()(told)
    assert ["tell", "told"] == [listener.listener_id for listener in iteration.graph().listeners]


def test_listener_whose_name_is_no_name_is_refused() -> None:
    with pytest.raises(DefinitionError) as caught:
        Iteration("km").on_terminated(lambda: None)

    assert "iteration 'km': the listener '<lambda>' needs a name of letters, digits and ._-=+" == str(caught.value)
