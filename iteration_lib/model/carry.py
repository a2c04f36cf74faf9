"""How does an operator that carries state become operators that do not?

The user's function takes `state` and returns (result, new state). In its place come four operators, so that whatever
runs, saves and restores streams needs to know nothing of carried state:

    <id>.state        a hidden variable: the state as the epoch receives it; before the first, a stream without columns
    <id>              the call; it gives *pairs* of result and new state. The hidden variable is the last of its inputs
    <id>.result       the results of the pairs, under the name of the user's function: what others take
    <id>.state-next   the new states of the pairs: what the hidden variable is in the next epoch

A hidden variable is no head: a run whose variables feed nothing back terminates, whatever its operators remember.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from iteration_lib.model.operator import Operator, Pair, Role, StateScope

_CALL = ".call"  # of a name: no parameter can be written like it


def expand_carry(operators: Iterable[Operator]) -> tuple[tuple[Operator, ...], Mapping[str, str]]:
    """Return the operators, in the same order, and which result each hidden variable has in the next epoch."""
    expanded: list[Operator] = []
    states: dict[str, str] = {}
    for operator in operators:
        if operator.state is not StateScope.CARRY:
            expanded.append(operator)
            continue
        variable, call, result, following = _split(operator)
        expanded += [variable, call, result, following]
        states[variable.name] = following.name
    return tuple(expanded), states


def no_state() -> None:
    """Give the state of an operator before its first epoch."""


def _split(operator: Operator) -> tuple[Operator, Operator, Operator, Operator]:
    name, operator_id = operator.name, operator.operator_id
    half = replace(operator, inputs=(f"{name}{_CALL}",), injected=(), state=None, part_of=operator_id)
    variable = replace(
        half, operator_id=f"{operator_id}.state", name=f"{name}.state", role=Role.VARIABLE, function=no_state, inputs=()
    )
    call = replace(
        operator,
        name=f"{name}{_CALL}",
        inputs=(*operator.inputs, variable.name),
        injected=tuple(taken for taken in operator.injected if taken != StateScope.CARRY.parameter),
        pair=Pair.CALL,
    )
    result = replace(half, operator_id=f"{operator_id}.result", pair=Pair.RESULT)
    following = replace(half, operator_id=f"{operator_id}.state-next", name=f"{name}.state-next", pair=Pair.STATE)
    return variable, call, result, following


def user_name(name: str) -> str:
    """Return the name of the user's function that an operator calls."""
    return name.removesuffix(_CALL)
