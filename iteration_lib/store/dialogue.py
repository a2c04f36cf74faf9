"""How does a transaction talk to the server? In as few messages as its reads allow.

BEGIN goes with the first statement, and what is written goes with COMMIT: a transaction that locks a run, reads and
writes takes two messages. One that reads nothing takes one, whatever it writes, and needs neither word: to the server
the statements of a message are one transaction. The connection is in autocommit mode, so that the driver adds none.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg2
from psycopg2.extensions import TRANSACTION_STATUS_IDLE
from sqlalchemy import Engine, PoolProxiedConnection
from sqlalchemy.exc import DBAPIError

from iteration_lib.errors import IterationError
from iteration_lib.store.statement import Call


class Dialogue:
    """One transaction. What it holds is executed, in order, before the next fetch or with the commit."""

    def __init__(self, connection: PoolProxiedConnection) -> None:
        """Talk through a connection in autocommit mode; nothing is said yet."""
        self._prepared: set[str] = connection.info.setdefault("prepared", set())  # as long as the server's session
        self._cursor = connection.cursor()
        self._is_begun = False
        self._held: list[Call] = []

    def fetch(self, call: Call) -> list[dict[str, Any]]:  # Any: what columns hold
        """Execute what is held and then a call, and return its rows."""
        before = [] if self._is_begun else ["BEGIN"]
        self._is_begun = True
        self._send([*self._held, call], before=before)
        names = [column[0] for column in self._cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in self._cursor.fetchall()]

    def hold(self, calls: Sequence[Call]) -> None:
        """Execute calls later."""
        self._held += calls

    def lend(self, act: Callable[[Any], None]) -> None:  # Any: psycopg2's cursor
        """Let others execute theirs, before what is held; only after a fetch, which began the transaction."""
        act(self._cursor)

    def commit(self) -> None:
        """Execute what is held and commit, in one message: the commit happens if and only if the server took it all."""
        if self._is_begun or self._held:
            self._send(self._held, after=["COMMIT"] if self._is_begun else [])

    def _send(self, calls: Sequence[Call], *, before: Sequence[str] = (), after: Sequence[str] = ()) -> None:
        self._held = []
        parts, values = [*before], list[object]()
        for call in calls:
            statement = call.statement
            if statement.name not in self._prepared:
                self._cursor.execute(statement.prepare)
                self._prepared.add(statement.name)
            parts.append(statement.execute)
            values += call.values
        self._cursor.execute(";".join([*parts, *after]), values)


class Dialogues:
    """Transactions on an engine's connections. One stays at hand for the next: to have it of a pool takes its time."""

    def __init__(self, engine: Engine) -> None:
        """Take connections from `engine`, which gives them in autocommit mode."""
        self._engine = engine
        self._lock = threading.Lock()
        self._at_hand: PoolProxiedConnection | None = None

    @contextmanager
    def begin(self) -> Iterator[Dialogue]:
        """Begin a transaction; commit at the end, roll back on an exception.

        A signal's handler may raise when the server has prepared a statement and before that is noted: where anything
        but a database's error or one of ours passes through, the connection is not used again.
        Raises DBAPIError, and what the engine's pool raises.
        """
        connection = self._take()
        try:
            opened = Dialogue(connection)
            yield opened
            opened.commit()
        except psycopg2.Error as err:
            raise DBAPIError(None, None, err) from err
        except IterationError:
            raise
        except BaseException:
            driver: Any = connection.driver_connection  # Any: psycopg2's own
            driver.close()
            raise
        finally:
            self._give_back(connection)

    def release(self) -> None:
        """Give the engine what is at hand, for others to use."""
        if (connection := self._take_at_hand()) is not None:
            connection.close()

    def _take_at_hand(self) -> PoolProxiedConnection | None:
        with self._lock:
            connection, self._at_hand = self._at_hand, None
        return connection

    def _take(self) -> PoolProxiedConnection:
        if (connection := self._take_at_hand()) is not None:
            return connection
        try:
            return self._engine.raw_connection()
        except psycopg2.Error as err:
            raise DBAPIError(None, None, err) from err

    def _give_back(self, connection: PoolProxiedConnection) -> None:
        """Keep a connection, or give it back to the pool; without a transaction, or not at all."""
        driver: Any = connection.driver_connection  # Any: as above
        if driver.get_transaction_status() != TRANSACTION_STATUS_IDLE:
            with contextlib.suppress(psycopg2.Error):
                driver.cursor().execute("ROLLBACK")
        if driver.get_transaction_status() != TRANSACTION_STATUS_IDLE:
            connection.invalidate()
            self.release()  # where one connection is lost, the others mostly are
            self._engine.dispose()
            return
        with self._lock:
            if self._at_hand is None:
                self._at_hand = connection
                return
        connection.close()
