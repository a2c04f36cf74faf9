"""What is an operator's code, so that a run can tell whether it is still the same?

A digest over the syntax tree of the function and of every function, class and simple constant of the same top-level
package that it names, by itself or through its module, so that comments, docstrings and formatting do not count, and a
changed helper does, also behind a decorator, a cache, a partial or a method. What a closure or a default holds counts
too. Lists, dicts and what objects hold do not: they may change while a run goes on. What a function imports when it is
called does not count either, nor where its module lies (`__file__`).

What an operator is called does not count, nor what the operators are called that it takes, nor the module that it and
its helpers lie in: its own name and those parameters are replaced by places. A definition of format 1 has digests in
which all these names count; `code_digest` still gives them.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import functools
import hashlib
import inspect
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from types import CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, cast

from iteration_lib.model.operator import Operator


@dataclass(frozen=True, slots=True)
class _Piece:
    """One text that counts, and the place that it has in the code: its module, and its name there."""

    module: str
    name: str
    text: str


def code_digest(operator: Operator) -> str:
    """Return the digest of an operator's code, helpers of its package included."""
    root, wrappers = _apart_from_wrappers(operator.function)
    own = re.compile(re.escape(root.__qualname__) + r"(?=$|[<(])")  # alone, or before the place of what it holds
    pieces = {
        replace(piece, name=own.sub("", piece.name, count=1))
        if piece.module == root.__module__ and own.match(piece.name)
        else piece
        for piece in _pieces(root, _neutral_syntax_of(root, operator.inputs), wrappers=wrappers, is_exact=True)
    }
    texts = Counter(name for name, _ in {(piece.name, piece.text) for piece in pieces})
    # Where two modules mean something else by one name, it counts which is which.
    return _digest((p.name if texts[p.name] == 1 else f"{p.module}.{p.name}", p.text) for p in pieces)


def code_digest_with_names(operator: Operator) -> str:
    """Return the digest that definitions of format 1 have."""
    root = inspect.unwrap(operator.function)
    return _digest((f"{p.module}.{p.name}", p.text) for p in _pieces(root, _syntax_of(root), is_exact=False))


def _digest(texts: Iterable[tuple[str, str]]) -> str:
    digest = hashlib.sha256()
    for name, text in sorted(set(texts)):
        digest.update(f"{name}\0{text}\0".encode())
    return digest.hexdigest()


def _apart_from_wrappers(function: Callable[..., object]) -> tuple[FunctionType, list[FunctionType]]:
    """Return the function that the user wrote, and what the decorators of his own package have made of it."""
    wrappers, found = [], cast("Any", function)  # Any: whatever a decorator returns
    while hasattr(found, "__wrapped__"):
        wrappers.append(found)
        found = found.__wrapped__
    own = [known for known in wrappers if isinstance(known, FunctionType) and _is_near(_home(known), found.__module__)]
    return found, own


def _pieces(
    root: object, root_syntax: str, *, wrappers: Iterable[FunctionType] = (), is_exact: bool
) -> Iterator[_Piece]:
    """Yield every text that a function's meaning depends on; one may come twice.

    With `is_exact`, also what every other name of a function or class stands for, and nothing for the sake of an
    attribute that is called like something of the module.
    """
    seen: list[object] = []  # by identity: functions of one factory share their name
    waiting: list[object] = [root, *wrappers]
    while waiting:
        found: Any = waiting.pop()  # Any: a function or a class
        found = found if is_exact else inspect.unwrap(found)
        if any(found is known for known in seen):
            continue
        seen.append(found)
        yield _Piece(found.__module__, found.__qualname__, root_syntax if found is root else _syntax_of(found))
        named = [*_named_by(found, is_exact=is_exact)]
        for module, name, value in named:  # grows by what callables are made of
            if isinstance(value, FunctionType | type):
                if is_exact and name != value.__qualname__:
                    yield _Piece(module, name, f"is {value.__qualname__}")
                if _is_near(_home(value) if is_exact else value.__module__, found.__module__):
                    waiting.append(value)
            elif (text := _constant_text(value, is_exact=is_exact)) is not None:
                yield _Piece(module, name, text)
            if is_exact:
                named += [(module, f"{name}{place}", part) for place, part in _parts_of(value, of=found.__module__)]


