"""What do readers see of what `tests.iterations.publishing` publishes, and is all that they ever see whole?"""

from __future__ import annotations

import threading
import time
from contextlib import closing
from dataclasses import dataclass, field
from typing import Self

import psycopg2
import psycopg2.errors

from iteration_lib.sinks import PostgresSink, published
from iteration_lib.sinks.postgres_session import connection_string
from tests.iterations.publishing import ROWS

EPOCHS = 4
Seen = dict[str, dict[int, list[tuple[object, ...]]]]


@dataclass
class Reader:
    """Looks at every target, again and again, and keeps what it saw that was not whole, or could not be read.

    Half of the time: whom it looks at is to come on, too.
    """

    uri: str
    url: str
    torn: list[str] = field(default_factory=list)
    looks: int = 0

    def see(self) -> Seen:
        """Return what is published: output to epoch to rows."""
        found: Seen = {"rows": {}, "model": {}, "losses": {}, "summary": {}}
        for one in published(self.uri):
            batches = list(one.publication.batches())
            rows = sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())
            epochs, number = found[one.transaction.output], one.transaction.epoch
            assert number not in epochs, f"epoch {number} of {one.transaction.output!r} is published twice"
            epochs[number] = rows
        with closing(psycopg2.connect(dsn(self.url))) as connection, connection, connection.cursor() as cursor:
            for epoch, *row in _select(cursor, "SELECT epoch, name, value FROM losses ORDER BY epoch, name"):
                found["losses"].setdefault(epoch, []).append(tuple(row))
            for row in _select(cursor, "SELECT name, value FROM losses_summary ORDER BY name"):
                found["summary"].setdefault(EPOCHS - 1, []).append(tuple(row))
        return found

    def look(self) -> None:
        """See whether what is published is what `expected` says, of whichever epochs."""
        self.looks += 1
        for output, epochs in self.see().items():
            for epoch, rows in epochs.items():
                if rows != expected(output, epoch):
                    self.torn.append(f"{output} {epoch}: {rows}")

    def __enter__(self) -> Self:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        assert [] == self.torn, self.torn  # said, since nothing rewrites the asserts of this module
        assert self.looks > 2

    def _poll(self) -> None:
        """Look until it is over, or until something cannot be read: nobody hears of what a thread raises."""
        try:
            took = 0.0
            while not self._over.wait(took):
                began = time.monotonic()
                self.look()
                took = time.monotonic() - began
        except Exception as err:  # the end of a thread: whatever it is, the test is to fail of it  # noqa: BLE001
            self.torn.append(f"look {self.looks}: {err!r}")


def _select(cursor: psycopg2.extensions.cursor, statement: str) -> list[tuple[object, ...]]:
    try:
        cursor.execute("SAVEPOINT here")
        cursor.execute(statement)
    except psycopg2.errors.UndefinedTable:
        cursor.execute("ROLLBACK TO here")
        return []
    return list(cursor.fetchall())


def expected(output: str, epoch: int) -> list[tuple[object, ...]]:
    """Return what an undisturbed run publishes of an output in an epoch."""
    level = epoch + 1.0
    numbers = [(n, n * level) for n in range(ROWS)]
    losses = [("largest", (ROWS - 1) * level), ("sum", sum(raised for _, raised in numbers))]
    return {"rows": numbers, "losses": losses, "summary": losses, "model": [(level + 1.0,)]}[output]


WHOLE = {
    "rows": {epoch: expected("rows", epoch) for epoch in range(EPOCHS)},
    "model": {EPOCHS - 1: expected("model", EPOCHS - 1)},
    "losses": {epoch: expected("losses", epoch) for epoch in range(EPOCHS)},
    "summary": {EPOCHS - 1: expected("summary", EPOCHS - 1)},
}

TABLES = ["iteration_publications", "losses", "losses_summary"]  # and none that was left


def dsn(url: str) -> str:
    """Return what a driver connects by."""
    return connection_string(PostgresSink("t", url=url))


def tables(url: str) -> list[str]:
    """Return the tables that sinks have made in a database, those that they left included."""
    with closing(psycopg2.connect(dsn(url))) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT relname FROM pg_class WHERE relname ~ 'staging|losses|publications' AND relkind = 'r'")
        return sorted(name for (name,) in cursor.fetchall())


def clear(url: str) -> None:
    """Drop them."""
    with closing(psycopg2.connect(dsn(url))) as connection, connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS losses, losses_summary, iteration_publications")
