"""Is every event applied once, by the right attempt, whatever the server and the network do meanwhile?"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import psutil
import psycopg2
import pytest

from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import SupersededError
from iteration_lib.protocol import Event, decide
from iteration_lib.protocol.event import Committable
from iteration_lib.protocol.state import RunId
from iteration_lib.protocol.status import EpochStatus
from iteration_lib.sinks import PostgresSink
from iteration_lib.sinks.trial import publication_of, rows_of, transaction_of
from iteration_lib.store import postmaster
from iteration_lib.store.embedded import EmbeddedPostgres
from iteration_lib.store.postgres import PostgresStore
from tests.cutting_proxy import Cut, CuttingProxy
from tests.fixture.store import upgraded
from tests.protocol_script import Sender, claim, part, prepared
from tests.sink_reader import dsn
from tests.size import IS_NIGHTLY
from tests.store_script import DEFINITION, a_run, added, an_origin, history, new_family, read_state

pytestmark = pytest.mark.postgres

T = TypeVar("T")
_DEADLINE_SECONDS = 30
_MESSAGES = 51  # of the story below, undisturbed: about as many
_MESSAGES_OF_A_BRANCH = 8  # that begins, undisturbed
_MESSAGES_WITH_ROWS = 30  # of a checkpoint that completes with rows in the store's own database; the last is COMMIT
_STEP = 1 if IS_NIGHTLY else 6


@pytest.fixture
def store(store_url: str) -> Iterator[PostgresStore]:
    opened = PostgresStore(store_url)
    yield opened
    opened.close()


def story(family: int) -> tuple[tuple[Event, ...], ...]:
    """A run of two epochs, in the batches that the driver sends."""
    sender = Sender(1, 1, family)
    return (
        (claim(family=family),),
        (sender.pins("points"),),
        (sender.finishes("scaled"),),
        (sender.opens(0, centroids=2),),
        (sender.reports(0, {"centroids": {0: 1, 1: 2}}, shift=0.5), sender.triggers(0, centroids=2)),
        (sender.completes(1, centroids=(0, 1)), sender.opens(1)),
        (sender.notifies(0, effect={"said": "hello"}),),
        (sender.switches(1), sender.marks(1, part("y", 0, 2, total=4))),
        (sender.marks(1, part("y", 2, 4, total=4)),),
        (sender.reports(1, {"centroids": {0: 0}}), sender.triggers(1)),
        (sender.completes(2),),
        (sender.publishes(),),
        (sender.ends(),),
    )


def tell(store: PostgresStore, family: int) -> RunId:
    run_id, coordinator = added(store), Coordinator(store)
    for events in story(family):
        coordinator.apply(run_id, *events)
    return run_id


def told(store: PostgresStore, run_id: RunId, family: int) -> str:
    """Return the history of a run as a text without what makes it another run, or was read at another time."""
    records = history(store, run_id)
    records["attempts"] = tuple(replace(attempt, is_lease_over=False) for attempt in records["attempts"])
    run = store.find_run(run_id)
    text = repr({table: rows for table, rows in records.items() if table != "runs"}).replace(f"{family:08x}", "family")
    return f"{run.status if run is not None else None} {text}"


# The network


@pytest.mark.parametrize("cut", Cut, ids=lambda cut: cut.value)
@pytest.mark.parametrize("message", range(1, _MESSAGES, _STEP))
def test_events_are_applied_once_when_the_connection_is_cut_at_any_message(
    store: PostgresStore, store_url: str, message: int, cut: Cut
) -> None:
    """Also at COMMIT, where nobody can tell whether it happened."""
    family = new_family()
    undisturbed = told(store, tell(store, family), family)
    run_id, again = added(store), new_family()

    with CuttingProxy(store_url, message=message, cut=cut) as proxy:
        cut_off = PostgresStore(proxy.url)
        proxy.arm()
        coordinator = Coordinator(cut_off)
        for events in story(again):
            coordinator.apply(run_id, *events)
        cut_off.close()

    assert proxy.messages > message
    assert undisturbed == told(store, run_id, again)


@pytest.mark.parametrize("cut", Cut, ids=lambda cut: cut.value)
@pytest.mark.parametrize("message", range(1, _MESSAGES_OF_A_BRANCH + 1))
def test_branch_is_begun_once_when_the_connection_is_cut_at_any_message(
    store: PostgresStore, store_url: str, message: int, cut: Cut
) -> None:
    ran, branch = a_run(), a_run()
    origin = an_origin(store, ran)

    with CuttingProxy(store_url, message=message, cut=cut) as proxy:
        cut_off = PostgresStore(proxy.url, sleep=lambda _: None)
        proxy.arm()
        is_added = cut_off.add_run(branch, origin)
        cut_off.close()

    assert is_added
    assert proxy.messages > message
    assert [branch.run_id] == [found.run_id for found in store.list_branches(ran.run_id)]


@pytest.mark.parametrize("cut", Cut, ids=lambda cut: cut.value)
@pytest.mark.parametrize("message", range(1, _MESSAGES_WITH_ROWS + 1, _STEP))
def test_rows_go_into_the_stores_own_database_once_when_the_connection_is_cut_at_any_message(
    store: PostgresStore, store_url: str, message: int, cut: Cut
) -> None:
    pytest.importorskip("adbc_driver_postgresql", reason="adbc-driver-postgresql is not installed")
    sender, run = Sender(1, 1, new_family()), a_run(definition={**DEFINITION, "sinks": {"rows": True}})
    sink, transaction = PostgresSink(f"rows_{sender.family}"), replace(transaction_of(0), run_id=run.run_id)
    content, published = sink.at(store_url).prepare(transaction, publication_of(0)), list[Committable]()
    rows = replace(prepared(0, "rows", in_store=True), content=content)
    store.add_run(run)
    Coordinator(store).apply(
        run.run_id, claim(family=sender.family), sender.opens(0), sender.reports(0), sender.triggers(0)
    )

    def publish(found: Committable, cursor: psycopg2.extensions.cursor) -> None:
        published.append(found)
        sink.publish(cursor, transaction, found.content)

    with CuttingProxy(store_url, message=message, cut=cut) as proxy:
        cut_off = PostgresStore(proxy.url)
        proxy.arm()
        Coordinator(cut_off).apply(run.run_id, sender.completes(1, committables=(rows,)), publish=publish)
        cut_off.close()

    assert proxy.messages > message
    if message == _MESSAGES_WITH_ROWS:  # committed, or not: else a message was added, and COMMIT is not cut
        assert len(published) == (1 if cut is Cut.AFTER_DELIVERY else 2)
    assert 0 == read_state(store, run.run_id).last_durable_epoch
    assert [(len(rows_of(0)),)] == execute(store_url, f"SELECT count(*) FROM rows_{sender.family}")  # noqa: S608 - a number


def test_events_are_applied_once_when_every_connection_is_ended_between_the_calls(
    store: PostgresStore, store_url: str
) -> None:
    family = new_family()
    run_id, coordinator = added(store), Coordinator(store)

    for events in story(family):
        coordinator.apply(run_id, *events)
        execute(store_url, _END_OTHERS)

    opened = PostgresStore(store_url)
    another = new_family()
    assert told(opened, tell(opened, another), another) == told(opened, run_id, family)
    opened.close()


# The server


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(tmp_path / "server")
    server.start()
    server.ensure_database("km")
    upgraded(server.url("km"))
    yield server
    server.destroy()


@pytest.mark.parametrize("how", [signal.SIGQUIT, signal.SIGKILL], ids=["immediate shutdown", "kill"])
def test_events_are_applied_once_when_the_server_is_restarted_between_the_calls(
    own_server: EmbeddedPostgres, how: signal.Signals
) -> None:
    """What was acknowledged is there after crash recovery, and the calls that meet no server wait for the next."""
    store, family = PostgresStore(own_server.url("km")), new_family()
    run_id, coordinator = added(store), Coordinator(store)

    for number, events in enumerate(story(family)):
        state = coordinator.apply(run_id, *events)
        if number % 3 == 1:
            restart(own_server, how)
            assert state == coordinator.apply(run_id, *events)

    another = new_family()
    assert told(store, tell(store, another), another) == told(store, run_id, family)
    store.close()


def test_commit_that_the_crashed_server_had_not_flushed_is_repeated(own_server: EmbeddedPostgres) -> None:
    """The checkpoint that it began is gone with the server; what completes it is sent as if nothing had happened."""
    store, family = PostgresStore(own_server.url("km")), new_family()
    run_id, coordinator = added(store), Coordinator(store)
    lost = 0

    with without_wal_writer(own_server) as crash:
        for events in story(family):
            state = coordinator.apply(run_id, *events)
            began = len(store.list_checkpoints(run_id))
            if state.pending:
                crash()
                lost += began - len(store.list_checkpoints(run_id))

    another = new_family()
    assert 2 == lost
    assert told(store, tell(store, another), another) == told(store, run_id, family)
    store.close()


@contextmanager
def without_wal_writer(server: EmbeddedPostgres) -> Iterator[Callable[[], None]]:
    """Keep the server from flushing what no commit waits for, and give what has it crash and start again."""

    def stop_wal_writer() -> psutil.Process:
        pid = postmaster.find_postmaster(server._layout.data)
        assert pid is not None
        until(lambda: len(wal_writers(pid)) == 1)
        (writer,) = wal_writers(pid)
        writer.suspend()
        return psutil.Process(pid)

    def crash() -> None:
        processes = [running[0], *running[0].children()]
        for process in processes:
            process.kill()
        psutil.wait_procs(processes, timeout=30)
        server.start()
        running[0] = stop_wal_writer()

    running = [stop_wal_writer()]
    yield crash
    for process in running[0].children():
        process.resume()


def wal_writers(pid: int) -> list[psutil.Process]:
    """Return the WAL writers among a server's processes, some of which may end meanwhile."""
    found = []
    for known in psutil.Process(pid).children():
        with suppress(psutil.NoSuchProcess):
            if "walwriter" in " ".join(known.cmdline()):
                found.append(known)
    return found


