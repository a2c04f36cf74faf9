"""May a run, or a branch of it, go on with another number of subtasks? What 8 of them left 3 take up, and the reverse.

Variables and state in buckets, behind a checkpoint alone and behind durable edges inside an epoch: without Spark all
four ways, and a branch of each; at night on Spark as well. Always the same bits and the same counts. And a DataFrame
that feeds back, which has no buckets.
"""

from __future__ import annotations

import signal
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from iteration_lib.driver.restore import read_manifest
from iteration_lib.errors import OperatorFailedError
from iteration_lib.runner.seam import Runner
from iteration_lib.state.location import StateLocation
from iteration_lib.store.postgres import PostgresStore
from iteration_lib.store.record import RunRecord
from tests.command_line import CommandLine
from tests.kept_checkpoints import FreshRun
from tests.size import nightly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.postgres

STATEFUL = "tests.iterations.stateful:stateful"
SPREADING = "tests.iterations.spreading:spreading"
WITHOUT_SPARK = ("--runner", "local")
ON_SPARK = ("--master", "local[2]")
BUCKETED = {"fits", "pulls", "settling.state"}  # two variables, and the state of an operator on buckets
COUNTS = [(8, 3), (3, 8)]


@pytest.fixture
def shell(store_url: str, tmp_path: Path) -> CommandLine:
    return CommandLine(store_url=store_url, folder=tmp_path)


