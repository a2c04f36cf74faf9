"""Does Postgres itself refuse every illegal row and step? Statements that no code of ours sends, one per rule.

Each is refused by the constraint or the guard that it names: with that one dropped, the same statement passes.
"""
# ruff: noqa: S608 - every part of these statements is written here or in tests.illegal_row

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path

import psycopg2
import psycopg2.errors
import pytest

from iteration_lib import protocol
from iteration_lib.protocol.status import CheckpointStatus, EpochStatus, RunStatus
from tests.illegal_row import (
    BY_INVARIANT,
    CONSTRAINTS,
    DONE,
    GUARDS,
    SHA,
    Illegal,
    checkpoint_with,
    committable_with,
    ended,
    run_with,
    set_checkpoint,
    set_committable,
    set_run,
)
from tests.legal_rows import Rows, legal_rows_in
from tests.row_invariant import RULES, find_broken

pytestmark = pytest.mark.postgres

SINKS = Path(__file__).parents[2] / "docs" / "sinks.md"


@pytest.fixture(scope="module")
def legal_rows(store_url: str) -> Iterator[Rows]:
    with legal_rows_in(store_url) as rows:
        yield rows


@pytest.fixture
def rows(legal_rows: Rows) -> Iterator[Rows]:
    legal_rows.execute("SET LOCAL session_replication_role = replica")  # what statements start from is nobody's step
    for name, token in (("run", 3), ("left durable", 2)):  # as in NEW_ROWS
        issued = f"fencing_token = {token}, attempt_id = %(next)s"
        legal_rows.execute(f"UPDATE runs SET {issued} WHERE run_id = %({name})s")
    legal_rows.execute("UPDATE runs SET last_checkpoint_id = 2 WHERE run_id = %(asked)s")
    for name in ("failing", "crowded"):
        legal_rows.execute(f"UPDATE runs SET last_checkpoint_id = 2 WHERE run_id = %({name})s")
    for name in ("aligned", "left aligned", "fresh", "warned"):
        legal_rows.execute(f"UPDATE runs SET last_checkpoint_id = 1 WHERE run_id = %({name})s")
    legal_rows.execute(ended("RELEASED", of="left pending"))
    legal_rows.execute(ended("RELEASED", of="left behind"))
    legal_rows.execute("UPDATE attempts SET definition_changes = '{}' WHERE run_id = %(older)s AND fencing_token = 2")
    legal_rows.execute(run_with(run_id="%(behind)s", run_key="'behind'", last_durable_epoch="0"))
    legal_rows.execute(committable_with(run_id="%(older published)s", epoch="2"))
    legal_rows.execute(committable_with(run_id="%(left uncommitted)s"))
    legal_rows.execute("DELETE FROM committables WHERE run_id = %(published)s AND output = 'more'")
    legal_rows.execute(set_committable("committed_at = now()", output="seen"))
    legal_rows.execute("SET LOCAL session_replication_role = origin")
    yield legal_rows
    legal_rows.connection.rollback()


@pytest.mark.parametrize("illegal", CONSTRAINTS.values(), ids=CONSTRAINTS)
def test_illegal_row_is_refused_by_its_constraint(rows: Rows, illegal: Illegal) -> None:
    with pytest.raises(psycopg2.IntegrityError) as caught:
        rows.execute(illegal.statement)

    named = caught.value.diag.constraint_name or "a guard"
    if illegal.instead:
        assert named in (illegal.rule, *illegal.instead) or "_guard" in illegal.instead[0]
    else:
        assert illegal.rule == named


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


def drop_constraint(rows: Rows, rule: str) -> bool:
    """Drop what is called so, if that is a constraint; tell whether it is."""
    table = rows.column(f"SELECT conrelid::regclass::text FROM pg_constraint WHERE conname = '{rule}'")
    if table:
        rows.execute(f"ALTER TABLE {table[0]} DROP CONSTRAINT {rule} CASCADE")
    return bool(table)


