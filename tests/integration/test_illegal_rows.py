"""Does Postgres itself refuse every illegal row and step? Statements that no code of ours sends, one per rule.

Each is refused by the constraint or the guard that it names: with that one dropped, the same statement passes.
"""
# ruff: noqa: S608 - every part of these statements is written here

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

import psycopg2
import psycopg2.errors
import pytest
from sqlalchemy.engine import make_url

from iteration_lib.coordinator import Coordinator
from iteration_lib.protocol import Event
from iteration_lib.protocol.status import CheckpointStatus, EpochStatus, RunStatus
from iteration_lib.store.postgres import PostgresStore
from tests.protocol_script import Sender, claim
from tests.store_script import added, new_family

pytestmark = pytest.mark.postgres

SHA = f"'{'ab' * 32}'"


@dataclass(frozen=True, slots=True)
class Illegal:
    """A statement, and the constraint or index (else the guard's words) that refuses it."""

    rule: str
    statement: str
    instead: tuple[str, ...] = field(default=())  # what has to go too before it would pass


# What a new row holds where a statement does not say otherwise: it is legal as it is.
NEW_ROWS = {
    "runs": {
        "run_id": "gen_random_uuid()",
        "run_key": "'key'",
        "reference": "'m:o'",
        "definition": "'{}'",
        "params": "'{}'",
        "state_uri": "'/s'",
        "max_buckets": "1",
    },
    "attempts": {
        "run_id": "%(run)s",
        "fencing_token": "3",
        "attempt_id": "gen_random_uuid()",
        "holder": "'{}'",
        "lease_expires_at": "now()",
        "ended_at": "now()",
        "outcome": "'RELEASED'",
    },
    "operators": {
        "run_id": "%(run)s",
        "operator_id": "'more'",
        "position": "9",
        "name": "'more'",
        "role": "'operator'",
        "kind": "'value'",
    },
    "epochs": {"run_id": "%(run)s", "epoch": "9", "fencing_token": "2", "expected_reports": "1", "status": "'VOIDED'"},
    "checkpoints": {
        "run_id": "%(run)s",
        "checkpoint_id": "9",
        "epoch": "2",
        "fencing_token": "2",
        "kind": "'PERIODIC'",
        "expected": "1",
    },
}


def insert(table: str, **columns: str) -> str:
    """A new row, legal but for these columns."""
    named = {**NEW_ROWS[table], **columns}
    return f"INSERT INTO {table} ({', '.join(named)}) VALUES ({', '.join(named.values())})"


def run_with(**columns: str) -> str:
    return insert("runs", **columns)


def attempt_with(**columns: str) -> str:
    return insert("attempts", **columns)


def operator_with(**columns: str) -> str:
    return insert("operators", **columns)


def epoch_with(**columns: str) -> str:
    return insert("epochs", **columns)


def checkpoint_with(**columns: str) -> str:
    return insert("checkpoints", **columns)


def set_run(which: str, columns: str) -> str:
    return f"UPDATE runs SET {columns} WHERE run_id = %({which})s"


def set_epoch(number: int, columns: str, token: int = 2) -> str:
    return f"UPDATE epochs SET {columns} WHERE run_id = %(run)s AND epoch = {number} AND fencing_token = {token}"


def set_checkpoint(number: int, columns: str) -> str:
    return f"UPDATE checkpoints SET {columns} WHERE run_id = %(run)s AND checkpoint_id = {number}"


def set_attempt(token: int, columns: str) -> str:
    return f"UPDATE attempts SET {columns} WHERE run_id = %(run)s AND fencing_token = {token}"


def set_operator(operator_id: str, columns: str) -> str:
    return f"UPDATE operators SET {columns} WHERE run_id = %(run)s AND operator_id = '{operator_id}'"


DONE = f"acknowledged = 1, manifest_path = 'p', manifest_sha256 = {SHA}, size_bytes = 1, ended_at = now()"

