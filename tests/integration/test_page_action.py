"""What becomes of a run on which a viewer acts? On a real store, with the run's files."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import event
from sqlalchemy.engine import make_url

from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import CheckpointNotFoundError, RunNotStoppedError
from iteration_lib.protocol.event import RunDeleted
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.state import Holder, RunId
from iteration_lib.protocol.status import RunStatus
from iteration_lib.savepoint import open_savepoint
from iteration_lib.store.listing import RunFilter
from iteration_lib.store.postgres import PostgresStore
from iteration_lib.store.reader import open_reader
from iteration_lib.store.record import RunRecord
from iteration_ui import action
from iteration_ui.dry_run import DryRunError, environment_of, plan_of
from iteration_ui.runs_reading import RunsQuery, read_runs
from tests.driven_here import Here
from tests.failover.driven import wait_until
from tests.iterations.told import told
from tests.protocol_script import claim
from tests.store_script import a_run, added, an_origin, new_family

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.postgres


def found(store: PostgresStore, run_id: RunId) -> RunRecord:
    run = store.find_run(run_id)
    assert run is not None
    return run


def test_run_that_nobody_drives_is_stopped_at_once_and_resumed(store: PostgresStore) -> None:
    run_id = added(store)

    stopped = action.stop(store, found(store, run_id), by="ann")
    between = found(store, run_id).status
    resumed = action.resume(store, found(store, run_id), by="bob")

    assert "The run is stopped; 0 epochs are durable. Resume lets it go on." == stopped
    assert "The run may go on with epoch 0: clear the skipped tasks of its DAG run." == resumed
    assert (RunStatus.STOPPED, RunStatus.RUNNING) == (between, found(store, run_id).status)
    assert [("ann", "bob")] == [(stop.requested_by, stop.resumed_by) for stop in store.list_stops(run_id)]


def test_run_that_is_driven_is_asked_to_stop_and_says_who_asked_first(store: PostgresStore) -> None:
    run_id = added(store)
    Coordinator(store).apply(run_id, claim(family=new_family()))

    said = [action.stop(store, found(store, run_id), by=person) for person in ("ann", "bob")]

    assert ["The run stops after the epoch in progress, as ann has asked."] * 2 == said


def test_checkpoint_is_asked_for_in_the_viewers_name(store: PostgresStore) -> None:
    run_id = added(store)

    idle = action.checkpoint(store, found(store, run_id), by="ann")
    Coordinator(store).apply(run_id, claim(family=new_family()))
    live = action.checkpoint(store, found(store, run_id), by="bob")

    assert "The next epoch that aligns gets a checkpoint, once somebody drives the run." == idle
    assert "The next epoch that aligns gets a checkpoint." == live
    assert ["ann", "bob"] == [asked.requested_by for asked in store.list_requests(run_id)]


def test_run_that_is_not_stopped_is_not_resumed(store: PostgresStore) -> None:
    run_id = added(store)

    with pytest.raises(RunNotStoppedError):
        action.resume(store, found(store, run_id), by="ann")


def test_savepoint_is_a_folder_that_needs_no_store(store: PostgresStore, tmp_path: Path) -> None:
    here = Here.begin(store, tmp_path, told)
    here.drive(until_epoch=2)
    (checkpoint_id,) = [known.checkpoint_id for known in store.list_checkpoints(here.run.run_id) if known.epoch == 0]

    said = action.savepoint(store, here.found, checkpoint_id)

    what, separator, uri = said.partition(" is saved in ")
    assert (f"Checkpoint {checkpoint_id}", " is saved in ") == (what, separator)
    assert 0 == open_savepoint(uri).manifest.epoch


def test_checkpoint_is_pinned_in_the_viewers_name_and_released(store: PostgresStore) -> None:
    run = a_run()
    an_origin(store, run, epoch=1)

    pinned = action.pin(store, found(store, run.run_id), 1, by="ann")
    between = Coordinator(store).discard(run.run_id, CheckpointPolicy(retain_last=1))
    (kept, _) = store.list_checkpoints(run.run_id)
    released = action.release(store, found(store, run.run_id), 1)

    assert "Checkpoint 1 is kept until somebody releases it." == pinned
    assert ((), "ann", False) == (between, kept.by_person, kept.safe_to_delete)
    assert "Checkpoint 1 is released: retention decides on it again." == released
    assert (1,) == Coordinator(store).discard(run.run_id, CheckpointPolicy(retain_last=1))


def test_checkpoint_that_is_not_there_any_more_is_not_pinned(store: PostgresStore) -> None:
    run = a_run()
    an_origin(store, run, epoch=1)
    Coordinator(store).discard(run.run_id, CheckpointPolicy(retain_last=1))

    with pytest.raises(CheckpointNotFoundError, match=r"checkpoint 1 of run .* has no files, or none any more"):
        action.pin(store, found(store, run.run_id), 1, by="ann")


def test_savepoint_now_of_a_driven_run_is_of_the_next_epoch_and_is_asked_for_once(
    store: PostgresStore, tmp_path: Path
) -> None:
    here = Here.begin(store, tmp_path, told)
    request_id = str(uuid.uuid4())
    said: list[str | None] = []

    def ask() -> None:
        said.append(action.savepoint_now(store, here.found, by="ann", request_id=request_id))

    def ask_again_once_epoch_1_is_durable() -> None:
        wait_until(lambda: here.found.last_durable_epoch == 1, "epoch 1 to be durable")
        ask()

    script = {"epoch_opened@1": ask, "epoch_opened@2": ask_again_once_epoch_1_is_durable}
    here.drive(until_epoch=3, every_epochs=100, script=script)

    (asked,) = store.list_requests(here.run.run_id)
    waiting, saved = said
    assert (None, "ann", True) == (waiting, asked.requested_by, f"Checkpoint {asked.checkpoint_id} is" in str(saved))
    assert 1 == open_savepoint(str(saved).rpartition(" ")[2]).manifest.epoch


def test_savepoint_now_of_a_run_that_nobody_drives_is_of_its_newest_checkpoint(
    store: PostgresStore, tmp_path: Path
) -> None:
    here = Here.begin(store, tmp_path, told)
    here.drive(until_epoch=2)

    said = action.savepoint_now(store, here.found, by="ann", request_id=str(uuid.uuid4()))

    assert 1 == open_savepoint(str(said).rpartition(" ")[2]).manifest.epoch
    assert () == tuple(store.list_requests(here.run.run_id))


def test_run_whose_driver_died_on_another_machine_is_saved_from_its_newest_checkpoint(
    store: PostgresStore, tmp_path: Path
) -> None:
    """Nobody here can see that the process is gone; that its lease has run out, everybody can."""
    here = Here.begin(store, tmp_path, told)
    here.drive(until_epoch=2)
    elsewhere = Holder(host="another-machine", pid=7, process_started="1")
    dead = dataclasses.replace(claim(2, family=new_family()), holder=elsewhere, lease_ttl_seconds=0.0)
    Coordinator(store).apply(here.run.run_id, dead)

    said = action.savepoint_now(store, here.found, by="ann", request_id=str(uuid.uuid4()))
    asked = store.list_requests(here.run.run_id)
    checkpoint = action.checkpoint(store, here.found, by="ann")

    assert 1 == open_savepoint(str(said).rpartition(" ")[2]).manifest.epoch
    assert () == tuple(asked)
    assert "The next epoch that aligns gets a checkpoint, once somebody drives the run." == checkpoint


def test_dry_run_says_what_the_command_says_and_starts_nothing(
    store: PostgresStore, store_url: str, tmp_path: Path
) -> None:
    here = Here.begin(store, tmp_path, told)
    here.drive(until_epoch=2)
    attempts = store.list_attempts(here.run.run_id)

    planned = plan_of(here.run.run_id, store_url=store_url, dags_folder=str(ROOT))

    assert (here.run.run_key, "run epoch 2", 1, []) == (
        planned["run_key"],
        planned["next"],
        planned["checkpoint"]["epoch"],
        planned["refusals"],
    )
    assert attempts == store.list_attempts(here.run.run_id)


def test_dry_run_that_cannot_import_the_iteration_says_where_it_can_be_had(
    store: PostgresStore, store_url: str
) -> None:
    run_id = added(store)

    with pytest.raises(DryRunError, match=f"team.km(.|\n)*at hand: iteration plan {run_id}"):
        plan_of(run_id, store_url=store_url, dags_folder="/nowhere")


def test_dry_run_gets_none_of_airflows_settings() -> None:
    given = {"AIRFLOW__CORE__FERNET_KEY": "secret", "AIRFLOW_CONN_X": "secret", "PYTHONPATH": "/mine", "HOME": "/me"}

    environment = environment_of(given, store_url="postgresql://h/d", dags_folder="/dags")

    path = environment.pop("PYTHONPATH").split(":")
    address = "postgresql://h/d?options=-c+default_transaction_read_only%3Don"
    assert {"HOME": "/me", "ITERATION_STORE_URL": address} == environment
    assert ("/dags", True) == (path[-1], len(path) > 1)


@pytest.mark.parametrize("asked", ["", "-c search_path=public"], ids=["as it is", "with options of its own"])
def test_process_of_a_dry_run_cannot_write_to_the_store(store_url: str, asked: str) -> None:
    """The login of this test owns every table."""
    asking = make_url(store_url).update_query_dict({"options": asked} if asked else {})
    write = "from tests.store_script import a_run; open_store(settings_of(None)).__enter__().add_run(a_run())"

    ended = subprocess.run(
        [sys.executable, "-c", f"from iteration_lib.cli.plan import open_store, settings_of; {write}"],
        env=environment_of(os.environ, store_url=asking.render_as_string(hide_password=False), dags_folder=str(ROOT)),
        capture_output=True,
        text=True,
        check=False,
    )

    assert 1 == ended.returncode
    assert "cannot execute INSERT in a read-only transaction" in ended.stderr


def test_runs_that_are_not_there_any_more_take_no_colour_from_those_that_are(store: PostgresStore) -> None:
    """One is another viewer's, one is deleted: of the nine others eight have a colour, in the order of the choice."""
    runs = [a_run(f"chosen/{number:02d}") for number in range(10)]
    others = [a_run("theirs/0"), *runs]
    for run in others:
        assert store.add_run(run)
    Coordinator(store).apply(runs[0].run_id, RunDeleted(deleted_by="ann"))
    query = RunsQuery(compare=tuple(run.run_id for run in others))

    found = read_runs(store, query, readable=RunFilter(prefixes=["chosen"]))

    assert {run.run_key for run in runs[1:9]} == {run.run_key for run in found.compared}
    assert 1 == found.too_many


def test_page_of_a_thousand_runs_is_read_with_few_queries(store_url: str, store: PostgresStore) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: store.add_run(a_run(f"many/{number:04d}")), range(1000)))
    reader = open_reader(store_url)
    asked: list[str] = []
    event.listen(reader._engine, "before_cursor_execute", lambda *call: asked.append(call[2]))
    everything = RunFilter(prefixes=["many"])
    one, two = (run.run_id for run in read_runs(reader, RunsQuery(), readable=everything).listing.runs[:2])
    asked.clear()

    found = read_runs(reader, RunsQuery(page=20, compare=(one, two)), readable=everything)

    assert (50, 1000, 2) == (len(found.listing.runs), found.listing.total, len(found.compared))
    assert 4 == len(asked)
    reader.close()
