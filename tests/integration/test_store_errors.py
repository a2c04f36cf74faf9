"""What does the store say when the database cannot, may not or will not? No error of the driver passes."""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg2
import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import (
    IterationError,
    OutcomeUnknownError,
    ProtocolViolationError,
    RunLockedError,
    StatementCancelledError,
    StoreUnavailableError,
    StoreUnusableError,
    StoreVersionError,
)
from iteration_lib.protocol.state import RunId
from iteration_lib.store.migrate import _LOCK_KEY, upgrade
from iteration_lib.store.postgres import PostgresStore, open_engine
from iteration_lib.store.reader import open_reader
from iteration_lib.store.refusal import refusal
from tests.contract.meeting import until
from tests.protocol_script import claim
from tests.store_script import a_run, added, new_family

pytestmark = pytest.mark.postgres

HASTY = "options=-c%20statement_timeout%3D200ms"
IMPATIENT = "options=-c%20lock_timeout%3D20ms"


@pytest.fixture
def store(store_url: str) -> Iterator[PostgresStore]:
    opened = PostgresStore(store_url)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "postgresql//user:secret@host/db",
        "postgres://user:secret@host/db",
        "postgresql+asyncpg://user:secret@host/db",
        "postgresql+psycopg://user:secret@host/db",
        "postgresql://user:secret@host:port/db",
        "postgresql://user:secret@host/caf\udce9",
        "mysql://user:secret@host/db",
        "sqlite://",
        "sqlite:///secret.db",
        "http://user:secret@host/db",
    ],
)
@pytest.mark.parametrize("opening", [PostgresStore, open_engine])
def test_address_of_something_else_is_refused_with_an_example(opening: Callable[[str], object], url: str) -> None:
    with pytest.raises(StoreUnavailableError) as caught:
        opening(url)

    assert "it is no address such as postgresql://user:password@host/database" in str(caught.value)
    assert ":secret" not in str(caught.value)


def test_server_that_is_not_there_is_named_without_its_password() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]

    url = f"postgresql://somebody:secret@127.0.0.1:{port}/km"
    for opening in (PostgresStore, upgrade_at):
        with pytest.raises(StoreUnavailableError) as caught:
            opening(url)
        assert str(caught.value).startswith(
            f"cannot connect to the store at postgresql{'' if opening is PostgresStore else '+psycopg2'}://"
        )
        assert f"somebody:***@127.0.0.1:{port}/km (" in str(caught.value)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("secret", ["password", "sslpassword"])
@pytest.mark.parametrize("opening", ["store", "upgrade"])
def test_server_that_is_not_there_is_named_without_the_options_that_lead_to_it(opening: str, secret: str) -> None:
    """One of them may be a password, and Airflow's own pages show all of a connection's extra fields to nobody."""
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]

    with pytest.raises(StoreUnavailableError) as caught:
        (PostgresStore if opening == "store" else upgrade_at)(
            f"postgresql+psycopg2://somebody@127.0.0.1:{port}/km?sslkey=/keys/mine&{secret}=top-secret"
        )

    assert f"the store at postgresql+psycopg2://somebody@127.0.0.1:{port}/km (" in str(caught.value)


def test_server_that_the_options_name_is_told_by_them() -> None:
    with pytest.raises(StoreUnavailableError) as caught:
        PostgresStore("postgresql://somebody@/km?host=/nowhere&port=5433&sslpassword=top-secret")

    assert "the store at postgresql://somebody@/km?host=%2Fnowhere&port=5433 (" in str(caught.value)


def upgrade_at(url: str) -> None:
    engine = open_engine(url)
    try:
        upgrade(engine)
    finally:
        engine.dispose()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"password": "wrong-secret"}, "password authentication failed"),
        ({"username": "nobody-here"}, "authentication failed"),
        ({"database": "not_there"}, 'database "not_there" does not exist'),
    ],
)
def test_login_that_is_refused_is_told_why(store_url: str, change: dict[str, str], said: str) -> None:
    url = make_url(store_url).set(**change).render_as_string(hide_password=False)  # type: ignore[arg-type]  # texts all

    for opening in (PostgresStore, upgrade_at):
        with pytest.raises(StoreUnavailableError) as caught:
            opening(url)
        assert said in str(caught.value)
        assert "wrong-secret" not in str(caught.value)


def test_table_that_is_gone_while_the_store_is_open_is_a_matter_of_versions(empty_store: str) -> None:
    upgrade_at(empty_store)
    store = PostgresStore(empty_store)
    execute(empty_store, "DROP TABLE pins, runs CASCADE")

    with pytest.raises(StoreVersionError):
        store.list_runs()

    store.close()


