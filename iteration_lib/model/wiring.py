"""Do an iteration's operators fit together, and in which order do they run?

An operator is *bounded* when nothing that it depends on changes from epoch to epoch. Every rule here raises
DefinitionError with the operator's id; the rules see the operators as the user declared them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from graphlib import CycleError, TopologicalSorter

from iteration_lib.errors import DefinitionError
from iteration_lib.model.operator import INJECTED, Kind, Operator, Role, StateScope, forbidden_injections


def check_names(iteration: str, operators: tuple[Operator, ...]) -> None:
    """Check that ids and names tell the operators apart, and can be written where they will be."""
    check_ids(iteration, operators)
    for operator in operators:
        if sum(other.name == operator.name for other in operators) > 1:
            raise DefinitionError(
                iteration, "two operators have this name; give one another", operator_id=operator.name
            )
        if not is_plain(operator.operator_id):
            raise DefinitionError(
                iteration,
                "an operator's id is made of letters, digits and ._-=+; choose another",
                operator_id=operator.operator_id,
            )
        if operator.name in (*INJECTED, "criteria"):
            raise DefinitionError(
                iteration, f"the name {operator.name!r} is reserved; choose another", operator_id=operator.operator_id
            )


def check_ids(iteration: str, operators: tuple[Operator, ...]) -> None:
    """Check that no two operators have one id."""
    for operator_id, count in Counter(operator.operator_id for operator in operators).items():
        if count > 1:
            raise DefinitionError(iteration, "two operators have this id; give one another", operator_id=operator_id)


def is_plain(name: str) -> bool:
    """Tell whether a name can be that of a folder of state files."""
    return name not in ("", ".", "..") and all(letter.isalnum() or letter in "._-=+" for letter in name)


def check_inputs(iteration: str, operators: tuple[Operator, ...]) -> None:
    """Check that every input is there, and that what an operator keeps has no name beside it."""
    names = [operator.name for operator in operators]
    for operator in operators:
        for name in operator.inputs:
            if name not in names:
                raise DefinitionError(
                    iteration,
                    f"names an input {name!r} that is not there; there are: {', '.join(sorted(names))}{_hint(name)}",
                    operator_id=operator.operator_id,
                )
        if operator.role is Role.DATA and operator.inputs:
            raise DefinitionError(
                iteration,
                f"is a data stream and cannot take the input {operator.inputs[0]!r}; make it an operator",
                operator_id=operator.operator_id,
            )
        if operator.state is not None and operator.state.parameter in names:
            raise DefinitionError(
                iteration,
                f"takes `{operator.state.parameter}`, its own, but another operator has that name; rename that one",
                operator_id=operator.operator_id,
            )


def _hint(name: str) -> str:
    scope = next((scope for scope in StateScope if scope.parameter == name), None)
    return f'; an operator takes `{name}` where it is declared with state="{scope.value}"' if scope is not None else ""


def order_operators(iteration: str, operators: tuple[Operator, ...]) -> tuple[Operator, ...]:
    """Return the operators in an order in which each comes after its inputs."""
    by_name = {operator.name: operator for operator in operators}
    sorter = TopologicalSorter({operator.name: operator.inputs for operator in operators})
    try:
        return tuple(by_name[name] for name in sorter.static_order())
    except CycleError as err:
        cycle = list(reversed(err.args[1]))
        raise DefinitionError(
            iteration,
            f"takes part in a cycle: {' -> '.join(cycle)}; only feedback(...) leads back, to a variable",
            operator_id=by_name[cycle[0]].operator_id,
        ) from err


def check_feedback(
    iteration: str, operators: tuple[Operator, ...], feedback: Mapping[str, str], criteria: str | None
) -> None:
    """Check that every variable is fed back, by an operator, and nothing else is."""
    variables = {operator.name: operator for operator in operators if operator.role is Role.VARIABLE}
    if not variables:
        raise DefinitionError(iteration, "has no variable; declare one with @iteration.variable")
    for name, operator in variables.items():
        if name not in feedback:
            raise DefinitionError(
                iteration,
                f"is a variable that nothing feeds back; add iteration.feedback({name}=...)",
                operator_id=operator.operator_id,
            )
    for name in feedback:
        if name not in variables:
            raise DefinitionError(
                iteration, f"feedback({name}=...) names no variable; there are: {', '.join(variables)}"
            )
    tails = [*feedback.values(), *([criteria] if criteria else [])]
    for operator in operators:
        if operator.name in tails and operator.role is not Role.OPERATOR:
            raise DefinitionError(
                iteration,
                f"is a {operator.role.value} and cannot feed back; feed back an operator's result",
                operator_id=operator.operator_id,
            )


def check_outputs(iteration: str, operators: tuple[Operator, ...], outputs: Mapping[str, str]) -> None:
    """Check what is published: nobody means a variable's own function, which gives its value before epoch 0."""
    for output in outputs:
        if not is_plain(output):
            raise DefinitionError(
                iteration, f"the name of an output is made of letters, digits and ._-=+, not {output!r}"
            )
    for operator in operators:
        if operator.name in outputs.values() and operator.role is not Role.OPERATOR:
            raise DefinitionError(
                iteration,
                f"is a {operator.role.value} and cannot be published; publish an operator's result",
                operator_id=operator.operator_id,
            )


