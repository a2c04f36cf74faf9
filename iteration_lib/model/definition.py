"""Which code and which parameters is a run made of, and how do two of them differ?

A definition is plain JSON: per operator its wiring and a digest of its code. The digest is over the syntax tree of the
function and of every function and simple constant of the same top-level package that it names, so that comments,
docstrings and formatting do not count, and a changed helper does.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import sys
import textwrap
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import cast

from iteration_lib.errors import IterationNotFoundError
from iteration_lib.model.graph import Graph
from iteration_lib.model.iteration import Iteration
from iteration_lib.model.operator import Operator
from iteration_lib.model.params import Scalar, show

Json = dict[str, object]


def load_iteration(reference: str) -> Iteration:
    """Return the iteration that `module:object` names; raises IterationNotFoundError with the reason."""
    module_name, separator, object_name = reference.partition(":")
    if not separator or not module_name or not object_name:
        raise IterationNotFoundError(reference, "write it as module:object, for example my_team.kmeans:kmeans")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as err:
        if err.name is not None and (module_name == err.name or module_name.startswith(err.name + ".")):
            raise IterationNotFoundError(
                reference, f"there is no module {err.name!r} on the Python path; check the name, or set PYTHONPATH"
            ) from err
        raise IterationNotFoundError(reference, f"its module needs {err.name!r}, which is not installed") from err
    except Exception as err:  # the module is the user's, and may raise anything while it is imported
        raise IterationNotFoundError(
            reference, f"its module cannot be imported: {type(err).__name__}: {err}; mend it first"
        ) from err
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


def describe(graph: Graph) -> Json:
    """Return the definition of a checked graph as JSON."""
    return {
        "iteration": graph.iteration,
        "operators": {operator.operator_id: _describe_operator(operator) for operator in graph.operators},
        "feedback": dict(graph.feedback),
        "criteria": graph.criteria,
        "outputs": dict(graph.outputs),
    }


def definition_differences(before: Mapping[str, object], after: Mapping[str, object]) -> tuple[str, ...]:
    """Return one sentence per difference between two definitions, none if they are the same."""
    return tuple(_definition_differences(before, after))


def params_differences(before: Mapping[str, Scalar], after: Mapping[str, Scalar]) -> tuple[str, ...]:
    """Return one sentence per parameter that differs."""
    names = dict.fromkeys([*before, *after])
    return tuple(
        f"parameter {name!r} was {show(before.get(name))}, now {show(after.get(name))}"
        for name in names
        if before.get(name) != after.get(name)
    )


def _describe_operator(operator: Operator) -> Json:
    return {
        "name": operator.name,
        "role": operator.role.value,
        "kind": operator.kind.value,
        "inputs": list(operator.inputs),
        "finishes": operator.finishes,
        "code": code_digest(operator),
    }


def _definition_differences(before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[str]:
    old = cast("dict[str, Json]", before["operators"])
    new = cast("dict[str, Json]", after["operators"])
    yield from (f"operator {operator_id!r} is gone" for operator_id in old if operator_id not in new)
    yield from (f"operator {operator_id!r} is new" for operator_id in new if operator_id not in old)
    for operator_id in (operator_id for operator_id in old if operator_id in new):
        for field in ("name", "role", "kind", "inputs", "finishes"):
            if old[operator_id][field] != new[operator_id][field]:
                yield (
                    f"operator {operator_id!r}: {field} was {old[operator_id][field]}, now {new[operator_id][field]}"
                )
        if old[operator_id]["code"] != new[operator_id]["code"]:
            yield f"operator {operator_id!r}: its code changed"
    for field in ("iteration", "feedback", "criteria", "outputs"):
        if before[field] != after[field]:
            yield f"{field} was {before[field]}, now {after[field]}"


def code_digest(operator: Operator) -> str:
    """Return the digest of an operator's code, helpers of its package included."""
    digest = hashlib.sha256()
    for name, text in sorted(_reachable_code(operator.function)):
        digest.update(f"{name}\0{text}\0".encode())
    return digest.hexdigest()


def _reachable_code(function: object) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    waiting: list[object] = [function]
    while waiting:
        found = inspect.unwrap(waiting.pop())  # type: ignore[arg-type]  # only functions and classes are put there
        qualified = f"{found.__module__}.{found.__qualname__}"
        if qualified in seen:
            continue
        seen.add(qualified)
        yield qualified, _syntax_of(found)
        if isinstance(found, FunctionType):
            for name, value in _globals_named_by(found):
                if isinstance(value, FunctionType | type) and _same_package(value, found):
                    waiting.append(value)
                elif isinstance(value, bool | int | float | str | tuple | frozenset):
                    yield f"{found.__module__}.{name}", repr(value)


def _globals_named_by(function: FunctionType) -> Iterator[tuple[str, object]]:
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes += [constant for constant in code.co_consts if inspect.iscode(constant)]
        for name in code.co_names:
            if name in function.__globals__:
                yield name, function.__globals__[name]


def _same_package(value: FunctionType | type, function: FunctionType) -> bool:
    ours = function.__module__.split(".")[0]
    if ours == "iteration_lib":  # our own operators follow the helpers of their module only
        return value.__module__ == function.__module__
    return value.__module__.split(".")[0] == ours


def _syntax_of(found: object) -> str:
    try:
        source = inspect.getsource(found)  # type: ignore[arg-type]  # a function or a class
    except (OSError, TypeError):
        code = getattr(found, "__code__", None)
        return repr((code.co_code, code.co_consts)) if code is not None else repr(found)
    tree = ast.parse(textwrap.dedent(source))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            node.decorator_list = []
    return _dump(tree)


def _dump(node: object) -> str:
    """Return a syntax tree as text that is the same for every Python version: what is empty is left out."""
    if isinstance(node, list):
        return "[" + ",".join(_dump(item) for item in node) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = (f"{name}={_dump(value)}" for name, value in ast.iter_fields(node) if value is not None and value != [])
    return f"{type(node).__name__}({','.join(fields)})"


def module_file(reference: str) -> str | None:
    """Return the file of the module that `module:object` names, once it is imported."""
    return getattr(sys.modules.get(reference.partition(":")[0]), "__file__", None)
