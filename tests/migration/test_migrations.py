"""How does a store get to this version? Each migration once, all or nothing, and never into what is not ours."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import cast

import psycopg2
import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import StoreVersionError, UsageError
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.state import RunId
from iteration_lib.protocol.status import EpochStatus, RunStatus
from iteration_lib.store import migrate
from iteration_lib.store.embedded import EmbeddedPostgres
from iteration_lib.store.migrate import SCHEMA_VERSION, Migration, migrations, upgrade
from iteration_lib.store.postgres import PostgresStore, open_engine
from iteration_lib.store.query import sql_folder
from tests.protocol_script import Sender, claim, part
from tests.store_script import a_run, history, read_state

pytestmark = pytest.mark.postgres

ALL = tuple(migration.version for migration in migrations())

# Everything that a schema consists of, one text per thing; what the two ways make differently is left out.
CATALOGUE = """
SELECT format('table %s %s %s', relname, relkind, reloptions) FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i', 'S', 'v')
UNION ALL
SELECT format('column %s.%s %s %s %s %s %s', attrelid::regclass, attname,
    rank() OVER (PARTITION BY attrelid ORDER BY attnum), format_type(atttypid, atttypmod), attnotnull, attgenerated,
    (SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = attrelid AND adnum = attnum))
FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND attnum > 0 AND NOT attisdropped
UNION ALL
SELECT format('constraint %s.%s %s', conrelid::regclass, conname, pg_get_constraintdef(oid)) FROM pg_constraint
WHERE connamespace = 'public'::regnamespace
UNION ALL
SELECT pg_get_indexdef(indexrelid) FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
WHERE relnamespace = 'public'::regnamespace
UNION ALL
SELECT format('%s %s', pg_get_triggerdef(pg_trigger.oid), tgenabled) FROM pg_trigger
JOIN pg_class ON pg_class.oid = tgrelid WHERE relnamespace = 'public'::regnamespace AND NOT tgisinternal
UNION ALL
SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
UNION ALL
SELECT format('comment %s %s %s', objoid::regclass, objsubid, description) FROM pg_description
JOIN pg_class ON pg_class.oid = objoid WHERE relnamespace = 'public'::regnamespace
"""


@pytest.fixture
def another_store(postgres_server: EmbeddedPostgres, empty_store: str) -> str:
    """A second empty database."""
    name = f"{make_url(empty_store).database}_too"
    postgres_server.ensure_database(name)
    return postgres_server.url(name)


def connect(url: str) -> psycopg2.extensions.connection:
    address = make_url(url)
    return psycopg2.connect(
        host=address.query["host"],
        port=address.query["port"],
        dbname=address.database,
        user=address.username,
        password=address.password,
    )


def execute(url: str, statement: str) -> list[tuple[object, ...]]:
    with closing(connect(url)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description is not None else []


def upgrade_at(url: str) -> list[int]:
    engine = open_engine(url)
    try:
        return [migration.version for migration in upgrade(engine)]
    finally:
        engine.dispose()


def catalogue(url: str) -> list[str]:
    """Return everything that the schema consists of, but the list of migrations, which the code itself makes."""
    return sorted(str(row[0]) for row in execute(url, CATALOGUE) if "schema_migrations" not in str(row[0]))


def schema_sql() -> str:
    return (sql_folder() / "schema.sql").read_text(encoding="utf-8")


def test_schema_equals_the_sum_of_the_migrations(empty_store: str, another_store: str) -> None:
    upgrade_at(empty_store)
    execute(another_store, schema_sql())

    assert catalogue(another_store) == catalogue(empty_store)
    assert len(catalogue(empty_store)) > 150


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE runs ADD COLUMN more integer",
        "ALTER TABLE runs ALTER COLUMN failure SET NOT NULL",
        "ALTER TABLE runs ALTER COLUMN revision SET DEFAULT 1",
        "ALTER TABLE attempts ALTER COLUMN failed_epoch TYPE integer",
        "ALTER TABLE attempts DROP CONSTRAINT attempts_outcome_check",
        "ALTER TABLE runs SET (fillfactor = 60)",
        "ALTER TABLE runs DISABLE TRIGGER runs_guard",
        "DROP INDEX epochs_open_key; CREATE UNIQUE INDEX epochs_open_key ON epochs (run_id) WHERE status = 'ALIGNED'",
        "DROP TRIGGER runs_guard ON runs",
        "CREATE OR REPLACE FUNCTION runs_guard() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        "COMMENT ON TABLE runs IS 'something else'",
        "CREATE TABLE more ()",
    ],
)
def test_comparison_of_schemas_sees_a_change(empty_store: str, change: str) -> None:
    execute(empty_store, schema_sql())
    before = catalogue(empty_store)

    execute(empty_store, change)

    assert before != catalogue(empty_store)


def test_upgrade_applies_each_migration_once_and_notes_it(empty_store: str) -> None:
    assert list(ALL) == upgrade_at(empty_store)
    before = catalogue(empty_store)

    assert [] == upgrade_at(empty_store)

    assert before == catalogue(empty_store)
    noted = execute(empty_store, "SELECT version, name, sha256, applied_at <= now() FROM schema_migrations ORDER BY 1")
    assert [(m.version, m.name, m.sha256, True) for m in migrations()] == noted


def test_upgrade_keeps_the_runs_that_are_there(empty_store: str) -> None:
    upgrade_at(empty_store)
    store, run = PostgresStore(empty_store), a_run()
    store.add_run(run)
    before = store.find_run(run.run_id)

    upgrade_at(empty_store)

    assert before == store.find_run(run.run_id)
    store.close()


# From version 1


@pytest.fixture
def filled_store(empty_store: str) -> str:
    """A store of version 1 with five runs in it."""
    first = migrations()[0]
    execute(empty_store, first.source)
    execute(
        empty_store,
        "CREATE TABLE schema_migrations (version integer PRIMARY KEY, name text NOT NULL, sha256 text NOT NULL, "
        "applied_at timestamptz NOT NULL DEFAULT clock_timestamp())",
    )
    applied = f"1, 'initial', '{first.sha256}'"
    execute(empty_store, f"INSERT INTO schema_migrations (version, name, sha256) VALUES ({applied})")  # noqa: S608 - a digest
    execute(empty_store, (Path(__file__).parent / "version_1.sql").read_text(encoding="utf-8"))
    return empty_store


def all_rows(url: str) -> dict[str, list[dict[str, object]]]:
    """Return every row of every table but the list of migrations, in the order of their text."""
    tables = execute(
        url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename NOT LIKE 'schema%'"
    )
    return {
        str(table): [
            cast("dict[str, object]", row)
            for (row,) in execute(url, f"SELECT to_jsonb(known) FROM {table} AS known ORDER BY ctid")  # noqa: S608 - a name
        ]
        for (table,) in tables
    }


def told(rows: list[dict[str, object]], *key: str, name: str, values: str) -> dict[tuple[object, ...], object]:
    """Return what each head reported, or participant acknowledged, as version 2 keeps it: by what it was told of."""
    found: dict[tuple[object, ...], dict[object, object]] = {}
    for row in rows:
        found.setdefault((row["run_id"], *(row[column] for column in key)), {})[row[name]] = row[values]
    return dict(found)


def test_rows_of_version_1_survive_and_what_is_new_of_them_is_told_from_the_old(filled_store: str) -> None:
    before = all_rows(filled_store)

    assert list(ALL[1:]) == upgrade_at(filled_store)

    after = all_rows(filled_store)
    assert {"runs": 5, "epochs": 15, "checkpoints": 13} == {
        table: len(before[table]) for table in ("runs", "epochs", "checkpoints")
    }
    reports, acknowledgements = before.pop("head_reports"), before.pop("acknowledgements")
    assert told(reports, "epoch", "fencing_token", name="head", values="records") == {
        (row["run_id"], row["epoch"], row["fencing_token"]): row["records"] for row in after["epochs"]
    }
    assert told(acknowledgements, "checkpoint_id", name="participant", values="subtasks") == {
        (row["run_id"], row["checkpoint_id"]): row["acknowledgements"] for row in after["checkpoints"]
    }
    for table, old in before.items():
        kept = [{column: row[column] for column in old[0]} for row in after[table]]
        assert sorted(map(str, old)) == sorted(map(str, kept)), table
    assert {0} == {row["aborted_through"] for row in after["runs"]}
    assert all(row["held_at"] == row["aligned_at"] for row in after["epochs"])
    assert {None} == {row["unaligned_by"] for row in after["epochs"]}
    assert {None: 7, "DECLINED": 2, "ATTEMPT_ENDED": 3, "SUBSUMED": 1} == Counter(
        row["failure"] for row in after["checkpoints"]
    )


def test_upgraded_runs_are_told_like_any_others(filled_store: str) -> None:
    upgrade_at(filled_store)
    store = PostgresStore(filled_store)

    for run in store.list_runs():
        told = history(store, run.run_id)
        state = read_state(store, run.run_id)
        assert len(told["attempts"]) == run.fencing_token
        assert {CheckpointPolicy()} == {state.policy, *(known.policy for known in store.list_attempts(run.run_id))}
        assert ((), {}, {}, 0) == (state.edges, state.requests, state.notified, state.checkpoint_failures)
        completed = store.find_completed(run.run_id)
        assert (completed.ended_at if completed else None) == (state.completed and state.completed.completed_at)
    store.close()


def test_attempt_of_version_1_goes_on_where_it_was(filled_store: str) -> None:
    """The one that holds the run sends its next events: its reports and acknowledgements are still there."""
    upgrade_at(filled_store)
    store = PostgresStore(filled_store)
    running, second = RunId("00000000-0000-4000-8000-000000000002"), Sender(2, 2, 2)

    state = Coordinator(store).apply(
        running, second.reports(2, {"centroids": {0: 0}}), second.completes(3, centroids=(0,)), second.triggers(2)
    )

    assert (1, 4, EpochStatus.ALIGNED) == (state.last_durable_epoch, state.last_checkpoint_id, state.epochs[0].status)
    assert state == read_state(store, running)
    store.close()


@pytest.mark.parametrize(("name", "token"), [("new", 1), ("running", 3), ("failed", 2), ("terminating", 2)])
def test_run_of_version_1_can_be_resumed(filled_store: str, name: str, token: int) -> None:
    upgrade_at(filled_store)
    store, sender = PostgresStore(filled_store), Sender(9, token, 9)
    found = store.find_run(name)
    assert found is not None
    coordinator = Coordinator(store)

    state = coordinator.apply(found.run_id, claim(9, takeover=True, family=9, max_pending=2))
    if state.status is RunStatus.RUNNING:
        epoch = state.last_durable_epoch + 1
        begun = (sender.opens(epoch), sender.switches(epoch), sender.marks(epoch, part("x")))
        state = coordinator.apply(found.run_id, *begun, sender.reports(epoch, {"centroids": {0: 0}}))
        coordinator.apply(found.run_id, sender.triggers(epoch), sender.completes(state.last_checkpoint_id + 1))
    state = coordinator.apply(found.run_id, sender.publishes())

    assert RunStatus.FINISHED is state.status
    assert state == read_state(store, found.run_id)
    store.close()


# Of version 13: what a takeover would void of the first run, and who heard of what of two that have ended.
OF_VERSION_13 = """
SET session_replication_role = replica;
INSERT INTO runs
    (run_id, run_key, reference, definition, params, state_uri, max_buckets, last_durable_epoch, terminated_by)
