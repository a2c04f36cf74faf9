"""Where is the SQL? In sql/, by name: in the source tree beside the package, in a wheel inside it."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from sqlalchemy import TextClause, text

_NAMED = re.compile(r"^-- ([a-z_]+): .+$", re.MULTILINE)


def sql_folder() -> Path:
    """Return the folder that holds migrations/, queries/, schema.sql and roles.sql."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "sql"
    return inside if inside.is_dir() else package.parent / "sql"


@functools.cache
def queries() -> dict[str, TextClause]:
    """Return every named query."""
    found: dict[str, TextClause] = {}
    for path in sorted((sql_folder() / "queries").glob("*.sql")):
        found |= {name: text(statement) for name, statement in named_statements(path).items()}
    return found


def named_statements(path: Path) -> dict[str, str]:
    """Return what stands under each name in a file, without the last semicolon."""
    source = path.read_text(encoding="utf-8")
    marks = list(_NAMED.finditer(source))
    ends = [mark.start() for mark in marks[1:]] + [len(source)]
    return {mark.group(1): source[mark.end() : end].strip().rstrip(";") for mark, end in zip(marks, ends, strict=True)}
