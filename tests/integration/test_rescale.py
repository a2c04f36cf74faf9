"""May a run go on with another number of subtasks? From 8 to 3 and from 3 to 8, aligned and unaligned: the same bits.

With a checkpoint alone, behind durable edges inside an epoch, and as a branch; without Spark, and on it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iteration_lib.store.postgres import PostgresStore
from tests.command_line import CommandLine

pytestmark = pytest.mark.postgres

STEERED = "tests.iterations.steered:steered"
STATEFUL = "tests.iterations.stateful:stateful"
COUNTS = [(8, 3), (3, 8)]
_IS_NIGHTLY = os.environ.get("ITERATION_TEST_SIZE") == "nightly"
ON_SPARK = [(8, 3, "0"), (3, 8, None), (8, 3, None), (3, 8, "0")]


@pytest.fixture
def store(store_url: str) -> Iterator[PostgresStore]:
    opened = PostgresStore(store_url)
    yield opened
    opened.close()


@pytest.fixture
def shell(store_url: str, tmp_path: Path) -> CommandLine:
    return CommandLine(store_url=store_url, folder=tmp_path)


def own(shell: CommandLine, key: str) -> str:
    """Return a run's key that no other test has."""
    return f"{shell.folder.name}-{key}"


def run(shell: CommandLine, key: str, subtasks: int, *options: str, **environment: str) -> Any:
    """Run the steered iteration, of 16 buckets, with a number of subtasks for every operator that says no other."""
    desk = shell.folder / "desk"
    desk.mkdir(exist_ok=True)
    arguments = ["--parallelism", str(subtasks), "--param", f"desk={desk}", *options]
    return shell.call(
        "run", STEERED, "--run-key", own(shell, key), "--runner", "local", "--json", *arguments, **environment
    )


def records(store: PostgresStore, key: str) -> list[dict[str, int]]:
    """Return how many records every head fed back in each epoch."""
    found = store.find_run(key)
    assert found is not None
    return [
        {head: sum(count or 0 for count in counts) for head, counts in epoch.records.items()}
        for epoch in store.list_epochs(found.run_id)
        if epoch.durable_at is not None
    ]


def parts_of(store: PostgresStore, key: str, epoch: int) -> int:
    """Return in how many parts `shares` was left as a durable edge of an epoch, by whichever attempt."""
    found = store.find_run(key)
    assert found is not None
    parts = [part for part in store.list_parts(found.run_id) if (part.epoch, part.operator_id) == (epoch, "shares")]
    return len(parts)


@pytest.mark.parametrize("timeout", [None, "0"], ids=["aligned", "unaligned"])
@pytest.mark.parametrize(("before", "after"), COUNTS, ids=str)
def test_killed_run_goes_on_with_another_number_of_subtasks(
    shell: CommandLine, store: PostgresStore, before: int, after: int, timeout: str | None
) -> None:
    """It is killed inside epoch 2: behind the checkpoint of epoch 1, or behind edges that lack some buckets."""
    options = ("--alignment-timeout", timeout) if timeout is not None else ()
    undisturbed = run(shell, "undisturbed", 1).json
    point = "edge_marked@2" if timeout is not None else "epoch_written@2"

    killed = run(shell, "rescaled", before, *options, ITERATION_CRASH_POINT=f"{point}:kill")
    resumed = run(shell, "rescaled", after, *options)

    assert (-signal.SIGKILL, 0) == (killed.code, resumed.code), resumed.err
    assert undisturbed["state_digest"] == resumed.json["state_digest"]
    assert records(store, own(shell, "undisturbed")) == records(store, own(shell, "rescaled"))
    if timeout is not None:
        assert parts_of(store, own(shell, "rescaled"), 2) > 1, "nothing was marked before the kill"


@pytest.mark.parametrize(("before", "after"), COUNTS, ids=str)
def test_branch_begins_with_another_number_of_subtasks(shell: CommandLine, before: int, after: int) -> None:
    origin = run(shell, "origin", before)
    branched = shell.call("branch", f"{own(shell, 'origin')}@2", "--run-key", own(shell, "branch"))

    ended = run(shell, "branch", after)

    assert (0, 0, 0) == (origin.code, branched.code, ended.code), ended.err
    assert origin.json["state_digest"] == ended.json["state_digest"]


def test_other_number_of_buckets_is_refused(shell: CommandLine) -> None:
    """They are what the state is divided by, for the whole life of a run."""
    killed = run(shell, "buckets", 3, "--max-buckets", "16", ITERATION_CRASH_POINT="epoch_written@1:kill")

    refused = run(shell, "buckets", 8, "--max-buckets", "8")

    assert (-signal.SIGKILL, 2) == (killed.code, refused.code)
    assert "max_buckets was 16, now 8" in refused.err


@pytest.mark.spark
@pytest.mark.parametrize(("before", "after", "timeout"), ON_SPARK if _IS_NIGHTLY else ON_SPARK[:1])
def test_killed_run_goes_on_with_another_number_of_subtasks_on_spark(
    shell: CommandLine, before: int, after: int, timeout: str | None
) -> None:
    """Two variables, carried state and an operator that finishes for good; nobody disturbs the runner without Spark."""
    undisturbed = stateful(shell, "undisturbed", before, None, engine=("--runner", "local"))
    point = "edge_marked@2" if timeout is not None else "epoch_written@2"

    killed = stateful(shell, "rescaled", before, timeout, ITERATION_CRASH_POINT=f"{point}:kill")
    resumed = stateful(shell, "rescaled", after, timeout)

    assert (0, -signal.SIGKILL, 0) == (undisturbed.code, killed.code, resumed.code), resumed.err
    assert undisturbed.json["state_digest"] == resumed.json["state_digest"]


def stateful(
    shell: CommandLine,
    key: str,
    subtasks: int,
    timeout: str | None,
    *,
    engine: tuple[str, str] = ("--master", "local[2]"),
    **environment: str,
) -> Any:
    """Run the stateful iteration, of 16 buckets."""
    arguments = ["--param", f"log={shell.folder}", "--param", "max_epochs=4", *engine]
    arguments += ["--parallelism", str(subtasks), *(("--alignment-timeout", timeout) if timeout is not None else ())]
    counts = {"STATEFUL_SUBTASKS": f"{subtasks},{subtasks}"}
    return shell.call("run", STATEFUL, "--run-key", own(shell, key), "--json", *arguments, **counts, **environment)