CONSTRAINTS = {
    # runs
    "a run's id twice": Illegal("runs_pkey", run_with(run_id="%(run)s")),
    "a run's key twice": Illegal("runs_run_key_key", run_with(run_key="%(key)s")),
    "a run without a key": Illegal("runs_run_key_check", run_with(run_key="''")),
    "a run without buckets": Illegal("runs_max_buckets_check", run_with(max_buckets="0")),
    "a run of no epoch": Illegal("runs_max_epochs_check", run_with(max_epochs="0")),
    "a run of unknown status": Illegal("runs_status_check", run_with(status="'PAUSED'")),
    "a negative token": Illegal("runs_fencing_token_check", run_with(fencing_token="-1")),
    "a durable epoch below none": Illegal("runs_last_durable_epoch_check", run_with(last_durable_epoch="-2")),
    "an unknown rule of termination": Illegal(
        "runs_terminated_by_check", run_with(status="'FAILED'", failure="'x'", terminated_by="'luck'")
    ),
    "terminating by no rule": Illegal(
        "runs_terminating_check", run_with(status="'TERMINATING'", last_durable_epoch="0")
    ),
    "terminating without a durable epoch": Illegal(
        "runs_terminating_check", run_with(status="'TERMINATING'", terminated_by="'criteria'")
    ),
    "running on after termination": Illegal("runs_running_check", run_with(terminated_by="'criteria'")),
    "finished without outputs": Illegal(
        "runs_finished_check", set_run("terminating", "status = 'FINISHED', state_digest = 'd', finished_at = now()")
    ),
    "finished without a digest": Illegal(
        "runs_finished_check", set_run("terminating", "status = 'FINISHED', outputs = '{}', finished_at = now()")
    ),
    "finished at no time": Illegal(
        "runs_finished_check", set_run("terminating", "status = 'FINISHED', outputs = '{}', state_digest = 'd'")
    ),
    "outputs before the end": Illegal("runs_finished_check", set_run("run", "outputs = '{}'")),
    "a digest before the end": Illegal("runs_finished_check", set_run("terminating", "state_digest = 'd'")),
    "an end before the end": Illegal("runs_finished_check", set_run("terminating", "finished_at = now()")),
    "a failure without a reason": Illegal("runs_failure_check", set_run("run", "status = 'FAILED'")),
    "a reason without a failure": Illegal("runs_failure_check", set_run("run", "failure = 'x'")),
    # attempts
    "a token twice": Illegal("attempts_pkey", attempt_with(fencing_token="1")),
    "an attempt's id twice": Illegal("attempts_attempt_id_key", attempt_with(attempt_id="%(attempt)s")),
    "an attempt of no run": Illegal("attempts_run_id_fkey", attempt_with(run_id="gen_random_uuid()")),
    "a token below the first": Illegal("attempts_fencing_token_check", attempt_with(fencing_token="0")),
    "an unknown outcome": Illegal("attempts_outcome_check", attempt_with(outcome="'LOST'")),
    "an end without an outcome": Illegal("attempts_ended_check", attempt_with(outcome="NULL")),
    "an outcome without an end": Illegal(
        "attempts_ended_check", attempt_with(ended_at="NULL"), instead=("attempts_live_key",)
    ),
    "two live attempts": Illegal("attempts_live_key", attempt_with(ended_at="NULL", outcome="NULL")),
    # operators and pins
    "an operator twice": Illegal("operators_pkey", operator_with(operator_id="'scaled'")),
    "an operator of no run": Illegal("operators_run_id_fkey", operator_with(run_id="gen_random_uuid()")),
    "an operator's unknown role": Illegal("operators_role_check", operator_with(role="'sink'")),
    "an operator's unknown kind": Illegal("operators_kind_check", operator_with(kind="'stream'")),
    "a marker without its files": Illegal(
        "operators_finished_check", operator_with(finished_epoch="0", fencing_token="2", finished_at="now()")
    ),
    "files without a marker": Illegal("operators_finished_check", operator_with(output="'{}'")),
    "a marker of no attempt": Illegal(
        "operators_attempt_fkey",
        operator_with(finished_epoch="0", fencing_token="7", finished_at="now()", output="'{}'"),
    ),
    "a pin twice": Illegal("pins_pkey", "INSERT INTO pins VALUES (%(run)s, 'points', 2, 'f', '{}')"),
    "a pin of no run": Illegal(
        "pins_run_id_fkey", "INSERT INTO pins VALUES (gen_random_uuid(), 'x', 2, 'f', '{}')", ("pins_attempt_fkey",)
    ),
    "a pin of no attempt": Illegal("pins_attempt_fkey", "INSERT INTO pins VALUES (%(run)s, 'x', 7, 'f', '{}')"),
    # epochs
    "an epoch twice under one token": Illegal("epochs_pkey", epoch_with(epoch="1", fencing_token="1")),
    "an epoch of no attempt": Illegal("epochs_attempt_fkey", epoch_with(fencing_token="7")),
    "an epoch before the first": Illegal("epochs_epoch_check", epoch_with(epoch="-1")),
    "an epoch of unknown status": Illegal("epochs_status_check", epoch_with(status="'BEGUN'")),
    "fewer reports than none": Illegal("epochs_reports_check", set_epoch(2, "reports = -1")),
    "more reports than subtasks": Illegal("epochs_reports_check", set_epoch(2, "reports = 4")),
    "an epoch without subtasks": Illegal("epochs_reports_check", epoch_with(expected_reports="0")),
    "an open epoch with a decision": Illegal("epochs_open_check", set_epoch(2, "decision = '{}'")),
    "an open epoch that aligned": Illegal("epochs_open_check", set_epoch(2, "aligned_at = now()")),
    "alignment without every report": Illegal(
        "epochs_aligned_check",
        set_epoch(2, "status = 'ALIGNED', reports = 2, decision = '{}', aligned_at = now()"),
    ),
    "alignment without a decision": Illegal(
        "epochs_aligned_check", set_epoch(2, "status = 'ALIGNED', reports = 3, aligned_at = now()")
    ),
    "alignment at no time": Illegal(
        "epochs_aligned_check", set_epoch(2, "status = 'ALIGNED', reports = 3, decision = '{}'")
    ),
    "durable at no time": Illegal("epochs_durable_check", set_epoch(1, "status = 'DURABLE'")),
    "durable before it is": Illegal("epochs_durable_check", set_epoch(1, "durable_at = now()")),
    "an epoch twice in force": Illegal(
        "epochs_epoch_key",
        epoch_with(epoch="0", status="'ALIGNED'", reports="1", decision="'{}'", aligned_at="now()"),
    ),
    "two open epochs": Illegal("epochs_open_key", epoch_with(status="'OPEN'")),
    # head_reports
    "a head's reports twice": Illegal(
        "head_reports_pkey", "INSERT INTO head_reports VALUES (%(run)s, 2, 2, 'centroids', '{1}')"
    ),
    "reports of no epoch": Illegal(
        "head_reports_epoch_fkey", "INSERT INTO head_reports VALUES (%(run)s, 7, 2, 'centroids', '{1}')"
    ),
    "reports of no subtask": Illegal(
        "head_reports_records_check", "INSERT INTO head_reports VALUES (%(run)s, 2, 2, 'x', '{}')"
    ),
    "fewer records than none": Illegal(
        "head_reports_records_check", "INSERT INTO head_reports VALUES (%(run)s, 2, 2, 'x', '{3,NULL,-1}')"
    ),
    # checkpoints
    "a checkpoint's id twice": Illegal("checkpoints_pkey", checkpoint_with(checkpoint_id="1")),
    "a checkpoint of no epoch": Illegal("checkpoints_epoch_fkey", checkpoint_with(epoch="7")),
    "a checkpoint's id below the first": Illegal("checkpoints_checkpoint_id_check", checkpoint_with(checkpoint_id="0")),
    "a checkpoint of unknown kind": Illegal("checkpoints_kind_check", checkpoint_with(kind="'MANUAL'")),
    "a checkpoint of unknown status": Illegal(
        "checkpoints_status_check",
        checkpoint_with(
            status="'LOST'",
            ended_at="now()",
            acknowledged="1",
            manifest_path="'p'",
            manifest_sha256=SHA,
            size_bytes="1",
        ),
    ),
    "fewer acknowledgements than none": Illegal(
        "checkpoints_acknowledged_check", set_checkpoint(2, "acknowledged = -1")
    ),
    "more acknowledgements than wanted": Illegal(
        "checkpoints_acknowledged_check", set_checkpoint(2, "acknowledged = 2")
    ),
    "a checkpoint that wants none": Illegal("checkpoints_acknowledged_check", checkpoint_with(expected="0")),
    "completed without every acknowledgement": Illegal(
        "checkpoints_completed_check",
        set_checkpoint(2, f"status = 'COMPLETED', {DONE}, acknowledged = 0".replace("acknowledged = 1, ", "")),
        ("checkpoints_completed_key",),
    ),
    "completed without a manifest": Illegal(
        "checkpoints_completed_check",
        set_checkpoint(2, "status = 'COMPLETED', acknowledged = 1, size_bytes = 1, ended_at = now()"),
        ("checkpoints_completed_key",),
    ),
    "completed without a size": Illegal(
        "checkpoints_completed_check",
        set_checkpoint(2, f"status = 'COMPLETED', {DONE}".replace("size_bytes = 1, ", "")),
        ("checkpoints_completed_key",),
    ),
    "a manifest without a digest": Illegal("checkpoints_manifest_check", set_checkpoint(2, "manifest_path = 'p'")),
    "a digest without a manifest": Illegal("checkpoints_manifest_check", set_checkpoint(2, f"manifest_sha256 = {SHA}")),
    "a digest that is none": Illegal(
        "checkpoints_manifest_check", set_checkpoint(2, "manifest_path = 'p', manifest_sha256 = 'x'")
    ),
    "a digest in capitals": Illegal(
        "checkpoints_manifest_check", set_checkpoint(2, f"manifest_path = 'p', manifest_sha256 = upper({SHA})")
    ),
    "aborted without a reason": Illegal(
        "checkpoints_aborted_check", set_checkpoint(2, "status = 'ABORTED', ended_at = now()")
    ),
    "a reason without being aborted": Illegal("checkpoints_aborted_check", set_checkpoint(2, "reason = 'x'")),
    "pending after its end": Illegal("checkpoints_ended_check", set_checkpoint(2, "ended_at = now()")),
    "ended at no time": Illegal("checkpoints_ended_check", set_checkpoint(2, "status = 'ABORTED', reason = 'x'")),
    "two completed checkpoints": Illegal(
        "checkpoints_completed_key", set_checkpoint(2, f"status = 'COMPLETED', {DONE}")
    ),
    "two checkpoints of an epoch": Illegal("checkpoints_epoch_key", checkpoint_with(epoch="1")),
    "a participant twice": Illegal(
        "acknowledgements_pkey", "INSERT INTO acknowledgements VALUES (%(run)s, 2, 'centroids', '{1}')"
    ),
    "acknowledgements of no checkpoint": Illegal(
        "acknowledgements_checkpoint_fkey", "INSERT INTO acknowledgements VALUES (%(run)s, 7, 'centroids', '{1}')"
    ),
    "acknowledgements of no subtask": Illegal(
        "acknowledgements_subtasks_check", "INSERT INTO acknowledgements VALUES (%(run)s, 2, 'x', '{}')"
    ),
}

