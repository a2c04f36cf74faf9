"""How does a transaction talk to Postgres? In one message or two, all or none; its connection is clean afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg2
import psycopg2.errors
import psycopg2.extensions
import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import RunNotFoundError
from iteration_lib.protocol import Command, Event, decide
from iteration_lib.protocol.command import AbortThrough
from iteration_lib.protocol.state import RunId
from iteration_lib.store.dialogue import Dialogue, Dialogues
from iteration_lib.store.postgres import PostgresStore, PostgresTransaction, open_engine
from iteration_lib.store.query import sql_folder
from iteration_lib.store.statement import Call
from tests.cutting_proxy import Cut, CuttingProxy
from tests.protocol_script import Sender, claim
from tests.store_script import added, new_family

pytestmark = pytest.mark.postgres

HERE = Call("select_run", {"run": "nothing"})
WRITES = re.findall(
    r"^-- ([a-z_]+): ", (sql_folder() / "queries" / "write.sql").read_text(encoding="utf-8"), re.MULTILINE
)


@pytest.fixture
def engine(store_url: str) -> Iterator[Engine]:
    opened = open_engine(store_url, isolation_level="AUTOCOMMIT")
    yield opened
    opened.dispose()


@pytest.fixture
def dialogues(engine: Engine) -> Iterator[Dialogues]:
    opened = Dialogues(engine)
    yield opened
    opened.release()


@pytest.fixture
def store(store_url: str) -> Iterator[PostgresStore]:
    opened = PostgresStore(store_url)
    yield opened
    opened.close()


@pytest.fixture
def run_id(store: PostgresStore) -> RunId:
    """A run of one attempt, at revision 1."""
    run_id = added(store)
    Coordinator(store).apply(run_id, claim(family=new_family()))
    return run_id


def touch(run_id: RunId, *, rows: str = "[1,1]", token: int = 1) -> Call:
    return Call("touch_run", {"run_id": run_id, "fencing_token": token}, rows)


def revision(dialogues: Dialogues, run_id: RunId) -> int:
    with dialogues.begin() as opened:
        found: int = opened.fetch(Call("lock_run", {"run_id": run_id}))[0]["revision"]
    return found


def backend(opened: Dialogue) -> int:
    found: int = opened._cursor.connection.get_backend_pid()
    return found


# Messages


def test_transaction_that_locks_and_writes_takes_two_messages(store_url: str, run_id: RunId) -> None:
    """Once its statements are prepared: whatever it writes, the network is crossed twice."""
    with CuttingProxy(store_url, message=-1, cut=Cut.BEFORE_DELIVERY) as proxy:
        engine = open_engine(proxy.url, isolation_level="AUTOCOMMIT")
        far = Dialogues(engine)
        for _ in range(2):
            proxy.messages = 0
            proxy.arm()
            with far.begin() as opened:
                opened.fetch(Call("lock_run", {"run_id": run_id}))
                opened.hold([touch(run_id)] * 20)
        taken = proxy.messages
        far.release()
        engine.dispose()

    assert 2 == taken


def test_records_of_an_epoch_take_two_messages_and_those_of_a_pause_four(store_url: str, store: PostgresStore) -> None:
    """Where no clock is asked for, a transaction is one message: it locks the run, writes and commits."""
    for pause_seconds, expected in ((0.0, 2), (60.0, 4)):
        family = new_family()
        sender, run_id = Sender(1, 1, family), added(store)
        with CuttingProxy(store_url, message=-1, cut=Cut.BEFORE_DELIVERY) as proxy:
            far = PostgresStore(proxy.url)
            coordinator = Coordinator(far)
            coordinator.apply(run_id, claim(family=family, min_pause_seconds=pause_seconds), sender.opens(0))
            for epoch in range(3):  # the first ones prepare
                proxy.messages = 0
                proxy.arm()
                state = coordinator.apply(
                    run_id, sender.reports(epoch), sender.triggers_last(epoch), sender.opens(epoch + 1)
                )
                coordinator.apply(run_id, sender.completes(state.pending[0].checkpoint_id))
            taken = proxy.messages
            far.close()

        assert expected == taken


def test_what_is_held_comes_before_what_is_fetched(dialogues: Dialogues, run_id: RunId) -> None:
    with dialogues.begin() as opened:
        before = opened.fetch(Call("lock_run", {"run_id": run_id}))[0]["revision"]
        opened.hold([touch(run_id), touch(run_id)])

        assert before + 2 == opened.fetch(Call("lock_run", {"run_id": run_id}))[0]["revision"]


def test_transaction_is_read_committed_whatever_the_sessions_default(store_url: str, run_id: RunId) -> None:
    strict = open_engine(
        f"{store_url}&options=-c default_transaction_isolation=serializable", isolation_level="AUTOCOMMIT"
    )
    dialogues = Dialogues(strict)
    with dialogues.begin() as opened:
        opened.fetch(Call("lock_run", {"run_id": run_id}))
        opened._cursor.execute("SHOW transaction_isolation")

        assert ("read committed",) == opened._cursor.fetchone()
    dialogues.release()
    strict.dispose()


@pytest.mark.parametrize(("is_flushed", "waits"), [(True, "remote_apply"), (False, "off")])
def test_transaction_waits_for_the_disk_as_it_says_and_the_session_as_it_did(
    store_url: str,
    run_id: RunId,
    is_flushed: bool,  # noqa: FBT001 - a case
    waits: str,
) -> None:
    """One that waits does so as whoever set the server up has said."""
    careful = open_engine(f"{store_url}&options=-c synchronous_commit=remote_apply", isolation_level="AUTOCOMMIT")
    dialogues = Dialogues(careful)
    for says in (True, False):
        with dialogues.begin() as opened:
            known = opened.fetch(Call("lock_run", {"run_id": run_id}))[0]
            known.pop("now")
            if says:
                opened.fetch(Call("lock_unchanged_run", {**known, "run_id": run_id, "is_flushed": is_flushed}))
            opened._cursor.execute("SHOW synchronous_commit")

            assert (waits if says else "remote_apply",) == opened._cursor.fetchone()
    dialogues.release()
    careful.dispose()


@pytest.mark.parametrize("revision", [1, 2], ids=["is written", "is not, as the run is another"])
def test_session_waits_as_it_did_after_a_message_that_does_not(store_url: str, run_id: RunId, revision: int) -> None:
    careful = PostgresStore(f"{store_url}&options=-c synchronous_commit=remote_apply")
    with careful.transaction(run_id) as transaction:
        known = replace(transaction.found, revision=revision)
        session = backend(transaction._dialogue)

    written = careful.write(run_id, [AbortThrough(checkpoint_id=1)], 1, known=known, is_flushed=False)

    with careful._dialogues.begin() as opened:
        assert session == backend(opened)
        opened._cursor.execute("SHOW synchronous_commit")
        assert ("remote_apply",) == opened._cursor.fetchone()
    assert (revision == 1) == (written is not None)
    careful.close()


@pytest.mark.parametrize("name", WRITES)
def test_every_write_can_be_prepared(dialogues: Dialogues, name: str) -> None:
    """Also those whose parameters are compared with nothing that has a type."""
    uncounted = ("lock_run", "lock_unchanged_run", "lock_lease", "insert_run")
    statement = Call(name, {}, None if name in uncounted else "[1,1]").statement

    with dialogues.begin() as opened:
        opened._cursor.execute(statement.prepare)


# All or none


@pytest.mark.parametrize(
    ("missed", "said"),
    [
        ({"token": 2}, "touch_run touched 0 rows, not 1"),
        ({"rows": "[2,2]"}, "touch_run touched 1 rows, not [2,3)"),
        ({"rows": "[0,0]"}, "touch_run touched 1 rows, not [0,1)"),
        ({"token": 2, "rows": "[1,)"}, "touch_run touched 0 rows, not [1,)"),
    ],
)
def test_write_that_misses_its_rows_is_refused_with_all_that_was_held(
    dialogues: Dialogues, run_id: RunId, missed: dict[str, Any], said: str
) -> None:
    before = revision(dialogues, run_id)

    with pytest.raises(DBAPIError, match=re.escape(said)), dialogues.begin() as opened:
        opened.hold([touch(run_id), touch(run_id, **missed), touch(run_id)])

    assert before == revision(dialogues, run_id)


@pytest.mark.parametrize("rows", ["[1,1]", "[0,)", "[1,)", "[0,2]"])
def test_write_that_touches_as_many_rows_as_it_has_to_is_committed(
    dialogues: Dialogues, run_id: RunId, rows: str
) -> None:
    before = revision(dialogues, run_id)

    with dialogues.begin() as opened:
        opened.hold([touch(run_id, rows=rows)])

    assert before + 1 == revision(dialogues, run_id)


def test_error_of_the_caller_leaves_nothing_of_what_was_sent(dialogues: Dialogues, run_id: RunId) -> None:
    before = revision(dialogues, run_id)

    def stop_within() -> None:
        with dialogues.begin() as opened:
            opened.hold([touch(run_id)])
            opened.fetch(HERE)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop_within()

    assert before == revision(dialogues, run_id)


# The connection afterwards


def test_connection_serves_the_next_transaction_after_an_error_with_what_it_has_prepared(
    dialogues: Dialogues, run_id: RunId
) -> None:
    with dialogues.begin() as opened:
        opened.fetch(HERE)
        first = backend(opened)
    for calls in ([touch(run_id, token=2)], [Call("select_run_state", {"run_id": "no-id"}, None)]):
        with pytest.raises(DBAPIError), dialogues.begin() as opened:
            opened.hold(calls)

    with dialogues.begin() as opened:
        opened.hold([touch(run_id)])
        opened.fetch(HERE)

        assert first == backend(opened)


def test_connection_that_is_lost_is_not_used_again(dialogues: Dialogues, run_id: RunId) -> None:
    lost = []

    def lose_connection() -> None:
        with dialogues.begin() as opened, dialogues.begin() as other:
            opened.fetch(HERE)
            lost.append(backend(opened))
            other._cursor.execute("SELECT pg_terminate_backend(%s, 10000)", lost)
            opened.fetch(HERE)

    with pytest.raises(DBAPIError) as caught:
        lose_connection()

    assert isinstance(caught.value.orig, psycopg2.OperationalError)
    with dialogues.begin() as opened:
        opened.hold([touch(run_id)])
        opened.fetch(HERE)
        assert lost != [backend(opened)]


def test_one_connection_stays_at_hand_and_the_others_are_given_back(engine: Engine, dialogues: Dialogues) -> None:
    with dialogues.begin() as opened, dialogues.begin() as other:
        assert backend(opened) != backend(other)
        assert 2 == engine.pool.checkedout()
        first = backend(other)

    assert 1 == engine.pool.checkedout()
    with dialogues.begin() as opened:
        assert first == backend(opened)
    dialogues.release()
    assert 0 == engine.pool.checkedout()


def test_connection_at_hand_goes_with_one_that_is_lost(dialogues: Dialogues) -> None:
    at_hand = []

    def lose_connection() -> None:
        with dialogues.begin() as opened:
            with dialogues.begin() as other:
                other._cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [backend(opened)])
                at_hand.append(backend(other))
            opened.fetch(HERE)

    with pytest.raises(DBAPIError):
        lose_connection()

    with dialogues.begin() as opened:
        assert at_hand != [backend(opened)]


def test_process_that_writes_and_reads_has_one_connection(store: PostgresStore, run_id: RunId) -> None:
    store.find_run(run_id)
    with store.transaction(run_id):
        pass
    store.find_run(run_id)

    pool = store._engine.pool
    assert (0, 1) == (pool.checkedout(), pool.checkedin())


def test_read_that_hears_of_lost_connections_spares_the_next_transaction(
    store: PostgresStore, engine: Engine, run_id: RunId
) -> None:
    with store.transaction(run_id) as transaction:
        lost = backend(transaction._dialogue)
    with engine.connect() as other:
        other.exec_driver_sql(f"SELECT pg_terminate_backend({lost}, 10000)")
    store.find_run(run_id)

    with store.transaction(run_id) as transaction:
        assert lost != backend(transaction._dialogue)


def test_statement_is_prepared_again_where_an_error_came_before(empty_store: str) -> None:
    """What is refused while it is prepared is refused for the same reason the next time."""
    engine = open_engine(empty_store, isolation_level="AUTOCOMMIT")
    dialogues = Dialogues(engine)
    for _ in range(2):
        with pytest.raises(DBAPIError) as caught, dialogues.begin() as opened:
            opened.fetch(HERE)
        assert isinstance(caught.value.orig, psycopg2.errors.UndefinedTable)
    dialogues.release()
    engine.dispose()


class CursorOfTheSignalled(psycopg2.extensions.cursor):
    """Runs a signal's handler when the server has answered a PREPARE, before anybody hears of it."""

    def execute(self, query: str, given: Any = None) -> None:
        super().execute(query, given)
        if query.startswith("PREPARE"):
            raise SystemExit(143)


