"""Does anything break an invariant that random statements commit? What is committed is judged by rows alone."""

from __future__ import annotations

import random
from collections.abc import Iterator

import psycopg2
import psycopg2.errors
import pytest

from tests.fixture.store import NO_SYNC, upgraded
from tests.legal_rows import Rows, legal_rows_in
from tests.random_statement import TABLES, Statements
from tests.row_invariant import find_broken
from tests.size import IS_NIGHTLY

pytestmark = pytest.mark.postgres

_TRANSACTIONS = 50_000 if IS_NIGHTLY else 4_000
_SEEDS = range(10) if IS_NIGHTLY else range(1)
_MOST_VALUES = 40  # of a column
_LONG_ENOUGH = 20_000  # transactions; each guard of these is missed after some hundred
# A guard that is gone, and the rule that is seen to be broken then.
_GONE = {
    "runs_token_guard ON runs": "I1",
    "attempts_begun_guard ON attempts": "I2",
    "checkpoints_end_guard ON checkpoints": "I6",
    "runs_issued_guard ON runs": "I7",
    "listener_notices_change_guard ON listener_notices": "I16",
    "checkpoint_pins_guard ON checkpoint_pins": "I18",
    "runs_published_guard ON runs": "I19",
}


@pytest.fixture
def rows(empty_store: str) -> Iterator[Rows]:
    with legal_rows_in(f"{upgraded(empty_store)}&{NO_SYNC}") as rows:
        yield rows


@pytest.mark.parametrize("seed", _SEEDS)
def test_what_random_statements_commit_breaks_no_invariant(rows: Rows, seed: int) -> None:
    statements, accepted = statements_on(rows, seed), 0
    assert {} == broken(rows)

    for _ in range(_TRANSACTIONS):
        if sent := send(rows, statements):
            accepted += 1
            assert {} == broken(rows), sent

    assert accepted > _TRANSACTIONS // 50  # or nothing has been tried


@pytest.mark.parametrize(("guard", "rule"), _GONE.items(), ids=list(_GONE))
def test_guard_that_is_gone_is_noticed(rows: Rows, guard: str, rule: str) -> None:
    """So that a search that finds nothing says something."""
    rows.execute(f"DROP TRIGGER {guard}")
    rows.connection.commit()
    statements = statements_on(rows, seed=1)

    found = next((rules for rules in (searched(rows, statements) for _ in range(_LONG_ENOUGH)) if rules), "nothing")

    assert rule in found


def searched(rows: Rows, statements: Statements) -> str:
    """Send a transaction, and tell which rules are broken then."""
    return ", ".join(broken(rows)) if send(rows, statements) else ""


def send(rows: Rows, statements: Statements) -> list[str]:
    """Send a transaction to a run; return its statements where they were accepted and have touched a row."""
    run, sent, touched = statements.rng.choice(statements.runs), statements.transaction(), 0
    try:
        with rows.connection.cursor() as cursor:
            for statement in sent:
                cursor.execute(statement, {"run": run})
                touched += cursor.rowcount
        rows.connection.commit()
    except (psycopg2.IntegrityError, psycopg2.DataError, psycopg2.errors.RaiseException):
        rows.connection.rollback()
        return []
    return sent if touched else []


def broken(rows: Rows) -> dict[str, set[str]]:
    """Return the runs that break a rule as committed, by the rule."""
    with rows.connection.cursor() as cursor:
        found = find_broken(cursor)
    rows.connection.rollback()
    return found


def statements_on(rows: Rows, seed: int) -> Statements:
    """Random statements by a seed, with values that the tables hold."""
    columns: dict[str, dict[str, str]] = {}
    values: dict[tuple[str, str], list[str]] = {}
    with rows.connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(
                "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = %s::regclass "
                "AND attnum > 0 AND attidentity = '' AND NOT attisdropped ORDER BY attnum",
                (table,),
            )
            columns[table] = dict(cursor.fetchall())
            for name, kind in columns[table].items():
                cursor.execute(
                    f"SELECT DISTINCT quote_literal(CAST({name} AS text)) FROM {table} "  # noqa: S608 - the catalogue's
                    f"WHERE {name} IS NOT NULL ORDER BY 1 LIMIT {_MOST_VALUES}"
                )
                known = [value for (value,) in cursor.fetchall()]
                values[table, name] = [f"CAST({value} AS {kind})".replace("%", "%%") for value in known]
        cursor.execute("SELECT CAST(run_id AS text) FROM runs ORDER BY created_at, run_id")
        runs = [run for (run,) in cursor.fetchall()]
    rows.connection.rollback()
    return Statements(runs, columns, values, random.Random(seed))  # noqa: S311 - a test, not a secret
