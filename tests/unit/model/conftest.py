"""What do the tests of definitions find in place? Modules that are written on the spot."""

from __future__ import annotations

import linecache
import sys
import textwrap
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

Write = Callable[..., ModuleType]


@pytest.fixture
def write() -> Iterator[Write]:
    """Make modules that lie nowhere: their text is where inspect looks for it."""
    written: dict[str, ModuleType | None] = {}

    def make(source: str, name: str = "team.km") -> ModuleType:
        written.setdefault(name, sys.modules.get(name))
        text = textwrap.dedent(source)
        path = f"/nowhere/{name.replace('.', '/')}.py"
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
        module = ModuleType(name)
        module.__file__ = path
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
        exec(compile(text, path, "exec"), module.__dict__)  # noqa: S102 - the test's own text
        return module

    make("", "team")
    make("def scale(value): return value * 3", "team.helper")
    yield make
    for name, before in written.items():
        linecache.cache.pop(f"/nowhere/{name.replace('.', '/')}.py", None)
        if before is None:
            del sys.modules[name]
