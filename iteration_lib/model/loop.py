"""What graph stands for a loop in a user's script, whose body is not ours to see?

Its variables, and one operator, the body, that takes all of them and gives the next value of each. The body is the
criteria too: an epoch that stops the loop has no criteria records. Of the body's code nothing is known; what tells one
loop from another is what its variables are called.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from iteration_lib.errors import DefinitionError
from iteration_lib.model.definition import read_definition
from iteration_lib.model.graph import Graph
from iteration_lib.model.operator import Kind, Operator, Role

LOOP_REFERENCE = "loop"  # where the run of an iteration says module:object
BODY = "loop.body"  # no variable can be called like it

_RESERVED = ("number", "metrics", "stop", "criteria")  # what else an epoch has, and the body's other head

_LONGEST_NAME_BYTES = 100  # a folder is called like it in the end


def loop_graph(variables: Iterable[str]) -> Graph:
    """Return the graph of a loop with these variables; raises DefinitionError for a name that none can have."""
    names = tuple(sorted(variables))
    if not names:
        problem = "has no variable; give the first value of one, as in run.epochs(centres=start)"
        raise DefinitionError(LOOP_REFERENCE, problem)
    for name in names:
        if name in _RESERVED or name.startswith("_"):
            problem = f"cannot have a variable {name!r}, which means something else; choose another name"
            raise DefinitionError(LOOP_REFERENCE, problem)
        if not name.isidentifier() or len(name.encode()) > _LONGEST_NAME_BYTES:
            problem = f"cannot have a variable {name!r}; choose a Python name of at most {_LONGEST_NAME_BYTES} bytes"
            raise DefinitionError(LOOP_REFERENCE, problem)
    body = _operator(BODY, Role.OPERATOR, inputs=names)
    return Graph(
        iteration=LOOP_REFERENCE,
        operators=(*(_operator(name, Role.VARIABLE) for name in names), body),
        feedback=dict.fromkeys(names, BODY),
        criteria=BODY,
        outputs=dict.fromkeys(names, BODY),
    )


def graph_of_loop(definition: Mapping[str, object]) -> Graph:
    """Return the graph of the loop that a run was started with."""
    return loop_graph(read_definition(definition).variables)


def loop_differences(before: Graph, after: Graph) -> tuple[str, ...]:
    """Return one sentence per variable that only one of two loops has."""
    return (
        *(f"variable {name!r} is gone" for name in before.feedback if name not in after.feedback),
        *(f"variable {name!r} is new" for name in after.feedback if name not in before.feedback),
    )


def never_called() -> None:
    """Stand for what a script does by itself."""


def _operator(name: str, role: Role, *, inputs: tuple[str, ...] = ()) -> Operator:
    return Operator(
        operator_id=name, name=name, role=role, kind=Kind.VALUE, function=never_called, inputs=inputs, injected=()
    )