def check_kinds(iteration: str, operators: tuple[Operator, ...]) -> None:
    """Check that every operator gets inputs, and what it asks for beside them, that its kind can have."""
    kinds = {operator.name: operator.kind for operator in operators}
    for operator in operators:
        for name in forbidden_injections(operator):
            raise DefinitionError(
                iteration, f"works on {operator.kind.value} and cannot take {name!r}", operator_id=operator.operator_id
            )
        if operator.kind is not Kind.BUCKETS:
            continue
        frames = [name for name in operator.inputs if kinds[name] is Kind.FRAME]
        if frames:
            raise DefinitionError(
                iteration,
                f"works on buckets, but its input {frames[0]!r} is a DataFrame; make it a transform",
                operator_id=operator.operator_id,
            )
        if not any(kinds[name] in (Kind.BUCKETS, Kind.DATA) for name in operator.inputs) and (
            "bucket" not in operator.injected
        ):
            raise DefinitionError(
                iteration,
                "works on buckets, but no input of it has any; take a data stream, a bucketed stream, or `bucket`",
                operator_id=operator.operator_id,
            )


def check_bounded(iteration: str, operators: tuple[Operator, ...]) -> None:
    """Check that what is computed once does not depend on what changes every epoch."""
    changing: dict[str, str] = {}
    for operator in operators:
        cause = next((name for name in operator.inputs if name in changing), None)
        if operator.role is Role.VARIABLE:
            if cause is not None:
                raise DefinitionError(
                    iteration,
                    f"is a variable's first value, but its input {cause!r} changes every epoch; "
                    "take what finishes for good",
                    operator_id=operator.operator_id,
                )
            changing[operator.name] = operator.name
        elif operator.role is Role.OPERATOR and operator.finishes:
            if cause is not None or "epoch" in operator.injected:
                raise DefinitionError(
                    iteration,
                    f"finishes for good, but its input {cause or 'epoch'!r} changes every epoch; drop finishes=True",
                    operator_id=operator.operator_id,
                )
        elif operator.role is Role.OPERATOR:
            changing[operator.name] = operator.name


def check_states(iteration: str, operators: tuple[Operator, ...]) -> None:
    """Check that an operator that keeps something says so in its parameters, and runs in every epoch."""
    for operator in operators:
        problem = None
        if operator.state is not None and operator.state.parameter not in operator.injected:
            problem = f'has state="{operator.state.value}", but does not take `{operator.state.parameter}`'
        elif operator.finishes and operator.state is not None:
            problem = (
                f'finishes for good, before any epoch, so it has no state="{operator.state.value}"; drop one of them'
            )
        elif operator.finishes and not operator.capture:
            problem = "finishes for good, so what it computed has to be kept; drop capture=False"
        if problem is not None:
            raise DefinitionError(iteration, problem, operator_id=operator.operator_id)


def check_open_ended(iteration: str, operators: tuple[Operator, ...], criteria: str | None) -> None:
    """Check that nothing ends an open-ended iteration but the end of its feedback."""
    by_name = {operator.name: operator for operator in operators}
    if criteria is not None:
        raise DefinitionError(
            iteration,
            "is the criteria of an open-ended iteration, which ends only when nothing is fed back; drop one of the two",
            operator_id=by_name[criteria].operator_id,
        )
    fresh = next((operator for operator in operators if operator.state is StateScope.FRESH), None)
    if fresh is not None:
        raise DefinitionError(
            iteration,
            'has state="fresh", but operators of an open-ended iteration live through all its epochs; use "carry"',
            operator_id=fresh.operator_id,
        )


def check_used(iteration: str, operators: tuple[Operator, ...], *, uses: Callable[[str], int]) -> None:
    """Refuse a lazy operator that nobody uses: it would never run. One on values may be there for its metrics."""
    for operator in operators:
        if operator.role is Role.OPERATOR and operator.kind is not Kind.VALUE and uses(operator.name) == 0:
            raise DefinitionError(
                iteration,
                "has a result that nothing uses; feed it back, make it an output, or remove it",
                operator_id=operator.operator_id,
            )
