"""Which rows and changes are illegal in the store? Statements that no code of ours sends, one per rule.

Each names the constraint or index that refuses it, or the words of the guard that does. %(run)s and the like stand for
the runs that tests.integration.test_illegal_rows makes.
"""
# ruff: noqa: S608 - every part of these statements is written here

from __future__ import annotations

import json
from dataclasses import dataclass, field

SHA = f"'{'ab' * 32}'"
FILES = json.dumps({"parts": ["x.arrow"]})


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
        "run_id": "%(left durable)s",
        "fencing_token": "2",
        "attempt_id": "%(next)s",
        "holder": "'{}'",
        "lease_expires_at": "now()",
        "policy": '\'{"max_pending": 1, "tolerable_failures": 0}\'',
    },
    "operators": {
        "run_id": "%(older)s",
        "operator_id": "'more'",
        "position": "9",
        "name": "'more'",
        "role": "'operator'",
        "kind": "'value'",
        "added_under": "2",
    },
    "epochs": {
        "run_id": "%(durable)s",
        "epoch": "1",
        "fencing_token": "1",
        "records": "'{\"c\": [null]}'",
    },
    "checkpoints": {
        "run_id": "%(aligned)s",
        "checkpoint_id": "1",
        "epoch": "0",
        "fencing_token": "1",
        "kind": "'PERIODIC'",
        "acknowledgements": "'{\"centroids\": [null]}'",
    },
    "checkpoint_requests": {"request_id": "gen_random_uuid()", "run_id": "%(run)s", "requested_by": "'ann'"},
    "edge_parts": {
        "run_id": "%(run)s",
        "epoch": "1",
        "operator_id": "'x'",
        "first_bucket": "0",
        "end_bucket": "1",
        "total": "1",
        "fencing_token": "2",
        "output": f"'{FILES}'",
        "metrics": "'{}'",
    },
    "branches": {
        "run_id": "%(behind)s",
        "origin_run_id": "%(run)s",
        "origin_checkpoint_id": "1",
        "epoch": "0",
        "uri": "'/s'",
        "manifest_path": "'m'",
        "manifest_sha256": SHA,
        "mode": "'NO_CLAIM'",
        "keeps": "'[]'",
        "branched_by": "'ann'",
    },
    "committables": {
        "run_id": "%(published)s",
        "epoch": "0",
        "output": "'more'",
        "fencing_token": "1",
        "target": "'t'",
        "content": "'{}'",
    },
    "checkpoint_pins": {"run_id": "%(older)s", "checkpoint_id": "2", "pinned_by": "'ann'"},
    "fallbacks": {
        "run_id": "%(older)s",
        "fencing_token": "2",
        "from_checkpoint_id": "3",
        "to_checkpoint_id": "2",
        "epoch": "1",
        "reason": "'a file is missing'",
    },
    "stops": {"stop_id": "gen_random_uuid()", "run_id": "%(run)s", "kind": "'STOP'", "requested_by": "'ann'"},
    "listener_notices": {"run_id": "%(run)s", "listener_id": "'more'", "epoch": "0", "fencing_token": "2"},
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


def request_with(**columns: str) -> str:
    return insert("checkpoint_requests", **columns)


def part_with(**columns: str) -> str:
    return insert("edge_parts", **columns)


def part_of_y(**columns: str) -> str:
    """Buckets of `y`, of which the first two are there."""
    return insert("edge_parts", **{"operator_id": "'y'", "end_bucket": "2", "total": "4", **columns})


def wired_part(operator_id: str, **columns: str) -> str:
    """Buckets of an operator with inputs: half of `v` is there, and nothing else that an epoch computes."""
    named = {"run_id": "%(wired)s", "operator_id": f"'{operator_id}'", "total": "4", "fencing_token": "1"}
    return insert("edge_parts", **{**named, **columns})


def notice_with(**columns: str) -> str:
    return insert("listener_notices", **columns)


def committable_with(**columns: str) -> str:
    return insert("committables", **columns)


def set_committable(columns: str, *, output: str = "rows") -> str:
    return f"UPDATE committables SET {columns} WHERE run_id = %(published)s AND output = '{output}'"


def stop_with(**columns: str) -> str:
    return insert("stops", **columns)


def fallback_with(**columns: str) -> str:
    return insert("fallbacks", **columns)


def pinned_with(**columns: str) -> str:
    return insert("checkpoint_pins", **columns)


def branch_with(**columns: str) -> str:
    return insert("branches", **columns)


def set_branch(columns: str) -> str:
    return f"UPDATE branches SET {columns} WHERE run_id = %(branch)s"


def set_run(which: str, columns: str) -> str:
    return f"UPDATE runs SET {columns} WHERE run_id = %({which})s"


def set_epoch(number: int, columns: str, token: int = 2) -> str:
    return f"UPDATE epochs SET {columns} WHERE run_id = %(run)s AND epoch = {number} AND fencing_token = {token}"


def deciding(by: str | None, *, reported: int = 4, told: int = 4, of: str = "fresh") -> str:
    """An epoch that aligns, and ends its run by a rule or goes on."""
    return (
        "UPDATE epochs SET status = 'ALIGNED', held_at = now(), aligned_at = now(), "
        f"records = '{{\"centroids\": [{reported}]}}', decision = '{decision(told, by)}' "
        f"WHERE run_id = %({of})s AND epoch = 0"
    )


def decision(records: int, by: str | None = None) -> str:
    return json.dumps({"records": {"centroids": records}, "terminated_by": by})


def set_checkpoint(number: int, columns: str) -> str:
    return f"UPDATE checkpoints SET {columns} WHERE run_id = %(run)s AND checkpoint_id = {number}"


def switched(columns: str) -> str:
    """The first epoch of a run, which is open, changes."""
    return f"UPDATE epochs SET {columns} WHERE run_id = %(fresh)s"


def subsumed(told: str, instead: str) -> str:
    """A checkpoint ends with its files, and what is told of them is something else."""
    return set_checkpoint(2, f"status = 'SUBSUMED', {DONE.replace(told, instead)}")


def set_attempt(token: int, columns: str) -> str:
    return f"UPDATE attempts SET {columns} WHERE run_id = %(run)s AND fencing_token = {token}"


def set_operator(operator_id: str, columns: str) -> str:
    return f"UPDATE operators SET {columns} WHERE run_id = %(run)s AND operator_id = '{operator_id}'"


def set_part(columns: str, *, which: str = "epoch = 1 AND voided_at IS NULL") -> str:
    return f"UPDATE edge_parts SET {columns} WHERE run_id = %(run)s AND {which}"


def set_request(columns: str) -> str:
    return f"UPDATE checkpoint_requests SET {columns} WHERE run_id = %(run)s AND checkpoint_id = 2"


def set_stop(columns: str, *, of: str = "stopped") -> str:
    return f"UPDATE stops SET {columns} WHERE run_id = %({of})s"


def set_notice(columns: str) -> str:
    return f"UPDATE listener_notices SET {columns} WHERE run_id = %(run)s AND listener_id = 'log'"


def ended(outcome: str, *, of: str) -> str:
    """The live attempt of a run ends."""
    end = f"ended_at = now(), outcome = '{outcome}', reason = 'x'"
    return f"UPDATE attempts SET {end} WHERE run_id = %({of})s AND ended_at IS NULL"


def begun(of: str, token: int = 2, **columns: str) -> str:
    """An attempt begins, under a token that is issued for it."""
    issued = f"UPDATE runs SET fencing_token = {token}, attempt_id = %(next)s WHERE run_id = %({of})s"
    return f"{issued}; {attempt_with(run_id=f'%({of})s', fencing_token=str(token), **columns)}"


def made_durable(of: str, checkpoint_id: int = 1, epoch: int = 0) -> str:
    """A checkpoint completes and makes every epoch durable, and that is all."""
    return (
        f"{DEFERRED}; UPDATE checkpoints SET status = 'COMPLETED', {DONE} "
        f"WHERE run_id = %({of})s AND checkpoint_id = {checkpoint_id}; "
        f"UPDATE epochs SET status = 'DURABLE', durable_at = now() WHERE run_id = %({of})s; "
        f"UPDATE runs SET last_durable_epoch = {epoch} WHERE run_id = %({of})s"
    )


DEFERRED = "SET CONSTRAINTS ALL DEFERRED"
AT_THE_END = "SET CONSTRAINTS fallbacks_whole_guard IMMEDIATE"


def fallen_back(*, epochs: bool = True, checkpoints: bool = True) -> str:
    """A run falls back to checkpoint 2, and gives up some of what comes after it."""
    given_up = {
        "UPDATE checkpoints SET status = 'DISCARDED' WHERE run_id = %(older)s AND checkpoint_id = 3": checkpoints,
        "UPDATE checkpoints SET status = 'COMPLETED' WHERE run_id = %(older)s AND checkpoint_id = 2": checkpoints,
        "UPDATE epochs SET status = 'VOIDED', durable_at = NULL WHERE run_id = %(older)s AND epoch = 2": epochs,
    }
    steps = [step for step, is_done in given_up.items() if is_done]
    return "; ".join([DEFERRED, fallback_with(), *steps])


def finished(epoch: int, output: str = FILES) -> str:
    """An operator finishes for good."""
    return f"finished_epoch = {epoch}, fencing_token = 2, output = '{output}', finished_at = now()"


def aborted(failure: str, *, of: str) -> str:
    """A pending checkpoint that is aborted by something."""
    ended = f"status = 'ABORTED', failure = '{failure}', reason = 'x', ended_at = now()"
    return f"UPDATE checkpoints SET {ended} WHERE run_id = %({of})s AND checkpoint_id = 1"


def aborted_checkpoint(failure: str) -> str:
    return checkpoint_with(status="'ABORTED'", failure=f"'{failure}'", reason="'x'", ended_at="now()")


VOIDED = "epoch = 1 AND voided_at IS NOT NULL"
EVERY = "acknowledgements = '{\"centroids\": [1]}'"
FAILED = "ended_at = now(), outcome = 'FAILED', reason = 'x'"
HAS_FAILED = set_run("durable", "status = 'FAILED', failure = 'x'")
ALL = "records = '{\"centroids\": [1, 1, 1]}'"
DONE = f"{EVERY}, manifest_path = 'p', manifest_sha256 = {SHA}, size_bytes = 1, ended_at = now()"

