"""What does putting the rooms together promise, where things are not as they should be?"""

from __future__ import annotations

import sys
import uuid
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import iteration_lib
from iteration_lib.config import Settings
from iteration_lib.engine import Engine, EngineKind
from iteration_lib.errors import InputError, RunMismatchError
from iteration_lib.launch import Drive, Request, RunnerFactory, drive_run, open_run
from iteration_lib.process import this_holder
from iteration_lib.protocol.status import RunStatus, TerminatedBy
from iteration_lib.runner.seam import Runner
from iteration_lib.runner.spark import SparkRunner
from iteration_lib.state.location import StateLocation
from iteration_lib.store.postgres import PostgresStore
from iteration_lib.store.record import RunRecord

LOCAL = Engine(kind=EngineKind.LOCAL)
KMEANS = "iteration_lib.library.kmeans:kmeans"
PROJECT = Path(__file__).parents[2]
SURPLUS = """

@counted.operator
def surplus(moved: Any) -> Any:
    return moved
"""
COUNTED = "tests.iterations.counted:counted"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Keep state in a folder of the test's own."""
    return Settings(store_url=None, state_uri=str(tmp_path / "state"))


def drive(store: PostgresStore, settings: Settings, run: RunRecord, open_runner: RunnerFactory) -> RunRecord:
    """Drive a run to its end."""
    return drive_run(store, settings, run, Drive(holder=this_holder(), open_runner=open_runner, parallelism=2))


def test_mistyped_input_is_named_and_uses_up_no_run_key(
    store: PostgresStore, settings: Settings, tmp_path: Path
) -> None:
    """The same key works once the path is right: nothing was written for the wrong one."""
    key = uuid.uuid4().hex

    with pytest.raises(InputError, match=r"typo\.parquet"):
        open_run(
            store, settings, Request(reference=KMEANS, run_key=key, params={"input": str(tmp_path / "typo.parquet")})
        )

    assert store.find_run(key) is None


def test_run_that_was_finished_meanwhile_is_returned_as_it_is(
    store: PostgresStore, settings: Settings, tmp_path: Path
) -> None:
    """Who lost the race is told the result, and not that something is wrong."""
    request = Request(reference=COUNTED, run_key=uuid.uuid4().hex, params={"log": str(tmp_path / "log")})
    run = open_run(store, settings, request)
    finished = drive(store, settings, run, LOCAL.open_runner)

    again = drive(store, settings, run, LOCAL.open_runner)

    assert RunStatus.FINISHED is finished.status
    assert finished == again


def test_run_that_terminates_is_published_though_its_operators_have_changed(
    store: PostgresStore, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No epoch is left that would be computed with the new ones."""
    source, module = (PROJECT / "tests/iterations/counted.py").read_text(), tmp_path / "my_ended.py"
    module.write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    request = Request(reference="my_ended:counted", run_key=uuid.uuid4().hex, params={"log": str(tmp_path / "log")})
    run = open_run(store, settings, request)
    unpublished = Drive(holder=this_holder(), open_runner=LOCAL.open_runner, parallelism=2, publish=False)
    terminating = drive_run(store, settings, run, unpublished)
    module.write_text(f"{source}{SURPLUS}")
    monkeypatch.delitem(sys.modules, "my_ended")

    finished = drive(store, settings, terminating, LOCAL.open_runner)

    assert [RunStatus.TERMINATING, RunStatus.FINISHED] == [terminating.status, finished.status]
    assert terminating.definition == finished.definition


def test_another_state_location_for_a_run_is_refused(store: PostgresStore, settings: Settings, tmp_path: Path) -> None:
    """A run's state does not move because a flag changed."""
    key, params = uuid.uuid4().hex, {"log": str(tmp_path / "log")}
    open_run(store, settings, Request(reference=COUNTED, run_key=key, params=params))

    with pytest.raises(RunMismatchError, match="state location was"):
        open_run(
            store,
            settings,
            Request(reference=COUNTED, run_key=key, params=params, state_uri=str(tmp_path / "elsewhere")),
        )


def test_output_without_rows_is_published_with_its_columns(
    store: PostgresStore,
    store_url: str,
    settings: Settings,
    spark: SparkSession,
) -> None:
    """A frontier that runs empty terminates its run, which finishes like any other."""

    def open_runner(run: RunRecord, location: StateLocation, scratch: str) -> AbstractContextManager[Runner]:
        return closing(SparkRunner(spark, location, max_buckets=run.max_buckets, parallelism=2))

    request = Request(reference="tests.iterations.emptying:emptying", run_key=uuid.uuid4().hex)

    ended = drive(store, settings, open_run(store, settings, request), open_runner)

    assert (RunStatus.FINISHED, TerminatedBy.EMPTY_FEEDBACK, 3) == (ended.status, ended.terminated_by, ended.epochs)
    frontier = iteration_lib.load(ended.run_key, store=store_url)["frontier"]
    assert (["id"], 0) == (frontier.schema.names, frontier.num_rows)
