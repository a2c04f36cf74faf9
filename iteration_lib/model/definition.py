"""Which iteration is a run made of?

A definition is plain JSON: per operator its wiring and a digest of its code, by the operator's id. Format 2 names every
operator by its id, so that renaming one changes nothing but its name; format 1, which has no field `format`, named them
by their names. A run keeps the format that it was started with until its definition changes.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from iteration_lib.errors import IterationNotFoundError, say
from iteration_lib.interrupt import RAISED_BY_USERS, ToldToEnd
from iteration_lib.model.carry import user_name
from iteration_lib.model.code import code_digest, code_digest_with_names
from iteration_lib.model.graph import Graph
from iteration_lib.model.iteration import Iteration
from iteration_lib.model.operator import Role, StateScope
from iteration_lib.model.params import Scalar, show

FORMAT = 2

Json = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinedOperator:
    """An operator as a definition has it, the hidden ones that it is made of included. `inputs` are ids."""

    operator_id: str
    name: str
    role: str
    kind: str
    inputs: tuple[str, ...]
    finishes: bool
    replays: bool
    state: str | None
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A definition of either format. `feedback` maps a variable to its tail, `outputs` an output to its operator.

    `sinks` maps the outputs that go to a sink to whether those of every epoch do.
    """

    iteration: str
    operators: Mapping[str, DefinedOperator]
    feedback: Mapping[str, str]
    criteria: str | None
    outputs: Mapping[str, str]
    sinks: Mapping[str, bool] = field(default_factory=dict)

    @property
    def variables(self) -> tuple[str, ...]:
        """The ids of the variables: each is fed back."""
        return tuple(self.feedback)

    @property
    def stateful(self) -> tuple[str, ...]:
        """The ids of what a checkpoint holds the state of: the variables, and the operators that carry state."""
        carrying = (i for i, operator in self.operators.items() if operator.state == StateScope.CARRY.value)
        return (*self.variables, *carrying)


def load_iteration(reference: str) -> Iteration:
    """Return the iteration that `module:object` names; raises IterationNotFoundError with the reason."""
    module_name, separator, object_name = reference.partition(":")
    if not separator or not object_name or "" in module_name.split("."):
        raise IterationNotFoundError(reference, "write it as module:object, for example my_team.kmeans:kmeans")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as err:
        if err.name is not None and (module_name == err.name or module_name.startswith(err.name + ".")):
            raise IterationNotFoundError(
                reference, f"there is no module {err.name!r} on the Python path; check the name, or set PYTHONPATH"
            ) from err
        raise IterationNotFoundError(reference, f"its module needs {err.name!r}, which is not installed") from err
    except ToldToEnd:  # by a signal, while the module was imported
        raise
    except RAISED_BY_USERS as err:  # the module is the user's, and may raise anything while it is imported
        raise IterationNotFoundError(reference, f"its module cannot be imported: {say(err)}; mend it first") from err
    found = getattr(module, object_name, None)
    if found is None:
        names = [name for name, value in vars(module).items() if isinstance(value, Iteration)]
        raise IterationNotFoundError(
            reference,
            f"module {module_name!r} has no {object_name!r}; its iterations are: {', '.join(names) or 'none'}",
        )
    if not isinstance(found, Iteration):
        raise IterationNotFoundError(reference, f"{object_name!r} is a {type(found).__name__}, not an Iteration")
    return found


def describe(graph: Graph, *, format_version: int = FORMAT) -> Json:
    """Return the definition of a checked graph as JSON, in the format of the definition that it is compared with."""
    has_names = format_version == 1
    ids = {operator.name: operator.name if has_names else operator.operator_id for operator in graph.operators}
    return {
        **({} if has_names else {"format": format_version}),
        "iteration": graph.iteration,
        "operators": {
            operator.operator_id: {
                "name": operator.name,
                "role": operator.role.value,
                "kind": operator.kind.value,
                "inputs": [ids[name] for name in operator.inputs],
                "finishes": operator.finishes,
                "replays": operator.replays,
                "state": operator.state.value if operator.state is not None else None,
                "part_of": operator.part_of,
                "code": code_digest_with_names(operator) if has_names else code_digest(operator),
            }
            for operator in graph.operators
        },
        "feedback": {ids[variable]: ids[tail] for variable, tail in graph.feedback.items()},
        "criteria": ids[graph.criteria] if graph.criteria is not None else None,
        "outputs": {output: ids[name] for output, name in graph.outputs.items()},
        **({"sinks": {output: sink.each_epoch for output, sink in graph.sinks.items()}} if graph.sinks else {}),
    }


def carrying_of(definition: Mapping[str, object]) -> tuple[str, ...]:
    """Return the ids of what the operators of a definition carry from epoch to epoch, hidden variables included."""
    operators = cast("dict[str, dict[str, Any]]", definition["operators"])  # Any: JSON that `describe` made
    return tuple(sorted(i for i, operator in operators.items() if operator["role"] == Role.VARIABLE.value))


def declared_as(definition: Mapping[str, object], operator_id: str) -> str:
    """Return the operator that the user wrote, of which one may be a hidden part."""
    operators = cast("dict[str, dict[str, Any]]", definition["operators"])  # Any: JSON that `describe` made
    return operators[operator_id].get("part_of") or operator_id


def format_of(definition: Mapping[str, object]) -> int:
    """Return the format that a definition was written in."""
    return cast("int", definition.get("format", 1))


def read_definition(definition: Mapping[str, object]) -> Definition:
    """Return what a definition of either format says of the operators that the user wrote."""
    found = cast("dict[str, Any]", definition)  # Any: JSON that `describe` made
    operators: dict[str, dict[str, Any]] = found["operators"]  # Any: as above
    has_names = format_of(definition) == 1
    owner: dict[str, str] = {
        operator["name"] if has_names else operator_id: operator.get("part_of") or operator_id
        for operator_id, operator in operators.items()
    }
    return Definition(
        iteration=found["iteration"],
        operators={
            operator_id: DefinedOperator(
                operator_id=operator_id,
                name=user_name(operator["name"]),
                role=operator["role"],
                kind=operator["kind"],
                inputs=tuple(owner[name] for name in operator["inputs"] if owner[name] != operator_id),
                finishes=operator["finishes"],
                replays=operator.get("replays", True),
                state=operator.get("state"),
                code=operator["code"],
            )
            for operator_id, operator in operators.items()
            if not operator.get("part_of")
        },
        feedback={owner[variable]: owner[tail] for variable, tail in found["feedback"].items()},
        criteria=owner[found["criteria"]] if found["criteria"] is not None else None,
        outputs={output: owner[name] for output, name in found["outputs"].items()},
        sinks=found.get("sinks", {}),
    )


def params_differences(before: Mapping[str, Scalar], after: Mapping[str, Scalar]) -> tuple[str, ...]:
    """Return one sentence per parameter that differs."""
    names = dict.fromkeys([*after, *before])  # as they are declared; the store keeps no order
    return tuple(
        f"parameter {name!r} was {show(before.get(name))}, now {show(after.get(name))}"
        for name in names
        if not _is_same(before.get(name), after.get(name))
    )


def _is_same(before: Scalar, after: Scalar) -> bool:
    """Compare as JSON keeps them: a large float comes back from a database as a whole number, and equals it still."""
    if isinstance(before, bool) or isinstance(after, bool):
        return before is after
    if isinstance(before, int | float) and isinstance(after, int | float) and float in (type(before), type(after)):
        return float(before) == float(after)
    return before == after