def drop(rows: Rows, rule: str) -> None:
    if drop_constraint(rows, rule):
        return
    if rule.endswith("_guard"):
        (guarded,) = rows.column(f"SELECT tgrelid::regclass::text FROM pg_trigger WHERE tgname = '{rule}'")
        rows.execute(f"DROP TRIGGER {rule} ON {guarded}")
    elif rule.endswith("_check"):
        drop_from_guard(rows, rule)
    else:
        rows.execute(f"DROP INDEX {rule}")


def drop_from_guard(rows: Rows, rule: str) -> None:
    """Take one rule out of the guard that checks it."""
    (guard,) = [source for source in guards(rows) if f"THEN '{rule}'" in source]
    without, dropped = re.subn(rf"WHEN (?:(?!\bWHEN\b).)*?THEN '{rule}'", "", guard, flags=re.DOTALL)
    assert 1 == dropped
    with rows.connection.cursor() as cursor:
        cursor.execute(without)


def guards(rows: Rows) -> list[str]:
    return rows.column(
        "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace "
        "AND prorettype = 'trigger'::regtype"
    )


AT_ONCE = "SET CONSTRAINTS ALL IMMEDIATE"  # or what is asked at the end of a transaction would never be


@pytest.mark.parametrize("illegal", GUARDS.values(), ids=GUARDS)
def test_illegal_change_is_refused_by_the_guard(rows: Rows, illegal: Illegal) -> None:
    rows.execute(AT_ONCE)

    with pytest.raises(psycopg2.errors.CheckViolation) as caught:
        rows.execute(illegal.statement)

    assert illegal.rule in str(caught.value)


# What no other illegal statement breaks, for what refuses it comes before.
BREAKING = (
    "UPDATE checkpoints SET epoch = 9 - checkpoint_id, fencing_token = 1",
    "UPDATE attempts SET policy = jsonb_set(policy, '{max_pending}', '0')",
)


def test_every_rule_that_committed_rows_are_judged_by_finds_what_breaks_it(rows: Rows) -> None:
    """So that random statements which break none say something: here no guard is in the way."""
    unbroken, seen = broken(rows), set[str]()
    known = {
        illegal.statement: (*illegal.instead, illegal.rule) for illegal in (*CONSTRAINTS.values(), *GUARDS.values())
    }

    for statement, rules in (known | dict.fromkeys(BREAKING, ())).items():
        rows.execute("SAVEPOINT unbroken")
        rows.execute("SET LOCAL session_replication_role = replica")
        with suppress(psycopg2.Error):  # some lack what a guard fills in, or the key by which the rules ask
            for rule in rules:
                drop_constraint(rows, rule)
            rows.execute(statement)
            seen |= {rule for rule, runs in broken(rows).items() if runs - unbroken.get(rule, set())}
        rows.execute("ROLLBACK TO unbroken")

    assert RULES == seen


def broken(rows: Rows) -> dict[str, set[str]]:
    with rows.connection.cursor() as cursor:
        return find_broken(cursor)