def restart(server: EmbeddedPostgres, how: signal.Signals) -> None:
    """End the server at once and start it again, while others go on calling it; no session of the old one is left."""
    pid = postmaster.find_postmaster(server._layout.data)
    assert pid is not None
    sessions = psutil.Process(pid).children()
    os.kill(pid, how)
    psutil.wait_procs(sessions, timeout=30)
    threading.Thread(target=server.start).start()


def test_server_that_goes_within_a_transaction_leaves_nothing_of_it(own_server: EmbeddedPostgres) -> None:
    store, family = PostgresStore(own_server.url("km")), new_family()
    sender, run_id = Sender(1, 1, family), added(store)
    before = Coordinator(store).apply(run_id, claim(family=family))
    pid = postmaster.find_postmaster(own_server._layout.data)
    assert pid is not None

    def write_and_lose_the_server() -> None:
        with store.transaction(run_id) as transaction:
            state, commands = decide(transaction.read_state(), sender.opens(0), transaction.now)
            transaction.write(commands, state.fencing_token)
            transaction.read_state()  # sends what was written
            os.kill(pid, signal.SIGQUIT)
            until(lambda: postmaster.find_postmaster(own_server._layout.data) is None)

    with pytest.raises(Exception, match="lost the connection to the store"):
        write_and_lose_the_server()
    own_server.start()

    assert before == Coordinator(store).apply(run_id, claim(family=family))
    assert () == store.list_epochs(run_id)
    store.close()


