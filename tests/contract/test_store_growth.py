"""Does reading a run's state cost more, the longer the run has lasted?

Told by the pages that each statement touches, which a busy machine does not change: of a run with ten epochs, and of
one with three thousand.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from sqlalchemy import Engine, text

from iteration_lib.coordinator import Coordinator
from iteration_lib.protocol.state import RunId
from iteration_lib.store.postgres import PostgresStore, open_engine
from iteration_lib.store.row import STATE_PARTS
from iteration_lib.store.statement import ONE_ROW, Call
from tests.protocol_script import Sender, asks, claim, part
from tests.store_script import added, new_family, read_state

pytestmark = pytest.mark.postgres

SHORT, LONG = 10, 3000
# Pages more that a deeper index may cost, for each row that a statement looks up.
_DEEPER = 12

# What epochs leave behind: everything that has a row for each of them.
GROW = """
SET LOCAL session_replication_role = replica;
INSERT INTO epochs (run_id, epoch, fencing_token, status, records, expected_reports, reports, decision, held_at,
    aligned_at, durable_at)
SELECT :run_id, epoch, 1, 'DURABLE', jsonb_build_object('centroids', jsonb_build_array(3)), 1, 1, '{}', now(), now(),
    now()
FROM generate_series(1, :epochs) AS epoch;
UPDATE checkpoints SET status = 'SUBSUMED' WHERE run_id = :run_id AND checkpoint_id = 1;
INSERT INTO checkpoints (run_id, checkpoint_id, epoch, fencing_token, kind, status, acknowledgements, expected,
    acknowledged, manifest_path, manifest_sha256, size_bytes, ended_at)
SELECT :run_id, epoch + 1, epoch, 1, 'PERIODIC', CASE epoch WHEN :epochs THEN 'COMPLETED' ELSE 'DISCARDED' END,
    jsonb_build_object('centroids', jsonb_build_array(1)), 1, 1, 'p', repeat('ab', 32), 1, now()
