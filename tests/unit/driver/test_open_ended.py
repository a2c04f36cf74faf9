"""What ends an open-ended iteration, and what does its data give meanwhile?"""

from __future__ import annotations

from pathlib import Path

import pytest

from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import InputError
from iteration_lib.protocol.status import RunStatus, TerminatedBy
from tests.driven_in_memory import InMemory
from tests.protocol_script import drains

# The queue has five rows, of which each epoch takes one; there is no epoch without a row to take.
SOURCE = """
from dataclasses import dataclass

import numpy as np

from iteration_lib import Iteration, parquet


@dataclass(frozen=True)
class Params:
    input: str
    broken: str


planned = Iteration("planned", params=Params, open_ended=True)


@planned.data
def points(params):
    return parquet(params.input, columns=["x"])


@planned.variable
def queue():
    return {"at": np.arange(5.0)}


@planned.operator
def left(queue, points, metrics):
    metrics.report("points", float(np.sum(2.0 ** points["x"])))
    taken = queue["at"][0]
    return {"at": queue["at"][queue["at"] > taken]}


planned.feedback(queue=left)
"""
ROWS = 8  # as InMemory.begin writes them
ALL = 2.0**ROWS - 1  # a bit for each row


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InMemory:
    monkeypatch.syspath_prepend(str(tmp_path))
    return InMemory.begin(tmp_path, SOURCE)


def seen(bench: InMemory) -> list[float]:
    """Return which rows of the data each epoch saw."""
    return [epoch.metrics["points"] for epoch in bench.store.list_epochs(bench.run.run_id)]


def test_open_ended_run_ends_with_the_epoch_that_feeds_nothing_back(bench: InMemory) -> None:
    run = bench.drive()

    ended = (RunStatus.FINISHED, 5, TerminatedBy.EMPTY_FEEDBACK, None)
    assert ended == (run.status, run.epochs, run.terminated_by, run.max_epochs)


def test_open_ended_run_ends_with_the_next_epoch_where_a_person_drains_it(bench: InMemory) -> None:
    bench.drive(until_epoch=2)
    Coordinator(bench.store).apply(bench.run.run_id, drains())

    run = bench.drive()

    assert (RunStatus.FINISHED, 3, TerminatedBy.DRAINED) == (run.status, run.epochs, run.terminated_by)


def test_data_of_an_open_ended_run_is_the_same_in_every_epoch(bench: InMemory) -> None:
    bench.drive(until_epoch=2)

    bench.drive(until_epoch=4)

    assert [ALL] * 4 == seen(bench)


def test_data_of_an_open_ended_run_may_not_grow_between_attempts(bench: InMemory) -> None:
    bench.drive(until_epoch=2)
    bench.write_input(ROWS + 1)

    with pytest.raises(InputError, match=r"points\.parquet has changed"):
        bench.drive()

    assert [ALL] * 2 == seen(bench)
