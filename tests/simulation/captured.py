"""Did an attempt that was told to end, and had the time for it, leave what it had computed, and what it was writing?

As durable edges, where it leaves none before that: all that it ran of the open epoch has to be there then, as far as it
may be captured and what it was computed from is there too, the variables by a checkpoint that is completed by then. And
what was pending has to be completed, where the grace period is long and no call hangs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iteration_lib.model.operator import Kind, Operator, Role
from tests.simulation.change import of_status
from tests.simulation.edge_rows import FOR_GOOD, computed_before, finished_buckets, live_parts, total_buckets
from tests.simulation.swarm import LONG_GRACE_SECONDS

if TYPE_CHECKING:
    from iteration_lib.store.memory_rows import MemoryRun
    from tests.simulation.attempt import SimulatedAttempt
    from tests.simulation.oracle import Oracle
    from tests.simulation.programs import Program


def check_captured(oracle: Oracle, program: Program, attempt: SimulatedAttempt) -> None:
    """See that what was computed is durable, unless something failed the attempt, or had by the time it was told."""
    life, rows = oracle.lives.get(attempt), oracle.rows
    if life is None or attempt.had_failed_when_told:
        return
    if attempt.hurts > attempt.hurts_when_told or not attempt.hurt <= {"told to end", "store"}:
        return
    if rows.attempts[life.token]["outcome"] != "RELEASED" or attempt.was_cancelled:
        return
    _check_pending(oracle, attempt, life.token)
    if rows.run["fencing_token"] != life.token:
        return  # whoever has taken over since may have voided what was left
    _check_for_good(oracle, program, attempt)
    if attempt.pace.alignment_timeout_seconds is None and not attempt.pace.fuses:  # else it is not known what is there
        _check_edges(oracle, program, attempt, life.token)


def _check_pending(oracle: Oracle, attempt: SimulatedAttempt, token: int) -> None:
    pace = attempt.pace
    is_long = pace.termination_grace_seconds == LONG_GRACE_SECONDS < pace.policy.timeout_seconds
    if not is_long or any(job.is_hanging for job in attempt.jobs):
        return
    for row in attempt.pending_when_told:
        checkpoint_id = row["checkpoint_id"]
        if row["fencing_token"] != token or checkpoint_id not in attempt.began_seconds:
            continue
        failure = oracle.rows.checkpoints[checkpoint_id]["failure"]
        oracle.counters["checkpoint completed in the grace period"] += failure is None
        if failure == "ATTEMPT_ENDED":
            text = f"attempt {attempt.number} had the time for checkpoint {checkpoint_id}, and left it pending"
            oracle.violate("preemption", text)


def _check_for_good(oracle: Oracle, program: Program, attempt: SimulatedAttempt) -> None:
    """See that what was computed of operators that finish for good is marked, part by part if not as finished."""
    rows = oracle.rows
    for operator in (known for known in program.graph.operators if known.finishes and known.role is Role.OPERATOR):
        is_fused = attempt.pace.fuses and operator.kind is Kind.BUCKETS  # then it is not known what is there
        if is_fused or not _is_whole(oracle, attempt, operator, None) or _is_spoilt(attempt, rows, FOR_GOOD, operator):
            continue
        is_finished = rows.operators[operator.operator_id]["finished_at"] is not None
        there = finished_buckets(rows, FOR_GOOD, operator)
        is_captured = is_finished or len(there) == total_buckets(operator)
        oracle.counters["finishing operator captured as demanded"] += is_captured and not is_finished
        if not is_captured:
            text = f"attempt {attempt.number} had computed {operator.operator_id}, and captured {sorted(there)}"
            oracle.violate("preemption", text)


def _check_edges(oracle: Oracle, program: Program, attempt: SimulatedAttempt, token: int) -> None:
    rows = oracle.rows
    was_open = [e for e in of_status(rows.epochs, "ALIGNED") if e["unaligned_by"] == "preemption"]  # and was held
    mine = [e["epoch"] for e in (*of_status(rows.epochs, "OPEN"), *was_open) if e["fencing_token"] == token]
    for epoch in (number for number in mine if number == rows.run["last_durable_epoch"] + 1):
        captured: set[str] = set()
        for operator in program.graph.operators:
            before = {source.operator_id for source in computed_before(program, operator, epoch)}
            is_there = _is_whole(oracle, attempt, operator, epoch) and not _is_spoilt(attempt, rows, epoch, operator)
            if is_there and captured >= before:
                captured.add(operator.operator_id)
        for operator_id in sorted(captured):
            operator = program.operator(operator_id)
            lacking = set(range(total_buckets(operator))) - finished_buckets(rows, epoch, operator)
            oracle.counters["edge captured as demanded"] += not lacking
            if lacking and operator.role is Role.OPERATOR:
                text = f"attempt {attempt.number} had computed {operator_id} in epoch {epoch}, and captured it not"
                oracle.violate("preemption", text)


def _is_spoilt(attempt: SimulatedAttempt, rows: MemoryRun, epoch: int, operator: Operator) -> bool:
    """Tell whether a file of an edge was ever damaged: whoever goes on behind it refuses it."""
    parts = live_parts(rows, epoch, operator.operator_id)
    return not attempt.run.disk.spoilt.isdisjoint(file["path"] for part in parts for file in part["output"]["files"])


def _is_whole(oracle: Oracle, attempt: SimulatedAttempt, operator: Operator, epoch: int | None) -> bool:
    """Tell whether every bucket of an operator, or of a variable before epoch 0, was computed or is durable."""
    is_of_it = operator.role is not Role.DATA and operator.finishes is (epoch is None)
    if not is_of_it or not operator.capture or "scratch" in operator.injected:
        return False
    life = oracle.lives[attempt]
    number = None if operator.role is Role.VARIABLE else epoch
    runs = {(operator.operator_id, number, bucket) for bucket in range(total_buckets(operator))}
    return runs <= life.ran | life.kept