CONSTRAINTS = {
    # branches
    "a run that branches twice": Illegal("branches_pkey", branch_with(run_id="%(branch)s")),
    "a branch that is no run": Illegal(
        "branches_run_id_fkey", branch_with(run_id="gen_random_uuid()"), ("branches_guard",)
    ),
    "a branch of no checkpoint": Illegal(
        "branches_origin_fkey", branch_with(origin_checkpoint_id="99"), ("branches_guard",)
    ),
    "a branch of half an origin": Illegal(
        "branches_origin_check", branch_with(origin_checkpoint_id="NULL"), ("branches_guard",)
    ),
    "a branch behind no epoch": Illegal("branches_epoch_check", branch_with(epoch="-1"), ("branches_guard",)),
    "a branch of a manifest without a digest": Illegal(
        "branches_manifest_sha256_check",
        branch_with(origin_run_id="NULL", origin_checkpoint_id="NULL", manifest_sha256="'x'"),
    ),
    "a branch of no mode": Illegal("branches_mode_check", branch_with(mode="'BORROW'")),
    # checkpoint_pins
    "a checkpoint that is pinned twice": Illegal("checkpoint_pins_pkey", pinned_with(checkpoint_id="1")),
    "a pin of no checkpoint": Illegal(
        "checkpoint_pins_checkpoint_fkey", pinned_with(checkpoint_id="9"), ("checkpoint_pins_guard",)
    ),
    # fallbacks
    "a second fallback of an attempt": Illegal(
        "fallbacks_pkey", fallback_with(run_id="%(fallen)s"), ("fallbacks_guard",)
    ),
    "a fallback of no attempt": Illegal(
        "fallbacks_attempt_fkey", fallback_with(fencing_token="9"), ("fallbacks_guard",)
    ),
    "a fallback to a newer checkpoint": Illegal(
        "fallbacks_older_check", fallback_with(to_checkpoint_id="4"), ("fallbacks_guard",)
    ),
    # stops
    "a stop's id twice": Illegal("stops_pkey", stop_with(stop_id="%(stop)s")),
    "a stop of no run": Illegal("stops_run_id_fkey", stop_with(run_id="gen_random_uuid()"), ("stops_guard",)),
    "a stop of another kind": Illegal("stops_kind_check", stop_with(kind="'PAUSE'")),
    "a drain that stops": Illegal(
        "stops_stopped_check", stop_with(kind="'DRAIN'", stopped_at="now()"), ("stops_guard",)
    ),
    "a stop that was resumed by nobody": Illegal("stops_resumed_check", stop_with(resumed_by="'ann'")),
    "a second stop in force": Illegal("stops_in_force_key", stop_with(run_id="%(stopping)s")),
    # runs
    "a run that somebody deleted, and is there": Illegal("runs_deleted_check", set_run("run", "deleted_by = 'ann'")),
    "a run's id twice": Illegal("runs_pkey", run_with(run_id="%(run)s")),
    "a run's key twice": Illegal("runs_run_key_key", run_with(run_key="%(key)s")),
    "a run without a key": Illegal("runs_run_key_check", run_with(run_key="''")),
    "a run without buckets": Illegal("runs_max_buckets_check", run_with(max_buckets="0")),
    "a run of no epoch": Illegal("runs_max_epochs_check", run_with(max_epochs="0")),
    "a run of unknown status": Illegal("runs_status_check", run_with(status="'PAUSED'"), ("runs_start_guard",)),
    "a negative token": Illegal("runs_fencing_token_check", run_with(fencing_token="-1"), ("runs_start_guard",)),
    "a durable epoch below none": Illegal("runs_last_durable_epoch_check", run_with(last_durable_epoch="-2")),
    "an unknown rule of termination": Illegal(
        "runs_terminated_by_check",
        run_with(status="'FAILED'", failure="'x'", terminated_by="'luck'"),
        ("runs_start_guard",),
    ),
    "terminating by no rule": Illegal(
        "runs_terminating_check", run_with(status="'TERMINATING'", last_durable_epoch="0"), ("runs_start_guard",)
    ),
    "terminating without a durable epoch": Illegal(
        "runs_terminating_check",
        run_with(status="'TERMINATING'", terminated_by="'criteria'"),
        ("runs_start_guard",),
    ),
    "running on after termination": Illegal(
        "runs_running_check", run_with(terminated_by="'criteria'"), ("runs_start_guard",)
    ),
    "finished without outputs": Illegal(
        "runs_finished_check",
        set_run("left terminating", "status = 'FINISHED', state_digest = 'd', finished_at = now()"),
    ),
    "finished with outputs that have no names": Illegal(
        "runs_finished_check",
        set_run("left terminating", "status = 'FINISHED', outputs = 'null', state_digest = 'd', finished_at = now()"),
    ),
    "finished without a digest": Illegal(
        "runs_finished_check", set_run("left terminating", "status = 'FINISHED', outputs = '{}', finished_at = now()")
    ),
    "finished at no time": Illegal(
        "runs_finished_check", set_run("left terminating", "status = 'FINISHED', outputs = '{}', state_digest = 'd'")
    ),
    "outputs before the end": Illegal("runs_finished_check", set_run("run", "outputs = '{}'")),
    "a digest before the end": Illegal("runs_finished_check", set_run("terminating", "state_digest = 'd'")),
    "an end before the end": Illegal("runs_finished_check", set_run("terminating", "finished_at = now()")),
    "an abort below no checkpoint": Illegal(
        "runs_aborted_through_check", run_with(aborted_through="-1"), ("runs_start_guard",)
    ),
    "an abort beyond the next checkpoint": Illegal(
        "runs_aborted_through_check", set_run("durable", "aborted_through = last_checkpoint_id + 2")
    ),
    "a reason without a failure": Illegal("runs_failure_check", set_run("run", "failure = 'x'")),
    # attempts
    "a token twice": Illegal("attempts_pkey", attempt_with(fencing_token="1"), ("attempts_guard",)),
    "an attempt's id twice": Illegal(
        "attempts_attempt_id_key", attempt_with(attempt_id="%(attempt)s"), ("attempts_guard",)
    ),
    "an attempt of no run": Illegal("attempts_run_id_fkey", attempt_with(run_id="gen_random_uuid()")),
    "a token below the first": Illegal(
        "attempts_fencing_token_check", attempt_with(fencing_token="0"), ("attempts_guard",)
    ),
    "an unknown outcome": Illegal("attempts_outcome_check", set_attempt(2, "ended_at = now(), outcome = 'LOST'")),
    "an end without an outcome": Illegal("attempts_ended_check", set_attempt(2, "ended_at = now()")),
    "an outcome without an end": Illegal("attempts_ended_check", set_attempt(2, "outcome = 'RELEASED'")),
    "an operator that failed in no epoch": Illegal(
        "attempts_failed_check", set_attempt(2, f"{FAILED}, failed_operator_id = 'sums'")
    ),
    "an operator that failed in an epoch before the first": Illegal(
        "attempts_failed_check", set_attempt(2, f"{FAILED}, failed_operator_id = 'sums', failed_epoch = -2")
    ),
    "an operator that failed and an attempt that did not": Illegal(
        "attempts_failed_check", set_attempt(2, "failed_operator_id = 'sums', failed_epoch = 0")
    ),
    "fewer failures than none": Illegal(
        "attempts_checkpoint_failures_check", set_attempt(2, "checkpoint_failures = -1"), ("attempts_count_guard",)
    ),
    "two live attempts": Illegal("attempts_live_key", attempt_with(run_id="%(run)s", fencing_token="3")),
    # operators and pins
    "an operator twice": Illegal("operators_pkey", operator_with(operator_id="'x'")),
    "an operator of no run": Illegal(
        "operators_run_id_fkey", operator_with(run_id="gen_random_uuid()", added_under="0")
    ),
    "an operator's unknown role": Illegal("operators_role_check", operator_with(role="'sink'")),
    "an operator's unknown kind": Illegal("operators_kind_check", operator_with(kind="'stream'")),
    "a marker without its files": Illegal(
        "operators_finished_check",
        operator_with(finished_epoch="0", fencing_token="2", finished_at="now()"),
        ("operators_guard",),
    ),
    "files without a marker": Illegal("operators_finished_check", operator_with(output="'{}'")),
    "a marker of no attempt": Illegal(
        "operators_attempt_fkey",
        operator_with(finished_epoch="0", fencing_token="7", finished_at="now()", output="'{}'"),
        ("operators_guard",),
    ),
    "a pin twice": Illegal("pins_pkey", "INSERT INTO pins VALUES (%(run)s, 'points', 2, 'f', '{}')"),
    "a pin of no run": Illegal(
        "pins_run_id_fkey",
        "INSERT INTO pins VALUES (gen_random_uuid(), 'x', 2, 'f', '{}')",
        ("pins_writer_guard", "pins_attempt_fkey"),
    ),
    "a pin of no attempt": Illegal(
        "pins_attempt_fkey", "INSERT INTO pins VALUES (%(run)s, 'x', 7, 'f', '{}')", ("pins_writer_guard",)
    ),
    # epochs
    "an epoch twice under one token": Illegal("epochs_pkey", epoch_with(epoch="0"), ("epochs_epoch_key",)),
    "an epoch of no attempt": Illegal(
        "epochs_attempt_fkey", epoch_with(fencing_token="7", expected_reports="1", reports="0"), ("epochs_guard",)
    ),
    "an epoch before the first": Illegal("epochs_epoch_check", epoch_with(epoch="-1")),
    "an epoch without subtasks": Illegal("epochs_reports_check", epoch_with(records="'{}'"), ("epochs_held_check",)),
    "an open epoch with a decision": Illegal("epochs_open_check", set_epoch(2, "decision = '{}'")),
    "a decision that is no object": Illegal(
        "epochs_decision_check",
        set_epoch(2, f"status = 'ALIGNED', {ALL}, held_at = now(), aligned_at = now(), decision = '7'"),
    ),
    "an open epoch that aligned": Illegal("epochs_open_check", set_epoch(2, "aligned_at = now()")),
    "alignment without every report": Illegal(
        "epochs_aligned_check",
        set_epoch(2, f"status = 'ALIGNED', decision = '{decision(1)}', aligned_at = now()"),
    ),
    "alignment without a decision": Illegal(
        "epochs_aligned_check", set_epoch(2, f"status = 'ALIGNED', {ALL}, held_at = now(), aligned_at = now()")
    ),
    "alignment at no time": Illegal(
        "epochs_aligned_check",
        set_epoch(2, f"status = 'ALIGNED', {ALL}, held_at = now(), decision = '{decision(3)}'"),
    ),
    "held before every report": Illegal(
        "epochs_held_check", "UPDATE epochs SET held_at = now() WHERE run_id = %(awaited)s AND epoch = 1"
    ),
    "every report at no time": Illegal("epochs_held_check", set_epoch(2, ALL)),
    "a switch for an unknown reason": Illegal(
        "epochs_unaligned_by_check", switched("unaligned_by = 'luck', unaligned_at = now()")
    ),
    "a switch at no time": Illegal("epochs_unaligned_check", switched("unaligned_by = 'timeout'")),
    "a switch for no reason": Illegal("epochs_unaligned_check", switched("unaligned_at = now()")),
    "durable at no time": Illegal(
        "epochs_durable_check",
        f"{DEFERRED}; UPDATE checkpoints SET status = 'COMPLETED', {DONE} WHERE run_id = %(closing)s; "
        "UPDATE epochs SET status = 'DURABLE' WHERE run_id = %(closing)s",
    ),
    "durable before it is": Illegal("epochs_durable_check", set_epoch(1, "durable_at = now()")),
    "an epoch twice in force": Illegal(
        "epochs_epoch_key",
        epoch_with(
            run_id="%(run)s",
            epoch="0",
            fencing_token="2",
            status="'ALIGNED'",
            records="'{\"c\": [1]}'",
            decision="'{}'",
            held_at="now()",
            aligned_at="now()",
            expected_reports="1",
            reports="1",
        ),
        ("epochs_guard",),
    ),
    "two open epochs": Illegal(
        "epochs_open_key",
        epoch_with(run_id="%(run)s", epoch="2", reports="0", expected_reports="1"),
        ("epochs_guard", "epochs_epoch_key"),
    ),
    # checkpoints
    "a checkpoint's id twice": Illegal(
        "checkpoints_pkey",
        checkpoint_with(run_id="%(run)s", checkpoint_id="1", epoch="2", fencing_token="2"),
        ("checkpoints_issue_guard",),
    ),
    "a checkpoint of no epoch": Illegal(
        "checkpoints_epoch_fkey", checkpoint_with(epoch="7"), ("checkpoints_issue_guard",)
    ),
    "a checkpoint's id below the first": Illegal(
        "checkpoints_checkpoint_id_check", checkpoint_with(checkpoint_id="0"), ("checkpoints_issue_guard",)
    ),
    "a checkpoint of unknown kind": Illegal(
        "checkpoints_kind_check", checkpoint_with(kind="'LUCKY'"), ("checkpoints_issue_guard",)
    ),
    "a checkpoint that wants none": Illegal("checkpoints_acknowledged_check", checkpoint_with(acknowledgements="'{}'")),
    "completed without every acknowledgement": Illegal(
        "checkpoints_completed_check",
        set_checkpoint(2, f"status = 'COMPLETED', {DONE}".replace(f"{EVERY}, ", "")),
        ("checkpoints_completed_key",),
    ),
    "completed without a manifest": Illegal(
        "checkpoints_completed_check",
        set_checkpoint(2, f"status = 'COMPLETED', {EVERY}, size_bytes = 1, ended_at = now()"),
        ("checkpoints_completed_key",),
    ),
    "completed without a size": Illegal(
        "checkpoints_completed_check",
        set_checkpoint(2, f"status = 'COMPLETED', {DONE}".replace("size_bytes = 1, ", "")),
        ("checkpoints_completed_key",),
    ),
    "a pending checkpoint that has its files": Illegal(
        "checkpoints_unwritten_check", set_checkpoint(2, f"manifest_path = 'p', manifest_sha256 = {SHA}")
    ),
    "a pending checkpoint of a size": Illegal("checkpoints_unwritten_check", set_checkpoint(2, "size_bytes = 1")),
    "a checkpoint of less than no bytes": Illegal(
        "checkpoints_size_check", subsumed("size_bytes = 1", "size_bytes = -1")
    ),
    "a manifest without a digest": Illegal("checkpoints_manifest_check", subsumed(SHA, "NULL")),
    "a digest that is none": Illegal("checkpoints_manifest_check", subsumed(SHA, "'x'")),
    "a digest in capitals": Illegal("checkpoints_manifest_check", subsumed(SHA, f"upper({SHA})")),
    "aborted without a reason": Illegal(
        "checkpoints_aborted_check", set_checkpoint(2, "status = 'ABORTED', failure = 'DECLINED', ended_at = now()")
    ),
    "a reason without being aborted": Illegal("checkpoints_aborted_check", set_checkpoint(2, "reason = 'x'")),
    "aborted by no failure": Illegal(
        "checkpoints_failed_check", set_checkpoint(2, "status = 'ABORTED', reason = 'x', ended_at = now()")
    ),
    "a failure without being aborted": Illegal("checkpoints_failed_check", set_checkpoint(2, "failure = 'EXPIRED'")),
    "an unknown failure": Illegal(
        "checkpoints_failure_check",
        set_checkpoint(2, "status = 'ABORTED', failure = 'LOST', reason = 'x', ended_at = now()"),
    ),
    "pending after its end": Illegal("checkpoints_ended_check", set_checkpoint(2, "ended_at = now()")),
    "ended at no time": Illegal(
        "checkpoints_ended_check", set_checkpoint(2, "status = 'ABORTED', failure = 'DECLINED', reason = 'x'")
    ),
    "late without every acknowledgement": Illegal(
        "checkpoints_completed_check",
        set_checkpoint(2, f"status = 'SUBSUMED', {DONE}".replace(f"{EVERY}, ", "")),
    ),
    "late without a manifest": Illegal(
        "checkpoints_completed_check",
        set_checkpoint(2, f"status = 'SUBSUMED', {EVERY}, size_bytes = 1, ended_at = now()"),
    ),
    "two completed checkpoints": Illegal(
        "checkpoints_completed_key", set_checkpoint(2, f"status = 'COMPLETED', {DONE}")
    ),
    "two checkpoints of an epoch": Illegal(
        "checkpoints_epoch_key",
        checkpoint_with(run_id="%(run)s", checkpoint_id="9", epoch="1", fencing_token="2"),
        ("checkpoints_issue_guard",),
    ),
    # checkpoint_requests
    "a request's id twice": Illegal("checkpoint_requests_pkey", request_with(request_id="%(request)s")),
    "a request of no run": Illegal("checkpoint_requests_run_id_fkey", request_with(run_id="gen_random_uuid()")),
    "an answer by no checkpoint": Illegal(
        "checkpoint_requests_checkpoint_fkey", request_with(checkpoint_id="7"), ("checkpoint_requests_guard",)
    ),
    # edge_parts
    "a part's id twice": Illegal(
        "edge_parts_pkey",
        "INSERT INTO edge_parts OVERRIDING SYSTEM VALUE SELECT part_id, run_id, epoch, 'x', 0, 1, 1, fencing_token, "
        "output, metrics FROM edge_parts WHERE run_id = %(run)s AND epoch = 1 "
        "AND voided_at IS NULL",
    ),
    "a part of no attempt": Illegal(
        "edge_parts_attempt_fkey",
        part_with(epoch="-1", operator_id="'norms'", total="4", fencing_token="7"),
        ("edge_parts_writer_guard",),
    ),
    "a part before all epochs but one": Illegal("edge_parts_epoch_check", part_with(epoch="-2")),
    "a part before the first bucket": Illegal("edge_parts_buckets_check", part_with(first_bucket="-1")),
    "a part without buckets": Illegal("edge_parts_buckets_check", part_with(first_bucket="1")),
    "a part behind the last bucket": Illegal("edge_parts_buckets_check", part_with(end_bucket="9")),
    "a part twice": Illegal(
        "edge_parts_live_key", part_with(operator_id="'y'", end_bucket="2", total="4"), instead=("edge_parts_guard",)
    ),
    # committables
    "what is prepared twice": Illegal("committables_pkey", committable_with(output="'rows'")),
    "what is prepared of no epoch": Illegal(
        "committables_epoch_fkey", committable_with(epoch="7"), ("committables_guard",)
    ),
    "what is prepared of no output": Illegal(
        "committables_output_check", committable_with(output="''"), ("committables_guard",)
    ),
    "what is prepared and is no object": Illegal("committables_content_check", committable_with(content="'[]'")),
    # listener_notices
    "a notice twice": Illegal("listener_notices_pkey", notice_with(listener_id="'log'"), ("listener_notices_guard",)),
    "a notice of no attempt": Illegal(
        "listener_notices_attempt_fkey", notice_with(fencing_token="7"), ("listener_notices_writer_guard",)
    ),
    "a notice before the first epoch": Illegal(
        "listener_notices_epoch_check", notice_with(epoch="-1"), ("listener_notices_guard",)
    ),
}

