"""Do an iteration's operators fit together, and in which order do they run?

A Graph is checked when it is made: whoever holds one need not check again. An operator is *bounded* when nothing that
it depends on changes from epoch to epoch. Every rule below raises DefinitionError with the operator's id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

from iteration_lib.errors import DefinitionError
from iteration_lib.model.operator import INJECTED, Kind, Operator, Role, forbidden_injections


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """The checked wiring. `operators` is in an order in which each comes after its inputs.

    `feedback` maps a variable's name to the name of the operator (the tail) whose result is its next value;
    `criteria` names the operator whose empty result terminates the run; `outputs` maps an output to its operator.
    """

    iteration: str
    operators: tuple[Operator, ...]
    feedback: Mapping[str, str]
    criteria: str | None
    outputs: Mapping[str, str]

    def operator(self, name: str) -> Operator:
        """Return the operator with this name."""
        return next(operator for operator in self.operators if operator.name == name)

    @property
    def variables(self) -> tuple[Operator, ...]:
        """The operators that give the variables' values before epoch 0."""
        return tuple(operator for operator in self.operators if operator.role is Role.VARIABLE)

    @property
    def data(self) -> tuple[Operator, ...]:
        """The data streams."""
        return tuple(operator for operator in self.operators if operator.role is Role.DATA)

    @property
    def heads(self) -> tuple[str, ...]:
        """The names of what reports in every epoch: each variable, and the criteria if there is one."""
        return (*self.feedback, *(("criteria",) if self.criteria else ()))

    def consumers(self, name: str) -> tuple[Operator, ...]:
        """Return the operators that take the stream `name`."""
        return tuple(operator for operator in self.operators if name in operator.inputs)

    def uses(self, name: str) -> int:
        """Return how often the stream `name` is used: by operators, as feedback, as the criteria, as an output."""
        tails = [*self.feedback.values(), self.criteria]
        published = 1 if name in self.outputs.values() and name not in tails else 0  # a tail is written in any case
        return len(self.consumers(name)) + tails.count(name) + published

    def per_epoch(self) -> tuple[Operator, ...]:
        """Return the operators that run in every epoch, in order."""
        return tuple(o for o in self.operators if o.role is Role.OPERATOR and not o.finishes)


def build_graph(
    iteration: str,
    operators: Iterable[Operator],
    *,
    feedback: Mapping[str, str],
    criteria: str | None,
    outputs: Mapping[str, str],
) -> Graph:
    """Check the wiring and return it in running order; raises DefinitionError."""
    declared = tuple(operators)
    _check_names(iteration, declared)
    _check_inputs(iteration, declared)
    ordered = _order(iteration, declared)
    _check_feedback(iteration, ordered, feedback, criteria)
    _check_outputs(iteration, ordered, outputs)
    by_name = {operator.name: operator for operator in ordered}
    ordered = tuple(_with_variable_kind(operator, by_name, feedback) for operator in ordered)
    _check_kinds(iteration, ordered)
    _check_bounded(iteration, ordered)
    graph = Graph(
        iteration=iteration,
        operators=ordered,
        feedback=dict(feedback),
        criteria=criteria,
        outputs=dict(outputs) or dict(feedback),
    )
    _check_used(graph)
    return graph


def _check_names(iteration: str, operators: tuple[Operator, ...]) -> None:
    for what, counted in (
        ("id", Counter(o.operator_id for o in operators)),
        ("name", Counter(o.name for o in operators)),
    ):
        twice = [key for key, count in counted.items() if count > 1]
        if twice:
            raise DefinitionError(iteration, f"two operators have this {what}; give one another", operator_id=twice[0])
    for operator in operators:
        if not _is_plain(operator.operator_id):
            raise DefinitionError(
                iteration,
                "an operator's id is made of letters, digits and ._-=+; choose another",
                operator_id=operator.operator_id,
            )
        if operator.name in (*INJECTED, "criteria"):
            raise DefinitionError(
                iteration, f"the name {operator.name!r} is reserved; choose another", operator_id=operator.operator_id
            )


def _is_plain(name: str) -> bool:
    """Tell whether a name can be that of a folder of state files."""
    return name not in ("", ".", "..") and all(letter.isalnum() or letter in "._-=+" for letter in name)


def _check_inputs(iteration: str, operators: tuple[Operator, ...]) -> None:
    names = [operator.name for operator in operators]
    for operator in operators:
        for name in operator.inputs:
            if name not in names:
                raise DefinitionError(
                    iteration,
                    f"names an input {name!r} that is not there; there are: {', '.join(sorted(names))}",
                    operator_id=operator.operator_id,
                )
        if operator.role is Role.DATA and operator.inputs:
            raise DefinitionError(
                iteration,
                f"is a data stream and cannot take the input {operator.inputs[0]!r}; make it an operator",
                operator_id=operator.operator_id,
            )


def _order(iteration: str, operators: tuple[Operator, ...]) -> tuple[Operator, ...]:
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


def _check_feedback(
    iteration: str, operators: tuple[Operator, ...], feedback: Mapping[str, str], criteria: str | None
) -> None:
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


def _check_outputs(iteration: str, operators: tuple[Operator, ...], outputs: Mapping[str, str]) -> None:
    """A variable's own function gives its value before epoch 0: nobody means to publish that."""
    for output in outputs:
        if not _is_plain(output):
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


def _with_variable_kind(operator: Operator, by_name: Mapping[str, Operator], feedback: Mapping[str, str]) -> Operator:
    """Give a variable the kind and parallelism of its tail: both hold the same stream, one epoch apart."""
    if operator.role is not Role.VARIABLE:
        return operator
    tail = by_name[feedback[operator.name]]
    parallelism = operator.parallelism if operator.parallelism is not None else tail.parallelism
    return replace(operator, kind=tail.kind, parallelism=parallelism)


def _check_kinds(iteration: str, operators: tuple[Operator, ...]) -> None:
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


def _check_bounded(iteration: str, operators: tuple[Operator, ...]) -> None:
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


def _check_used(graph: Graph) -> None:
    """Refuse a lazy operator that nobody uses: it would never run. One on values may be there for its metrics."""
    for operator in graph.operators:
        if operator.role is Role.OPERATOR and operator.kind is not Kind.VALUE and graph.uses(operator.name) == 0:
            raise DefinitionError(
                graph.iteration,
                "has a result that nothing uses; feed it back, make it an output, or remove it",
                operator_id=operator.operator_id,
            )