def test_signal_while_a_statement_is_prepared_leaves_no_connection_whose_statements_are_unknown(
    dialogues: Dialogues, run_id: RunId
) -> None:
    def be_told_to_end() -> None:
        with dialogues.begin() as opened:
            opened._cursor = opened._cursor.connection.cursor(cursor_factory=CursorOfTheSignalled)
            opened.fetch(HERE)

    with pytest.raises(SystemExit):
        be_told_to_end()

    with dialogues.begin() as opened:
        opened.hold([touch(run_id)])
        assert [] == opened.fetch(HERE)


def test_refusal_of_our_own_keeps_the_connection(dialogues: Dialogues, run_id: RunId) -> None:
    with dialogues.begin() as opened:
        first = backend(opened)

    with pytest.raises(RunNotFoundError), dialogues.begin():
        raise RunNotFoundError(run_id)

    with dialogues.begin() as opened:
        assert first == backend(opened)


# Growth


def test_epoch_looks_at_as_many_rows_however_many_there_were_before(store: PostgresStore) -> None:
    """The plans are those of tables that nobody has gathered statistics on, and of which the first were empty."""
    family = new_family()
    sender, run_id, coordinator = Sender(1, 1, family), added(store), Coordinator(store)
    coordinator.apply(run_id, claim(family=family), sender.opens(0))
    looked_at = []

    for epoch in range(80):
        found = rows_that_are_looked_at(
            store, run_id, sender.reports(epoch), sender.triggers(epoch), sender.opens(epoch + 1)
        )
        looked_at.append(found + rows_that_are_looked_at(store, run_id, sender.completes(epoch + 1)))

    assert {looked_at[9]} == set(looked_at[9:])
    assert looked_at[9] < 40


def rows_that_are_looked_at(store: PostgresStore, run_id: RunId, *events: Event) -> int:
    """Apply events in one transaction, and return how many rows its writes have read from the tables."""
    with store.transaction(run_id) as transaction:
        state, commands = transaction.read_state(), list[Command]()
        for event in events:
            state, decided = decide(state, event, transaction.now)
            commands += decided
        before = rows_read(transaction)
        transaction.write(commands, state.fencing_token)
        transaction._dialogue.fetch(HERE)
        return rows_read(transaction) - before


def rows_read(transaction: PostgresTransaction) -> int:
    cursor = transaction._dialogue._cursor
    cursor.execute(
        "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables WHERE relname <> 'runs'"
    )
    found: Any = cursor.fetchone()
    return int(found[0])