def test_connection_that_is_gone_leaves_the_outcome_open_and_the_next_call_has_a_new_one(
    store: PostgresStore, store_url: str
) -> None:
    run_id = added(store)
    end_connections(store_url)

    with pytest.raises(OutcomeUnknownError) as caught, store.transaction(run_id):
        pytest.fail("nothing was begun")

    assert "lost the connection to the store (" in str(caught.value)
    with store.transaction(run_id) as transaction:
        assert 0 == transaction.revision


@pytest.mark.parametrize(
    "read",
    [
        lambda store: store.list_runs(),
        lambda store: store.find_run("x"),
        lambda store: store.find_completed(a_run().run_id),
        lambda store: store.list_epochs(a_run().run_id),
    ],
    ids=["list_runs", "find_run", "find_completed", "list_epochs"],
)
def test_read_whose_connection_is_gone_is_tried_again_on_a_new_one(
    store_url: str, read: Callable[[PostgresStore], object]
) -> None:
    """Nothing is lost by reading twice, and an attempt that has just begun has nobody else to do it."""
    slept: list[float] = []
    store = PostgresStore(store_url, sleep=slept.append)
    expected = read(store)
    end_connections(store_url)

    assert expected == read(store)

    assert [0.1] == slept
    store.close()


def test_read_gives_up_when_the_store_stays_away(empty_store: str, store_url: str) -> None:
    upgrade_at(empty_store)
    slept: list[float] = []
    store = PostgresStore(empty_store, sleep=slept.append)
    close_database(empty_store, store_url)

    with pytest.raises(OutcomeUnknownError):
        store.list_runs()

    assert 7 == len(slept)
    store.close()


def test_page_that_cannot_read_asks_the_store_a_second_time_and_no_more(empty_store: str, store_url: str) -> None:
    """A server that was started again has ended every connection that was kept; beyond that a page asks by itself."""
    upgrade_at(empty_store)
    slept: list[float] = []
    store = open_reader(empty_store, sleep=slept.append)
    end_connections(empty_store)

    assert () == store.list_runs()
    close_database(empty_store, store_url)
    with pytest.raises(OutcomeUnknownError):
        store.list_runs()

    assert [0.1, 0.1] == slept
    store.close()


@pytest.mark.parametrize(("once_if", "slept"), [((StatementCancelledError,), []), ((), [0.1, 0.2])])
def test_read_that_takes_too_long_is_cancelled_and_tried_again_but_for_a_page(
    empty_store: str, once_if: tuple[type[StatementCancelledError], ...], slept: list[float]
) -> None:
    """An attempt must not end by one slow read; who looks at a page does not wait twice."""
    upgrade_at(empty_store)
    waited: list[float] = []
    hasty = PostgresStore(
        f"{empty_store}&{HASTY}", sleep=waited.append, read_delays_seconds=(0.1, 0.2), read_once_if=once_if
    )
    engine = open_engine(empty_store)

    with engine.begin() as connection:
        connection.exec_driver_sql("LOCK TABLE runs IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StatementCancelledError) as caught:
            hasty.list_runs()

    assert slept == waited
    assert "which has changed nothing (" in str(caught.value)
    assert "canceling statement due to statement timeout); run the same command again" in str(caught.value)
    engine.dispose()
    hasty.close()


def test_page_whose_question_takes_too_long_asks_it_once(empty_store: str) -> None:
    upgrade_at(empty_store)
    waited: list[float] = []
    reader, engine = open_reader(empty_store, sleep=waited.append), open_engine(empty_store)

    with engine.begin() as connection:
        connection.exec_driver_sql("LOCK TABLE runs IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StatementCancelledError):
            reader.list_runs()

    assert [] == waited
    engine.dispose()
    reader.close()


def test_write_that_is_cancelled_while_it_waits_is_tried_again(store: PostgresStore, store_url: str) -> None:
    hasty, run_id = PostgresStore(f"{store_url}&{HASTY}"), added(store)
    holding = contextlib.ExitStack()
    holding.enter_context(store.transaction(run_id))

    state = Coordinator(hasty, sleep=lambda _: holding.close()).apply(run_id, claim(family=new_family()))

    assert 1 == state.fencing_token
    hasty.close()


def test_run_that_another_does_not_let_go_is_said_to_be_locked(store: PostgresStore, store_url: str) -> None:
    """And not that the connection was lost: nothing was changed, and it is tried again."""
    impatient, run_id, slept = PostgresStore(f"{store_url}&{IMPATIENT}"), added(store), list[float]()

    with store.transaction(run_id), pytest.raises(RunLockedError) as caught:
        Coordinator(impatient, sleep=slept.append).apply(run_id)

    assert "another process holds the run's lock (" in str(caught.value)
    assert str(caught.value).endswith("nothing was changed: run the same command again")
    assert 7 == len(slept)
    impatient.close()


@pytest.mark.parametrize(
    "held",
    [f"SELECT pg_advisory_xact_lock({_LOCK_KEY})", "LOCK TABLE schema_migrations IN ACCESS EXCLUSIVE MODE"],
    ids=["another upgrade", "a table"],
)
def test_upgrade_that_waits_in_vain_says_that_others_hold_the_store(empty_store: str, held: str) -> None:
    """And not that there is none at the address, which somebody has to start."""
    upgrade_at(empty_store)
    engine = open_engine(empty_store)

    with engine.begin() as connection:
        connection.exec_driver_sql(held)
        with pytest.raises(RunLockedError) as caught:
            upgrade_at(f"{empty_store}&{IMPATIENT}")

    assert str(caught.value).startswith("another process holds the store's tables, or upgrades them (postgresql")
    assert str(caught.value).endswith("lock timeout); nothing was changed: run the same command again")
    engine.dispose()


def test_upgrade_that_deadlocks_says_that_others_hold_the_store(empty_store: str) -> None:
    """As with a session that has read `runs` and goes on to a table that the upgrade has locked by then."""
    upgrade_at(empty_store)
    engine = open_engine(empty_store)

    with engine.begin() as connection, ThreadPoolExecutor(1) as pool:
        connection.exec_driver_sql("SET LOCAL deadlock_timeout = '1min'")  # so that the upgrade is the one that ends
        connection.exec_driver_sql("LOCK TABLE schema_migrations IN ACCESS EXCLUSIVE MODE")
        upgraded = pool.submit(upgrade_at, empty_store)
        until(lambda: bool(connection.scalar(text("SELECT bool_or(NOT granted) FROM pg_locks"))), upgraded)
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK_KEY})")
        with pytest.raises(RunLockedError, match=r"\(.*deadlock detected\).*: run the same command again"):
            upgraded.result(timeout=60)

    engine.dispose()