@pytest.fixture(scope="module")
def undisturbed(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return what a run says that nobody disturbs, of one subtask, without Spark."""
    return run(CommandLine(store_url=store_url, folder=tmp_path_factory.mktemp("undisturbed")), "run", 1).json


def own(shell: CommandLine, key: str) -> str:
    """Return a run's key that no other test has."""
    return f"{shell.folder.name}-{key}"


def run(
    shell: CommandLine,
    key: str,
    subtasks: int,
    timeout: str | None = None,
    *options: str,
    engine: tuple[str, str] = WITHOUT_SPARK,
    **environment: str,
) -> Any:
    """Run the stateful iteration for 4 epochs, with one number of subtasks for all that lies in its 16 buckets."""
    arguments = ["--param", "max_epochs=4", "--parallelism", str(subtasks), *engine, *options]
    arguments += ["--alignment-timeout", timeout] if timeout is not None else []
    counts = {"STATEFUL_SUBTASKS": f"{subtasks},{subtasks}"}
    return shell.call("run", STATEFUL, "--run-key", own(shell, key), "--json", *arguments, **counts, **environment)


def records(store: PostgresStore, run_id: str) -> list[dict[str, int]]:
    """Return how many records every head fed back in each durable epoch."""
    return [
        {head: sum(count or 0 for count in counts) for head, counts in epoch.records.items()}
        for epoch in store.list_epochs(run_id)
        if epoch.durable_at is not None
    ]


def parts_of_checkpoint(store: PostgresStore, shell: CommandLine, key: str) -> dict[str, int]:
    """Return in how many parts the newest checkpoint of a run holds each variable and state that lies in buckets."""
    found = store.find_run(own(shell, key))
    assert found is not None
    checkpoint = store.find_completed(found.run_id)
    assert checkpoint is not None
    manifest = read_manifest(StateLocation(found.state_uri).below(found.run_id), checkpoint)
    carried = {**manifest.variables, **manifest.states}
    return {name: len(stream.files) for name, stream in carried.items() if stream.kind == "buckets"}


def edges_of_epoch(store: PostgresStore, shell: CommandLine, key: str, epoch: int) -> dict[str, int]:
    """Return in how many parts the variables' next values are durable edges of an epoch."""
    found = store.find_run(own(shell, key))
    assert found is not None
    parts = [part.operator_id for part in store.list_parts(found.run_id) if part.epoch == epoch]
    return {name: parts.count(name) for name in ("fitted", "pulled") if name in parts}


@pytest.mark.parametrize("timeout", [None, "0"], ids=["aligned", "unaligned"])
@pytest.mark.parametrize(("before", "after"), COUNTS, ids=str)
def test_run_that_ended_and_a_branch_of_it_go_on_with_another_number_of_subtasks(
    shell: CommandLine, store: PostgresStore, undisturbed: Any, before: int, after: int, timeout: str | None
) -> None:
    """It ends inside epoch 2: behind the checkpoint of epoch 1 alone, or behind edges that lack some buckets as well.

    What starts the branch is that checkpoint, in both cases: the edges of an open epoch are its run's own.
    """
    failing = {"STATEFUL_FAILS_AT": "pulled 2 9"}

    ended = run(shell, "run", before, timeout, **failing)
    left = parts_of_checkpoint(store, shell, "run"), edges_of_epoch(store, shell, "run", 2)
    branched = shell.call("branch", own(shell, "run"), "--run-key", own(shell, "branch"), "--json")
    branch = run(shell, "branch", after, timeout)
    resumed = run(shell, "run", after, timeout)

    assert (1, 0, 0, 0) == (ended.code, branched.code, branch.code, resumed.code), branch.err + resumed.err
    edges = {"fitted": before, "pulled": before // 2} if timeout is not None else {}
    assert (dict.fromkeys(BUCKETED, before), edges) == left
    assert 2 == branched.json["epoch"]
    expected = records(store, undisturbed["run_id"])
    for key, answer in {"run": resumed.json, "branch": branch.json}.items():
        assert dict.fromkeys(BUCKETED, after) == parts_of_checkpoint(store, shell, key)
        assert undisturbed["state_digest"] == answer["state_digest"]
        first = 2 if key == "branch" else 0
        assert expected[first:] == records(store, answer["run_id"])


def test_other_number_of_buckets_is_refused(shell: CommandLine) -> None:
    """They are what the state is divided by, for the whole life of a run."""
    killed = run(shell, "buckets", 3, None, "--max-buckets", "16", ITERATION_CRASH_POINT="epoch_written@1:kill")

    refused = run(shell, "buckets", 8, None, "--max-buckets", "8")

    assert (-signal.SIGKILL, 2) == (killed.code, refused.code)
    assert "max_buckets was 16, now 8" in refused.err


@pytest.mark.spark
@nightly("on Spark tests/failover/test_durable_edges_on_spark.py goes on with fewer on every change")
@pytest.mark.parametrize(("before", "between"), COUNTS)
def test_killed_run_goes_on_with_another_number_of_subtasks_and_back_on_spark(
    shell: CommandLine, store: PostgresStore, undisturbed: Any, before: int, between: int
) -> None:
    """It is killed once an epoch is aligned and only the one before is durable; the first time that leaves edges."""
    first = run(shell, "run", before, "0", engine=ON_SPARK, ITERATION_CRASH_POINT="epoch_aligned@1:kill")
    left = parts_of_checkpoint(store, shell, "run"), edges_of_epoch(store, shell, "run", 1)
    second = run(shell, "run", between, engine=ON_SPARK, ITERATION_CRASH_POINT="epoch_aligned@3:kill")
    left_again = parts_of_checkpoint(store, shell, "run"), edges_of_epoch(store, shell, "run", 3)
    last = run(shell, "run", before, engine=ON_SPARK)

    assert (-signal.SIGKILL, -signal.SIGKILL, 0) == (first.code, second.code, last.code), last.err
    assert (dict.fromkeys(BUCKETED, before), {"fitted": before, "pulled": before}) == left
    assert (dict.fromkeys(BUCKETED, between), {}) == left_again
    assert dict.fromkeys(BUCKETED, before) == parts_of_checkpoint(store, shell, "run")
    assert undisturbed["state_digest"] == last.json["state_digest"]
    assert records(store, undisturbed["run_id"]) == records(store, last.json["run_id"])


@pytest.mark.spark
def test_run_on_data_frames_goes_on_with_another_number_of_partitions(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A DataFrame has no buckets: its rows go wherever Spark spreads them."""

    def open_runner(run: RunRecord, location: StateLocation, scratch: str) -> AbstractContextManager[Runner]:
        from iteration_lib.runner.spark import SparkRunner  # noqa: PLC0415 - most tests here need no Spark

        return closing(SparkRunner(spark, location, max_buckets=run.max_buckets, parallelism=2, scratch=scratch))

    def files(checkpoint_id: int) -> tuple[int, int]:
        (grains,) = fresh.checkpoint(checkpoint_id).manifest.variables.values()
        return len(grains.files), grains.rows

    monkeypatch.setenv("SPREADING_PARTITIONS", "8")
    expected = FreshRun.begin(tmp_path / "undisturbed", reference=SPREADING).drive(open_runner=open_runner)
    fresh = FreshRun.begin(tmp_path / "rescaled", reference=SPREADING)
    monkeypatch.setenv("SPREADING_FAILS_IN", "2")
    with pytest.raises(OperatorFailedError):
        fresh.drive(open_runner=open_runner)
    monkeypatch.delenv("SPREADING_FAILS_IN")
    monkeypatch.setenv("SPREADING_PARTITIONS", "3")

    finished = fresh.drive(open_runner=open_runner)

    assert ((8, 40), (3, 40)) == (files(2), files(4))
    assert expected.state_digest == finished.state_digest
