"""What becomes of a run whose table, in the store's own database, keeps the store's transaction waiting?

The store's patience with a lock is a tenth of a second here, and no time passes before it is tried again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest

from iteration_lib.errors import SinkTargetError
from iteration_lib.protocol.status import CheckpointFailure, RunStatus
from iteration_lib.store.postgres import PostgresStore
from tests.driven_here import Here, MortalCoordinator
from tests.iterations.publishing import publishing
from tests.sink_reader import WHOLE, Reader, clear, dsn

pytestmark = pytest.mark.postgres
pytest.importorskip("adbc_driver_postgresql", reason="adbc-driver-postgresql is not installed")

HASTY = "options=-c%20lock_timeout%3D100ms"
LOSSES = "CREATE TABLE losses (run text, epoch bigint, name text, value double precision)"
SLOW = (
    "CREATE OR REPLACE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN PERFORM pg_sleep({seconds}); RETURN NULL; END $$;"
    "CREATE TRIGGER slow BEFORE INSERT ON losses EXECUTE FUNCTION slow()"
)


class HastyCoordinator(MortalCoordinator):
    """Waits for nothing."""

    def __init__(self, store: PostgresStore) -> None:
        super().__init__(store, sleep=lambda _: None)


@pytest.fixture(scope="module")
def store(store_url: str) -> Iterator[PostgresStore]:
    with closing(PostgresStore(f"{store_url}&{HASTY}")) as opened:
        yield opened


@pytest.fixture
def here(store: PostgresStore, tmp_path: Path) -> Here:
    clear(store.url)
    execute(store, LOSSES)
    return Here.begin(store, tmp_path, publishing, uri=str(tmp_path / "published"), table="losses")


def execute(store: PostgresStore, statement: str) -> None:
    with closing(psycopg2.connect(dsn(store.url))) as connection, connection, connection.cursor() as cursor:
        cursor.execute(statement)


def test_epoch_waits_for_the_rows_of_the_one_before_however_long_they_take(here: Here) -> None:
    """They go into the store's database with the run locked, by this attempt: it must not end itself for that."""
    execute(here.store, SLOW.format(seconds=1.5))

    run = here.drive(coordinator_class=HastyCoordinator)

    assert RunStatus.FINISHED is run.status
    assert WHOLE == Reader(uri=str(here.run.params["uri"]), url=here.store.url).see()


def test_table_that_others_lock_declines_the_checkpoint_and_is_named(here: Here) -> None:
    with closing(psycopg2.connect(dsn(here.store.url))) as connection, connection.cursor() as cursor:
        cursor.execute("LOCK TABLE losses IN SHARE MODE")

        failure = here.drive_and_fail()

    assert isinstance(failure, SinkTargetError)
    assert str(failure).startswith("the Postgres table public.losses (host=")
    assert " cannot be reached (canceling statement due to lock timeout)" in str(failure)
    assert CheckpointFailure.DECLINED is here.checkpoints[0].failure
    assert RunStatus.FINISHED is here.drive().status


def test_insert_that_hangs_ends_when_the_checkpoints_time_is_over(here: Here) -> None:
    execute(here.store, SLOW.format(seconds=3600))

    failure = here.drive_and_fail(timeout_seconds=2, patience_seconds=0.5)

    assert "(canceling statement due to statement timeout)" in str(failure)
    assert CheckpointFailure.DECLINED is here.checkpoints[0].failure
    execute(here.store, "DROP FUNCTION slow() CASCADE")
    assert RunStatus.FINISHED is here.drive().status
