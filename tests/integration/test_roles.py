"""What may each role do? Logins of their own, on a real server."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg2
import psycopg2.errors
import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import InternalError

from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import UsageError
from iteration_lib.store import migrate
from iteration_lib.store.migrate import Migration, migrations, upgrade
from iteration_lib.store.postgres import PostgresStore, open_engine
from iteration_lib.store.reader import open_reader
from tests.protocol_script import claim
from tests.sink_reader import dsn
from tests.store_script import a_run, added, history, new_family, whole_story

pytestmark = pytest.mark.postgres

_DEADLINE_SECONDS = 10
TABLES = (
    "runs",
    "attempts",
    "operators",
    "pins",
    "epochs",
    "edge_parts",
    "checkpoints",
    "checkpoint_pins",
    "checkpoint_requests",
    "stops",
    "fallbacks",
    "listener_notices",
    "branches",
    "committables",
    "schema_migrations",
)
Login = Callable[..., str]


@pytest.fixture
def login(store_url: str) -> Iterator[Login]:
    """Make logins that have roles; return the store's address for each."""
    made: list[str] = []

    def make(*roles: str, attributes: str = "", url: str = store_url) -> str:
        name = f"login_{secrets.token_hex(4)}"
        execute(url, f"CREATE ROLE {name} LOGIN PASSWORD 'made-up' {attributes}")
        made.append(name)
        for role in roles:
            execute(url, f"GRANT {role} TO {name}")
        return make_url(url).set(username=name, password="made-up").render_as_string(hide_password=False)

    yield make
    for name in made:
        execute(store_url, f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


def execute(url: str, statement: str) -> list[tuple[object, ...]]:
    connection = psycopg2.connect(dsn(url))
    with closing(connection), connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description is not None else []


def test_tables_of_these_tests_are_those_of_the_store(store_url: str) -> None:
    found = execute(store_url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")

    assert sorted(TABLES) == sorted(str(row[0]) for row in found)


def test_reader_reads_everything(store_url: str, login: Login) -> None:
    store = PostgresStore(store_url)
    run_id = added(store)
    for events in whole_story(new_family())[:-3]:
        Coordinator(store).apply(run_id, *events)
    reader = PostgresStore(login("iteration_reader"))

    assert store.find_completed(run_id) == reader.find_completed(run_id)
    assert history(store, run_id) == history(reader, run_id)
    for opened in (store, reader):
        opened.close()


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("statement", ["INSERT INTO {} DEFAULT VALUES", "UPDATE {} SET {}", "DELETE FROM {}"])
def test_reader_cannot_write(login: Login, table: str, statement: str) -> None:
    column = "version = version" if table == "schema_migrations" else "run_id = run_id"

    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        execute(login("iteration_reader"), statement.format(table, column))


def test_store_of_a_reader_says_that_it_is_one(store_url: str, login: Login) -> None:
    """And not that the connection was lost, which would be tried again and again."""
    store = PostgresStore(store_url)
    run_id = added(store)
    url = login("iteration_reader")
    reader = PostgresStore(url)

    for call in (lambda: reader.add_run(a_run()), lambda: Coordinator(reader).apply(run_id, claim())):
        with pytest.raises(UsageError) as caught:
            call()
        address = url.replace("made-up", "***")
        assert f"the store at {address} refuses this login: permission denied for" in str(caught.value)
        assert str(caught.value).endswith("; use one that has the role for it")
    for opened in (store, reader):
        opened.close()


def test_coordinator_drives_a_run_to_its_end(login: Login) -> None:
    """It may do whatever the protocol asks for, and take operators away is all that it may delete."""
    store = PostgresStore(login("iteration_coordinator"))
    run_id = added(store)

    for events in whole_story(new_family()):
        Coordinator(store).apply(run_id, *events)

    found = store.find_run(run_id)
    assert "FINISHED" == (found.status.value if found is not None else None)
    store.close()


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(
    "statement", ["TRUNCATE {}", "DROP TABLE {}", "ALTER TABLE {} ADD COLUMN more int", "CREATE INDEX ON {} ((1))"]
)
def test_coordinator_cannot_change_the_schema(login: Login, table: str, statement: str) -> None:
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        execute(login("iteration_coordinator"), statement.format(table))


@pytest.mark.parametrize("table", [table for table in TABLES if table not in ("operators", "checkpoint_pins")])
def test_coordinator_can_delete_nothing_but_operators_and_pins(login: Login, table: str) -> None:
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        execute(login("iteration_coordinator"), f"DELETE FROM {table}")  # noqa: S608 - a table's name


def test_coordinator_cannot_delete_operators_while_a_run_goes_on(store_url: str, login: Login) -> None:
    store = PostgresStore(store_url)
    run_id = added(store)

    with pytest.raises(psycopg2.errors.CheckViolation, match="the operators of run"):
        execute(login("iteration_coordinator"), f"DELETE FROM operators WHERE run_id = '{run_id}'")  # noqa: S608 - a UUID

    assert 6 == len(store.list_operators(run_id))
    store.close()


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE more (number int)",
        "ALTER TABLE runs DISABLE TRIGGER runs_guard",
        "DROP TRIGGER runs_guard ON runs",
        "CREATE OR REPLACE FUNCTION runs_guard() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        "SET session_replication_role = replica",
        "UPDATE schema_migrations SET version = version",
        "ALTER TABLE runs DROP CONSTRAINT runs_failure_check",
    ],
)
def test_coordinator_cannot_get_round_the_guards(login: Login, statement: str) -> None:
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        execute(login("iteration_coordinator"), statement)