SELECT CAST('00000000-0000-4000-8000-00000000000' || number AS uuid), number, 'm:o', '{}', '{}', '/s', 4, durable, ended
FROM (VALUES (1, 0, NULL), (2, 2, 'criteria'), (3, 0, 'criteria')) AS made (number, durable, ended);
INSERT INTO edge_parts (run_id, epoch, operator_id, first_bucket, end_bucket, total, fencing_token, output, metrics)
SELECT '00000000-0000-4000-8000-000000000001', epoch, 'x', 0, 1, 1, 1, '{}', '{}' FROM generate_series(-1, 3) AS epoch;
INSERT INTO listener_notices (run_id, listener_id, epoch, fencing_token)
SELECT CAST('00000000-0000-4000-8000-00000000000' || number AS uuid), listener_id, epoch, 1
FROM (VALUES (2, 'log', 0), (2, 'log', 1), (2, 'log', 2), (2, 'end', 2), (3, 'end', 0))
    AS heard (number, listener_id, epoch);
"""


def test_upgrade_to_version_14_voids_what_was_marked_too_early_and_tells_who_heard_of_an_end(
    empty_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(migrate, "SCHEMA_VERSION", 13)
        older.setattr(migrate, "migrations", lambda: migrations()[:13])
        assert list(ALL[:13]) == upgrade_at(empty_store)
    execute(empty_store, f"{OF_VERSION_13}; SELECT 1")

    assert [*ALL[13:]] == upgrade_at(empty_store)

    voided = execute(empty_store, "SELECT epoch FROM edge_parts WHERE voided_at IS NOT NULL ORDER BY epoch")
    final = execute(
        empty_store, "SELECT run_key, listener_id, epoch FROM listener_notices JOIN runs USING (run_id) WHERE is_final"
    )
    assert [(2,), (3,)] == voided
    assert [("2", "end", 2)] == final


def test_two_upgrades_at_once_do_the_work_once(empty_store: str) -> None:
    results = at_once(*[lambda: upgrade_at(empty_store)] * 4)

    assert [[], [], [], list(ALL)] == sorted(results, key=len)


def test_two_databases_of_a_new_server_can_be_upgraded_at_once(tmp_path: Path) -> None:
    """Roles are the server's: the second finds them half made, waits, and goes on with those of the first."""
    with EmbeddedPostgres(tmp_path / "server") as server:
        for name in ("one", "two"):
            server.ensure_database(name)
        with closing(connect(server.url("one"))) as other:
            with other.cursor() as cursor:
                cursor.execute("CREATE ROLE iteration_migration NOLOGIN")
            results: list[list[int]] = []
            upgrading = threading.Thread(target=lambda: results.append(upgrade_at(server.url("two"))))
            upgrading.start()
            wait_until(lambda: bool(execute(server.url("one"), _WAITING_FOR_A_ROLE)))
            other.commit()
            upgrading.join()
        roles = execute(server.url("one"), "SELECT rolname FROM pg_roles WHERE rolname LIKE 'iteration%_%' ORDER BY 1")
    server.destroy()

    assert [list(ALL)] == results
    assert [("iteration_coordinator",), ("iteration_migration",), ("iteration_reader",)] == roles


