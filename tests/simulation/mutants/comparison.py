"""Which mutants of the core are made by rule? Each comparison turned round, each `and` an `or`, each `not` left out.

Of `<` it is `<=`, of `==` it is `!=`, of `in` it is `not in`: a boundary is off by one, or a question is answered the
other way. What one of them breaks it does not say; that it is noticed is all that counts.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import iteration_lib
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.mutants.unmet import EQUIVALENT

_PACKAGE = Path(iteration_lib.__file__).parent
_CORE = "protocol"
# What only a user's file that changes asks for.
_OF_OTHER_OPERATORS = ("change_definition", "void_edges", "_offences", "_offence", "status")
_TURNED = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "in": "not in",
    "not in": "in",
    "is": "is not",
    "is not": "is",
    "and": "or",
    "or": "and",
    "not": "",
}
_OPERATOR = re.compile(r"\b(?:not\s+in|is\s+not|in|is|and|or|not)\b|[<>!=]=|[<>]")


def compared() -> tuple[Mutant, ...]:
    """Return a mutant for each comparison, `and`, `or` and `not` of the core."""
    return tuple(
        mutant
        for path in sorted((_PACKAGE / _CORE).glob("*.py"))
        for mutant in _mutants(f"{_CORE}/{path.name}", path.read_text())
    )


def _mutants(file: str, source: str) -> Iterator[Mutant]:
    lines = source.splitlines(keepends=True)
    starts = [sum(map(len, lines[:number])) for number in range(len(lines))]
    seen = Counter[str]()

    def at(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    for function in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)):
        for node, left, right in _operators(function):
            begin, end = at(*left), at(*right)
            operator, turned = _turned(source[begin:end])
            name = f"{file} {function.name}: {ast.unparse(node)} with {operator!r} turned"
            seen[name] += 1
            name += f", no. {seen[name]}" if seen[name] > 1 else ""
            new = source[:begin] + turned + source[end:]
            is_evolving = function.name in _OF_OTHER_OPERATORS
            yield Mutant(
                name=name,
                rule="any",
                file=file,
                old=source,
                new=new,
                equivalent=EQUIVALENT.get(name),
                is_evolving=is_evolving,
            )


def _operators(node: ast.AST) -> Iterator[tuple[ast.AST, tuple[int, int], tuple[int, int]]]:
    """Yield each operator below a node: the expression that it is in, and after and before which place it stands."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            continue
        operands: list[ast.expr] = []
        if isinstance(child, ast.Compare):
            operands = [child.left, *child.comparators]
        elif isinstance(child, ast.BoolOp):
            operands = child.values
        elif isinstance(child, ast.UnaryOp) and isinstance(child.op, ast.Not):
            yield child, (child.lineno, child.col_offset), (child.operand.lineno, child.operand.col_offset)
        for left, right in pairwise(operands):
            yield child, (left.end_lineno or 0, left.end_col_offset or 0), (right.lineno, right.col_offset)
        yield from _operators(child)


def _turned(between: str) -> tuple[str, str]:
    """Return the operator that stands there, with brackets it may be, and what stands there when it is turned."""
    found = _OPERATOR.search(between)
    if found is None:
        raise ValueError(f"no operator in {between!r}")
    operator = " ".join(found.group().split())
    return operator, between[: found.start()] + _TURNED[operator] + between[found.end() :]
