"""Did an attempt that was told to end, and had the time for it, leave what it had computed as durable edges?

Asked of attempts that leave no edges before that: all that they ran of the open epoch has to be there then, as far as
it may be captured and what it was computed from is there too, the variables by a checkpoint that had begun.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iteration_lib.model.operator import Operator, Role
from tests.simulation.change import of_status
from tests.simulation.edge_rows import computed_before, finished_buckets, total_buckets

if TYPE_CHECKING:
    from iteration_lib.store.memory_rows import MemoryRun
    from tests.simulation.attempt import SimulatedAttempt
    from tests.simulation.oracle import Oracle
    from tests.simulation.programs import Program


def check_captured(oracle: Oracle, program: Program, attempt: SimulatedAttempt) -> None:
    """See that what was computed is durable, unless something failed the attempt."""
    life, rows = oracle.lives.get(attempt), oracle.rows
    if life is None or attempt.pace.alignment_timeout_seconds is not None or attempt.hurt != {"told to end"}:
        return
    if attempt.pace.fuses:  # nothing is there of what was computed inside what takes it, nor of what is behind that
        return
    if rows.attempts[life.token]["outcome"] != "RELEASED" or attempt.was_cancelled:
        return
    for epoch in (e["epoch"] for e in of_status(rows.epochs, "OPEN") if e["fencing_token"] == life.token):
        if not _is_covered(rows, epoch - 1, life.token):
            continue
        captured: set[str] = set()
        for operator in program.graph.operators:
            if _is_whole(oracle, attempt, operator, epoch) and captured >= {
                source.operator_id for source in computed_before(program, operator, epoch)
            }:
                captured.add(operator.operator_id)
        for operator_id in sorted(captured):
            operator = program.operator(operator_id)
            lacking = set(range(total_buckets(operator))) - finished_buckets(rows, epoch, operator)
            if lacking and operator.role is Role.OPERATOR:
                text = f"attempt {attempt.number} had computed {operator_id} in epoch {epoch}, and captured it not"
                oracle.violate("preemption", text)


def _is_covered(rows: MemoryRun, epoch: int, token: int) -> bool:
    """Tell whether an epoch is durable, or had a checkpoint when the one after it was opened."""
    begun = [c for c in rows.checkpoints.values() if (c["epoch"], c["fencing_token"]) == (epoch, token)]
    return rows.run["last_durable_epoch"] >= epoch or any(c["failure"] != "ABORTED_BY_USER" for c in begun)


def _is_whole(oracle: Oracle, attempt: SimulatedAttempt, operator: Operator, epoch: int) -> bool:
    """Tell whether every bucket of an operator, or of a variable before epoch 0, was computed or is durable."""
    if operator.role is Role.DATA or operator.finishes or not operator.capture or "scratch" in operator.injected:
        return False
    life = oracle.lives[attempt]
    number = None if operator.role is Role.VARIABLE else epoch
    runs = {(operator.operator_id, number, bucket) for bucket in range(total_buckets(operator))}
    return runs <= life.ran | life.kept
