"""What does the protocol know of a holder?"""

from __future__ import annotations

import dataclasses

import pytest

from iteration_lib.protocol.state import Holder
from tests.protocol_script import HOLDER


def task(name: str | None) -> Holder:
    return dataclasses.replace(HOLDER, task=name)


def test_holder_is_described_by_its_task_and_its_process() -> None:
    assert "process 7 on here" == HOLDER.describe()
    assert "km/manual/epochs.0/1 (process 7 on here)" == task("km/manual/epochs.0/1").describe()


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("km/manual/epochs.0/1", "km/manual/epochs.0/2", True),
        ("km/manual/epochs.0/1", "km/manual/publish/1", True),
        ("km/manual/epochs.0/1", "km/scheduled/epochs.0/1", False),
        ("km/manual/epochs.0/1", "other/manual/epochs.0/1", False),
        ("km/a/b/epochs.0/1", "km/a/c/epochs.0/1", False),
        ("km/manual/epochs.0/1", None, False),
        (None, "km/manual/epochs.0/1", False),
        (None, None, False),
    ],
)
def test_holders_are_of_one_dag_run_only_where_both_are_tasks_of_it(
    one: str | None, other: str | None, *, expected: bool
) -> None:
    assert expected is task(one).is_of_dag_run(task(other))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("km/manual/epochs.0/1", "km/manual/epochs.0/2", True),
        ("km/manual/epochs.0/1", "km/manual/epochs.1/1", False),
        ("km/manual/epochs.0/1", "km/scheduled/epochs.0/1", False),
        ("km/manual/epochs.0/1", None, False),
        (None, None, False),
    ],
)
def test_holders_are_of_one_task_only_where_both_are_tries_of_it(
    one: str | None, other: str | None, *, expected: bool
) -> None:
    assert expected is task(one).is_of_task(task(other))
