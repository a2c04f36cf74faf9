"""What does the server get to see of a named query? A statement that it prepares once, and calls of it.

A call that writes says how many rows it has to touch, as a range of Postgres, and the server itself refuses any other
number. So a message may hold many writes and the COMMIT: nothing behind a write that missed its rows is executed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.dialects import postgresql

from iteration_lib.store.query import queries

_DIALECT = postgresql.dialect(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]  # $1, as PREPARE has them

# The message is cast to a number, which it is not: an error of the server's own that says what was touched.
_COUNTED = """WITH touched AS ({query} RETURNING 1)
SELECT CASE WHEN count(*) <@ CAST(:rows AS int8range) THEN 0
    ELSE CAST('{name} touched ' || count(*) || ' rows, not ' || CAST(:rows AS int8range) AS integer) END FROM touched"""


@dataclass(frozen=True, slots=True)
class Call:
    """A named query with its parameters; `rows` is how many rows it touches, None for a query that only reads."""

    name: str
    parameters: Mapping[str, object]
    rows: str | None = None

    @property
    def statement(self) -> Statement:
        """The statement that is called."""
        return _statement(self.name, is_counted=self.rows is not None)

    @property
    def values(self) -> list[object]:
        """The values of the statement's parameters, in its order."""
        given = {**self.parameters, "rows": self.rows}
        return [given[parameter] for parameter in self.statement.parameters]


@dataclass(frozen=True, slots=True)
class Statement:
    """What a connection prepares once under the query's name, and what executes it, with a %s per parameter."""

    name: str
    prepare: str
    execute: str
    parameters: tuple[str, ...]


@functools.cache
def _statement(name: str, *, is_counted: bool) -> Statement:
    query = queries()[name]
    if is_counted:
        query = text(_COUNTED.format(name=name, query=query.text))
    compiled = query.compile(dialect=_DIALECT)
    parameters = tuple(compiled.positiontup or ())
    return Statement(
        name=name,
        prepare=f"PREPARE {name} AS {compiled}",
        execute=f"EXECUTE {name}({', '.join('%s' for _ in parameters)})",
        parameters=parameters,
    )