def test_upgrade_that_takes_too_long_says_so(empty_store: str) -> None:
    upgrade_at(empty_store)
    engine = open_engine(empty_store)

    with engine.begin() as connection:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK_KEY})")
        with pytest.raises(StatementCancelledError):
            upgrade_at(f"{empty_store}&{HASTY}")

    engine.dispose()


def test_event_is_sent_again_until_the_run_is_let_go(store: PostgresStore, store_url: str) -> None:
    impatient, run_id, family = PostgresStore(f"{store_url}&{IMPATIENT}"), added(store), new_family()
    holding = contextlib.ExitStack()
    holding.enter_context(store.transaction(run_id))

    state = Coordinator(impatient, sleep=lambda _: holding.close()).apply(run_id, claim(family=family))

    assert 1 == state.fencing_token
    impatient.close()


def test_connection_that_goes_within_a_transaction_leaves_nothing(store: PostgresStore, store_url: str) -> None:
    run_id = added(store)

    def lose_connection() -> None:
        with store.transaction(run_id) as transaction:
            end_connections(store_url)
            transaction.read_state()

    with pytest.raises(OutcomeUnknownError):
        lose_connection()

    with store.transaction(run_id) as transaction:
        assert 0 == transaction.revision


def test_pool_that_has_no_connection_left_leaves_the_outcome_open(store_url: str) -> None:
    """A heartbeat goes on then, and a coordinator tries again."""
    store = PostgresStore(store_url, sleep=lambda _: None)
    store._engine.pool._timeout = 0.01  # type: ignore[attr-defined]  # half a minute otherwise
    with contextlib.ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(store.transaction(added(store)))

        with pytest.raises(OutcomeUnknownError, match="lost the connection to the store"):
            store.list_runs()

    assert 6 <= len(store.list_runs())
    store.close()


def test_client_that_stops_within_a_transaction_loses_it(store: PostgresStore, store_url: str) -> None:
    """A frozen client cannot hold a run: the server ends its transaction."""
    frozen, run_id = PostgresStore(store_url), added(store)

    def freeze() -> None:
        with frozen.transaction(run_id) as transaction:
            transaction._dialogue._cursor.execute("SET LOCAL idle_in_transaction_session_timeout = '50ms'")
            with store.transaction(run_id):  # waits until the server has ended the other one
                pass
            transaction.read_state()

    with pytest.raises(OutcomeUnknownError):
        freeze()
    frozen.close()