GUARDS = {
    **{
        f"a fallback {what}": Illegal("cannot fall back", f"{DEFERRED}; {fallback_with(**columns)}")
        for what, columns in {
            "behind what a listener has heard": {"to_checkpoint_id": "1", "epoch": "0"},
            "to another epoch": {"epoch": "2"},
            "from another checkpoint than the newest": {"from_checkpoint_id": "9"},
            "of an attempt that has ended": {"fencing_token": "1"},
            "while an epoch is open": {"run_id": "%(older open)s"},
            "while an epoch is aligned": {"run_id": "%(older aligned)s"},
            "behind what a sink publishes": {"run_id": "%(older published)s"},
            "of a run that terminates": {
                "run_id": "%(ending)s",
                "fencing_token": "1",
                "from_checkpoint_id": "2",
                "to_checkpoint_id": "1",
                "epoch": "0",
            },
        }.items()
    },
    "another reason of a fallback": Illegal(
        "a fallback of run", "UPDATE fallbacks SET reason = 'x' WHERE run_id = %(fallen)s"
    ),
    "a stop of a run that does not go on": Illegal("does not go on", stop_with(run_id="%(terminating)s")),
    "a stop that has stopped its run beforehand": Illegal("does not go on", stop_with(stopped_at="now()")),
    **{
        f"another {column} of a stop": Illegal("the identity of stop", set_stop(f"{column} = {value}"))
        for column, value in {
            "stop_id": "gen_random_uuid()",
            "run_id": "%(terminating)s",
            "kind": "'DRAIN', stopped_at = NULL",
            "requested_by": "'bob'",
            "requested_at": "now()",
        }.items()
    },
    "another answer of a stop": Illegal("is answered", set_stop("stopped_at = now() + interval '1 day'")),
    "another resumer of a stop": Illegal("is answered", set_stop("resumed_by = 'carl'", of="resumed")),
    "an answer of a stop whose run goes on": Illegal(
        "is not stopped", f"{DEFERRED}; {set_stop('stopped_at = now()', of='stopping')}"
    ),
    "a run that nobody asked to stop": Illegal(
        "is STOPPED, and is not what a person asked for", set_run("left durable", "status = 'STOPPED'")
    ),
    "a run that is resumed by nobody": Illegal(
        "nobody has resumed run", DEFERRED + "; " + set_run("stopped", "status = 'RUNNING'")
    ),
    "a run that is stopped while it is driven": Illegal(
        "is driven and cannot be stopped", set_run("stopping", "status = 'STOPPED'")
    ),
    "a run that is finished while it is driven": Illegal(
        "is driven and cannot be finished",
        set_run("terminating", "status = 'FINISHED', outputs = '{}', state_digest = 'd', finished_at = now()"),
    ),
    "a run that fails while it is driven": Illegal(
        "is driven and cannot be failed", set_run("run", "status = 'FAILED', failure = 'x'")
    ),
    "a run that fails by a rule that no epoch decided by": Illegal(
        "did not decide that it terminates",
        f"{DEFERRED}; {ended('FAILED', of='durable')}; "
        + set_run("durable", "status = 'FAILED', failure = 'x', terminated_by = 'drained'"),
    ),
    "a finished run that fails": Illegal(
        "cannot go from FINISHED to FAILED",
        set_run(
            "finished",
            "status = 'FAILED', failure = 'x', outputs = NULL, state_digest = NULL, finished_at = NULL",
        ),
    ),
    "a finished run that terminates again": Illegal(
        "cannot go from FINISHED to TERMINATING",
        set_run("finished", "status = 'TERMINATING', outputs = NULL, state_digest = NULL, finished_at = NULL"),
    ),
    "a run that is deleted while an epoch is open": Illegal(
        "has something that is not durable",
        set_run("left open", "status = 'DELETED', deleted_by = 'ann', deleted_at = now()"),
    ),
    "a run that is finished with what is not committed": Illegal(
        "has something that is not committed",
        set_run("left uncommitted", "status = 'FINISHED', outputs = '{}', state_digest = 'd', finished_at = now()"),
    ),
    "a stopped run that changes": Illegal("is over or stopped", set_run("stopped", "failure = 'x'")),
    "a token of a stopped run": Illegal(
        "is over or stopped", set_run("stopped", "fencing_token = 2, attempt_id = gen_random_uuid()")
    ),
    "a branch that has begun": Illegal("does not begin behind epoch 0", branch_with(run_id="%(fresh)s")),
    "a branch behind another epoch": Illegal("does not begin behind epoch 1", branch_with(epoch="1")),
    "a branch of a pending checkpoint": Illegal("is not there", branch_with(origin_checkpoint_id="2")),
    "a branch of another manifest": Illegal("is not there", branch_with(manifest_sha256=f"'{'cd' * 32}'")),
    "a branch that never held its origin": Illegal("is released once", branch_with(released_at="now()")),
    "a branch that is released without a checkpoint": Illegal("is released once", set_branch("released_at = now()")),
    **{
        f"another {column} of a branch": Illegal("is released once", set_branch(f"{column} = {value}"))
        for column, value in {"epoch": "1", "uri": "'/t'", "mode": "'CLAIM'", "origin_run_id": "NULL"}.items()
    },
    "a run that is deleted while it is driven": Illegal(
        "is driven and cannot be deleted",
        set_run("fresh", "status = 'DELETED', deleted_by = 'ann', deleted_at = now()"),
    ),
    "a pin of a pending checkpoint": Illegal("is not there", pinned_with(run_id="%(left pending)s", checkpoint_id="1")),
    **{
        f"another {column} of a pin": Illegal(
            "the pin of checkpoint", f"UPDATE checkpoint_pins SET {column} = {value} WHERE run_id = %(older)s"
        )
        for column, value in {"checkpoint_id": "2", "pinned_by": "'bob'"}.items()
    },
    "a checkpoint that a person pins, discarded": Illegal(
        "checkpoint 1 of run",
        "UPDATE checkpoints SET status = 'DISCARDED' WHERE run_id = %(older)s AND checkpoint_id = 1",
    ),
    "a checkpoint that a branch pins, discarded": Illegal(
        "checkpoint 2 of run",
        "UPDATE checkpoints SET status = 'DISCARDED' WHERE run_id = %(older)s AND checkpoint_id = 2",
    ),
    "the newest checkpoint of a run that is there, discarded": Illegal(
        "checkpoint 1 of run",
        "UPDATE checkpoints SET status = 'DISCARDED' WHERE run_id = %(durable)s AND checkpoint_id = 1",
    ),
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
            "params": "'{\"x\": 1}'",
            "state_uri": "'/elsewhere'",
            "max_epochs": "7",
        }.items()
    },
    "another definition though an epoch is open": Illegal("the operators of run", set_run("run", "definition = '{}'")),
    "another definition though nobody says what changed": Illegal(
        "the operators of run", set_run("fallen", "definition = '{}'")
    ),
    "another definition though nobody drives": Illegal("the operators of run", set_run("changed", "definition = '{}'")),
    "a finished run that changes": Illegal(
        "is over or stopped and cannot change", set_run("finished", "outputs = '{}'")
    ),
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
            "policy": "'{}'",
            "started_at": "now() + interval '1 day'",
            "ignores_edges": "true",
        }.items()
    },
    "another attempt under the token in force": Illegal(
        "who holds the token of run", set_run("fresh", "attempt_id = gen_random_uuid()")
    ),
    "an attempt under a token that was never issued": Illegal("token 3 of run", attempt_with(fencing_token="3")),
    "an attempt that the token was not issued to": Illegal(
        "token 2 of run", attempt_with(attempt_id="gen_random_uuid()")
    ),
    "an attempt that begins as one that has ended": Illegal(
        "does not begin as one that has ended", attempt_with(ended_at="now()", outcome="'RELEASED'")
    ),
    "an attempt of a run that has failed": Illegal(
        "the run is FAILED, epoch none",
        f"{DEFERRED}; UPDATE epochs SET status = 'VOIDED' WHERE run_id = %(failed)s; "
        + begun("failed")
        + "; SET CONSTRAINTS attempts_begun_guard IMMEDIATE",
    ),
    "an attempt that leaves an epoch of another one": Illegal(
        "the run is RUNNING, epoch 0 of another attempt is left",
        f"{DEFERRED}; {begun('left aligned')}; SET CONSTRAINTS attempts_begun_guard IMMEDIATE",
    ),
    "an attempt that ends and leaves its checkpoint pending": Illegal(
        "has ended, and leaves a checkpoint pending", ended("RELEASED", of="pending")
    ),
    **{
        f"an attempt that has {outcome}, and its run has not": Illegal(
            f"has {outcome}, and its run has not", ended(outcome, of="fresh")
        )
        for outcome in ("FAILED", "FINISHED")
    },
    "other changes of the operators": Illegal(
        "has said how its operators are others",
        "UPDATE attempts SET definition_changes = '{x}' WHERE run_id = %(older)s AND fencing_token = 2",
    ),
    "a run that is let go and asked to stop, and goes on": Illegal(
        "is RUNNING, and is not what a person asked for", ended("RELEASED", of="stopping")
    ),
    "a stop of a run that nobody drives and that goes on": Illegal(
        "is RUNNING, and is not what a person asked for", stop_with(run_id="%(left open)s")
    ),
    "a run that is stopped without an answer": Illegal(
        "is STOPPED, and is not what a person asked for",
        f"{DEFERRED}; {ended('RELEASED', of='leaving')}; "
        "UPDATE runs SET status = 'STOPPED' WHERE run_id = %(leaving)s; SET CONSTRAINTS runs_stopped_guard IMMEDIATE",
    ),
    "a run that failed and goes on undriven, though a person asked it to stop": Illegal(
        "has failed, and nobody drives it on",
        set_run("failed to stop", "status = 'RUNNING', failure = NULL"),
    ),
    "a stop that is resumed, and its run is not": Illegal(
        "is STOPPED, and is not what a person asked for", set_stop("resumed_by = 'bob', resumed_at = now()")
    ),
    "an epoch that ends its run, and the run goes on": Illegal(
        "is the final one, and run", f"{made_durable('closing')}; SET CONSTRAINTS checkpoints_end_guard IMMEDIATE"
    ),
    "a durable epoch that publishes nothing of what it should": Illegal(
        "of it is not stored", f"{made_durable('publishing')}; SET CONSTRAINTS runs_published_guard IMMEDIATE"
    ),
    "a request of a run that is over": Illegal("does not go on, or the request", request_with(run_id="%(finished)s")),
    "a request of a run that terminates": Illegal(
        "does not go on, or the request", request_with(run_id="%(terminating)s")
    ),
    "a request of a run that is stopped": Illegal("does not go on, or the request", request_with(run_id="%(stopped)s")),
    "a request that begins as answered": Illegal(
        "does not go on, or the request", request_with(run_id="%(asked)s", checkpoint_id="1")
    ),
    "an answer by a checkpoint that nobody asked for": Illegal(
        "checkpoint 1 does not answer", "UPDATE checkpoint_requests SET checkpoint_id = 1 WHERE run_id = %(asked)s"
    ),
    "a checkpoint that is not made by hand where a person asked": Illegal(
        "checkpoint 2 of epoch 1 is of kind PERIODIC",
        checkpoint_with(run_id="%(asked)s", checkpoint_id="2", epoch="1"),
    ),
    "a checkpoint that is made by hand, and nobody asked": Illegal(
        "checkpoint 1 of epoch 0 is of kind MANUAL", checkpoint_with(kind="'MANUAL'")
    ),
    "a fallback that keeps a durable epoch": Illegal(
        "not all after it is given up", f"{fallen_back(epochs=False)}; {AT_THE_END}"
    ),
    "a fallback that keeps a checkpoint": Illegal(
        "not all after it is given up", f"{fallen_back(checkpoints=False)}; {AT_THE_END}"
    ),
    "a listener that hears of what a fallback gives up, in that step": Illegal(
        "or somebody has heard of it",
        f"{DEFERRED}; {fallback_with()}; "
        "INSERT INTO listener_notices (run_id, listener_id, epoch, fencing_token) VALUES (%(older)s, 'log', 2, 2); "
        + fallen_back().partition(f"{fallback_with()}; ")[2]
        + f"; UPDATE runs SET last_durable_epoch = 1 WHERE run_id = %(older)s; {AT_THE_END}",
    ),
    "an epoch that opens before a fallback has given up all, in that step": Illegal(
        "epoch 2 cannot go from DURABLE to VOIDED",
        f"{fallen_back(epochs=False)}; {epoch_with(run_id='%(older)s', epoch='3', fencing_token='2')}; "
        "UPDATE epochs SET status = 'VOIDED', durable_at = NULL WHERE run_id = %(older)s AND epoch = 2",
    ),
    "a lower last_durable_epoch than a durable one": Illegal(
        "only grow", f"{fallen_back(epochs=False)}; UPDATE runs SET last_durable_epoch = 1 WHERE run_id = %(older)s"
    ),
    "a durable epoch of the attempt that fell back, voided": Illegal(
        "epoch 2 cannot go from DURABLE to VOIDED",
        "UPDATE epochs SET status = 'VOIDED', durable_at = NULL "
        "WHERE run_id = %(fallen)s AND epoch = 2 AND fencing_token = 2",
    ),
    "what is prepared of an epoch that does not publish it": Illegal(
        "publishes no model", committable_with(output="'model'")
    ),
    "what is prepared of an output that no sink takes": Illegal(
        "publishes no other", committable_with(output="'other'")
    ),
    "durable epochs without a checkpoint": Illegal(
        "no completed checkpoint", set_run("durable", "last_durable_epoch = 5")
    ),
    "an attempt that comes back": Illegal(
        "attempt 1 has ended and cannot change", set_attempt(1, "ended_at = NULL, outcome = NULL")
    ),
    **{
        f"an attempt that failed {reason} reason": Illegal(
            "has failed and does not say why",
            f"{DEFERRED}; " + set_attempt(2, f"ended_at = now(), outcome = 'FAILED', reason = {value}"),
        )
        for reason, value in {"without a": "NULL", "for an empty": "''"}.items()
    },
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
        }.items()
    },
    **{
        f"another {column} of an operator": Illegal("the operators of run", set_operator("x", f"{column} = {value}"))
        for column, value in {
            "position": "9",
            "name": "'z'",
            "role": "'data'",
            "kind": "'frame'",
        }.items()
    },
    "an operator added though an epoch is open": Illegal(
        "the operators of run", f"{DEFERRED}; {operator_with(run_id='%(fresh)s', added_under='1')}"
    ),
    "an operator taken away": Illegal(
        "the operators of run", "DELETE FROM operators WHERE run_id = %(run)s AND operator_id = 'x'"
    ),
    "a marker taken back": Illegal(
        "operator scaled has finished and cannot change",
        set_operator("scaled", "finished_epoch = NULL, fencing_token = NULL, output = NULL, finished_at = NULL"),
    ),
    "another output of an operator that finished": Illegal(
        "operator scaled has finished", set_operator("scaled", "output = '{}'")
    ),
    "a marker of an operator that does not finish for good": Illegal(
        "operator x does not finish for good", set_operator("x", finished(1))
    ),
    "a marker in another epoch than the one that is under way": Illegal(
        "operator norms does not finish for good", set_operator("norms", finished(0))
    ),
    "a marker that names no files": Illegal(
        "the marker of operator norms names no files",
        set_operator("norms", finished(1, output="null")),
    ),
    "a marker before what the operator takes": Illegal(
        "lacking: norms",
        f"UPDATE operators SET {finished(1)} WHERE run_id = %(wired)s AND operator_id = 'q'".replace("= 2", "= 1"),
    ),
    "another pin": Illegal("a pin of run", "UPDATE pins SET fingerprint = 'f9' WHERE run_id = %(run)s"),
    **{
        f"a lower {column}": Illegal("only grow", set_run("run", f"{column} = {column} - 1"))
        for column in ("fencing_token", "last_durable_epoch", "last_checkpoint_id", "aborted_through", "revision")
    },
    **{
        f"another {column} of an epoch": Illegal("the identity of epoch", set_epoch(1, f"{column} = {column} + 1"))
        for column in ("epoch", "fencing_token")
    },
    "another number of an open epoch": Illegal(
        "the identity of epoch", "UPDATE epochs SET epoch = 1 WHERE run_id = %(fresh)s AND epoch = 0"
    ),
    "another run of an epoch": Illegal("the identity of epoch", set_epoch(1, "run_id = %(terminating)s")),
    "an epoch after a gap": Illegal("epoch 9 does not follow", epoch_with(epoch="9")),
    "an epoch after an open one": Illegal(
        "epoch 3 does not follow", epoch_with(run_id="%(run)s", epoch="3", fencing_token="2")
    ),
    "an epoch after one that another attempt has left": Illegal(
        "epoch 1 does not follow",
        f"{DEFERRED}; "
        "UPDATE runs SET fencing_token = 2, attempt_id = %(next)s WHERE run_id = %(left aligned)s; "
        + attempt_with(run_id="%(left aligned)s", fencing_token="2")
        + "; "
        + epoch_with(run_id="%(left aligned)s", fencing_token="2"),
    ),
    "an epoch after the one that ends the run": Illegal(
        "epoch 1 does not follow", epoch_with(run_id="%(terminating)s")
    ),
    "another decision": Illegal(
        "the decision of epoch 1 cannot change", set_epoch(1, "decision = decision || '{\"x\": 1}'")
    ),
    **{
        f"another {column} of an epoch that switched": Illegal(
            "epoch 2 switches to unaligned once", set_epoch(2, f"{column} = {value}")
        )
        for column, value in {"unaligned_by": "'preemption'", "unaligned_at": "now() + interval '1 day'"}.items()
    },
    "an epoch that measured a text": Illegal(
        "what epoch 0 measured is no number",
        deciding(None).replace("held_at", 'metrics = \'{"a": "x"}\', held_at'),
    ),
    "an epoch that measured nothing": Illegal(
        "what epoch 0 measured is no number",
        deciding(None).replace("held_at", "metrics = '{\"a\": null}', held_at"),
    ),
    "a switch taken back": Illegal(
        "epoch 2 switches to unaligned once", set_epoch(2, "unaligned_by = NULL, unaligned_at = NULL")
    ),
    "a switch after the alignment": Illegal(
        "epoch 1 switches to unaligned once", set_epoch(1, "unaligned_by = 'timeout', unaligned_at = now()")
    ),
    **{
        f"another {column} of a measured epoch": Illegal(
            "what epoch 1 measured cannot change", set_epoch(1, f"{column} = {value}")
        )
        for column, value in {"metrics": "'{\"a\": 1}'", "seconds": "9", "held_at": "now() + interval '1 day'"}.items()
    },
    **{
        f"other reports of epoch {number}": Illegal(
            f"the reports of epoch {number} cannot change",
            set_epoch(number, f"records = '{{\"{head}\": [4]}}'", token),
        )
        for number, head, token in ((0, "centroids", 1), (1, "centroids", 2), (2, "another", 2))
    },
    "another report of a subtask": Illegal(
        "a report of epoch 2 is taken back", set_epoch(2, "records = '{\"centroids\": [2, null, null]}'")
    ),
    "a report that is taken back": Illegal(
        "a report of epoch 2 is taken back", set_epoch(2, "records = '{\"centroids\": [null, 3, null]}'")
    ),
    "an acknowledgement that is taken back": Illegal(
        "an acknowledgement of checkpoint 1 is taken back",
        "SET CONSTRAINTS ALL IMMEDIATE; "
        "UPDATE checkpoints SET acknowledgements = '{\"centroids\": [1]}' WHERE run_id = %(awaited)s; "
        "UPDATE checkpoints SET acknowledgements = '{\"centroids\": [null]}' WHERE run_id = %(awaited)s",
    ),
    "reports of fewer subtasks": Illegal(
        "the reports of epoch 2 cannot change", set_epoch(2, "records = '{\"centroids\": [1]}'")
    ),
    **{
        f"{what} as reports": Illegal("the reports of epoch 2 are no counts", set_epoch(2, f"records = '{records}'"))
        for what, records in {
            "fewer records than none": '{"centroids": [1, null, -1]}',
            "words": '{"centroids": [1, null, "many"]}',
            "no list": '{"centroids": 1}',
            "no subtask": '{"centroids": []}',
            "half a record": '{"centroids": [1, null, 1.5]}',
            "truth": '{"centroids": [1, null, true]}',
            "lists of lists": '{"centroids": [[5, 5], null, null]}',
        }.items()
    },
    "other acknowledgements of a completed checkpoint": Illegal(
        "the acknowledgements of checkpoint 1 cannot change",
        set_checkpoint(1, "acknowledgements = '{\"centroids\": [null]}'"),
    ),
    "acknowledgements by another": Illegal(
        "the acknowledgements of checkpoint 2 cannot change",
        set_checkpoint(2, "acknowledgements = '{\"another\": [1]}'"),
    ),
    "acknowledgements by more subtasks": Illegal(
        "the acknowledgements of checkpoint 2 cannot change",
        set_checkpoint(2, "acknowledgements = '{\"centroids\": [1, null]}'"),
    ),
    **{
        f"{what} as an acknowledgement": Illegal(
            "the acknowledgements of checkpoint 2 are not those",
            set_checkpoint(2, f"acknowledgements = '{{\"centroids\": [{value}]}}'"),
        )
        for what, value in {"another number": "2", "a word": '"x"', "truth": "true", "a list": "[1]"}.items()
    },
    "a token that another attempt does not take": Illegal(
        "who holds the token of run", set_run("fresh", "fencing_token = fencing_token + 1")
    ),
    "a token that leaves one out": Illegal(
        "who holds the token of run", set_run("fresh", "fencing_token = 3, attempt_id = gen_random_uuid()")
    ),
    "a token under which no attempt begins": Illegal(
        "has begun under token 2", set_run("fresh", "fencing_token = 2, attempt_id = gen_random_uuid()")
    ),
    "a decision taken back": Illegal("the decision of epoch 0 cannot change", set_epoch(0, "decision = NULL", 1)),
    **{
        f"another {column} of a checkpoint": Illegal(
            "the identity of checkpoint", set_checkpoint(2, f"{column} = {column} + 1")
        )
        for column in ("checkpoint_id", "epoch", "fencing_token")
    },
    "another kind of a checkpoint": Illegal("the identity of checkpoint", set_checkpoint(2, "kind = 'FINAL'")),
    "another run of a checkpoint": Illegal("the identity of checkpoint", set_checkpoint(2, "run_id = %(terminating)s")),
    "another end of a checkpoint": Illegal(
        "how checkpoint 1 ended cannot change", set_checkpoint(1, "ended_at = now() + interval '1 day'")
    ),
    **{
        f"another {column} of an aborted checkpoint": Illegal(
            "how checkpoint 1 ended cannot change",
            f"UPDATE checkpoints SET {column} = 'EXPIRED' WHERE run_id = %(failed)s AND checkpoint_id = 1",
        )
        for column in ("failure", "reason")
    },
    "another manifest": Illegal("the manifest of checkpoint 1 cannot change", set_checkpoint(1, "manifest_path = 'q'")),
    "another digest": Illegal(
        "the manifest of checkpoint 1 cannot change", set_checkpoint(1, f"manifest_sha256 = '{'cd' * 32}'")
    ),
    **{
        f"another {column} of a request": Illegal("the identity of request", set_request(f"{column} = {value}"))
        for column, value in {
            "request_id": "gen_random_uuid()",
            "run_id": "%(terminating)s",
            "requested_by": "'bob'",
            "requested_at": "now()",
        }.items()
    },
    "another answer of a request": Illegal("is answered", set_request("checkpoint_id = 1")),
    "an answer taken back": Illegal("is answered", set_request("checkpoint_id = NULL")),
    "a part that is there": Illegal("do not fit", part_of_y()),
    "a part inside another": Illegal("do not fit", part_of_y(first_bucket="1")),
    "a part around another": Illegal("do not fit", part_of_y(end_bucket="4")),
    "a part that overlaps another": Illegal("do not fit", part_of_y(first_bucket="1", end_bucket="3")),
    "a part of another total": Illegal("do not fit", part_of_y(first_bucket="2", end_bucket="3", total="5")),
    "a part of an operator that has finished": Illegal(
        "operator scaled has finished", part_with(epoch="-1", operator_id="'scaled'", total="4")
    ),
    "a part of an operator that the run does not have": Illegal(
        "no operator nobody", part_with(operator_id="'nobody'")
    ),
    "a part of more buckets than the run has": Illegal("no operator x with 17 buckets", part_with(total="17")),
    "a part of a value in halves": Illegal("no operator x with 2 buckets", part_with(total="2")),
    "a part of a data stream": Illegal("no operator points with 1 buckets", wired_part("points", total="1")),
    "a part of fewer buckets than the run has": Illegal("no operator w with 2 buckets", wired_part("w", total="2")),
    "a part in an epoch of an operator that finishes for good": Illegal(
        "operator norms is not computed in epoch 1", part_with(operator_id="'norms'", total="4")
    ),
    "a part of a variable that a checkpoint holds": Illegal(
        "operator p is not computed in epoch 1", wired_part("p", total="1")
    ),
    "a part that measured a text": Illegal("what operator x measured", part_with(metrics='\'{"loss": "low"}\'')),
    "a part that names no files": Illegal("a part of operator x names no files", part_with(output="'[]'")),
    "a part that begins as void": Illegal("or begins as void", part_with(voided_at="now()")),
    "a part in an epoch that is not there": Illegal(
        "epoch 7 does not come after the last durable one", part_with(epoch="7")
    ),
    "a part behind an epoch that is not durable": Illegal(
        "epoch 2 does not come after the last durable one", part_with(epoch="2")
    ),
    "a part in an epoch that is durable": Illegal(
        "epoch 0 does not come after the last durable one", part_with(epoch="0")
    ),
    "a part in an epoch that has switched, and whose attempt has ended": Illegal(
        "nobody drives run", part_with(run_id="%(failed)s", epoch="0", fencing_token="1")
    ),
    "a part in an epoch of another attempt": Illegal("epoch 1 has not switched", part_with(fencing_token="1")),
    "a part in an epoch that has not switched": Illegal(
        "epoch 0 has not switched", part_with(run_id="%(fresh)s", epoch="0", fencing_token="1")
    ),
    "a part for good of an operator that does not finish": Illegal(
        "operator v is not computed in epoch -1", wired_part("v", epoch="-1")
    ),
    "a part before another bucket of its input": Illegal(
        "operator w in epoch 1 come before v is finished", wired_part("w", first_bucket="1", end_bucket="3")
    ),
    "a value before its input": Illegal("operator u in epoch 1 come before w is finished", wired_part("u", total="1")),
    "a part before what finishes for good": Illegal(
        "operator t in epoch 1 come before norms", wired_part("t", total="1")
    ),
    "a part before the first value that it takes": Illegal(
        "operator v in epoch 0 come before p is finished", wired_part("v", run_id="%(wired at first)s", epoch="0")
    ),
    "a part that a takeover keeps, voided": Illegal(
        "no attempt may void a part of operator x in epoch 3",
        "UPDATE edge_parts SET voided_at = now() WHERE run_id = %(older with edges)s AND epoch = 3",
    ),
    "a part of an epoch that is under way, voided": Illegal(
        "no attempt may void a part of operator y in epoch 1", set_part("voided_at = now()")
    ),
    "an attempt that ignores edges and leaves some": Illegal(
        "ignores edges, and leaves some",
        f"{DEFERRED}; {ended('RELEASED', of='older with edges')}; "
        + begun("older with edges", 3, ignores_edges="true")
        + "; SET CONSTRAINTS attempts_ignore_guard IMMEDIATE",
    ),
    "a fallback that leaves edges behind what it gives up": Illegal(
        "only grow",
        f"{DEFERRED}; "
        + fallback_with(run_id="%(older with edges)s")
        + "; UPDATE checkpoints SET status = 'DISCARDED' WHERE run_id = %(older with edges)s AND checkpoint_id = 3"
        "; UPDATE checkpoints SET status = 'COMPLETED' WHERE run_id = %(older with edges)s AND checkpoint_id = 2"
        "; UPDATE epochs SET status = 'VOIDED', durable_at = NULL WHERE run_id = %(older with edges)s AND epoch = 2"
        "; UPDATE runs SET last_durable_epoch = 1 WHERE run_id = %(older with edges)s",
    ),
    "an epoch after too many checkpoints have failed": Illegal(
        "epoch 1 cannot open: too many checkpoints",
        epoch_with(run_id="%(failing)s"),
    ),
    "a checkpoint after too many have failed": Illegal(
        "checkpoint 2 cannot begin: too many", checkpoint_with(run_id="%(failing)s", checkpoint_id="2")
    ),
    "alignment of an epoch that is held": Illegal(
        "epoch 2 is held by the checkpoints that are pending",
        f"UPDATE epochs SET status = 'ALIGNED', decision = '{decision(3)}', aligned_at = now() "
        "WHERE run_id = %(held)s AND epoch = 2",
    ),
    "a notice of the end while the run goes on": Illegal("did not end with epoch 0", notice_with(is_final="true")),
    "a notice of the end with another epoch than the last": Illegal(
        "did not end with epoch 0", notice_with(run_id="%(ending)s", fencing_token="1", is_final="true")
    ),
    "a notice of the last epoch alone by who hears of each": Illegal(
        "has heard of no epoch before 1", notice_with(run_id="%(ending)s", fencing_token="1", epoch="1")
    ),
    **{
        f"another {column} of a part": Illegal("is voided once", set_part(f"{column} = {value}"))
        for column, value in {
            "run_id": "%(terminating)s",
            "epoch": "-1",
            "operator_id": "'z'",
            "first_bucket": "1",
            "end_bucket": "3",
            "total": "9",
            "fencing_token": "1",
            "output": "'{}'",
            "metrics": "'{}'",
            "finished_at": "now() + interval '1 day'",
            "output = '{}', voided_at": "now()",
        }.items()
    },
    "a part that is voided again by who ignores edges": Illegal(
        "is voided once", "UPDATE edge_parts SET voided_at = now() WHERE run_id = %(older ignoring)s AND epoch = 3"
    ),
    "a part of what has finished for good, voided by who ignores edges": Illegal(
        "no attempt may void a part of operator scaled in epoch -1",
        "UPDATE edge_parts SET voided_at = now() WHERE run_id = %(older ignoring)s AND epoch = -1",
    ),
    "an attempt whose policy says nothing": Illegal("does not say what is pending", attempt_with(policy="'{}'")),
    "an attempt whose policy is no whole number": Illegal(
        "does not say what is pending",
        attempt_with(policy='\'{"max_pending": 1, "tolerable_failures": 0.0}\''),
    ),
    "an attempt that begins with a failure": Illegal(
        "no checkpoint of attempt 2 has failed", attempt_with(checkpoint_failures="1")
    ),
    "a failure that is told": Illegal(
        "are counted, not told",
        "UPDATE attempts SET checkpoint_failures = 1 WHERE run_id = %(aligned)s AND fencing_token = 1",
    ),
    "failures that are forgotten": Illegal(
        "are counted, not told",
        "UPDATE attempts SET checkpoint_failures = 0 WHERE run_id = %(failing)s AND fencing_token = 1",
    ),
    "a failure that nobody counts": Illegal(
        "whose checkpoint 1 would end as DECLINED", aborted("DECLINED", of="left pending")
    ),
    **{
        f"a failure that is called {failure}": Illegal(f"is not aborted by {failure}", aborted(failure, of="pending"))
        for failure in ("ATTEMPT_ENDED", "ABORTED_BY_USER", "SUBSUMED")
    },
    "a checkpoint that begins as aborted, and nobody has": Illegal(
        "is not aborted by ABORTED_BY_USER", aborted_checkpoint("ABORTED_BY_USER")
    ),
    "a checkpoint that begins as one that has failed": Illegal(
        "begins as one that has failed", aborted_checkpoint("DECLINED")
    ),
    "a checkpoint of another epoch than the last": Illegal(
        "or its epoch is not the last one", checkpoint_with(run_id="%(crowded)s", checkpoint_id="2", epoch="1")
    ),
    "a checkpoint that ends, and leaves held what it held": Illegal(
        "the epoch that it held has not aligned",
        "UPDATE checkpoints SET status = 'ABORTED', failure = 'DECLINED', reason = 'x', ended_at = now() "
        "WHERE run_id = %(held)s AND checkpoint_id = 1",
    ),
    "an epoch that nothing holds and that does not align": Illegal(
        "nothing holds epoch 2", set_epoch(2, f"{ALL}, held_at = now()")
    ),
    "a notice of the end for who hears of each epoch": Illegal(
        "hears of epochs, or of the end",
        notice_with(run_id="%(ending)s", listener_id="'log'", fencing_token="1", epoch="1", is_final="true"),
    ),
    "a part that is voided twice": Illegal("is voided once", set_part("voided_at = now()", which=VOIDED)),
    "a part that comes back": Illegal("is voided once", set_part("voided_at = NULL", which=VOIDED)),
    "what is prepared of an aligned epoch": Illegal(
        "epoch 0 is not durable, or publishes no more", committable_with(run_id="%(publishing)s")
    ),
    "what is committed twice": Illegal(
        "is committed once, as it is", set_committable("committed_at = now()", output="seen")
    ),
    "what is committed no more": Illegal(
        "is committed once, as it is", set_committable("committed_at = NULL", output="seen")
    ),
    **{
        f"another {column} of what is prepared": Illegal(
            "is committed once, as it is", set_committable(f"{column} = {value}")
        )
        for column, value in {
            "epoch": "1",
            "output": "'z'",
            "fencing_token": "2",
            "target": "'z'",
            "content": "'{\"a\": 1}'",
            "stored_at": "now() + interval '1 day'",
        }.items()
    },
    "an operator that begins as finished": Illegal(
        "is not added as it is now",
        f"{DEFERRED}; "
        + operator_with(finished_epoch="0", fencing_token="2", finished_at="now()", output=f"'{FILES}'"),
    ),
    "an operator that was added before": Illegal(
        "is not added as it is now", f"{DEFERRED}; {operator_with(added_under='0')}"
    ),
    "an operator of a run that nobody drives": Illegal(
        "is not added as it is now", operator_with(run_id="%(left open)s", added_under="1")
    ),
    "another begin of an operator": Illegal("the identity of operator", set_operator("x", "added_under = 1")),
    "an epoch that begins as durable": Illegal(
        "does not begin as one that is DURABLE",
        "INSERT INTO epochs (run_id, epoch, fencing_token, records, status, decision, held_at, aligned_at, durable_at) "
        "SELECT run_id, epoch + 1, fencing_token, '{\"c\": [null]}', status, decision, held_at, aligned_at, durable_at "
        "FROM epochs WHERE run_id = %(durable)s AND epoch = 0",
    ),
    "a final checkpoint of an epoch that does not end the run": Illegal(
        "checkpoint 1 of epoch 0 is of kind FINAL", checkpoint_with(kind="'FINAL'")
    ),
    "a checkpoint that begins as discarded": Illegal(
        "does not begin as one that is DISCARDED", checkpoint_with(status="'DISCARDED'", ended_at="now()")
    ),
    "a failure of a hand-made checkpoint that is called SUBSUMED": Illegal(
        "is not aborted by SUBSUMED", aborted("SUBSUMED", of="left by hand")
    ),
    "a checkpoint that begins as completed": Illegal(
        "does not begin as one that is COMPLETED", checkpoint_with(status="'COMPLETED'", ended_at="now()")
    ),
    "a checkpoint that begins with acknowledgements": Illegal(
        "or with acknowledgements", checkpoint_with(acknowledgements="'{\"centroids\": [1, null]}'")
    ),
    "a failure without a reason": Illegal(
        "fails as its last attempt does",
        f"{DEFERRED}; {ended('FAILED', of='durable')}; " + set_run("durable", "status = 'FAILED'"),
    ),
    "a failure that no attempt had": Illegal(
        "fails as its last attempt does", set_run("left open", "status = 'FAILED', failure = 'x'")
    ),
    "a failure for another reason than its attempt's": Illegal(
        "fails as its last attempt does",
        f"{DEFERRED}; {ended('FAILED', of='durable')}; " + set_run("durable", "status = 'FAILED', failure = 'y'"),
    ),
    "another reason for a failure": Illegal(
        "fails as its last attempt does",
        f"{DEFERRED}; {ended('FAILED', of='durable')}; {HAS_FAILED}; " + set_run("durable", "failure = 'y'"),
    ),
    "a failed run that goes on, and nobody drives it": Illegal(
        "has failed, and nobody drives it on",
        f"{DEFERRED}; {ended('FAILED', of='durable')}; {HAS_FAILED}; "
        + set_run("durable", "status = 'RUNNING', failure = NULL"),
    ),
    "an attempt that is live and says why it ended": Illegal(
        "has not ended, and says why", set_attempt(2, "reason = 'x'")
    ),
    "an attempt that begins with a reason to have ended": Illegal(
        "does not begin as one that has ended", attempt_with(reason="'x'")
    ),
    "another reason for a failure of a run that is deleted": Illegal(
        "why run",
        f"{DEFERRED}; {ended('FAILED', of='durable')}; {HAS_FAILED}; "
        + set_run("durable", "status = 'DELETED', deleted_by = 'ann', deleted_at = now(), failure = 'y'"),
    ),
    "an open epoch that is measured": Illegal("measured cannot change", switched("seconds = 1")),
    "an epoch that aligned as it was voided": Illegal(
        "or became durable, cannot change",
        f"{DEFERRED}; {ended('RELEASED', of='fresh')}; " + switched("status = 'VOIDED', aligned_at = now()"),
    ),
    "a report that comes as an epoch is voided": Illegal(
        "the reports of epoch 0 cannot change",
        f"{DEFERRED}; {ended('RELEASED', of='fresh')}; "
        + switched("status = 'VOIDED', records = '{\"centroids\": [1]}', held_at = now(), seconds = 3"),
    ),
    "an epoch that begins as measured": Illegal("or with reports", epoch_with(seconds="1")),
    "an epoch that begins with metrics": Illegal("or with reports", epoch_with(metrics="'{\"x\": 1}'")),
    "an epoch that begins as unaligned": Illegal(
        "or with reports", epoch_with(unaligned_by="'timeout'", unaligned_at="now()")
    ),
    "another time at which an epoch opened": Illegal("the identity of epoch", set_epoch(1, "opened_at = now()")),
    "another time at which an epoch aligned": Illegal(
        "or became durable, cannot change", set_epoch(1, "aligned_at = now()")
    ),
    "another time at which an epoch became durable": Illegal(
        "or became durable, cannot change", set_epoch(0, "durable_at = now()", 1)
    ),
    "a void epoch that measured something": Illegal("measured cannot change", set_epoch(1, "seconds = 5", token=1)),
    "another time at which a void epoch aligned": Illegal(
        "or became durable, cannot change", set_epoch(1, "aligned_at = now()", token=1)
    ),
    "another time at which a checkpoint began": Illegal(
        "the identity of checkpoint", set_checkpoint(2, "triggered_at = now()")
    ),
    "an epoch that begins with reports": Illegal("or with reports", epoch_with(records="'{\"c\": [1, null]}'")),
    "a decision that says more": Illegal(
        "decided by what was not reported",
        deciding(None).replace(decision(4), json.dumps({**json.loads(decision(4)), "more": 1})),
    ),
    "an epoch that is void before the one behind it": Illegal(
        "and one behind it is not",
        f"{DEFERRED}; {ended('RELEASED', of='run')}; UPDATE epochs SET status = 'VOIDED' "
        "WHERE run_id = %(run)s AND status = 'ALIGNED'; SET CONSTRAINTS epochs_void_guard IMMEDIATE",
    ),
    "a checkpoint that completes and leaves an older one pending": Illegal(
        "does not end checkpoint 1",
        f"{made_durable('two pending', 2, 1)}; SET CONSTRAINTS checkpoints_end_guard IMMEDIATE",
    ),
    "a branch that completes a checkpoint and does not let its origin go": Illegal(
        "not let its origin go",
        f"{made_durable('branching', 1, 1)}; SET CONSTRAINTS checkpoints_end_guard IMMEDIATE",
    ),
    "a checkpoint's id that leaves one out": Illegal("only grow", set_run("run", "last_checkpoint_id = 4")),
    "an id that is issued for no checkpoint": Illegal(
        "is issued, and no", set_run("durable", "last_checkpoint_id = 2")
    ),
    "a checkpoint by hand that answers nobody": Illegal(
        "does not answer who asked",
        checkpoint_with(run_id="%(asked)s", checkpoint_id="2", epoch="1", kind="'MANUAL'"),
    ),
    "an answer by a checkpoint that began before": Illegal(
        "checkpoint 1 does not answer request",
        f"{DEFERRED}; {request_with(run_id='%(by hand)s')}; UPDATE checkpoint_requests SET checkpoint_id = 1 "
        "WHERE run_id = %(by hand)s AND checkpoint_id IS NULL",
    ),
    "another definition again": Illegal(
        "the operators of run",
        f"{DEFERRED}; {set_run('older', 'definition = definition')}; {set_run('older', 'definition = definition')}",
    ),
    "a definition without the operators that the run has": Illegal(
        "are not those of its definition", set_run("older", "definition = '{}'")
    ),
    "a run without the operators of its definition": Illegal(
        "are not those of its definition", run_with(definition=f"'{json.dumps({'operators': {'x': {}}})}'")
    ),
    "operators that change without the definition": Illegal(
        "or changes without it",
        f"{DEFERRED}; DELETE FROM operators WHERE run_id = %(older)s AND operator_id = 'x'; "
        + operator_with(operator_id="'x'", name="'x'")
        + "; SET CONSTRAINTS operators_defined_guard IMMEDIATE",
    ),
    "an answer by the final checkpoint, which began before and is pending": Illegal(
        "checkpoint 1 does not answer request",
        f"{DEFERRED}; {request_with(run_id='%(closing)s')}; UPDATE checkpoint_requests SET checkpoint_id = 1 "
        "WHERE run_id = %(closing)s AND checkpoint_id IS NULL",
    ),
    "a final checkpoint that completes and answers not all": Illegal(
        "or it answers not all",
        f"{request_with(run_id='%(closing)s')}; {made_durable('closing')}; UPDATE runs SET status = 'TERMINATING', "
        "terminated_by = 'empty_feedback' WHERE run_id = %(closing)s; SET CONSTRAINTS checkpoints_end_guard IMMEDIATE",
    ),
    "an operator that is not as the definition has it": Illegal(
        "operator x of run", "UPDATE operators SET name = 'other' WHERE run_id = %(older)s AND operator_id = 'x'"
    ),
    "a marker of no files": Illegal("names no files", set_operator("norms", finished(1, output="{}"))),
    "a checkpoint that is completed when its attempt has ended": Illegal(
        "whose checkpoint 1 would end as SUBSUMED",
        f"UPDATE checkpoints SET status = 'SUBSUMED', {DONE} WHERE run_id = %(left behind)s AND checkpoint_id = 1",
    ),
    # who writes, and what an invariant says beyond one row
    "an epoch of a superseded attempt": Illegal("nobody drives run", epoch_with(run_id="%(older)s", epoch="3")),
    "an epoch of an attempt that has ended": Illegal("nobody drives run", epoch_with(run_id="%(left aligned)s")),
    "an epoch that aligns after its attempt has ended": Illegal(
        "nobody drives run",
        "UPDATE epochs SET status = 'ALIGNED', records = '{\"centroids\": [4]}', held_at = now(), aligned_at = now(), "
        f"decision = '{decision(4)}' WHERE run_id = %(left open)s AND epoch = 0",
    ),
    "a marker of a superseded attempt": Illegal(
        "nobody drives run",
        f"UPDATE operators SET {finished(3).replace('fencing_token = 2', 'fencing_token = 1')} "
        "WHERE run_id = %(older)s AND operator_id = 'norms'",
    ),
    "a pin of a superseded attempt": Illegal(
        "nobody drives run", "INSERT INTO pins VALUES (%(older)s, 'x', 1, 'f', '{}')"
    ),
    "a checkpoint of a superseded attempt": Illegal(
        "nobody drives run", checkpoint_with(run_id="%(left aligned)s", checkpoint_id="1")
    ),
    "an edge of a superseded attempt": Illegal(
        "nobody drives run",
        part_with(run_id="%(older)s", epoch="-1", operator_id="'norms'", total="4", fencing_token="1"),
    ),
    "a notice of a superseded attempt": Illegal(
        "nobody drives run", notice_with(run_id="%(older)s", fencing_token="1")
    ),
    "a committable of an attempt that has ended": Illegal(
        "nobody drives run", f"SET CONSTRAINTS ALL IMMEDIATE; {ended('RELEASED', of='published')}; {committable_with()}"
    ),
    "a checkpoint of an open epoch": Illegal("was not issued, or its epoch", checkpoint_with(run_id="%(fresh)s")),
    "a checkpoint's id that was not issued": Illegal("was not issued", checkpoint_with(checkpoint_id="77")),
    "a completed checkpoint whose epoch stays aligned": Illegal(
        "is completed, and epoch 0 is not the last durable one",
        f"UPDATE checkpoints SET status = 'COMPLETED', {DONE} WHERE run_id = %(pending)s AND checkpoint_id = 1",
    ),
    "a durable epoch without a checkpoint": Illegal(
        "no completed checkpoint covers epoch 1", set_epoch(1, "status = 'DURABLE', durable_at = now()")
    ),
    "an end decided from other reports": Illegal(
        "decided by what was not reported", deciding("empty_feedback", reported=4, told=0)
    ),
    "an epoch that goes on by other reports": Illegal(
        "decided by what was not reported", deciding(None, reported=4, told=5)
    ),
    "an epoch that goes on by no reports": Illegal(
        "decided by what was not reported", deciding(None).replace(decision(4), "{}")
    ),
    **{
        f"an end by {by or 'no rule'}, which does not hold": Illegal("or by another rule than none", deciding(by))
        for by in ("empty_feedback", "criteria", "max_epochs", "drained", "")
    },
    "an end by another rule than the one that holds": Illegal(
        "or by another rule than empty_feedback", deciding("max_epochs", reported=0, told=0)
    ),
    "an epoch that goes on though nothing is fed back": Illegal(
        "or by another rule than empty_feedback", deciding(None, reported=0, told=0)
    ),
    "an epoch that goes on though it is the last": Illegal(
        "or by another rule than max_epochs", deciding(None, of="short")
    ),
    "an epoch that goes on though the run is to drain": Illegal(
        "or by another rule than drained", deciding(None, of="draining")
    ),
    "a decision of an epoch that is voided": Illegal(
        "the decision of epoch 0 cannot change",
        f"UPDATE epochs SET status = 'VOIDED', decision = '{decision(1)}' WHERE run_id = %(left open)s AND epoch = 0",
    ),
    "a decision of an epoch that was voided": Illegal(
        "the decision of epoch 1 cannot change", set_epoch(1, f"decision = '{decision(1)}'", 1)
    ),
    "an epoch that begins as void": Illegal("does not begin as one that is VOIDED", epoch_with(status="'VOIDED'")),
    "an epoch that begins as held, though nothing is pending": Illegal(
        "does not begin as one that is held", epoch_with(records="'{\"c\": [1]}'", held_at="now()")
    ),
    "a void epoch of an attempt that is live": Illegal("epoch 2 of run", set_epoch(2, "status = 'VOIDED'")),
    "a durable epoch that a fallback keeps, voided": Illegal(
        "epoch 0 cannot go from DURABLE to VOIDED",
        "UPDATE epochs SET status = 'VOIDED', durable_at = NULL WHERE run_id = %(fallen)s AND epoch = 0",
    ),
    "a pending checkpoint, discarded": Illegal(
        "cannot go from PENDING to DISCARDED",
        f"UPDATE checkpoints SET status = 'DISCARDED', {DONE} WHERE run_id = %(left behind)s AND checkpoint_id = 1",
    ),
    "the newest checkpoint, subsumed and then discarded": Illegal(
        "checkpoint 1 of run",
        f"{DEFERRED}; UPDATE checkpoints SET status = 'SUBSUMED' WHERE run_id = %(durable)s"
        "; UPDATE checkpoints SET status = 'DISCARDED' WHERE run_id = %(durable)s",
    ),
    "a checkpoint that is subsumed by none": Illegal(
        "no newer checkpoint subsumes checkpoint 1", set_checkpoint(1, "status = 'SUBSUMED'")
    ),
    "a checkpoint that is subsumed by an older one": Illegal(
        "no newer checkpoint subsumes checkpoint 2", set_checkpoint(2, f"status = 'SUBSUMED', {DONE}")
    ),
    "a checkpoint that a person aborted before it began": Illegal(
        "was aborted before it began", checkpoint_with(run_id="%(warned)s")
    ),
    "an abort of more than the checkpoints that are aborted": Illegal(
        "is not aborted, as all through", "UPDATE runs SET aborted_through = 2 WHERE run_id = %(pending)s"
    ),
    **{
        f"a run that begins {what}": Illegal("begins as one that was driven", run_with(**columns))
        for what, columns in {
            "as failed": {"status": "'FAILED'", "failure": "'x'"},
            "with a revision": {"revision": "1"},
            "with a token": {"fencing_token": "1"},
            "with a checkpoint": {"last_checkpoint_id": "1"},
            "with an abort": {"aborted_through": "1"},
            "with an attempt": {"attempt_id": "gen_random_uuid()"},
            "as finished": {
                "status": "'FINISHED'",
                "terminated_by": "'criteria'",
                "last_durable_epoch": "3",
                "outputs": "'{}'",
                "state_digest": "'d'",
                "finished_at": "now()",
            },
        }.items()
    },
    "a run that begins behind an epoch and is no branch": Illegal("is no branch", run_with(last_durable_epoch="0")),
    **{
        f"{table} of a run that is there, deleted": Illegal(
            f"{table} of run", f"DELETE FROM {table} WHERE run_id = %({name})s{which}"
        )
        for table, (name, which) in {
            "runs": ("behind", ""),
            "attempts": ("older", " AND fencing_token = 2"),
            "pins": ("run", ""),
            "epochs": ("run", " AND epoch = 2"),
            "checkpoints": ("left pending", ""),
            "checkpoint_requests": ("run", ""),
            "stops": ("stopping", ""),
            "edge_parts": ("run", " AND epoch = 1 AND voided_at IS NULL"),
            "listener_notices": ("run", ""),
            "committables": ("published", " AND output = 'seen'"),
            "fallbacks": ("fallen", ""),
            "branches": ("branch", ""),
        }.items()
    },
    "what waits for its commit, given up while the run is driven": Illegal(
        "is driven, and gives up nothing", "DELETE FROM committables WHERE run_id = %(published)s AND output = 'rows'"
    ),
    "reports of an epoch that are told": Illegal("are counted, not told", set_epoch(2, "reports = 2")),
    "acknowledgements of a checkpoint that are told": Illegal(
        "are counted, not told", set_checkpoint(2, "acknowledged = 1")
    ),
    "another size of a checkpoint": Illegal(
        "the manifest of checkpoint 1 cannot change", set_checkpoint(1, "size_bytes = 9")
    ),
    "a termination that no epoch decided": Illegal(
        "did not decide that it terminates", set_run("durable", "status = 'TERMINATING', terminated_by = 'criteria'")
    ),
    "a notice that leaves out an epoch": Illegal(
        "has heard of no epoch before 1", notice_with(run_id="%(older)s", listener_id="'new'", epoch="1")
    ),
    "an epoch after another one of a run that is to stop": Illegal(
        "a person asks run", epoch_with(run_id="%(leaving)s")
    ),
    "a notice of an epoch that is not durable": Illegal(
        "epoch 1 is not durable", notice_with(listener_id="'log'", epoch="1")
    ),
    **{
        f"another {column} of a notice": Illegal("a notice of run", set_notice(f"{column} = {value}"))
        for column, value in {
            "listener_id": "'z'",
            "epoch": "1",
            "fencing_token": "1",
            "effect": "'{}'",
            "noticed_at": "now()",
            "is_final": "true",
        }.items()
    },
}

