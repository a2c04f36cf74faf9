"""Does every row of docs/operations.md's table name an act that a test on real Airflow shows?"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHAIN, OPERATIONS, WATCH, CONNECT = (
    f"integration/test_airflow_{name}.py" for name in ("chain", "operations", "watch", "connect")
)
KILL = "failover/test_airflow_kill.py"
ENDS = (OPERATIONS, "whatever_ends_a_task_ends_its_spark_and_leaves_the_run_where_it_is_durable")
MARKED = "driver_that_is_marked_takes_its_spark_with_it_and_the_run_goes_on_to_the_bits_of_every_other_way"
KILLED = "driver_that_is_killed_takes_its_spark_with_it_and_its_retry_goes_on_to_the_same_bits"

# What the first cell begins with, in the table's order, and the tests that show its row.
ROWS = {
    "**retry** (by itself)": [
        (OPERATIONS, "retry_goes_on_behind_the_last_durable_epoch"),
        (CHAIN, "mistake_of_the_user_is_not_retried_and_says_what_to_change"),
    ],
    "**clear** a task that has ended": [
        (CHAIN, "epoch_4_that_fails_for_good_fails_the_rest_and_cleared_goes_on_from_there"),
        (CHAIN, "cleared_task_whose_epochs_are_durable_runs_nothing"),
    ],
    "**clear** `drive` alone": [
        (WATCH, "failed_driver_that_is_cleared_alone_ends_the_run_and_leaves_the_epochs_as_they_are"),
    ],
    "**clear** a task that runs": [
        (OPERATIONS, "task_that_is_cleared_while_it_runs_is_killed_and_goes_on_behind_the_last_durable_epoch"),
        (WATCH, "driver_that_is_cleared_alone_while_it_runs_goes_on_and_the_epochs_follow_it"),
    ],
    "**mark success** an epochs task": [
        (OPERATIONS, "epochs_of_a_failed_task_that_is_marked_as_success_are_run_by_the_next_one"),
        (WATCH, "failed_epoch_that_is_marked_as_success_has_the_next_one_drive_its_epoch_and_the_rest"),
    ],
    "**mark success** an epochs task that runs": [
        (OPERATIONS, "running_task_that_is_marked_as_success_is_killed_and_the_next_one_runs_its_epochs"),
        (WATCH, "epochs_that_are_cleared_or_marked_as_success_under_their_driver_leave_it_alone"),
    ],
    "**mark** `drive` (`watch`) that runs": [(WATCH, MARKED)],
    "**mark success** `drive` (`watch`) that has failed": [
        (WATCH, "driver_that_fails_for_good_fails_the_epoch_and_the_cleared_epoch_drives_the_rest"),
    ],
    "**mark success** the last epochs task": [
        (OPERATIONS, "run_whose_tasks_are_all_marked_as_success_publishes_nothing"),
    ],
    "**mark success** `finish`": [
        (OPERATIONS, "finish_that_is_marked_as_success_publishes_nothing_before_it_is_cleared"),
    ],
    "**mark failed** a task that runs": [ENDS],
    "**mark failed** the DAG run": [ENDS],
    "**delete** the DAG run": [
        (OPERATIONS, "deleted_dag_run_leaves_its_run_and_one_of_the_same_id_finds_it_again"),
    ],
    "**pause** the DAG": [
        (OPERATIONS, "paused_dag_lets_its_running_task_end_and_starts_no_other_until_it_is_let_go_on"),
    ],
    "**SIGTERM** to a task": [
        ENDS,
        (OPERATIONS, "task_that_is_told_to_end_is_no_success_and_its_retry_goes_on"),
    ],
    "**kill -9** of a task": [
        (KILL, "a_killed_task_takes_spark_with_it_and_its_retry_resumes_to_the_same_bits"),
        (KILL, "a_try_that_outlived_its_supervisor_ends_with_its_spark_once_its_retry_has_the_run"),
        (WATCH, KILLED),
        (CONNECT, "task_that_is_killed_on_a_connect_server_resumes_by_its_retry_to_the_bits_of_every_other_way"),
    ],
}


def test_every_row_of_the_table_is_listed_in_its_place() -> None:
    acts = re.findall(r"^\| (\*\*.*?) \|", (ROOT / "docs" / "operations.md").read_text(), re.MULTILINE)

    assert len(ROWS) == len(acts)
    assert [] == [(row, act) for row, act in zip(ROWS, acts, strict=True) if not act.startswith(row)]


@pytest.mark.parametrize("row", ROWS)
def test_tests_of_a_row_are_there(row: str) -> None:
    missing = [(file, name) for file, name in ROWS[row] if f"test_{name}" not in _functions(file)]

    assert [] == missing


def _functions(file: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
