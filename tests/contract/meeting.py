"""How do two calls meet inside their transactions? The first stops where a gate is, until the second has come."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg2
from sqlalchemy import Engine, event

from iteration_lib.errors import IterationError
from iteration_lib.protocol import RunState
from iteration_lib.store.postgres import PostgresStore
from tests.fixture.store import NO_SYNC
from tests.sink_reader import dsn
from tests.store_script import timeless_state

DEADLINE_SECONDS = 30
WAYS = ("with the lock", "having decided", "before the commit", "at once")  # where the first call stops

T = TypeVar("T")


class Gate:
    """Where the first call stops, once, and waits until it may go on."""

    def __init__(self) -> None:
        self.thread: int | None = None
        self.place = ""
        self.reached = threading.Event()
        self.opened = threading.Event()
        self.reached.set()  # nobody stops before it is set up

    def set_up(self, place: str) -> None:
        """Let the next call stop in a place."""
        self.place = place
        self.reached.clear()
        self.opened.clear()

    def pass_through(self, place: str) -> None:
        """Stop in this place, if it is this one and for this thread."""
        if threading.get_ident() == self.thread and place == self.place and not self.reached.is_set():
            self.reached.set()
            assert self.opened.wait(DEADLINE_SECONDS)


@dataclass(frozen=True, slots=True)
class Stage:
    """Two stores on one database, a thread for each, and somebody who looks on."""

    stores: tuple[PostgresStore, PostgresStore]
    threads: tuple[ThreadPoolExecutor, ThreadPoolExecutor]
    gate: Gate
    onlooker: psycopg2.extensions.connection

    def is_anybody_waiting(self) -> bool:
        """Tell whether a connection waits for a lock."""
        with self.onlooker.cursor() as cursor:
            cursor.execute(
                "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            return cursor.rowcount > 0


@contextmanager
def open_stage(store_url: str) -> Iterator[Stage]:
    """Open a stage on a database."""
    gate, onlooker = Gate(), psycopg2.connect(dsn(store_url))
    onlooker.autocommit = True
    threads = (ThreadPoolExecutor(max_workers=1), ThreadPoolExecutor(max_workers=1))
    gate.thread = threads[0].submit(threading.get_ident).result()
    with stops_at(gate), closing(onlooker), threads[0], threads[1]:
        stores = (PostgresStore(f"{store_url}&{NO_SYNC}"), PostgresStore(f"{store_url}&{NO_SYNC}"))
        try:
            yield Stage(stores, threads, gate, onlooker)
        finally:
            for store in stores:
                store.close()


@contextmanager
def stops_at(gate: Gate) -> Iterator[None]:
    """Lead every connection through a gate behind the lock, before the last writes, and between them and COMMIT.

    A call that is one message decided before it came: there the first two are one place, and it says where it begins.
    """

    class Stopping(psycopg2.extensions.cursor):
        def execute(self, query: str, given: Sequence[object] = ()) -> None:  # type: ignore[override]  # what is called here
            if query.startswith("EXECUTE lock_unchanged_run"):
                query = f"BEGIN;{query};COMMIT"
            *statements, last = query.split(";")
            if query.startswith("BEGIN") and last == "COMMIT":  # all in one message: its lock comes first
                lock, writes = ";".join(statements[:2]), statements[2:]
                count = lock.count("%s")
                super().execute(lock, given[:count])  # type: ignore[arg-type]  # as above
                gate.pass_through("with the lock")
                query, given = ";".join([*writes, last]), given[count:]
            if last == "COMMIT":
                gate.pass_through("having decided")
            writing = query.removesuffix("COMMIT")
            if writing:
                super().execute(writing, given)  # type: ignore[arg-type]  # as above
            if not query.startswith("PREPARE"):  # which may come before any lock
                gate.pass_through("before the commit" if last == "COMMIT" else "with the lock")
            if last == "COMMIT":
                super().execute("COMMIT")

    def let_stop(connection: psycopg2.extensions.connection, _record: object) -> None:
        connection.cursor_factory = Stopping

    event.listen(Engine, "connect", let_stop)
    try:
        yield
    finally:
        event.remove(Engine, "connect", let_stop)


def meet(
    stage: Stage, first: Callable[[], T], second: Callable[[], T], *, way: str, must_wait: bool = False
) -> tuple[T, T]:
    """Let two calls meet, each of which returns what it answered, or the kind of error that it raised; return both."""
    gate, is_gated = stage.gate, way != "at once"
    if is_gated:
        gate.set_up(way)
    started = stage.threads[0].submit(first)
    try:
        if is_gated:
            until(lambda: gate.reached.is_set() or started.done(), started)
        other = stage.threads[1].submit(second)
        if is_gated:
            until(lambda: other.done() or stage.is_anybody_waiting(), other)
            is_refused = started.done() and isinstance(started.result(), type)
            assert is_refused or gate.reached.is_set(), "the first call did not stop"
            assert is_refused or not must_wait or not other.done(), "the second call did not wait"
    finally:
        gate.opened.set()
    return started.result(DEADLINE_SECONDS), other.result(DEADLINE_SECONDS)


def until(holds: Callable[[], bool], future: Future[Any]) -> None:
    """Wait until something holds, looking whenever a future is done or a moment has passed."""
    for _ in range(DEADLINE_SECONDS * 1000):
        if holds():
            return
        wait([future], timeout=0.001)
    raise AssertionError("it never happened")


def answer_of(call: Callable[..., T], *about: Any) -> T | RunState | type[Exception]:  # Any: what the call is about
    """Return what a call answers, without times, or how it is refused."""
    try:
        answered = call(*about)
    except IterationError as err:
        return type(err)
    return timeless_state(answered) if isinstance(answered, RunState) else answered
