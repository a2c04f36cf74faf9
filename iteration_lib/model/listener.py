"""Who is told how a run goes on, and what may it ask for?

A listener is a plain function that has an effect outside of the run. Its parameters say what it wants to know:

    on an epoch that is durable     epoch, params, metrics (name to number), records (head to count), effect_id
    on the run having terminated    epoch (the last one), params, terminated_by (the rule, as a text), effect_id

It hears of every durable epoch, in order, or of the termination, until it has returned once and that is stored. An
attempt that ends in between makes it hear again, with the same `effect_id`: an effect that is keyed by it happens once.
What it returns, None or a mapping of JSON, is stored with the mark.

What it has heard is stored under its id: `listener_id=`, or the function's name. With an id the function may be renamed
freely. A listener with another id is another one, and hears of every durable epoch from the run's first on, with effect
ids of its own.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from iteration_lib.errors import DefinitionError
from iteration_lib.model.operator import Function, parameters_of


class ListenerEvent(enum.Enum):
    """What a listener is told."""

    EPOCH_DURABLE = "epoch_durable"
    TERMINATED = "terminated"


_KNOWN = {
    ListenerEvent.EPOCH_DURABLE: ("epoch", "params", "metrics", "records", "effect_id"),
    ListenerEvent.TERMINATED: ("epoch", "params", "terminated_by", "effect_id"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One function that is told. `injected` are the names of what it asks for."""

    listener_id: str
    event: ListenerEvent
    function: Function
    injected: tuple[str, ...]


def listener_of(
    iteration: str, function: Function, event: ListenerEvent, *, listener_id: str | None = None
) -> Listener:
    """Return a function as a listener; raises DefinitionError for a parameter that it cannot have."""
    known = _KNOWN[event]
    inputs, injected = parameters_of(function, own=known)
    unknown = [name for name in (*inputs, *injected) if name not in known]
    if unknown:
        problem = f"the listener {function.__name__!r} cannot take {unknown[0]!r}; it may take: {', '.join(known)}"
        raise DefinitionError(iteration, problem)
    return Listener(listener_id=listener_id or function.__name__, event=event, function=function, injected=injected)