# What of each invariant the database refuses by itself; a word instead where no row and no step shows it.
BY_INVARIANT: dict[str, tuple[str, ...] | str] = {
    "I1": (
        "two live attempts",
        "an attempt that comes back",
        "an attempt under a token that was never issued",
        "an attempt that the token was not issued to",
        "an attempt that begins as one that has ended",
        "a token that leaves one out",
        "a token under which no attempt begins",
    ),
    "I2": (
        *(name for name, illegal in GUARDS.items() if illegal.rule == "nobody drives run"),
        "a void epoch of an attempt that is live",
        "an epoch that begins as void",
        "an epoch after one that another attempt has left",
        "an attempt that leaves an epoch of another one",
        "an attempt of a run that has failed",
        "an attempt that ends and leaves its checkpoint pending",
    ),
    "I3": (
        "an epoch after a gap",
        "an epoch after an open one",
        "an epoch twice in force",
        "an epoch that is void before the one behind it",
    ),
    "I4": (
        "alignment without every report",
        "reports of fewer subtasks",
        "other reports of epoch 1",
        "another report of a subtask",
        "a report that is taken back",
        "an epoch that begins with reports",
    ),
    "I5": (
        "another decision",
        "an end decided from other reports",
        "an end by another rule than the one that holds",
        "an epoch that goes on by other reports",
        "an epoch that goes on though nothing is fed back",
        "a termination that no epoch decided",
        "a decision that says more",
    ),
    "I6": (
        "a durable epoch without a checkpoint",
        "durable epochs without a checkpoint",
        "a completed checkpoint whose epoch stays aligned",
        "a lower last_durable_epoch",
        "a run that begins behind an epoch and is no branch",
        "a fallback that keeps a durable epoch",
        "a lower last_durable_epoch than a durable one",
        "a durable epoch of the attempt that fell back, voided",
    ),
    "I7": (
        "a checkpoint's id twice",
        "a checkpoint's id that was not issued",
        "a lower last_checkpoint_id",
        "an id that is issued for no checkpoint",
        "a checkpoint's id that leaves one out",
        "a checkpoint of another epoch than the last",
    ),
    "I8": (
        "completed without every acknowledgement",
        "an acknowledgement that is taken back",
        "completed without a manifest",
        "a pending checkpoint that has its files",
        "two completed checkpoints",
        "a checkpoint that is subsumed by none",
        "a checkpoint that is subsumed by an older one",
        "a checkpoint that begins with acknowledgements",
        "a checkpoint that completes and leaves an older one pending",
    ),
    "I9": ("an epoch after the one that ends the run", "an epoch that ends its run, and the run goes on"),
    "I10": (
        "finished without outputs",
        "finished with outputs that have no names",
        "finished without a digest",
        "a run that is finished while it is driven",
        "a run that begins as finished",
        "an attempt that has FINISHED, and its run has not",
    ),
    "I11": (
        "a marker without its files",
        "a marker taken back",
        "another output of an operator that finished",
        "a marker of an operator that does not finish for good",
        "a marker in another epoch than the one that is under way",
        "a marker before what the operator takes",
        "a marker that names no files",
        "a marker of no files",
        "another definition again",
        "a definition without the operators that the run has",
        "an operator that is not as the definition has it",
        "a run without the operators of its definition",
        "operators that change without the definition",
    ),
    "I12": "a refused event writes nothing: there is no row to refuse",
    "I13": (
        "an epoch after too many checkpoints have failed",
        "a checkpoint after too many have failed",
        "an attempt that begins with a failure",
        "a failure that is told",
        "failures that are forgotten",
        "a failure that nobody counts",
        "a final checkpoint of an epoch that does not end the run",
        "a failure that is called ATTEMPT_ENDED",
        "a failure that is called ABORTED_BY_USER",
        "a failure that is called SUBSUMED",
        "a failure of a hand-made checkpoint that is called SUBSUMED",
        "a checkpoint that begins as aborted, and nobody has",
        "a checkpoint that begins as one that has failed",
        "an attempt whose policy says nothing",
        "an attempt whose policy is no whole number",
        "a checkpoint that is not made by hand where a person asked",
        "a checkpoint that is made by hand, and nobody asked",
        "an answer by a checkpoint that nobody asked for",
        "an answer by a checkpoint that began before",
        "an answer by the final checkpoint, which began before and is pending",
        "a checkpoint by hand that answers nobody",
        "a final checkpoint that completes and answers not all",
    ),
    "I14": (
        "an epoch that begins as held, though nothing is pending",
        "alignment of an epoch that is held",
        "an epoch that nothing holds and that does not align",
        "a checkpoint that ends, and leaves held what it held",
    ),
    "I15": (
        "a part that is there",
        "a part behind an epoch that is not durable",
        "a part in an epoch that has not switched",
        "a part in an epoch of another attempt",
        "a part of an operator that the run does not have",
        "a part for good of an operator that does not finish",
        "a part in an epoch of an operator that finishes for good",
        "a part of a variable that a checkpoint holds",
        "a part of fewer buckets than the run has",
        "a part before another bucket of its input",
        "a value before its input",
        "a part before what finishes for good",
        "a part before the first value that it takes",
        "a part that a takeover keeps, voided",
        "a part of what has finished for good, voided by who ignores edges",
        "an attempt that ignores edges and leaves some",
        "a fallback that leaves edges behind what it gives up",
        "other changes of the operators",
    ),
    "I16": (
        "a notice that leaves out an epoch",
        "a notice of an epoch that is not durable",
        "a notice of the end while the run goes on",
        "a notice of the last epoch alone by who hears of each",
        "a notice of the end for who hears of each epoch",
    ),
    "I17": (
        "an abort beyond the next checkpoint",
        "a lower aborted_through",
        "a checkpoint that a person aborted before it began",
        "an abort of more than the checkpoints that are aborted",
    ),
    "I18": (
        "the newest checkpoint of a run that is there, discarded",
        "the newest checkpoint, subsumed and then discarded",
        "a checkpoint that a person pins, discarded",
        "a checkpoint that a branch pins, discarded",
        "a branch of a pending checkpoint",
        "a branch that completes a checkpoint and does not let its origin go",
    ),
    "I19": (
        "what is prepared of an aligned epoch",
        "what is prepared of an epoch that does not publish it",
        "what is prepared of an output that no sink takes",
        "a durable epoch that publishes nothing of what it should",
        "what is committed twice",
        "a run that is finished with what is not committed",
    ),
    "I20": (
        "an epoch after another one of a run that is to stop",
        "a run that is stopped while it is driven",
        "a run that is let go and asked to stop, and goes on",
        "a stop of a run that nobody drives and that goes on",
        "a run that nobody asked to stop",
        "a run that is resumed by nobody",
        "a run that is stopped without an answer",
        "a run that failed and goes on undriven, though a person asked it to stop",
        "a stop that is resumed, and its run is not",
        "a request of a run that is stopped",
        "a token of a stopped run",
        "a stopped run that changes",
    ),
    "I21": (
        "a fallback behind what a listener has heard",
        "a fallback behind what a sink publishes",
        "a fallback while an epoch is open",
        "a fallback while an epoch is aligned",
        "a fallback of a run that terminates",
        "a listener that hears of what a fallback gives up, in that step",
        "an epoch that opens before a fallback has given up all, in that step",
        "a fallback that keeps a checkpoint",
        "a durable epoch that a fallback keeps, voided",
    ),
}
