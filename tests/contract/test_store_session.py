"""Does recording an epoch cost more, the longer a run has lasted?

Told by the rows and index entries that statements, guards and deferred constraints read in one session, which keeps the
plans that it made when the tables were empty, or small: for epochs with edges, sinks, listeners, checkpoints by hand,
that fail or are let go, of one attempt, or each of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TypeAlias

import pytest
from sqlalchemy import Engine, text

from iteration_lib.coordinator import Coordinator
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.state import RunId
from iteration_lib.store.embedded import EmbeddedPostgres
from iteration_lib.store.postgres import PostgresStore, open_engine
from tests.fixture.store import new_database, upgraded
from tests.protocol_script import Sender, asks, claim, part, prepared
from tests.store_script import a_run, new_family, wired

pytestmark = pytest.mark.postgres

FEW, MANY, ANALYSED_AT = 50, 150, 24
_OPERATORS = {
    **wired("centroids", "value", role="variable"),
    **wired("x", "value"),
    **wired("y", "buckets", "x_rows"),
}
Drive: TypeAlias = Callable[[PostgresStore, int], Iterator[int]]
_OTHERS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
_READ = """
SELECT indexrelname, idx_tup_read FROM pg_stat_user_indexes
UNION ALL
SELECT relname, seq_tup_read FROM pg_stat_user_tables
"""


@pytest.mark.parametrize("is_analysed", [False, True])
@pytest.mark.parametrize("is_chain", [False, True])
def test_epochs_read_no_more_each_after_many(
    postgres_server: EmbeddedPostgres,
    is_analysed: bool,  # noqa: FBT001 - a case
    is_chain: bool,  # noqa: FBT001 - a case
) -> None:
    drive = _drive_chain if is_chain else _drive
    few, many = (_read_per_epoch(postgres_server, drive, epochs, is_analysed) for epochs in (FEW, MANY))

    grown = {known: (few[known], read) for known, read in many.items() if read > few[known] + 1}
    assert {} == grown
    assert few["checkpoints_pending_idx"] >= 1  # they are counted


def _read_per_epoch(server: EmbeddedPostgres, drive: Drive, epochs: int, is_analysed: bool) -> dict[str, float]:  # noqa: FBT001 - a case
    """Return how many entries of each index, or rows of each table, a run reads per epoch in a new store."""
    url = upgraded(new_database(server))
    engine = open_engine(url)
    try:
        with engine.begin() as connection:
            for (table,) in connection.execute(text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")):
                connection.execute(text(f"ALTER TABLE {table} SET (autovacuum_enabled = false)"))
        before = _read(engine)
        with closing(PostgresStore(url)) as store:
            for epoch in drive(store, epochs):
                if is_analysed and epoch == ANALYSED_AT:
                    with engine.begin() as connection:
                        connection.execute(text("ANALYZE"))
        return {known: (read - before[known]) / epochs for known, read in _read(engine).items()}
    finally:
        engine.dispose()


def _drive(store: PostgresStore, epochs: int) -> Iterator[int]:
    """Record epochs with all that they may have, in the transactions of a driver; yield each that is durable."""
    one, coordinator = Sender(1, 1, new_family()), Coordinator(store)
    run_id = _begun(store)
    coordinator.apply(run_id, claim(family=one.family, tolerable_failures=3))
    coordinator.apply(run_id, one.opens(0))
    durable = -1
    for epoch in range(epochs):
        if epoch % 3 == 0:
            coordinator.apply(run_id, asks(epoch, one.family))
        if durable == epoch - 1:
            coordinator.apply(run_id, one.switches(epoch))
            coordinator.apply(run_id, one.marks(epoch, part("x"), part("y", 0, 2, total=4, wide=("x",))))
            coordinator.apply(run_id, one.marks(epoch, part("y", 2, 4, total=4, wide=("x",))))
        coordinator.apply(run_id, one.reports(epoch), one.triggers(epoch), one.opens(epoch + 1))
        if epoch % 6 == 1:
            coordinator.apply(run_id, one.declines(epoch + 1))
            continue
        covered = tuple(prepared(aligned, "rows") for aligned in range(durable + 1, epoch + 1))
        coordinator.apply(run_id, one.completes(epoch + 1, committables=covered))
        coordinator.apply(run_id, one.commits(*((known.epoch, known.output) for known in covered)))
        coordinator.apply(run_id, *(one.notifies(known.epoch) for known in covered))
        durable = epoch
        coordinator.discard(run_id, CheckpointPolicy(retain_last=2), attempt_id=one.attempt_id)
        store.renew_lease(run_id, one.attempt_id, fencing_token=1, lease_ttl_seconds=60.0)
        yield epoch


def _drive_chain(store: PostgresStore, epochs: int) -> Iterator[int]:
    """Record each epoch by an attempt of its own, which leaves the next one open, with an edge; yield each.

    Every other one ignores the edge, and marks it again.
    """
    family, run_id = new_family(), _begun(store)
    for epoch in range(epochs):
        one, coordinator = Sender(epoch + 1, epoch + 1, family), Coordinator(store)
        coordinator.apply(run_id, claim(one.number, family=family, ignore_edges=epoch % 2 == 1))
        coordinator.apply(run_id, one.opens(epoch), one.switches(epoch))
        if epoch % 2 == 1:
            coordinator.apply(run_id, one.marks(epoch, part("x")))
        coordinator.apply(run_id, one.reports(epoch), one.triggers(epoch), one.opens(epoch + 1))
        coordinator.apply(run_id, one.completes(epoch + 1, committables=(prepared(epoch, "rows"),)))
        coordinator.apply(run_id, one.commits((epoch, "rows")), one.switches(epoch + 1))
        coordinator.apply(run_id, one.marks(epoch + 1, part("x")))
        coordinator.apply(run_id, one.ends())
        yield epoch


def _begun(store: PostgresStore) -> RunId:
    run = a_run(definition={"iteration": "km", "operators": _OPERATORS, "sinks": {"rows": True}})
    store.add_run(run)
    return run.run_id


def _read(engine: Engine) -> dict[str, int]:
    """Return what was read, once every other session has ended, and told what it read."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        while connection.execute(text(_OTHERS)).scalar_one() > 0:
            time.sleep(0.01)
        connection.execute(text("SELECT pg_stat_clear_snapshot()"))
        return {name: int(read) for name, read in connection.execute(text(_READ))}
