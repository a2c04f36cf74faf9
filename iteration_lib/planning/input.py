"""What do the data streams of an iteration read, and is it what was pinned, or can it be pinned?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from iteration_lib.errors import IterationError
from iteration_lib.launch import check_input
from iteration_lib.marker import kept_in_force
from iteration_lib.model.params import parse_params
from iteration_lib.planning.rows import PlanRows
from iteration_lib.runner.pins import check_pinned, pinned_from_json
from iteration_lib.runner.seam import PinnedData
from iteration_lib.savepoint import pins_to_take_over
from iteration_lib.state.location import StateLocation
from iteration_lib.store.seam import History

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedPin:
    """What a data stream reads, and what is wrong with it, None if nothing is."""

    name: str
    files: int
    rows: int
    problem: str | None


def check_pins(store: History, rows: PlanRows) -> tuple[CheckedPin, ...]:
    """Check what data streams have pinned: of a branch also what it will take over, if its savepoint is whole.

    What a data stream had pinned that the iteration has no more nobody reads.
    """
    names = _names(rows)
    own = [_check_pin(rows.location, pin.name, pinned_from_json(pin.pin)) for pin in rows.pins if pin.name in names]
    held = rows.held
    if held is None:
        return tuple(own)
    taken, _ = tried(lambda: pins_to_take_over(store, held))
    found = [(name, pin) for name, pin in (taken or {}).items() if name in names]
    return (*own, *(_check_pin(StateLocation(held.uri), name, pin) for name, pin in found))


def check_unpinned(rows: PlanRows, params: type | None) -> tuple[str, ...]:
    """Say what is wrong with what the attempt will pin; nothing where its parameters are, which is said elsewhere."""
    kept = kept_in_force(rows.operators, rows.held) if rows.held is not None else ()
    pinned = {*(pin.name for pin in rows.pins), *kept}
    unpinned = [operator for operator in rows.continuation.graph.data if operator.operator_id not in pinned]
    if params is None or not unpinned:
        return ()
    parsed, _ = tried(lambda: parse_params(params, rows.run.params))
    checks = [partial(check_input, operator, parsed) for operator in unpinned if parsed is not None]
    return tuple(problem for check in checks for problem in tried(check)[1])


def tried(read: Callable[[], T]) -> tuple[T | None, tuple[str, ...]]:
    """Return what was read, or None and why it could not be."""
    try:
        return read(), ()
    except IterationError as err:
        return None, (str(err),)


def _names(rows: PlanRows) -> frozenset[str]:
    return frozenset(operator.operator_id for operator in rows.continuation.graph.data)


def _check_pin(location: StateLocation, name: str, pinned: PinnedData) -> CheckedPin:
    _, problems = tried(lambda: check_pinned(location, pinned))
    return CheckedPin(
        name=name,
        files=len(pinned.files),
        rows=sum(file.rows for file in pinned.files),
        problem=problems[0] if problems else None,
    )
