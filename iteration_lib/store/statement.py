"""What does the server get to see of a named query? A statement that it prepares once, and calls of it.

A call that writes says how many rows it has to touch, as a range of Postgres, and the server itself refuses any other
number. So a message may hold many writes and the COMMIT: nothing behind a write that missed its rows is executed.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import TextClause, text
from sqlalchemy.dialects import postgresql

from iteration_lib.store.query import queries

_DIALECT = postgresql.dialect(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]  # $1, as PREPARE has them

_ROWS = "rows"
ONE_ROW = "[1,1]"  # which most writes touch: no parameter says so
# The message is cast to a number, which it is not: an error of the server's own that says what was touched.
_COUNTED = """WITH {first}touched AS ({last} RETURNING 1)
SELECT CASE WHEN {is_right} THEN 0
    ELSE CAST('{name} touched ' || count(*) || {but_not} AS integer) END FROM touched"""
_OF_ONE_ROW = {"is_right": "count(*) = 1", "but_not": "' rows, not 1'"}
_OF_A_RANGE = {
    "is_right": "count(*) <@ CAST(:rows AS int8range)",
    "but_not": "' rows, not ' || CAST(:rows AS int8range)",
}
_TWICE = re.compile(r"WITH (.+\n\))\n(.+)", re.DOTALL)  # a query that writes in a WITH, and then what counts


@dataclass(frozen=True, slots=True)
class Call:
    """A named query with its parameters; `rows` is how many rows it touches, None for a query that only reads."""

    name: str
    parameters: Mapping[str, object]
    rows: str | None = None

    @property
    def statement(self) -> Statement:
        """The statement that is called."""
        if self.rows is None:
            return _reading(self.name)
        return _writing(self.name, is_of_one_row=self.rows == ONE_ROW)

    @property
    def values(self) -> list[object]:
        """The values of the statement's parameters, in its order."""
        return [self.rows if name == _ROWS else self.parameters[name] for name in self.statement.parameters]


@dataclass(frozen=True, slots=True)
class Statement:
    """What a connection prepares once under a name, and what executes it, with a %s per parameter."""

    name: str
    prepare: str
    execute: str
    parameters: tuple[str, ...]


@functools.cache
def _reading(name: str) -> Statement:
    return _prepared(name, queries()[name])


@functools.cache
def _writing(name: str, *, is_of_one_row: bool) -> Statement:
    query = queries()[name].text
    twice = _TWICE.fullmatch(query)
    first, last = (f"{twice[1]}, ", twice[2]) if twice else ("", query)
    counts = _OF_ONE_ROW if is_of_one_row else _OF_A_RANGE
    counted = text(_COUNTED.format(name=name, first=first, last=last, **counts))
    return _prepared(name if is_of_one_row else f"{name}_rows", counted)


def _prepared(name: str, query: TextClause) -> Statement:
    compiled = query.compile(dialect=_DIALECT)
    parameters = tuple(compiled.positiontup or ())
    return Statement(
        name=name,
        prepare=f"PREPARE {name} AS {compiled}",
        execute=f"EXECUTE {name}({', '.join('%s' for _ in parameters)})",
        parameters=parameters,
    )