@pytest.mark.parametrize("role", ["iteration_reader", "iteration_coordinator"])
def test_upgrade_by_a_login_that_may_not_is_refused_in_words(login: Login, role: str) -> None:
    engine = open_engine(login(role))

    with pytest.raises(UsageError, match="refuses this login: permission denied"):
        upgrade(engine)

    engine.dispose()


def test_upgrade_by_the_migration_role_changes_what_a_superuser_made(
    empty_store: str, login: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables, and the functions of their triggers too."""
    superusers = open_engine(empty_store)
    upgrade(superusers)
    superusers.dispose()
    again = next(source for source in guard_functions() if "runs_guard()" in source)
    more = Migration(
        version=migrate.SCHEMA_VERSION + 1,
        name="more",
        source=f"ALTER TABLE runs ADD COLUMN more integer;\n{again}",
    )
    monkeypatch.setattr(migrate, "SCHEMA_VERSION", more.version)
    monkeypatch.setattr(migrate, "migrations", lambda: (*migrations(), more))
    engine = open_engine(login("iteration_migration", url=empty_store))

    assert (more,) == upgrade(engine)
    assert () == upgrade(engine)

    engine.dispose()
    execute(empty_store, "DROP SCHEMA public CASCADE")


def guard_functions() -> list[str]:
    source = migrations()[0].source
    starts = [part.partition("END $$;") for part in source.split("CREATE FUNCTION ")[1:]]
    return [f"CREATE OR REPLACE FUNCTION {body}{end}" for body, end, _ in starts]


def test_upgrade_by_an_owner_without_roles_needs_none(empty_store: str, login: Login) -> None:
    """A login that may make no roles owns everything itself."""
    url = login(url=empty_store)
    execute(empty_store, f"GRANT CREATE ON SCHEMA public TO {make_url(url).username}")
    engine = open_engine(url)

    assert len(upgrade(engine)) == len(migrations())

    store = PostgresStore(url)
    assert store.add_run(a_run())
    store.close()
    engine.dispose()
    execute(empty_store, "DROP SCHEMA public CASCADE")


def test_upgrade_leaves_what_belongs_to_others_alone(empty_store: str) -> None:
    execute(empty_store, "CREATE TABLE of_others (number int)")
    execute(empty_store, "CREATE FUNCTION others_guard() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    owner = make_url(empty_store).username
    engine = open_engine(empty_store)

    upgrade(engine)
    upgrade(engine)

    engine.dispose()
    assert [(owner,)] == execute(empty_store, "SELECT tableowner FROM pg_tables WHERE tablename = 'of_others'")
    assert [(owner,)] == execute(
        empty_store,
        "SELECT rolname FROM pg_proc JOIN pg_roles ON pg_roles.oid = proowner WHERE proname = 'others_guard'",
    )
    assert {("iteration_migration",)} == set(
        execute(
            empty_store,
            "SELECT tableowner FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'of_others' UNION ALL "
            "SELECT rolname FROM pg_proc JOIN pg_roles ON pg_roles.oid = proowner WHERE proname LIKE '%s_guard' "
            "AND proname <> 'others_guard'",
        )
    )


def test_upgrade_of_a_store_that_is_up_to_date_does_not_wait_for_those_who_use_it(store_url: str) -> None:
    """The embedded store is upgraded by every command, also beside a driver in the middle of a transaction."""
    store, engine = PostgresStore(store_url), open_engine(store_url)
    run_id, applied = added(store), []
    upgrading = threading.Thread(target=lambda: applied.append(upgrade(engine)))

    with store.transaction(run_id) as transaction:
        transaction.read_state()
        upgrading.start()
        upgrading.join(_DEADLINE_SECONDS)
        assert [()] == applied

    engine.dispose()
    store.close()


def test_page_reads_by_a_login_that_may_only_read(store_url: str, login: Login) -> None:
    store = PostgresStore(store_url)
    run_id = added(store)
    found = history(store, run_id)
    store.close()

    reader = open_reader(login("iteration_reader"))

    assert found == history(reader, run_id)
    reader.close()


def test_page_that_reads_by_the_stores_own_login_can_write_nothing(store_url: str) -> None:
    reader = open_reader(f"{store_url}&options=-c%20search_path%3Dpublic")
    settings = text("SELECT current_setting('search_path'), current_setting('statement_timeout')")

    with reader._engine.connect() as connection:
        found = connection.execute(settings).one()
        with pytest.raises(InternalError, match="read-only transaction"):
            connection.execute(text("UPDATE runs SET revision = revision"))

    assert ("public", "5s") == tuple(found)
    reader.close()