GUARDS = {
    **{
        f"another {column} of a run": Illegal("the identity of run", set_run("run", f"{column} = {value}"))
        for column, value in {
            "run_id": "gen_random_uuid()",
            "run_key": "'another'",
            "reference": "'m:other'",
            "max_buckets": "17",
            "created_at": "now() + interval '1 day'",
        }.items()
    },
    **{
        f"another {column} of a run": Illegal("the request of run", set_run("run", f"{column} = {value}"))
        for column, value in {
            "definition": "'{\"x\": 1}'",
            "params": "'{\"x\": 1}'",
            "state_uri": "'/elsewhere'",
            "max_epochs": "7",
        }.items()
    },
    "a finished run that changes": Illegal("is finished and cannot change", set_run("finished", "outputs = '{}'")),
    "another rule of termination": Illegal(
        "the rule that terminated run", set_run("terminating", "terminated_by = 'max_epochs'")
    ),
    **{
        f"another {column} of an attempt": Illegal("the identity of attempt 2", set_attempt(2, f"{column} = {value}"))
        for column, value in {
            "run_id": "%(terminating)s",
            "fencing_token": "3",
            "attempt_id": "gen_random_uuid()",
            "holder": "'{}'",
            "started_at": "now() + interval '1 day'",
        }.items()
    },
    "an attempt that comes back": Illegal(
        "attempt 1 has ended and cannot change", set_attempt(1, "ended_at = NULL, outcome = NULL")
    ),
    "another outcome of an attempt": Illegal("attempt 1 has ended", set_attempt(1, "outcome = 'FINISHED'")),
    "a longer lease of an attempt that has ended": Illegal(
        "attempt 1 has ended", set_attempt(1, "lease_expires_at = now() + interval '1 day'")
    ),
    **{
        f"another {column} of an operator": Illegal(
            "the identity of operator x", set_operator("x", f"{column} = {value}")
        )
        for column, value in {
            "run_id": "%(terminating)s",
            "operator_id": "'z'",
            "position": "9",
            "name": "'z'",
            "role": "'data'",
            "kind": "'frame'",
        }.items()
    },
    "a marker taken back": Illegal(
        "operator scaled has finished and cannot change",
        set_operator("scaled", "finished_epoch = NULL, fencing_token = NULL, output = NULL, finished_at = NULL"),
    ),
    "another output of an operator that finished": Illegal(
        "operator scaled has finished", set_operator("scaled", "output = '{}'")
    ),
    "another pin": Illegal("a pin of run", "UPDATE pins SET fingerprint = 'f9' WHERE run_id = %(run)s"),
    **{
        f"a lower {column}": Illegal("only grow", set_run("run", f"{column} = {column} - 1"))
        for column in ("fencing_token", "last_durable_epoch", "last_checkpoint_id", "revision")
    },
    **{
        f"another {column} of an epoch": Illegal("the identity of epoch", set_epoch(1, f"{column} = {column} + 1"))
        for column in ("epoch", "fencing_token", "expected_reports")
    },
    "another run of an epoch": Illegal("the identity of epoch", set_epoch(1, "run_id = %(terminating)s")),
    "another decision": Illegal(
        "the decision of epoch 1 cannot change", set_epoch(1, "decision = decision || '{\"x\": 1}'")
    ),
    "a decision taken back": Illegal("the decision of epoch 0 cannot change", set_epoch(0, "decision = NULL", 1)),
    **{
        f"another {column} of a checkpoint": Illegal(
            "the identity of checkpoint", set_checkpoint(2, f"{column} = {column} + 1")
        )
        for column in ("checkpoint_id", "epoch", "fencing_token", "expected")
    },
    "another kind of a checkpoint": Illegal("the identity of checkpoint", set_checkpoint(2, "kind = 'FINAL'")),
    "another run of a checkpoint": Illegal("the identity of checkpoint", set_checkpoint(2, "run_id = %(terminating)s")),
    "another manifest": Illegal("the manifest of checkpoint 1 cannot change", set_checkpoint(1, "manifest_path = 'q'")),
    "another digest": Illegal(
        "the manifest of checkpoint 1 cannot change", set_checkpoint(1, f"manifest_sha256 = '{'cd' * 32}'")
    ),
}