# Two at once


def test_events_of_many_reporters_at_once_align_the_epoch_once(store: PostgresStore) -> None:
    """Counting the reports that are there, each in its own snapshot, would miss the last one."""
    subtasks, family = 8, new_family()
    sender, run_id = Sender(1, 1, family), added(store)
    Coordinator(store).apply(run_id, claim(family=family))

    for number in range(3):
        Coordinator(store).apply(run_id, sender.opens(number, centroids=subtasks))
        barrier = threading.Barrier(subtasks)

        def report(subtask: int, number: int = number, barrier: threading.Barrier = barrier) -> None:
            coordinator = Coordinator(store)
            barrier.wait(_DEADLINE_SECONDS)
            coordinator.apply(run_id, sender.reports(number, {"centroids": {subtask: subtask}}))

        with ThreadPoolExecutor(subtasks) as pool:
            list(pool.map(report, range(subtasks)))

        epoch = store.list_epochs(run_id)[-1]
        assert (EpochStatus.ALIGNED, {"centroids": tuple(range(subtasks))}) == (epoch.status, epoch.records)


def events_of(sender: Sender) -> dict[str, Event]:
    """What an attempt would legally say next, at each stage of an epoch."""
    return {
        "notifies": sender.notifies(0),
        "switches": sender.switches(2),
        "marks": sender.marks(2, part("x")),
        "pins": sender.pins("labels"),
        "finishes": sender.finishes("norms"),
        "reports": sender.reports(2),
        "triggers": sender.triggers(1),
        "acknowledges": sender.acknowledges(2, centroids=(0,)),
        "completes": sender.completes(2),
        "declines": sender.declines(2),
        "ends": sender.ends(),
        "fails": sender.fails(),
    }


def midway(store: PostgresStore, sender: Sender) -> tuple[RunId, Coordinator]:
    """A run with epoch 0 durable, epoch 1 aligned and its checkpoint pending, epoch 2 open."""
    run_id, coordinator = added(store), Coordinator(store)
    coordinator.apply(
        run_id,
        claim(family=sender.family),
        *sender.passes(0, 1),
        *(sender.opens(1), sender.reports(1), sender.triggers(1), sender.opens(2), sender.switches(2)),
    )
    return run_id, coordinator


