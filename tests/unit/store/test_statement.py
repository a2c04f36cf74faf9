"""What does the server get to see of a named query?"""

from __future__ import annotations

import re

import pytest

from iteration_lib.store.query import queries
from iteration_lib.store.statement import Call

GUARD = {"run_id": "r", "fencing_token": 4}


def test_parameters_are_numbered_and_their_values_come_in_that_order() -> None:
    call = Call("set_run_status", {**GUARD, "failure": "f", "status": "FAILED", "terminated_by": None}, "[1,1]")

    statement = call.statement

    assert ("status", "terminated_by", "failure", "run_id", "fencing_token") == statement.parameters
    assert ["FAILED", None, "f", "r", 4] == call.values
    assert (
        "status = $1, terminated_by = $2, failure = $3\nWHERE run_id = $4 AND fencing_token = $5" in statement.prepare
    )
    assert "EXECUTE set_run_status(%s, %s, %s, %s, %s)" == statement.execute


def test_parameter_that_a_query_names_twice_is_given_once() -> None:
    call = Call("issue_token", GUARD, "[1,1]")

    assert ("fencing_token", "attempt_id", "run_id") == call.statement.parameters
    assert 2 == call.statement.prepare.count("$1")


def test_write_refuses_another_number_of_rows_and_names_itself() -> None:
    prepared = Call("touch_run", GUARD, "[1,1]").statement.prepare

    assert prepared.startswith("PREPARE touch_run AS WITH touched AS (UPDATE runs SET")
    assert "RETURNING 1)" in prepared
    assert "'touch_run touched ' || count(*)" in prepared


def test_number_of_rows_is_a_parameter_where_it_is_not_one() -> None:
    call = Call("touch_run", GUARD, "[2,3]")

    assert "touch_run_rows" == call.statement.name
    assert ("run_id", "fencing_token", "rows") == call.statement.parameters
    assert ["r", 4, "[2,3]"] == call.values


def test_write_that_begins_with_another_one_is_counted_by_its_last() -> None:
    prepared = Call("trigger_checkpoint", GUARD, "[1,1]").statement.prepare

    assert prepared.startswith("PREPARE trigger_checkpoint AS WITH issued AS (\n    UPDATE runs SET")
    assert "fencing_token\n), touched AS (INSERT INTO checkpoints" in prepared


def test_query_that_only_reads_is_prepared_as_it_is() -> None:
    prepared = Call("lock_run", {"run_id": "r"}).statement.prepare

    assert f"PREPARE lock_run AS {queries()['lock_run'].text.replace(':run_id', '$1')}" == prepared


@pytest.mark.parametrize("name", queries())
def test_name_of_a_query_is_one_that_a_session_can_keep_a_statement_by(name: str) -> None:
    assert re.fullmatch(r"[a-z][a-z_]{0,62}", name)


def test_no_query_holds_what_the_driver_would_take_for_a_parameter() -> None:
    assert [] == [name for name, query in queries().items() if "%" in query.text]