@dataclass(frozen=True, slots=True)
class Rows:
    """Legal rows to start from: what %(name)s stands for in the statements, and a connection."""

    connection: psycopg2.extensions.connection
    names: dict[str, str]

    def execute(self, statement: str) -> int:
        with self.connection.cursor() as cursor:
            cursor.execute(statement, self.names)
            return cursor.rowcount

    def column(self, statement: str) -> list[str]:
        with self.connection.cursor() as cursor:
            cursor.execute(statement)
            return [row[0] for row in cursor.fetchall()]


@pytest.fixture(scope="module")
def legal_rows(store_url: str) -> Iterator[Rows]:
    """One run in the middle of its work, one that is terminating, one finished, one failed."""
    store, family = PostgresStore(store_url), new_family()
    first, second = Sender(1, 1, family), Sender(2, 2, family)
    run_id = added(store)
    Coordinator(store).apply(run_id, claim(1, family=family), *first.passes(0, 1), first.opens(1))
    Coordinator(store).apply(
        run_id,
        claim(2, takeover=True, family=family),
        second.finishes("scaled"),
        second.pins("points"),
        second.opens(1),
        second.reports(1),
        second.triggers(1),
        second.opens(2, centroids=3),
        second.reports(2, {"centroids": {0: 1}}),
    )
    key = getattr(store.find_run(run_id), "run_key", "")
    names: dict[str, str] = {"run": run_id, "attempt": first.attempt_id, "key": key}
    for status in ("terminating", "finished", "failed"):
        sender = Sender(1, 1, new_family())
        names[status] = other = added(store)
        last: dict[str, Event] = {"finished": sender.publishes(), "failed": sender.fails()}
        events = [*sender.passes(0, 1, records=0), *([last[status]] if status in last else [])]
        Coordinator(store).apply(other, claim(family=sender.family), *events)
    store.close()
    address = make_url(store_url)
    connection = psycopg2.connect(
        host=address.query["host"],
        port=address.query["port"],
        dbname=address.database,
        user=address.username,
        password=address.password,
    )
    yield Rows(connection, names)
    connection.close()