def _home(found: FunctionType | type) -> str:
    """Return the module in which code lies: a wrapper says of itself what it wraps says."""
    return (
        str(found.__globals__.get("__name__", found.__module__))
        if isinstance(found, FunctionType)
        else found.__module__
    )


def _parts_of(value: object, *, of: str) -> Iterator[tuple[str, object]]:
    """Yield what a callable does its work with, and the class of an object that is near a module."""
    if isinstance(value, functools.partial):
        yield "<func>", value.func
        yield from ((f"({place})", held) for place, held in [*enumerate(value.args), *value.keywords.items()])
    elif isinstance(value, MethodType):
        yield "<method>", value.__func__
        yield "<self>", value.__self__
    elif not isinstance(value, type | ModuleType):
        held = getattr(value, "__dict__", {})
        yield from ((f"<{name}>", held[name]) for name in ("__wrapped__", "pyfunc") if name in held)  # pyfunc: numpy's
        registry = held.get("registry") if isinstance(value, FunctionType) else None
        if isinstance(registry, MappingProxyType):  # of functools.singledispatch
            yield from ((f"<{kind.__qualname__}>", function) for kind, function in registry.items())
        elif not isinstance(value, FunctionType) and _is_near(type(value).__module__, of):
            yield "<type>", type(value)


