"""What do readers of sinks see while a run is driven, killed and resumed? On a real store, in this process.

The tables lie in the store's own database, and then in another one; the files in a local folder. A reader polls all the
while: whatever it sees of an epoch is the whole of it.
"""

from __future__ import annotations

import dataclasses
import re
import uuid
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest
from sqlalchemy.engine import make_url

from iteration_lib.errors import SinkTargetError
from iteration_lib.planning import plan_run
from iteration_lib.protocol.status import CheckpointStatus, RunStatus
from iteration_lib.sinks import PostgresSink
from iteration_lib.store.embedded import EmbeddedPostgres
from iteration_lib.store.postgres import PostgresStore
from tests.driven_here import KILL, Here, Killed, Script
from tests.iterations.publishing import publishing
from tests.sink_reader import EPOCHS, TABLES, WHOLE, Reader, clear, dsn, tables

pytestmark = pytest.mark.postgres
pytest.importorskip("adbc_driver_postgresql", reason="adbc-driver-postgresql is not installed")


@pytest.fixture(params=["the store's database", "another database"])
def here(request: pytest.FixtureRequest, empty_store: str, store: PostgresStore, tmp_path: Path) -> Here:
    return begin(store, tmp_path, url=empty_store if request.param == "another database" else "")


@pytest.fixture
def elsewhere(empty_store: str, store: PostgresStore, tmp_path: Path) -> Here:
    """A run whose tables lie in another database."""
    return begin(store, tmp_path, url=empty_store)


def begin(store: PostgresStore, folder: Path, *, url: str) -> Here:
    clear(store.url)
    return Here.begin(store, folder, publishing, uri=str(folder / "published"), table="losses", url=url)


def database_of(here: Here) -> str:
    return str(here.run.params["url"]) or here.store.url


def reader_of(here: Here) -> Reader:
    return Reader(uri=str(here.run.params["uri"]), url=database_of(here))


def test_every_epoch_is_published_once_it_is_durable(here: Here) -> None:
    with reader_of(here):
        run = here.drive()

    assert RunStatus.FINISHED is run.status
    assert WHOLE == reader_of(here).see()
    assert TABLES == tables(database_of(here))
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
    assert TABLES == tables(database_of(here))


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
        assert 2 < len(tables(database_of(here)))
        here.drive()

    assert WHOLE == reader_of(here).see()
    assert TABLES == tables(database_of(here))


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


def test_table_that_waits_is_not_looked_for_in_another_database(store: PostgresStore, elsewhere: Here) -> None:
    """Which would say at most that there is no staging table."""
    assert isinstance(elsewhere.drive_and_fail(script={"checkpoint_completed@1": KILL}), Killed)
    params = {**elsewhere.run.params, "url": ""}

    failure = dataclasses.replace(elsewhere, run=dataclasses.replace(elsewhere.run, params=params)).drive_and_fail()

    other, own = (PostgresSink("losses", url=url).describe() for url in (database_of(elsewhere), store.url))
    assert f"{other} waits for output 'losses' of epoch 1, which goes to {own} now" in str(failure)


def test_table_that_waits_is_filled_where_no_database_was_told_when_it_was_prepared(elsewhere: Here) -> None:
    """An older version told the table alone."""
    assert isinstance(elsewhere.drive_and_fail(script={"checkpoint_completed@1": KILL}), Killed)
    with closing(psycopg2.connect(dsn(elsewhere.store.url))) as connection, connection, connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")  # no trigger holds us back
        cursor.execute(
            "UPDATE committables SET target = 'the Postgres table public.losses' "
            "WHERE run_id = %s AND output = 'losses' AND committed_at IS NULL",
            [elsewhere.run.run_id],
        )
        assert 1 == cursor.rowcount

    run = elsewhere.drive()

    assert RunStatus.FINISHED is run.status
    assert WHOLE == reader_of(elsewhere).see()


def test_plan_says_what_the_next_attempt_commits_first(here: Here) -> None:
    assert isinstance(here.drive_and_fail(script={"checkpoint_completed@1": KILL}), Killed)

    planned = plan_run(here.store, here.found)

    waits = ["rows"] if here.run.params["url"] == "" else ["losses", "rows"]  # in the store nothing waits
    assert [(name, 1) for name in waits] == [(known.output, known.epoch) for known in planned.commits]


def test_run_in_a_store_that_was_restored_from_an_older_copy_shows_each_epoch_of_which_attempt_a_person_says(
    postgres_server: EmbeddedPostgres, elsewhere: Here
) -> None:
    """Another attempt makes an epoch durable once more, which is published already, in files and in a table."""
    elsewhere.drive(until_epoch=1)
    with closing(PostgresStore(copied(postgres_server, elsewhere.store))) as older:
        elsewhere.drive(until_epoch=2)
        restored = dataclasses.replace(elsewhere, store=older)
        assert isinstance(restored.drive_and_fail(script={"epoch_opened@1": KILL}), Killed)

        of_table = restored.drive_and_fail()
        execute(database_of(elsewhere), "DELETE FROM losses WHERE epoch = 1")
        execute(database_of(elsewhere), "DELETE FROM iteration_publications WHERE epoch = 1")
        of_files = restored.drive_and_fail()
        (pointer,) = re.findall(r"remove (\S+) \(or give output 'rows' of epoch 1 up", str(of_files))
        Path(pointer).unlink()
        run = restored.drive()

    assert "(or give output 'losses' of epoch 1 up, as docs/sinks.md says), then run" in str(of_table)
    said = "of epoch 1 already, published by attempt 2, and this is another one's, by attempt 3: the store was restored"
    assert [True, True] == [said in str(failure) for failure in (of_table, of_files)]
    assert RunStatus.FINISHED is run.status
    assert WHOLE == reader_of(elsewhere).see()
    assert TABLES == tables(database_of(elsewhere))


def copied(server: EmbeddedPostgres, store: PostgresStore) -> str:
    """Return the address of a copy of a store's database, as a dump that was restored is one."""
    store.close()  # a template has no connections
    found, name = make_url(store.url), f"copy_{uuid.uuid4().hex}"
    with closing(psycopg2.connect(dsn(server.url("postgres")))) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        cursor.execute(f"CREATE DATABASE {name} TEMPLATE {found.database}")
    return server.url(name)


def execute(url: str, statement: str) -> None:
    with closing(psycopg2.connect(dsn(url))) as connection, connection, connection.cursor() as cursor:
        cursor.execute(statement)