@pytest.fixture
def rows(legal_rows: Rows) -> Iterator[Rows]:
    yield legal_rows
    legal_rows.connection.rollback()


@pytest.mark.parametrize("illegal", CONSTRAINTS.values(), ids=CONSTRAINTS)
def test_illegal_row_is_refused_by_its_constraint(rows: Rows, illegal: Illegal) -> None:
    with pytest.raises(psycopg2.IntegrityError) as caught:
        rows.execute(illegal.statement)

    if illegal.instead:
        assert caught.value.diag.constraint_name in (illegal.rule, *illegal.instead)
    else:
        assert illegal.rule == caught.value.diag.constraint_name


@pytest.mark.parametrize("illegal", CONSTRAINTS.values(), ids=CONSTRAINTS)
def test_nothing_but_its_constraint_refuses_the_row(rows: Rows, illegal: Illegal) -> None:
    """So that the test before fails when somebody drops or weakens it."""
    for rule in illegal.instead:
        drop(rows, rule)
    with pytest.raises(psycopg2.IntegrityError) as caught:
        savepoint(rows, illegal.statement)
    assert illegal.rule == caught.value.diag.constraint_name
    drop(rows, illegal.rule)

    assert 1 == rows.execute(illegal.statement)


def savepoint(rows: Rows, statement: str) -> None:
    rows.execute("SAVEPOINT before")
    try:
        rows.execute(statement)
    except psycopg2.Error:
        rows.execute("ROLLBACK TO before")
        raise