_WAITING_FOR_A_ROLE = "SELECT FROM pg_stat_activity WHERE datname = 'two' AND wait_event_type = 'Lock'"


def at_once(*calls: Callable[[], list[int]]) -> list[list[int]]:
    results: list[list[int]] = []
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], list[int]]) -> None:
        barrier.wait()
        results.append(call())

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = threading.Event()
    timer = threading.Timer(30, deadline.set)
    timer.start()
    while not holds():
        assert not deadline.is_set(), "it never happened"
    timer.cancel()


def test_migration_that_was_applied_with_another_text_is_refused_by_name(
    empty_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade_at(empty_store)
    before = catalogue(empty_store)
    first, *others = migrations()
    changed = Migration(version=first.version, name=first.name, source=f"{first.source}\nCREATE TABLE more ();")
    monkeypatch.setattr(migrate, "migrations", lambda: (changed, *others))

    with pytest.raises(UsageError) as caught:
        upgrade_at(empty_store)

    assert (
        "migration 0001_initial was applied with another text; a merged migration never changes: restore the file and "
        "add a new one"
    ) == str(caught.value)
    assert before == catalogue(empty_store)


def test_migration_that_fails_leaves_nothing(empty_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    upgrade_at(empty_store)
    before = catalogue(empty_store)
    good = Migration(version=SCHEMA_VERSION + 1, name="good", source="CREATE TABLE good ();")
    bad = Migration(version=SCHEMA_VERSION + 2, name="bad", source="CREATE TABLE bad (); SELECT 1/0;")
    monkeypatch.setattr(migrate, "SCHEMA_VERSION", bad.version)
    monkeypatch.setattr(migrate, "migrations", lambda: (*migrations(), good, bad))

    with pytest.raises(Exception, match="division by zero"):
        upgrade_at(empty_store)

    assert before == catalogue(empty_store)
    assert [(SCHEMA_VERSION,)] == execute(empty_store, "SELECT max(version) FROM schema_migrations")


def test_text_of_a_migration_is_taken_as_it_is(empty_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a percent sign nor a colon is a parameter."""
    source = "CREATE TABLE odd (t text DEFAULT '100 %s :name %% \\ ?', CHECK (t LIKE '%a%' OR t::text <> ':b'));"
    odd = Migration(version=SCHEMA_VERSION + 1, name="odd", source=source)
    monkeypatch.setattr(migrate, "SCHEMA_VERSION", odd.version)
    monkeypatch.setattr(migrate, "migrations", lambda: (*migrations(), odd))

    assert [*ALL, odd.version] == upgrade_at(empty_store)

    assert any("'100 %s :name %% \\ ?'" in line for line in catalogue(empty_store))


def test_store_without_tables_says_how_to_make_them(empty_store: str) -> None:
    with pytest.raises(StoreVersionError) as caught:
        PostgresStore(empty_store)

    assert "the store holds no iteration tables; run `iteration db upgrade`" == str(caught.value)


def test_store_of_an_older_version_says_how_to_upgrade(empty_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    upgrade_at(empty_store)
    monkeypatch.setattr("iteration_lib.store.postgres.SCHEMA_VERSION", SCHEMA_VERSION + 1)

    with pytest.raises(StoreVersionError) as caught:
        PostgresStore(empty_store)

    assert (
        f"the store has schema version {SCHEMA_VERSION}, this code needs {SCHEMA_VERSION + 1}; "
        "run `iteration db upgrade`"
    ) == str(caught.value)


def test_newer_store_is_refused_by_the_store_and_by_the_upgrade(empty_store: str) -> None:
    upgrade_at(empty_store)
    newer = SCHEMA_VERSION + 1
    execute(empty_store, f"INSERT INTO schema_migrations (version, name, sha256) VALUES ({newer}, 'n', 's')")  # noqa: S608 - a number
    before = catalogue(empty_store)

    for opening in (PostgresStore, upgrade_at):
        with pytest.raises(StoreVersionError) as caught:
            opening(empty_store)
        assert (
            f"the store has schema version {newer}, this code knows only {SCHEMA_VERSION}; "
            "install a newer iteration-lib"
        ) == str(caught.value)
        assert (newer, 2) == (caught.value.found, caught.value.exit_code)
    assert before == catalogue(empty_store)


def test_database_with_tables_of_others_by_our_names_is_refused_and_left_alone(empty_store: str) -> None:
    execute(empty_store, "CREATE TABLE runs (run_uuid text)")
    before = catalogue(empty_store)

    with pytest.raises(UsageError) as caught:
        upgrade_at(empty_store)

    assert 'relation "runs" already exists' in str(caught.value)
    assert str(caught.value).endswith("; give the store a database or a schema of its own")
    assert before == catalogue(empty_store)


def test_list_of_migrations_that_is_somebody_elses_is_refused_and_left_alone(empty_store: str) -> None:
    """Other tools have a table of this name too."""
    execute(empty_store, "CREATE TABLE schema_migrations (version text); INSERT INTO schema_migrations VALUES ('2024')")
    before = execute(empty_store, CATALOGUE)

    for opening in (PostgresStore, upgrade_at):
        with pytest.raises(UsageError) as caught:
            opening(empty_store)
        assert str(caught.value).endswith("; give the store a database or a schema of its own")
    assert before == execute(empty_store, CATALOGUE)


def test_store_lives_in_the_schema_that_its_address_names(empty_store: str) -> None:
    execute(empty_store, "CREATE SCHEMA ours; CREATE TABLE public.runs (of_others int)")
    url = f"{empty_store}&options=-c%20search_path%3Dours"

    assert list(ALL) == upgrade_at(url)

    store = PostgresStore(url)
    assert store.add_run(a_run())
    assert 1 == len(store.list_runs())
    store.close()
    engine = open_engine(url)
    with engine.connect() as connection:
        assert ("ours", "30s") == tuple(
            connection.execute(text("SELECT current_schema(), current_setting('lock_timeout')")).one()
        )
    engine.dispose()