TRANSITIONS = {
    "runs": (
        RunStatus,
        {
            "RUNNING": "run",
            "TERMINATING": "terminating",
            "FINISHED": "finished",
            "FAILED": "failed",
            "STOPPED": "stopped",
        },
    ),
    "epochs": (EpochStatus, {"OPEN": "2", "ALIGNED": "1", "DURABLE": "0", "VOIDED": "1 AND fencing_token = 1"}),
    "checkpoints": (CheckpointStatus, {"PENDING": "2", "COMPLETED": "1"}),
}
LEGAL = {
    *(("RUNNING", "TERMINATING"), ("TERMINATING", "FINISHED"), ("RUNNING", "FAILED"), ("TERMINATING", "FAILED")),
    *(("FAILED", "RUNNING"), ("FAILED", "TERMINATING")),
    *(("RUNNING", "STOPPED"), ("FAILED", "STOPPED"), ("STOPPED", "RUNNING")),
    *((status, "DELETED") for status in ("RUNNING", "TERMINATING", "FINISHED", "FAILED", "STOPPED")),
    *(("OPEN", "ALIGNED"), ("ALIGNED", "DURABLE"), ("OPEN", "VOIDED"), ("ALIGNED", "VOIDED")),
    *(("PENDING", "COMPLETED"), ("PENDING", "ABORTED"), ("PENDING", "SUBSUMED")),
    *(("COMPLETED", "SUBSUMED"), ("SUBSUMED", "DISCARDED"), ("COMPLETED", "DISCARDED")),
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
    ("before", "after"),
    [
        (before, status.value)
        for before, status in product(("ABORTED", "SUBSUMED", "DISCARDED"), CheckpointStatus)
        if before != status.value and (before, status.value) not in LEGAL
    ],
)
def test_closed_checkpoint_never_comes_back(rows: Rows, before: str, after: str) -> None:
    aborted = {"failure": "'ABORTED_BY_USER'", "reason": "'x'"} if before == "ABORTED" else {}
    done = {"manifest_path": "'p'", "manifest_sha256": SHA, "size_bytes": "1"}
    done["acknowledgements"] = "'{\"centroids\": [1]}'"
    rows.execute("SET LOCAL session_replication_role = replica")
    counts = {"expected": "1", "acknowledged": "1"}
    rows.execute(checkpoint_with(status=f"'{before}'", ended_at="now()", **done, **aborted, **counts))
    rows.execute("SET LOCAL session_replication_role = origin")

    with pytest.raises(psycopg2.errors.CheckViolation, match=f"cannot go from {before} to {after}"):
        rows.execute(f"UPDATE checkpoints SET status = '{after}' WHERE run_id = %(aligned)s")


@pytest.mark.parametrize("after", [status.value for status in RunStatus if status is not RunStatus.DELETED])
def test_deleted_run_never_comes_back(rows: Rows, after: str) -> None:
    rows.execute(set_run("finished", "status = 'DELETED', deleted_by = 'ann', deleted_at = now()"))

    with pytest.raises(psycopg2.errors.CheckViolation, match=f"cannot go from DELETED to {after}"):
        rows.execute(set_run("finished", f"status = '{after}'"))


def test_every_step_of_a_status_is_legal_or_tried() -> None:
    """Those of a checkpoint that is over, and of a run that is deleted, by the two tests above."""
    closed = {CheckpointStatus: {"ABORTED", "SUBSUMED", "DISCARDED"}, RunStatus: {"DELETED"}}
    for statuses, sources in TRANSITIONS.values():
        assert {status.value for status in statuses} == {*sources, *closed.get(statuses, ())}


VOIDED = "UPDATE epochs SET status = 'VOIDED' WHERE run_id = %(run)s AND status = "
ABORTED = set_checkpoint(2, "status = 'ABORTED', failure = 'DECLINED', reason = 'x', ended_at = now()")
ENDED = ended("RELEASED", of="run")
LEFT = {
    "an open epoch": (ABORTED, ENDED, f"{VOIDED}'ALIGNED'"),
    "an aligned epoch": (ABORTED, ENDED, f"{VOIDED}'OPEN'"),
    "a pending checkpoint": (ENDED, f"{VOIDED}'ALIGNED'", f"{VOIDED}'OPEN'"),
}


@pytest.mark.parametrize("gone", LEFT.values(), ids=LEFT)
def test_run_that_left_something_cannot_be_finished(rows: Rows, gone: tuple[str, ...]) -> None:
    for statement in gone:
        rows.execute(statement)
    let_terminate(rows)

    with pytest.raises(psycopg2.errors.CheckViolation, match="has something that is not durable"):
        rows.execute(set_run("run", "status = 'FINISHED', outputs = '{}', state_digest = 'd', finished_at = now()"))


