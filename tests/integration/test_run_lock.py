"""Does whoever writes anything of a run hold the lock of its row? Transactions by hand, which lock nothing."""
# ruff: noqa: S608 - every part of these statements is written here

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg2
import psycopg2.errors
import pytest
from psycopg2.extensions import ISOLATION_LEVEL_REPEATABLE_READ, ISOLATION_LEVEL_SERIALIZABLE
from psycopg2.extensions import connection as Connection  # noqa: N812 - the class has a function's name

from iteration_lib.coordinator import Coordinator
from iteration_lib.store.postgres import PostgresStore
from tests.illegal_row import ended
from tests.protocol_script import Sender, claim
from tests.sink_reader import dsn
from tests.store_script import added, new_family

pytestmark = pytest.mark.postgres

_PATIENCE_SECONDS = 10
OF_RUNS = (
    *("attempts", "operators", "pins", "epochs", "checkpoints", "checkpoint_requests", "checkpoint_pins", "stops"),
    *("edge_parts", "listener_notices", "committables", "fallbacks", "branches"),
)
LOCKED = "SELECT FROM runs WHERE run_id = %(run)s FOR NO KEY UPDATE"
OPENED = "INSERT INTO epochs (run_id, epoch, fencing_token, records) VALUES (%(run)s, 1, 1, '{\"centroids\": [null]}')"


@pytest.fixture
def run(store_url: str) -> dict[str, str]:
    """A run that is driven, and whose epoch 0 is durable: what %(run)s stands for."""
    family = new_family()
    with closing(PostgresStore(store_url)) as store:
        run_id = added(store)
        Coordinator(store).apply(run_id, claim(family=family), *Sender(1, 1, family).passes(0, 1))
    return {"run": run_id}


@pytest.fixture
def two(store_url: str) -> Iterator[tuple[Connection, Connection]]:
    """Two transactions by hand, which are not committed at the end."""
    with closing(psycopg2.connect(dsn(store_url))) as one, closing(psycopg2.connect(dsn(store_url))) as other:
        yield one, other


def write(connection: Connection, statement: str, run: dict[str, str]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, run)


@pytest.mark.parametrize("table", OF_RUNS)
def test_whatever_is_written_of_a_run_waits_for_its_lock(
    two: tuple[Connection, Connection], run: dict[str, str], table: str
) -> None:
    write(two[0], LOCKED, run)
    write(two[1], "SET LOCAL lock_timeout = '50ms'", run)

    with pytest.raises(psycopg2.errors.LockNotAvailable):
        write(two[1], f"INSERT INTO {table} (run_id) VALUES (%(run)s)", run)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE epochs SET seconds = 1 WHERE run_id = %(run)s",
        "UPDATE attempts SET reason = 'x' WHERE run_id = %(run)s",
        "DELETE FROM operators WHERE run_id = %(run)s",
    ],
)
def test_what_is_changed_or_taken_away_does_not_wait_with_its_own_row_locked(
    two: tuple[Connection, Connection], run: dict[str, str], statement: str
) -> None:
    """Or whoever holds the run would wait for that row, and might be the one whom the server ends."""
    write(two[0], LOCKED, run)

    with pytest.raises(psycopg2.errors.LockNotAvailable):
        write(two[1], statement, run)


def test_lease_alone_is_renewed_without_it(two: tuple[Connection, Connection], run: dict[str, str]) -> None:
    write(two[0], LOCKED, run)
    write(two[1], "SET LOCAL lock_timeout = '50ms'", run)

    write(two[1], "UPDATE attempts SET lease_expires_at = now() WHERE run_id = %(run)s", run)


def test_every_table_of_a_run_is_written_behind_it(two: tuple[Connection, Connection], run: dict[str, str]) -> None:
    """Told by the catalogue: a table that is added without the trigger fails here."""
    with two[0].cursor() as cursor:
        cursor.execute(
            "SELECT relname, bit_or(tgtype & (4 | 8 | 16)) FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid "
            "LEFT JOIN pg_trigger ON tgrelid = pg_class.oid AND tgfoid = 'run_lock'::regproc "
            "WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND attname = 'run_id' "
            "AND relname <> 'runs' GROUP BY relname"
        )
        found = dict(cursor.fetchall())

    assert dict.fromkeys(OF_RUNS, 4 | 8 | 16) == found  # insert, delete, update


def test_what_waited_is_judged_by_what_was_committed_meanwhile(
    two: tuple[Connection, Connection], run: dict[str, str]
) -> None:
    """An epoch that opens while its attempt ends: each transaction is legal, if it does not know of the other."""
    write(two[0], ended("RELEASED", of="run"), run)
    with ThreadPoolExecutor(max_workers=1) as pool:
        opens = pool.submit(write, two[1], OPENED, run)
        wait_until_blocked(two[0], two[1].info.backend_pid)
        two[0].commit()

        with pytest.raises(psycopg2.errors.CheckViolation, match="nobody drives run"):
            opens.result(timeout=_PATIENCE_SECONDS)


def test_legal_row_is_written_when_the_wait_is_over(two: tuple[Connection, Connection], run: dict[str, str]) -> None:
    write(two[0], LOCKED, run)
    with ThreadPoolExecutor(max_workers=1) as pool:
        opens = pool.submit(write, two[1], OPENED, run)
        wait_until_blocked(two[0], two[1].info.backend_pid)
        two[0].rollback()

        opens.result(timeout=_PATIENCE_SECONDS)
    two[1].commit()


def wait_until_blocked(connection: Connection, pid: int) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with connection.cursor() as cursor:
            cursor.execute("SELECT cardinality(pg_blocking_pids(%s))", (pid,))
            if cursor.fetchall() != [(0,)]:
                return
        time.sleep(0.01)
    pytest.fail("the other transaction does not wait")


@pytest.mark.parametrize("table", ["runs", *OF_RUNS])
@pytest.mark.parametrize(
    "level", [ISOLATION_LEVEL_REPEATABLE_READ, ISOLATION_LEVEL_SERIALIZABLE], ids=["repeatable read", "serializable"]
)
def test_transaction_that_sees_an_older_state_than_the_lock_is_refused(
    two: tuple[Connection, Connection], run: dict[str, str], level: int, table: str
) -> None:
    two[0].set_session(isolation_level=level)
    statement = f"INSERT INTO {table} (run_id) VALUES (%(run)s)"
    if table == "runs":
        statement = "UPDATE runs SET revision = revision + 1 WHERE run_id = %(run)s"

    with pytest.raises(psycopg2.errors.CheckViolation, match="is READ COMMITTED, not"):
        write(two[0], statement, run)