FROM generate_series(1, :epochs) AS epoch;
INSERT INTO checkpoint_requests (request_id, run_id, requested_by, checkpoint_id)
SELECT gen_random_uuid(), :run_id, 'ann', epoch + 1 FROM generate_series(1, :epochs) AS epoch;
INSERT INTO edge_parts (run_id, epoch, operator_id, first_bucket, end_bucket, total, fencing_token, output, metrics)
SELECT :run_id, epoch, name, 0, 1, 1, 1, '{}', '{}'
FROM generate_series(1, :epochs) AS epoch CROSS JOIN unnest(ARRAY['x', 'y']) AS name;
INSERT INTO listener_notices (run_id, listener_id, epoch, fencing_token)
SELECT :run_id, name, epoch, 1
FROM generate_series(1, :epochs) AS epoch CROSS JOIN unnest(ARRAY['log', 'mail']) AS name;
UPDATE runs SET last_durable_epoch = :epochs, last_checkpoint_id = :epochs + 1 WHERE run_id = :run_id;
"""


# The completed checkpoint covers the epoch after the last durable one, too: only then may that become durable.
COVERED = """
SET LOCAL session_replication_role = replica;
UPDATE checkpoints SET epoch = 1000000 WHERE status = 'PENDING';
UPDATE checkpoints SET epoch = runs.last_durable_epoch + 1
FROM runs WHERE runs.run_id = checkpoints.run_id AND checkpoints.status = 'COMPLETED';
SET LOCAL session_replication_role = origin;
"""

# An attempt that has ended, and left what it left.
LEFT = """
SET LOCAL session_replication_role = replica;
UPDATE attempts SET ended_at = now(), outcome = 'RELEASED';
SET LOCAL session_replication_role = origin;
"""

# An attempt that ignores edges, and has opened no epoch.
IGNORED = """
SET LOCAL session_replication_role = replica;
UPDATE attempts SET ignores_edges = true;
UPDATE epochs SET status = 'VOIDED' WHERE status IN ('OPEN', 'ALIGNED');
UPDATE epochs SET fencing_token = 0
FROM runs WHERE runs.run_id = epochs.run_id AND runs.last_durable_epoch = epochs.epoch;
SET LOCAL session_replication_role = origin;
"""

# A pending checkpoint that a person asked for, before it began.
BY_HAND = """
SET LOCAL session_replication_role = replica;
UPDATE checkpoints SET kind = 'MANUAL' WHERE status = 'PENDING';
UPDATE checkpoint_requests SET behind = 0;
SET LOCAL session_replication_role = origin;
"""

# What many others leave, in the transaction that asks.
CROWD = """
SET LOCAL session_replication_role = replica;
INSERT INTO runs (run_id, run_key, reference, definition, params, state_uri, max_buckets)
SELECT gen_random_uuid(), 'crowd/' || run, 'm:o', '{}', '{}', '/s', 1 FROM generate_series(1, 3000) AS run;
"""


@pytest.fixture(scope="module")
def engine(store_url: str) -> Iterator[Engine]:
    opened = open_engine(store_url)
    yield opened
    opened.dispose()


@pytest.fixture(scope="module")
def runs(store_url: str, engine: Engine) -> Iterator[dict[int, RunId]]:
    """Runs that are in the same place, after different numbers of epochs."""
    store = PostgresStore(store_url)
    found = {epochs: begun(store, engine, epochs) for epochs in (SHORT, LONG)}
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))
    yield found
    store.close()


def begun(store: PostgresStore, engine: Engine, epochs: int) -> RunId:
    run_id, one = added(store), Sender(1, 1, new_family())
    before = (
        claim(family=one.family),
        one.finishes("scaled"),
        one.pins("points"),
        one.marks(-1, part("norms", total=4)),
    )
    Coordinator(store).apply(run_id, *before, *one.passes(0, 1))
    with engine.begin() as connection:
        for statement in GROW.strip().split(";\n"):
            connection.execute(text(statement.rstrip(";\n")), {"run_id": run_id, "epochs": epochs})
    last = epochs + 1
    Coordinator(store).apply(
        run_id,
        *(one.opens(last), one.switches(last), one.marks(last, part("x")), one.reports(last), one.triggers(last)),
        *(one.opens(last + 1), asks(1, one.family)),
    )
    return run_id


def pages(engine: Engine, plan: str, call: Call, *, after: str | None = None) -> int:
    """Return how many pages a statement touches by a kind of plan, `after` others; what they write is rolled back."""
    found: list[dict[str, Any]] = []  # Any: what EXPLAIN says
    with engine.connect() as connection, closing(connection.connection.cursor()) as cursor:
        cursor.execute(f"SET LOCAL plan_cache_mode = force_{plan}_plan")
        cursor.execute(call.statement.prepare)
        if after is not None:
            cursor.execute(after)
        for _ in range(2):  # the first time it also reads what the server knows of the tables
            cursor.execute("SAVEPOINT before")
            cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {call.statement.execute}", call.values)
            found += [explained[0]["Plan"] for (explained,) in cursor.fetchall()]
            cursor.execute("ROLLBACK TO before")
        cursor.execute(f"DEALLOCATE {call.statement.name}")
    return int(found[1]["Shared Hit Blocks"]) + int(found[1]["Shared Read Blocks"])


@pytest.fixture(params=["custom", "generic"])
def plan(request: pytest.FixtureRequest) -> str:
    """How the server plans a prepared statement: by its parameters, or once for all of them."""
    return str(request.param)


@pytest.mark.parametrize(
    "name", [*(f"select_{part_of_state}_state" for part_of_state in STATE_PARTS), "select_completed", "list_live_parts"]
)
def test_reading_a_state_touches_no_more_pages_after_many_epochs(
    engine: Engine, runs: dict[int, RunId], plan: str, name: str
) -> None:
    short, long = (pages(engine, plan, Call(name, {"run_id": runs[epochs]})) for epochs in (SHORT, LONG))

    assert long <= short + _DEEPER


@pytest.mark.parametrize(
    "name", ["make_epochs_durable", "void_epochs", "void_edges", "void_dropped_parts", "answer_requests"]
)
def test_write_of_what_is_not_durable_touches_no_more_pages_after_many_epochs(
    engine: Engine, runs: dict[int, RunId], plan: str, name: str
) -> None:
    """The statements that look for their rows by something else than their key."""

    def written(epochs: int) -> int:
        parameters = {
            "through": epochs + 1,
            "after": epochs,
            "checkpoint_id": epochs + 2,
            "dropped": ["norms"],
            "keeping": ["y"],
        }
        guard = {"run_id": runs[epochs], "fencing_token": 1}
        rows = ONE_ROW if name == "make_epochs_durable" else "[1,)"
        others = {"void_edges": IGNORED, "void_dropped_parts": IGNORED, "void_epochs": LEFT, "answer_requests": BY_HAND}
        after = others.get(name, COVERED)
        return pages(engine, plan, Call(name, {**guard, **parameters}, rows), after=after)

    assert written(LONG) <= written(SHORT) + _DEEPER


def test_reading_the_retained_checkpoints_touches_no_more_pages_after_many_were_discarded(
    engine: Engine, runs: dict[int, RunId], plan: str
) -> None:
    """A policy is asked after each checkpoint that is completed."""
    short, long = (
        pages(engine, plan, Call("list_retained", {"run_id": runs[epochs], "metric": "cost"}))
        for epochs in (SHORT, LONG)
    )

    assert long <= short + _DEEPER


def test_reading_some_checkpoints_touches_no_more_pages_after_many(engine: Engine, runs: dict[int, RunId]) -> None:
    """What the policy let go, whose files go next; a reader sends its values along, so the server plans by them."""
    short, long = (
        pages(engine, "custom", Call("list_checkpoints", {"run_id": runs[epochs], "ids": [3, 5]}))
        for epochs in (SHORT, LONG)
    )

    assert long <= short + _DEEPER


@pytest.mark.parametrize("column", ["run_key", "run_id"])
def test_finding_a_run_touches_no_more_pages_among_many_runs(
    store_url: str, engine: Engine, runs: dict[int, RunId], plan: str, column: str
) -> None:
    """Whoever waits for a run asks every second."""
    with closing(PostgresStore(store_url)) as store:
        run = getattr(store.find_run(runs[SHORT]), column)

    few, many = (pages(engine, plan, Call("select_run", {"run": run}), after=crowd) for crowd in (None, CROWD))

    assert many <= few + _DEEPER


def test_runs_of_these_tests_are_in_the_same_place(store_url: str, runs: dict[int, RunId]) -> None:
    store = PostgresStore(store_url)
    short, long = (read_state(store, runs[epochs]) for epochs in (SHORT, LONG))
    store.close()

    assert LONG - SHORT == long.last_epoch - short.last_epoch
    assert {"log": LONG, "mail": LONG} == long.notified
    for name in ("epochs", "pending", "edges", "requests", "finished_operators", "pins", "notified"):
        assert 0 < len(getattr(short, name)) == len(getattr(long, name))


def test_reading_everything_touches_more_pages_after_many_epochs(engine: Engine, runs: dict[int, RunId]) -> None:
    """What is counted here does grow, where something is read for each epoch."""
    short, long = (
        pages(engine, "custom", Call("list_epochs", {"run_id": runs[epochs], "first_epoch": 0}))
        for epochs in (SHORT, LONG)
    )

    assert long > short + 3 * _DEEPER