def _named_by(found: object, *, is_exact: bool) -> Iterator[tuple[str, str, object]]:
    if isinstance(found, FunctionType):
        yield from _globals_named_by(found, is_exact=is_exact)
        for name, cell in zip(found.__code__.co_freevars, found.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # still empty: the name is bound later, if ever
                yield found.__module__, f"{found.__qualname__}<{name}>", cell.cell_contents
        for place, value in [*enumerate(found.__defaults__ or ()), *(found.__kwdefaults__ or {}).items()]:
            yield found.__module__, f"{found.__qualname__}({place})", value
    elif isinstance(found, type):
        yield from ((found.__module__, f"{found.__qualname__}[{i}]", base) for i, base in enumerate(found.__bases__))
        for name, member in vars(found).items():
            function = getattr(member, "__func__", getattr(member, "fget", member))
            if is_exact and isinstance(member, functools.cached_property):
                function = member.func
            if is_exact and not _is_dunder(name) and _constant_text(member, is_exact=True) is not None:
                yield found.__module__, f"{found.__qualname__}.{name}", member
            if isinstance(function, FunctionType) and not function.__code__.co_filename.startswith("<"):
                yield found.__module__, f"{found.__qualname__}.{name}", function  # a decorator's is not the user's text


def _globals_named_by(function: FunctionType, *, is_exact: bool) -> Iterator[tuple[str, str, object]]:
    """Yield what a function names outside of itself: the module it finds it in, the name, the value."""
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes += [constant for constant in code.co_consts if inspect.iscode(constant)]
        modules = {function.__module__: function.__globals__}
        waiting = [function.__module__]
        for module in waiting:  # grows by each module of ours through which something is named
            names = _loaded_names(code) if is_exact and module == function.__module__ else code.co_names
            for name in (name for name in names if name in modules[module] and not (is_exact and _is_dunder(name))):
                value = modules[module][name]
                if not isinstance(value, ModuleType):
                    yield module, name, value
                elif _is_near(value.__name__, function.__module__) and value.__name__ not in modules:
                    modules[value.__name__] = vars(value)
                    waiting.append(value.__name__)


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _loaded_names(code: CodeType) -> Iterator[str]:
    """Yield the names that code looks up by themselves, not as attributes of something."""
    for instruction in dis.get_instructions(code):
        if "GLOBAL" in instruction.opname or instruction.opname == "LOAD_NAME":
            yield cast("str", instruction.argval)


def _is_near(module: str, of: str) -> bool:
    """Tell whether code of a module counts as part of the code that names it."""
    ours = of.partition(".")[0]
    if ours == "iteration_lib":  # our own operators follow the helpers of their module only
        return module == of
    return module.partition(".")[0] == ours


def _constant_text(value: object, *, is_exact: bool) -> str | None:
    """Return a simple constant as a text that is the same in every process, None for anything else."""
    kind: Any = type(value)  # Any: numpy's, which is not imported here
    if is_exact and kind.__module__ == "numpy" and hasattr(kind, "dtype") and not hasattr(kind, "__len__"):
        return f"{cast('Any', value).dtype.str} {cast('Any', value).item()!r}"
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return repr(value)
    if not isinstance(value, tuple | frozenset):
        return None
    texts = [_constant_text(item, is_exact=is_exact) for item in value]
    if None in texts:
        return None
    inner = ", ".join(cast("list[str]", texts) if isinstance(value, tuple) else sorted(cast("list[str]", texts)))
    return f"{type(value).__name__}({inner})"


def _syntax_of(found: object) -> str:
    tree = _tree_of(found)
    return tree if isinstance(tree, str) else _dump(tree)


def _neutral_syntax_of(found: object, inputs: tuple[str, ...]) -> str:
    """Return an operator's syntax with places for its own name and for those of its inputs.

    A name that the function also uses for something else, such as a function of its own, stays as it is.
    """
    tree = _tree_of(found)
    if isinstance(tree, str) or not isinstance(tree.body[0], ast.FunctionDef):
        return _syntax_of(found)
    function = tree.body[0]
    parameters = [*function.args.args, *function.args.kwonlyargs]
    places = {function.name: "\0", **{name: f"\0{place}" for place, name in enumerate(inputs)}}
    taken = set(_names_of_other_things(function, besides=parameters))
    places = {name: place for name, place in places.items() if name not in taken}
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            node.id = places.get(node.id, node.id)
    for parameter in parameters:
        parameter.arg = places.get(parameter.arg, parameter.arg)
    function.name = "\0"
    return _dump(tree)


def _names_of_other_things(function: ast.FunctionDef, *, besides: list[ast.arg]) -> Iterator[str]:
    """Yield the names that are bound inside a function by something else than an assignment or its parameters."""
    passed_over = (ast.Name, ast.Constant, ast.Attribute, ast.keyword)
    for node in ast.walk(function):
        if node is not function and node not in besides and not isinstance(node, passed_over):
            for _, value in ast.iter_fields(node):
                yield from (name for name in (value if isinstance(value, list) else [value]) if isinstance(name, str))


def _tree_of(found: object) -> ast.Module | str:
    """Return the syntax tree of a function or class without docstrings and decorators; a text where there is none."""
    try:
        source = inspect.getsource(cast("Any", getattr(found, "__code__", found)))  # a wrapper's own, not what it wraps
    except (OSError, TypeError):
        code = getattr(found, "__code__", None)
        return repr(_code_text(code)) if code is not None else repr(found)
    try:
        tree = ast.parse(textwrap.dedent(source))
    except SyntaxError:  # the lines of a lambda are not always a program of their own
        return source
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            node.decorator_list = []
    return tree


def _code_text(code: CodeType) -> tuple[bytes, list[object]]:
    """Return compiled code without the addresses of what is compiled inside of it."""
    return code.co_code, [_code_text(held) if inspect.iscode(held) else held for held in code.co_consts]


def _dump(node: object) -> str:
    """Return a syntax tree as text that is the same for every Python version: what is empty is left out."""
    if isinstance(node, list):
        return "[" + ",".join(_dump(item) for item in node) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = (f"{name}={_dump(value)}" for name, value in ast.iter_fields(node) if value is not None and value != [])
    return f"{type(node).__name__}({','.join(fields)})"
