"""Which code and which parameters is a run made of, and how do two of them differ?

A definition is plain JSON: per operator its wiring and a digest of its code. The digest is over the syntax tree of the
function and of every function, class and simple constant of the same top-level package that it names, by itself or
through its module, so that comments, docstrings and formatting do not count, and a changed helper does. What a closure
or a default holds counts too. Lists, dicts and objects do not: they may change while a run goes on.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import inspect
import sys
import textwrap
from collections.abc import Iterator, Mapping
from types import FunctionType, ModuleType
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
    except (Exception, SystemExit) as err:  # the module is the user's, and may raise anything while it is imported
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
    for name, text in sorted(set(_reachable_code(operator.function))):
        digest.update(f"{name}\0{text}\0".encode())
    return digest.hexdigest()


def _reachable_code(function: object) -> Iterator[tuple[str, str]]:
    """Yield the text of everything that a function's meaning depends on, by name; a text may come twice."""
    seen: list[object] = []  # by identity: functions of one factory share their name
    waiting: list[object] = [function]
    while waiting:
        found = inspect.unwrap(waiting.pop())  # type: ignore[arg-type]  # only functions and classes are put there
        if any(found is known for known in seen):
            continue
        seen.append(found)
        yield f"{found.__module__}.{found.__qualname__}", _syntax_of(found)
        for name, value in _named_by(found):
            if isinstance(value, FunctionType | type):
                if _is_near(value.__module__, found.__module__):
                    waiting.append(value)
            elif (text := _constant_text(value)) is not None:
                yield name, text


def _named_by(found: object) -> Iterator[tuple[str, object]]:
    if isinstance(found, FunctionType):
        yield from _globals_named_by(found)
        for name, cell in zip(found.__code__.co_freevars, found.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # still empty: the name is bound later, if ever
                yield f"{found.__module__}.{found.__qualname__}<{name}>", cell.cell_contents
        for place, value in [*enumerate(found.__defaults__ or ()), *(found.__kwdefaults__ or {}).items()]:
            yield f"{found.__module__}.{found.__qualname__}({place})", value
    elif isinstance(found, type):
        yield from ((base.__qualname__, base) for base in found.__bases__)
        for name, member in vars(found).items():
            function = getattr(member, "__func__", getattr(member, "fget", member))
            if isinstance(function, FunctionType) and not function.__code__.co_filename.startswith("<"):
                yield name, function  # not what a decorator generated: its text is not the user's


def _globals_named_by(function: FunctionType) -> Iterator[tuple[str, object]]:
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes += [constant for constant in code.co_consts if inspect.iscode(constant)]
        modules = {function.__module__: function.__globals__}
        waiting = [function.__module__]
        for module in waiting:  # grows by each module of ours through which something is named
            for name in (name for name in code.co_names if name in modules[module]):
                value = modules[module][name]
                if not isinstance(value, ModuleType):
                    yield f"{module}.{name}", value
                elif _is_near(value.__name__, function.__module__) and value.__name__ not in modules:
                    modules[value.__name__] = vars(value)
                    waiting.append(value.__name__)


def _is_near(module: str, of: str) -> bool:
    """Tell whether code of a module counts as part of the code that names it."""
    ours = of.partition(".")[0]
    if ours == "iteration_lib":  # our own operators follow the helpers of their module only
        return module == of
    return module.partition(".")[0] == ours


def _constant_text(value: object) -> str | None:
    """Return a simple constant as a text that is the same in every process, None for anything else."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return repr(value)
    if not isinstance(value, tuple | frozenset):
        return None
    texts = [_constant_text(item) for item in value]
    if None in texts:
        return None
    inner = ", ".join(cast("list[str]", texts) if isinstance(value, tuple) else sorted(cast("list[str]", texts)))
    return f"{type(value).__name__}({inner})"


def _syntax_of(found: object) -> str:
    try:
        source = inspect.getsource(found)  # type: ignore[arg-type]  # a function or a class
    except (OSError, TypeError):
        code = getattr(found, "__code__", None)
        return repr((code.co_code, code.co_consts)) if code is not None else repr(found)
    try:
        tree = ast.parse(textwrap.dedent(source))
    except SyntaxError:  # the lines of a lambda are not always a program of their own
        return source
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