@pytest.mark.parametrize("server_option", ["idle_in_transaction_session_timeout", "lock_timeout"])
def test_sessions_have_the_limits_that_keep_a_frozen_client_from_holding_a_run(
    store_url: str, server_option: str
) -> None:
    engine = open_engine(store_url)
    with engine.connect() as connection:
        found = connection.scalar(text(f"SHOW {server_option}"))
        isolation = connection.scalar(text("SHOW transaction_isolation"))
    engine.dispose()

    assert ("30s", "read committed") == (found, isolation)


def test_run_id_that_is_none_is_our_bug_and_no_lost_connection(store: PostgresStore) -> None:
    with (
        pytest.raises(ProtocolViolationError, match="invalid input syntax for type uuid"),
        store.transaction(RunId("not-an-id")),
    ):
        pass


def test_number_that_no_column_holds_is_our_bug_and_no_lost_connection(store: PostgresStore) -> None:
    with pytest.raises(ProtocolViolationError, match="integer out of range"):
        store.add_run(a_run(max_buckets=2**40))


def test_text_that_no_index_holds_is_refused_at_once_and_no_lost_connection(store_url: str) -> None:
    slept: list[float] = []
    store = PostgresStore(store_url, sleep=slept.append)

    with pytest.raises(ProtocolViolationError, match="index row"):
        store.add_run(a_run(secrets.token_hex(5000)))

    assert [] == slept
    store.close()


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT * FROM nowhere", StoreVersionError),
        ("SELECT nothing FROM runs", StoreVersionError),
        ("SELEC", ProtocolViolationError),
        ("SELECT 1/0", ProtocolViolationError),
        ("SELECT CAST('x' AS integer)", ProtocolViolationError),
        ("SELECT nowhere(1)", ProtocolViolationError),
        ("SELECT CAST('\"\\u0000\"' AS jsonb)", ProtocolViolationError),
        ("INSERT INTO runs DEFAULT VALUES", ProtocolViolationError),
        ("DO 'BEGIN RAISE check_violation; END'", ProtocolViolationError),
        ("DO 'BEGIN RAISE program_limit_exceeded; END'", ProtocolViolationError),
        ("DO 'BEGIN RAISE statement_too_complex; END'", ProtocolViolationError),
        ("DO 'BEGIN RAISE ''no condition''; END'", ProtocolViolationError),
        ("DO 'BEGIN ASSERT false; END'", ProtocolViolationError),
        ("DO 'BEGIN RAISE data_corrupted; END'", StoreUnusableError),
        ("DO 'BEGIN RAISE index_corrupted; END'", StoreUnusableError),
        ("DO 'BEGIN RAISE internal_error; END'", OutcomeUnknownError),
        ("DO 'BEGIN RAISE io_error; END'", OutcomeUnknownError),
        ("DO 'BEGIN RAISE serialization_failure; END'", OutcomeUnknownError),
        ("DO 'BEGIN RAISE deadlock_detected; END'", OutcomeUnknownError),
        ("DO 'BEGIN RAISE disk_full; END'", OutcomeUnknownError),
        ("DO 'BEGIN RAISE lock_not_available; END'", RunLockedError),
        ("DO 'BEGIN RAISE query_canceled; END'", StatementCancelledError),
        ("DO 'BEGIN RAISE admin_shutdown; END'", OutcomeUnknownError),
        ("SET TRANSACTION READ ONLY; SELECT pg_notify('a', 'b'); DELETE FROM runs", OutcomeUnknownError),
        ("SELECT pg_terminate_backend(pg_backend_pid())", OutcomeUnknownError),
    ],
)
def test_every_kind_of_error_of_the_driver_becomes_one_of_ours(
    store_url: str, statement: str, expected: type[IterationError]
) -> None:
    engine = open_engine(store_url)
    with pytest.raises(DBAPIError) as caught, engine.begin() as connection:
        connection.exec_driver_sql(statement)
    engine.dispose()

    found = refusal(caught.value, address="here", schema_version=1)

    assert expected is type(found)
    assert "\n" not in str(found)


def execute(url: str, statement: str) -> None:
    address = make_url(url)
    connection = psycopg2.connect(
        host=address.query["host"],
        port=address.query["port"],
        dbname=address.database,
        user=address.username,
        password=address.password,
    )
    with closing(connection), connection, connection.cursor() as cursor:
        cursor.execute(statement)


def close_database(url: str, store_url: str) -> None:
    """Let nobody into a database any more, and end the connections that there are."""
    name = make_url(url).database
    execute(store_url, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    execute(store_url, f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{name}'")  # noqa: S608 - a name


def end_connections(url: str) -> None:
    """End every other connection to this database, and wait until they are gone."""
    execute(
        url,
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'",
    )
