"""Which task runs which epochs, and what it does when it finds the run somewhere."""

from __future__ import annotations

import pytest

from iteration_lib.airflow.chain import Action, Progress, Slice, decide_action, plan_chain
from iteration_lib.errors import UsageError


def test_chain_cuts_epochs_by_position_and_fills_up_the_last_task() -> None:
    assert (
        Slice(first_epoch=0, end_epoch=10, name="e000"),
        Slice(first_epoch=10, end_epoch=20, name="e010"),
        Slice(first_epoch=20, end_epoch=30, name="e020"),
    ) == plan_chain(max_epochs=25, epochs_per_task=10)


def test_names_sort_as_the_tasks_run_beyond_a_thousand_epochs() -> None:
    names = [part.name for part in plan_chain(max_epochs=1200, epochs_per_task=100)]

    assert ("e0000", "e1100") == (names[0], names[-1])
    assert names == sorted(names)


@pytest.mark.parametrize(("max_epochs", "epochs_per_task"), [(0, 1), (5, 0), (-1, 1)])
def test_chain_without_epochs_is_the_users_mistake(max_epochs: int, epochs_per_task: int) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        plan_chain(max_epochs=max_epochs, epochs_per_task=epochs_per_task)


@pytest.mark.parametrize(
    ("last_durable", "is_terminated", "expected"),
    [
        (-1, False, Action.DRIVE),  # the first task of a new run has epochs of its own and of nobody before it
        (9, False, Action.DRIVE),
        (12, False, Action.DRIVE),  # a retry after three of its epochs
        (18, False, Action.DRIVE),
        (19, False, Action.PASS),
        (35, False, Action.PASS),  # cleared in the middle
        (5, True, Action.SKIP),
        (9, True, Action.SKIP),
        (10, True, Action.STOP),
        (14, True, Action.STOP),
        (19, True, Action.STOP),
        (20, True, Action.PASS),  # cleared in the middle of a run that has ended: those behind it have their epochs
    ],
)
def test_task_of_epochs_10_to_19_does_what_the_store_calls_for(
    *, last_durable: int, is_terminated: bool, expected: Action
) -> None:
    progress = Progress(last_durable_epoch=last_durable, is_terminated=is_terminated)

    assert expected is decide_action(progress, first_epoch=10, end_epoch=20)


@pytest.mark.parametrize(
    ("last_durable", "expected"),
    [(-1, Action.HALT), (9, Action.HALT), (18, Action.HALT), (19, Action.PASS), (35, Action.PASS)],
)
def test_task_of_a_run_that_is_stopped_halts_unless_its_epochs_are_durable(last_durable: int, expected: Action) -> None:
    progress = Progress(last_durable_epoch=last_durable, is_terminated=False, is_stopped=True)

    assert expected is decide_action(progress, first_epoch=10, end_epoch=20)