@pytest.mark.parametrize("kind", events_of(Sender(1, 1)))
def test_event_that_waits_for_the_lock_behind_a_takeover_is_refused(
    store: PostgresStore, store_url: str, kind: str
) -> None:
    """The stale attempt has begun its transaction before the takeover commits; what it reads then has to be newer."""
    stale, newer = PostgresStore(store_url), Sender(2, 2, new_family())
    older = Sender(1, 1, newer.family)
    run_id, coordinator = midway(stale, older)

    with ThreadPoolExecutor(1) as pool:
        with store.transaction(run_id) as transaction:
            state, commands = decide(
                transaction.read_state(), claim(2, takeover=True, family=newer.family), transaction.now
            )
            transaction.write(commands, state.fencing_token)
            transaction.read_state()  # sends what was written
            waiting = pool.submit(coordinator.apply, run_id, events_of(older)[kind])
            until(lambda: is_waiting(store_url, waiting))
        error = waiting.exception(_DEADLINE_SECONDS)
    stale.close()

    assert isinstance(error, SupersededError)
    assert (1, 2) == (error.held, error.current)
    assert state == read_state(store, run_id)


@pytest.mark.parametrize("kind", events_of(Sender(1, 1)))
def test_takeover_that_waits_for_the_lock_behind_an_event_sees_it(
    store: PostgresStore, store_url: str, kind: str
) -> None:
    other, older = PostgresStore(store_url), Sender(1, 1, new_family())
    run_id, _ = midway(store, older)

    with ThreadPoolExecutor(1) as pool:
        with store.transaction(run_id) as transaction:
            state, commands = decide(transaction.read_state(), events_of(older)[kind], transaction.now)
            transaction.write(commands, state.fencing_token)
            transaction.read_state()  # sends what was written
            waiting = pool.submit(Coordinator(other).apply, run_id, claim(2, takeover=True, family=older.family))
            until(lambda: is_waiting(store_url, waiting))
        after = waiting.result(_DEADLINE_SECONDS)
    other.close()

    assert (2, state.last_durable_epoch, ()) == (after.fencing_token, after.last_durable_epoch, after.epochs)
    assert (state.completed, state.finished_operators, state.pins) == (
        after.completed,
        after.finished_operators,
        after.pins,
    )


def test_two_claims_at_once_give_one_attempt(store: PostgresStore) -> None:
    for _ in range(5):
        run_id, family = added(store), new_family()
        barrier = threading.Barrier(2)

        def contend(number: int, run_id: RunId = run_id, barrier: threading.Barrier = barrier) -> str:
            barrier.wait(_DEADLINE_SECONDS)
            try:
                Coordinator(store).apply(run_id, claim(number, family=family))  # noqa: B023 - used within the loop
            except Exception as err:  # noqa: BLE001 - its name is the answer
                return type(err).__name__
            return "opened"

        with ThreadPoolExecutor(2) as pool:
            answers = sorted(pool.map(contend, (1, 2)))

        assert ["LeaseHeldError", "opened"] == answers
        assert [1] == [attempt.fencing_token for attempt in store.list_attempts(run_id)]


def test_two_runs_added_at_once_under_one_key_are_one(store: PostgresStore) -> None:
    for _ in range(5):
        runs = [a_run() for _ in range(4)]
        key, barrier = runs[0].run_key, threading.Barrier(4)

        def add(number: int, key: str = key, barrier: threading.Barrier = barrier) -> bool:
            barrier.wait(_DEADLINE_SECONDS)
            return store.add_run(a_run(key))

        with ThreadPoolExecutor(4) as pool:
            answers = sorted(pool.map(add, range(4)))

        assert [False, False, False, True] == answers
        assert 1 == len([run for run in store.list_runs() if run.run_key == key])


def test_lease_that_is_renewed_behind_a_takeover_is_not(store: PostgresStore, store_url: str) -> None:
    other, older = PostgresStore(store_url), Sender(1, 1, new_family())
    run_id, _ = midway(store, older)

    with ThreadPoolExecutor(1) as pool:
        with store.transaction(run_id) as transaction:
            state, commands = decide(
                transaction.read_state(), claim(2, takeover=True, family=older.family), transaction.now
            )
            transaction.write(commands, state.fencing_token)
            transaction.read_state()  # sends what was written
            waiting = pool.submit(other.renew_lease, run_id, older.attempt_id, fencing_token=1, lease_ttl_seconds=30.0)
            until(lambda: is_waiting(store_url, waiting))

        assert waiting.result(_DEADLINE_SECONDS) is False
    other.close()


_END_OTHERS = (
    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
)
_WAITING = (
    "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' "
    "AND wait_event IN ('transactionid', 'tuple')"
)


def is_waiting(url: str, call: Future[T]) -> bool:
    """Tell whether a call waits for a lock in the database."""
    assert not call.done(), f"it did not wait: {call.exception() or call.result()}"
    return bool(execute(url, _WAITING))


def until(holds: Callable[[], bool]) -> None:
    """Wait for a condition, with a deadline."""
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it never happened"


def execute(url: str, statement: str) -> list[tuple[object, ...]]:
    connection = psycopg2.connect(dsn(url))
    with closing(connection), connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description is not None else []
