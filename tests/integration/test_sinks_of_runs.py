"""What do readers of sinks see while a run is driven, killed and resumed? On a real store, in this process.

The tables lie in the store's own database, and then in another one; the files in a local folder. A reader polls all the
while: whatever it sees of an epoch is the whole of it.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psycopg2
import psycopg2.errors
import pytest

from iteration_lib.errors import SinkTargetError
from iteration_lib.protocol.status import CheckpointStatus, RunStatus
from iteration_lib.sinks import PostgresSink, published
from iteration_lib.sinks.postgres_session import connection_string
from iteration_lib.store.postgres import PostgresStore
from tests.driven_here import KILL, Here, Killed, Script
from tests.iterations.publishing import ROWS, publishing

pytestmark = pytest.mark.postgres
pytest.importorskip("adbc_driver_postgresql", reason="adbc-driver-postgresql is not installed")

EPOCHS = 4
TABLE = "losses"
Seen = dict[str, dict[int, list[tuple[object, ...]]]]


@dataclass
class Reader:
    """Looks at every target, again and again, and keeps what it saw that was not whole."""

    uri: str
    database: str
    torn: list[str] = field(default_factory=list)
    looks: int = 0

    def see(self) -> Seen:
        """Return what is published: output to epoch to rows."""
        found: Seen = {"rows": {}, "model": {}, "losses": {}, "summary": {}}
        for one in published(self.uri):
            batches = list(one.publication.batches())
            rows = sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())
            assert one.transaction.epoch not in found[one.transaction.output]
            found[one.transaction.output][one.transaction.epoch] = rows
        with closing(psycopg2.connect(self.database)) as connection, connection, connection.cursor() as cursor:
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
        assert self.looks > 2
        assert [] == self.torn

    def _poll(self) -> None:
        while not self._over.is_set():
            self.look()


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


@pytest.fixture(scope="module")
def store(store_url: str) -> Iterator[PostgresStore]:
    with closing(PostgresStore(store_url)) as opened:
        yield opened


@pytest.fixture(params=["the store's database", "another database"])
def here(request: pytest.FixtureRequest, empty_store: str, store: PostgresStore, tmp_path: Path) -> Here:
    url = empty_store if request.param == "another database" else ""
    _clear(store.url)
    return Here.begin(store, tmp_path, publishing, uri=str(tmp_path / "published"), table=TABLE, url=url)


def _clear(database: str) -> None:
    with closing(psycopg2.connect(_dsn(database))) as connection, connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS losses, losses_summary, iteration_publications")


def _dsn(url: str) -> str:
    return connection_string(PostgresSink("t", url=url))


def reader_of(here: Here) -> Reader:
    return Reader(uri=str(here.run.params["uri"]), database=_dsn(str(here.run.params["url"]) or here.store.url))


def tables_of(here: Here) -> list[str]:
    """Return the tables that sinks have made, those that they left included."""
    with closing(psycopg2.connect(reader_of(here).database)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT relname FROM pg_class WHERE relname ~ 'staging|losses|publications' AND relkind = 'r'")
        return sorted(name for (name,) in cursor.fetchall())


def test_every_epoch_is_published_once_it_is_durable(here: Here) -> None:
    with reader_of(here):
        run = here.drive()

    assert RunStatus.FINISHED is run.status
    assert WHOLE == reader_of(here).see()
    assert ["iteration_publications", "losses", "losses_summary"] == tables_of(here)
    stored = here.store.list_committables(run.run_id)
    assert [True] * (2 * EPOCHS + 2) == [known.committed_at is not None for known in stored]


DEATHS: dict[str, Script] = {
    "before anything is prepared": {"outputs_written@1": KILL},
    "with something prepared": {"sink_prepared@1": KILL},
    "with all prepared": {"manifest_written@1": KILL},
    "when it is stored": {"checkpoint_completed@1": KILL},
    "when some is committed": {"sink_committed@1": KILL},
    "with something of the end prepared": {"sink_prepared@3": KILL},
    "when the end is stored": {"checkpoint_completed@3": KILL},
    "when some of the end is committed": {"sink_committed@3": KILL},
}


@pytest.mark.parametrize("script", DEATHS.values(), ids=DEATHS)
def test_run_that_was_killed_publishes_what_an_undisturbed_one_does(here: Here, script: Script) -> None:
    with reader_of(here):
        assert isinstance(here.drive_and_fail(script=script), Killed)
        early = epochs_seen(here) - durable(here)
        run = here.drive()

    assert set() == early
    assert RunStatus.FINISHED is run.status
    assert WHOLE == reader_of(here).see()
    assert ["iteration_publications", "losses", "losses_summary"] == tables_of(here)


def epochs_seen(here: Here) -> set[int]:
    return {epoch for epochs in reader_of(here).see().values() for epoch in epochs}


def durable(here: Here) -> set[int]:
    return set(range(here.found.epochs))


def test_attempt_that_dies_while_it_aborts_leaves_the_rest_to_the_next(here: Here) -> None:
    """Two epochs are void: of both something was prepared."""
    options = {"every_epochs": 3, "script": {"manifest_written@2": KILL}}
    with reader_of(here):
        assert isinstance(here.drive_and_fail(**options), Killed)
        assert isinstance(here.drive_and_fail(script={"sink_aborted@0": KILL}), Killed)
        assert 2 < len(tables_of(here))
        here.drive()

    assert WHOLE == reader_of(here).see()
    assert ["iteration_publications", "losses", "losses_summary"] == tables_of(here)


@pytest.mark.parametrize("checkpointing", [{"every_epochs": 3}, {"max_pending": 2}], ids=["rare", "two at once"])
def test_checkpoint_publishes_every_epoch_that_it_covers(here: Here, checkpointing: dict[str, int]) -> None:
    with reader_of(here):
        here.drive(**checkpointing)

    assert WHOLE == reader_of(here).see()
    assert [] == sorted((here.folder / "outputs" / "losses").iterdir())[:-1], "files that were prepared lie here still"


def test_epochs_of_a_checkpoint_that_failed_are_published_with_the_next(here: Here) -> None:
    """A file lies where the sink needs a folder, until epoch 2."""
    place = Path(str(here.run.params["uri"])) / "_data"
    script = {"epoch_opened@0": lambda: place.write_text("in the way"), "epoch_written@2": place.unlink}

    with reader_of(here):
        here.drive(script=script, tolerable_failures=2)

    assert WHOLE == reader_of(here).see()
    assert CheckpointStatus.ABORTED is here.checkpoints[0].status


def test_sink_that_cannot_be_used_is_found_out_before_the_first_epoch(here: Here) -> None:
    place = Path(str(here.run.params["uri"]))
    place.write_text("in the way")

    failure = here.drive_and_fail()

    assert isinstance(failure, SinkTargetError)
    assert [] == here.epochs


def test_epochs_of_one_attempt_are_committed_before_it_ends(here: Here) -> None:
    with reader_of(here):
        here.drive(until_epoch=2)
        seen = reader_of(here).see()
        here.drive()

    assert ({0, 1}, {0, 1}, set()) == (set(seen["rows"]), set(seen["losses"]), set(seen["model"]))
    assert WHOLE == reader_of(here).see()


def test_output_that_waits_for_its_sink_is_not_sent_to_another_one(here: Here) -> None:
    assert isinstance(here.drive_and_fail(script={"checkpoint_completed@1": KILL}), Killed)
    moved = dataclasses.replace(
        here, run=dataclasses.replace(here.run, params={**here.run.params, "uri": "/elsewhere"})
    )

    failure = moved.drive_and_fail()

    assert isinstance(failure, SinkTargetError)
    assert f"the Parquet folder {here.run.params['uri']} waits for output 'rows' of epoch 1" in str(failure)
    assert [0] == sorted(reader_of(here).see()["rows"])