def drop(rows: Rows, rule: str) -> None:
    table = rows.column(f"SELECT conrelid::regclass::text FROM pg_constraint WHERE conname = '{rule}'")
    if table:
        rows.execute(f"ALTER TABLE {table[0]} DROP CONSTRAINT {rule} CASCADE")
    else:
        rows.execute(f"DROP INDEX {rule}")


@pytest.mark.parametrize("illegal", GUARDS.values(), ids=GUARDS)
def test_illegal_change_is_refused_by_the_guard(rows: Rows, illegal: Illegal) -> None:
    with pytest.raises(psycopg2.errors.CheckViolation) as caught:
        rows.execute(illegal.statement)

    assert illegal.rule in str(caught.value)


TRANSITIONS = {
    "runs": (RunStatus, {"RUNNING": "run", "TERMINATING": "terminating", "FINISHED": "finished", "FAILED": "failed"}),
    "epochs": (EpochStatus, {"OPEN": "2", "ALIGNED": "1", "DURABLE": "0", "VOIDED": "1 AND fencing_token = 1"}),
    "checkpoints": (CheckpointStatus, {"PENDING": "2", "COMPLETED": "1"}),
}
LEGAL = {
    *(("RUNNING", "TERMINATING"), ("TERMINATING", "FINISHED"), ("RUNNING", "FAILED"), ("TERMINATING", "FAILED")),
    *(("FAILED", "RUNNING"), ("FAILED", "TERMINATING")),
    *(("OPEN", "ALIGNED"), ("ALIGNED", "DURABLE"), ("OPEN", "VOIDED"), ("ALIGNED", "VOIDED")),
    *(("PENDING", "COMPLETED"), ("PENDING", "ABORTED"), ("COMPLETED", "SUBSUMED"), ("SUBSUMED", "DISCARDED")),
}


