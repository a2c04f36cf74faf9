"""Which operators run in an epoch, in which order, and what does it hand to the next?

A Graph is checked when it is made (`wiring` holds the rules): whoever holds one need not check again. Operators that
carry state are split in it (`carry`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from iteration_lib.model.carry import expand_carry
from iteration_lib.model.checkpointing import Checkpointing
from iteration_lib.model.listener import Listener
from iteration_lib.model.operator import Operator, Role
from iteration_lib.model.wiring import (
    check_bounded,
    check_feedback,
    check_ids,
    check_inputs,
    check_kinds,
    check_names,
    check_open_ended,
    check_outputs,
    check_states,
    check_used,
    order_operators,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkDeclaration:
    """Where an output goes besides the run's own folder: a sink, or a function that gives one for the parameters."""

    sink: object
    each_epoch: bool = False


NO_SINKS: Mapping[str, SinkDeclaration] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """The checked wiring. `operators` is in an order in which each comes after its inputs.

    `feedback` maps a variable's name to the name of the operator (the tail) whose result is its next value;
    `states` does so for the hidden variables of operators that carry state. `criteria` names the operator whose empty
    result terminates the run; `outputs` maps an output to its operator, and `sinks` those that go to one to it.
    """

    iteration: str
    operators: tuple[Operator, ...]
    feedback: Mapping[str, str]
    criteria: str | None
    outputs: Mapping[str, str]
    sinks: Mapping[str, SinkDeclaration] = field(default_factory=dict)
    states: Mapping[str, str] = field(default_factory=dict)
    listeners: tuple[Listener, ...] = ()
    checkpointing: Checkpointing = field(default_factory=Checkpointing)
    open_ended: bool = False

    def operator(self, name: str) -> Operator:
        """Return the operator with this name."""
        return next(operator for operator in self.operators if operator.name == name)

    @property
    def variables(self) -> tuple[Operator, ...]:
        """The operators that give the variables' values before epoch 0, hidden ones included."""
        return tuple(operator for operator in self.operators if operator.role is Role.VARIABLE)

    @property
    def data(self) -> tuple[Operator, ...]:
        """The data streams."""
        return tuple(operator for operator in self.operators if operator.role is Role.DATA)

    @property
    def heads(self) -> tuple[str, ...]:
        """The names of what reports in every epoch: each variable but the hidden ones, and the criteria if any."""
        return (*self.feedback, *(("criteria",) if self.criteria else ()))

    @property
    def tails(self) -> Mapping[str, str]:
        """What an epoch hands to the next: each variable, hidden ones included, with the operator that makes it."""
        return {**self.feedback, **self.states}

    def consumers(self, name: str) -> tuple[Operator, ...]:
        """Return the operators that take the stream `name`."""
        return tuple(operator for operator in self.operators if name in operator.inputs)

    def uses(self, name: str) -> int:
        """Return how often the stream `name` is used: by operators, by variables, as the criteria, as outputs."""
        tails = [*self.tails.values(), self.criteria]
        published = [*self.outputs.values()].count(name) if name not in tails else 0  # a tail is written in any case
        return len(self.consumers(name)) + tails.count(name) + published

    def is_asked_later(self, name: str) -> bool:
        """Tell whether more than operators use the stream `name`: the next epoch, the criteria or an output."""
        return self.uses(name) > len(self.consumers(name))

    def is_published_each_epoch(self, output: str) -> bool:
        """Tell whether an output goes to its sink after every epoch, not the last one alone."""
        return output in self.sinks and self.sinks[output].each_epoch

    def per_epoch(self) -> tuple[Operator, ...]:
        """Return the operators that run in every epoch, in order."""
        return tuple(o for o in self.operators if o.role is Role.OPERATOR and not o.finishes)


def build_graph(  # noqa: PLR0913 - what a definition says, piece by piece
    iteration: str,
    operators: Iterable[Operator],
    *,
    feedback: Mapping[str, str],
    criteria: str | None,
    outputs: Mapping[str, str],
    sinks: Mapping[str, SinkDeclaration] = NO_SINKS,
    open_ended: bool = False,
) -> Graph:
    """Check the wiring and return it in running order; raises DefinitionError."""
    declared = tuple(operators)
    check_names(iteration, declared)
    check_inputs(iteration, declared)
    ordered = order_operators(iteration, declared)
    check_feedback(iteration, ordered, feedback, criteria)
    check_outputs(iteration, ordered, outputs)
    by_name = {operator.name: operator for operator in ordered}
    ordered = tuple(_with_variable_kind(operator, by_name, feedback) for operator in ordered)
    check_kinds(iteration, ordered)
    check_bounded(iteration, ordered)
    check_states(iteration, ordered)
    if open_ended:
        check_open_ended(iteration, ordered, criteria)
    graph = Graph(
        iteration=iteration,
        operators=ordered,
        feedback=dict(feedback),
        criteria=criteria,
        outputs=dict(outputs) or dict(feedback),
        sinks=dict(sinks),
        open_ended=open_ended,
    )
    check_used(iteration, ordered, uses=graph.uses)
    expanded, states = expand_carry(ordered)
    check_ids(iteration, expanded)
    return replace(graph, operators=expanded, states=states)


def _with_variable_kind(operator: Operator, by_name: Mapping[str, Operator], feedback: Mapping[str, str]) -> Operator:
    """Give a variable the kind and parallelism of its tail: both hold the same stream, one epoch apart."""
    if operator.role is not Role.VARIABLE:
        return operator
    tail = by_name[feedback[operator.name]]
    parallelism = operator.parallelism if operator.parallelism is not None else tail.parallelism
    return replace(operator, kind=tail.kind, parallelism=parallelism)
