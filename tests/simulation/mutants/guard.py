"""Which places of the core refuse something, and which of them does a mutant touch?

A guard is a `raise`, an offence against legality, or a call of another module's check, with the condition around it. A
mutant touches it if the patched module has it no more, as it was.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import iteration_lib
from tests.simulation.mutants.mutant import Mutant

_PACKAGE = Path(iteration_lib.__file__).parent
_CORE = "protocol"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """A guard in a function of a file; `text` is the innermost `if` around it, or the function where there is none."""

    file: str
    function: str
    text: str

    def __str__(self) -> str:
        return f"{self.file} {self.function}: {self.text.partition(chr(10))[0]}"


def untouched_guards(mutants: tuple[Mutant, ...]) -> list[Guard]:
    """Return the guards of the core that no mutant touches."""
    found = []
    for path in sorted((_PACKAGE / _CORE).glob("*.py")):
        file, source = f"{_CORE}/{path.name}", path.read_text()
        guards = left = Counter(_guards(file, source))
        for mutant in mutants:
            patched = mutant.patch(file, source)
            if patched != source:
                left &= Counter(_guards(file, patched))
        found += [guard for guard in guards if left[guard] == guards[guard]]
    return found


def _guards(file: str, source: str) -> Iterator[Guard]:
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            for around in _refusals(function, function):
                yield Guard(file=file, function=function.name, text=ast.unparse(around))


def _refusals(node: ast.AST, around: ast.stmt) -> Iterator[ast.stmt]:
    """Yield for each refusal below a node what is around it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Raise) or _called(child) == "Offence":
            yield around
        elif isinstance(child, ast.Expr) and _called(child.value).startswith("check_"):
            yield around if isinstance(around, ast.If) else child
        else:
            yield from _refusals(child, child if isinstance(child, ast.If) else around)


def _called(node: ast.AST) -> str:
    """Return the name of the function that a node calls; nothing for any other node."""
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