@pytest.mark.parametrize(
    ("table", "before", "after"),
    [
        (table, before, after.value)
        for table, (statuses, sources) in TRANSITIONS.items()
        for before, after in product(sources, statuses)
        if before != after.value and (before, after.value) not in LEGAL
    ],
)
def test_status_cannot_take_a_step_that_is_not_in_the_table(rows: Rows, table: str, before: str, after: str) -> None:
    place = TRANSITIONS[table][1][before]
    where = {
        "runs": f"run_id = %({place})s",
        "epochs": f"run_id = %(run)s AND epoch = {place} AND status = '{before}'",
        "checkpoints": f"run_id = %(run)s AND checkpoint_id = {place}",
    }[table]
    assert 1 == rows.execute(f"SELECT 1 FROM {table} WHERE {where} AND status = '{before}'")

    with pytest.raises(psycopg2.errors.CheckViolation, match=f"cannot go from {before} to {after}"):
        rows.execute(f"UPDATE {table} SET status = '{after}' WHERE {where}")


@pytest.mark.parametrize(
    ("before", "after"), [("ABORTED", "COMPLETED"), ("SUBSUMED", "COMPLETED"), ("DISCARDED", "SUBSUMED")]
)
def test_closed_checkpoint_never_comes_back(rows: Rows, before: str, after: str) -> None:
    rows.execute(
        "DELETE FROM acknowledgements WHERE checkpoint_id = 2; DELETE FROM checkpoints WHERE checkpoint_id = 2"
    )
    aborted = {"reason": "'x'"} if before == "ABORTED" else {}
    done = {"manifest_path": "'p'", "manifest_sha256": SHA, "size_bytes": "1", "acknowledged": "1"}
    rows.execute(checkpoint_with(epoch="1", status=f"'{before}'", ended_at="now()", **done, **aborted))

    with pytest.raises(psycopg2.errors.CheckViolation, match=f"cannot go from {before} to {after}"):
        rows.execute(set_checkpoint(9, f"status = '{after}'"))


def test_every_constraint_of_the_schema_has_a_statement_that_it_refuses(rows: Rows) -> None:
    """A rule that is added without one fails here."""
    named = rows.column(
        "SELECT conname FROM pg_constraint WHERE connamespace = 'public'::regnamespace "
        "AND contype IN ('c', 'f', 'u', 'p') AND conrelid <> 'schema_migrations'::regclass"
    )
    unique = rows.column(
        "SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE indisunique "
        "AND relnamespace = 'public'::regnamespace "
        "AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)"
    )

    assert sorted({*named, *unique}) == sorted({illegal.rule for illegal in CONSTRAINTS.values()})


def test_every_column_that_must_have_a_value_refuses_to_lose_it(rows: Rows) -> None:
    columns = rows.column(
        "SELECT attrelid::regclass || '.' || attname FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid "
        "WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND attnum > 0 AND attnotnull "
        "AND relname NOT IN ('schema_migrations')"
    )
    assert len(columns) > 50
    for table, _, name in (column.partition(".") for column in columns):
        rows.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")

        with pytest.raises(psycopg2.errors.NotNullViolation) as caught:
            savepoint(rows, f"UPDATE {table} SET {name} = NULL")

        assert (table, name) == (caught.value.diag.table_name, caught.value.diag.column_name)


def test_legal_rows_are_where_the_statements_expect_them(rows: Rows) -> None:
    """Otherwise an update of no row would be refused by nothing."""
    for illegal in (*GUARDS.values(), *(i for i in CONSTRAINTS.values() if i.statement.startswith("UPDATE"))):
        condition = illegal.statement.partition(" WHERE ")[2]
        table = illegal.statement.split()[1]

        assert 1 == rows.execute(f"SELECT 1 FROM {table} WHERE {condition}"), illegal
