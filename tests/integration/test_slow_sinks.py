"""What becomes of a run whose table, in the store's own database, keeps the store's transaction waiting?

The store's patience with a lock is a tenth of a second here, and no time passes before it is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg2
import pytest

from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import SinkTargetError
from iteration_lib.protocol import RunState
from iteration_lib.protocol.state import RunId
from iteration_lib.protocol.status import CheckpointFailure, RunStatus
from iteration_lib.store.postgres import PostgresStore, PostgresTransaction
from iteration_lib.store.retry import DELAYS_SECONDS
from tests.contract.meeting import until
from tests.driven_here import DEADLINE_SECONDS, Here, Latch, MortalCoordinator
from tests.iterations.publishing import publishing
from tests.protocol_script import Sender, claim, prepared
from tests.sink_reader import WHOLE, Reader, clear, dsn
from tests.store_script import DEFINITION, a_run, new_family

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


class PausedStore(PostgresStore):
    """Stops in each of its next transactions where the test says: before its COMMIT, and when that is answered."""

    stops: Sequence[tuple[Callable[[], None], Callable[[], None]]] = ()

    @contextmanager
    def transaction(self, run_id: RunId) -> Iterator[PostgresTransaction]:
        (before, behind), *self.stops = self.stops or [(go_on, go_on)]
        with super().transaction(run_id) as transaction:
            yield transaction
            before()
        behind()


def go_on() -> None:
    """Stop nowhere."""


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


def test_run_is_the_process_own_until_the_last_of_its_rows_is_committed(store: PostgresStore) -> None:
    """Two checkpoints complete at once: the first hears late of its COMMIT, and the second has yet to send its own."""
    sender, run = Sender(1, 1, new_family()), a_run(definition={**DEFINITION, "sinks": {"rows": True}})
    begun = [
        event for epoch in range(2) for event in (sender.opens(epoch), sender.reports(epoch), sender.triggers(epoch))
    ]
    store.add_run(run)
    behind, before, waited = Latch(), Latch(), list[float]()

    def completed(checkpoint_id: int) -> RunState:
        rows = prepared(checkpoint_id - 1, "rows", in_store=True)
        event = sender.completes(checkpoint_id, committables=(rows,))
        return coordinator.apply(run.run_id, event, publish=lambda *_: None)

    with closing(PausedStore(store.url)) as paused, ThreadPoolExecutor() as pool:
        coordinator = Coordinator(paused, sleep=waited.append)
        coordinator.apply(run.run_id, claim(family=sender.family, max_pending=2), *begun)
        paused.stops = [(go_on, behind), (before, go_on)]
        first = pool.submit(completed, 1)
        with behind:
            second = pool.submit(completed, 2)
            before.wait_for_arrival()
        first.result(DEADLINE_SECONDS)
        with before:
            third = pool.submit(coordinator.apply, run.run_id)
            until(lambda: len(waited) > 2 * len(DELAYS_SECONDS) or third.done(), third)

        assert 1 == third.result(DEADLINE_SECONDS).last_durable_epoch
        assert 1 == second.result(DEADLINE_SECONDS).last_durable_epoch


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