def let_terminate(rows: Rows) -> None:
    """Let the run terminate though no epoch of it has decided so."""
    rows.execute("ALTER TABLE runs DISABLE TRIGGER runs_row_guard")
    rows.execute(set_run("run", "status = 'TERMINATING', terminated_by = 'criteria'"))
    rows.execute(ended("RELEASED", of="run"))
    rows.execute("ALTER TABLE runs ENABLE TRIGGER runs_row_guard")


def test_run_that_left_something_uncommitted_cannot_be_finished(rows: Rows) -> None:
    rows.execute("SET LOCAL session_replication_role = replica")  # of a run that has no sink
    rows.execute(committable_with(run_id="%(terminating)s"))
    rows.execute("SET LOCAL session_replication_role = origin")
    rows.execute(ended("RELEASED", of="terminating"))
    finish = set_run("terminating", "status = 'FINISHED', outputs = '{}', state_digest = 'd', finished_at = now()")

    with pytest.raises(psycopg2.errors.CheckViolation, match="has something that is not committed"):
        savepoint(rows, finish)

    rows.execute("UPDATE committables SET committed_at = now() WHERE run_id = %(terminating)s")
    assert 1 == rows.execute(finish)


def test_what_waits_for_its_commit_is_given_up_by_the_words_of_the_docs_where_nobody_drives(rows: Rows) -> None:
    (said,) = re.findall(
        r"```sql\n(DELETE FROM committables.*?)```", SINKS.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    words = {"RUN_ID": rows.names["left uncommitted"], "OUTPUT": "more", "EPOCH": "0"}

    assert 1 == rows.execute(re.sub("RUN_ID|OUTPUT|EPOCH", lambda found: words[found[0]], said))


CLEARED = (
    *("checkpoint_pins", "checkpoint_requests", "listener_notices", "committables", "fallbacks", "stops", "edge_parts"),
    *("checkpoints", "epochs", "pins", "operators", "attempts", "branches", "runs"),
)


def test_rows_of_a_deleted_run_may_be_cleared_away(rows: Rows) -> None:
    rows.execute(ended("RELEASED", of="published"))
    rows.execute(set_run("published", "status = 'DELETED', deleted_by = 'ann', deleted_at = now()"))

    gone = {table: rows.execute(f"DELETE FROM {table} WHERE run_id = %(published)s") for table in CLEARED}

    assert {"runs": 1, "attempts": 1, "epochs": 1, "checkpoints": 1, "committables": 2, "operators": 6} == {
        table: count for table, count in gone.items() if count
    }


def test_reports_of_an_epoch_that_is_held_cannot_change(rows: Rows) -> None:
    with pytest.raises(psycopg2.errors.CheckViolation, match="the reports of epoch 2 cannot change"):
        rows.execute("UPDATE epochs SET records = '{\"centroids\": [0]}' WHERE run_id = %(held)s AND epoch = 2")


def test_run_cannot_advance_over_an_epoch_that_is_aligned_or_open(rows: Rows) -> None:
    rows.execute(set_checkpoint(1, "status = 'SUBSUMED'"))
    rows.execute(set_checkpoint(2, f"status = 'COMPLETED', {DONE}"))

    with pytest.raises(psycopg2.errors.CheckViolation, match="no completed checkpoint makes"):
        rows.execute(set_run("run", "last_durable_epoch = 1"))


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

    checked = re.findall(r"THEN '(\w+_check)'", "".join(guards(rows)))
    assert len(checked) > 20
    assert sorted({*named, *unique, *checked}) == sorted({illegal.rule for illegal in CONSTRAINTS.values()})


def test_every_invariant_has_statements_that_the_database_refuses_or_a_word_why_not() -> None:
    """Told by the invariants, not by the rules that the schema happens to have."""
    stated = re.findall(r"^(I\d+) ", str(protocol.__doc__), flags=re.MULTILINE)
    statements = [name for names in BY_INVARIANT.values() if isinstance(names, tuple) for name in names]

    assert stated == list(BY_INVARIANT)
    assert set() == set(statements) - {*CONSTRAINTS, *GUARDS}
    assert all(BY_INVARIANT.values())


def test_every_guard_has_a_statement_that_nothing_else_refuses(rows: Rows) -> None:
    """A guard that is added without one fails here, and so does one that does nothing."""
    triggers = rows.column(
        "SELECT tgrelid::regclass || ' ' || tgname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid "
        "WHERE relnamespace = 'public'::regnamespace AND NOT tgisinternal "
        "AND tgfoid <> 'run_lock'::regproc"  # which takes two transactions: test_run_lock
    )
    assert len(triggers) > 10
    rows.execute(AT_ONCE)
    for table, _, guard in (named.partition(" ") for named in triggers):
        rows.execute(f"SAVEPOINT guarded; ALTER TABLE {table} DISABLE TRIGGER {guard}")

        assert any(is_accepted(rows, illegal) for illegal in GUARDS.values()), guard

        rows.execute("ROLLBACK TO guarded")


def test_every_refusal_of_a_guard_has_a_statement_that_nothing_else_refuses(rows: Rows) -> None:
    """A refusal that is added without one fails here: each is taken out of its guard by itself."""
    rows.execute(AT_ONCE)
    refused = [(illegal, refusal(rows, illegal)) for illegal in GUARDS.values()]
    alone = []
    for guard in guards(rows):
        for raised in re.finditer(r"RAISE EXCEPTION '([^']*(?:''[^']*)*)'.*?;", guard, flags=re.DOTALL):
            if "CONSTRAINT = broken" in raised[0] or "is READ COMMITTED" in raised[0]:
                continue  # it names rules that have statements; test_run_lock is in another transaction
            words = raised[1].replace("''", "'").split("%")
            told = re.compile(".*".join(re.escape(word) for word in words), flags=re.DOTALL)
            instead = "NULL;" if re.search(r"\bRETURN\b", guard) else "RETURN NEW;"
            rows.execute("SAVEPOINT whole")
            with rows.connection.cursor() as cursor:
                cursor.execute(guard[: raised.start()] + instead + guard[raised.end() :])
            if not any(told.match(message) and is_accepted(rows, illegal) for illegal, message in refused):
                alone.append(raised[1])
            rows.execute("ROLLBACK TO whole")

    assert [] == alone


def is_accepted(rows: Rows, illegal: Illegal) -> bool:
    return refusal(rows, illegal) == ""


def refusal(rows: Rows, illegal: Illegal) -> str:
    """Return how a statement is refused, or nothing."""
    try:
        savepoint(rows, illegal.statement)
    except psycopg2.Error as err:
        return str(err)
    return ""


def test_every_column_that_must_have_a_value_refuses_to_lose_it(rows: Rows) -> None:
    columns = rows.column(
        "SELECT attrelid::regclass || '.' || attname FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid "
        "WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND attnum > 0 AND attnotnull "
        "AND attidentity = '' AND attgenerated = '' AND relname NOT IN ('schema_migrations')"
    )
    assert len(columns) > 50
    for table, _, name in (column.partition(".") for column in columns):
        rows.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")

        with pytest.raises(psycopg2.errors.NotNullViolation) as caught:
            savepoint(rows, f"UPDATE {table} SET {name} = NULL")

        assert (table, name) == (caught.value.diag.table_name, caught.value.diag.column_name)


def test_legal_rows_are_where_the_statements_expect_them(rows: Rows) -> None:
    """Otherwise an update of no row would be refused by nothing."""
    changes = [i for i in (*GUARDS.values(), *CONSTRAINTS.values()) if not i.statement.startswith(("INSERT", "SET"))]
    assert len(changes) > 100
    for illegal in changes:
        condition = illegal.statement.partition(" WHERE ")[2]
        table = illegal.statement.removeprefix("DELETE FROM ").removeprefix("UPDATE ").split()[0]

        assert 1 == rows.execute(f"SELECT 1 FROM {table} WHERE {condition}"), illegal
