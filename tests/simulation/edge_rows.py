"""Do the durable edges of a run keep the invariant I15, and hold what the undisturbed run computes?

A part is live until it is voided. Which operators are before which is read from the program's wiring.
"""

from __future__ import annotations

from collections import Counter

from iteration_lib.model.operator import Kind, Operator, Role
from iteration_lib.protocol.state import NO_EPOCH
from iteration_lib.store.memory_rows import MemoryRun
from tests.simulation.change import Change, Checks, Row, Violate
from tests.simulation.programs import BUCKETS, Program

FOR_GOOD = -1  # in place of an epoch


class EdgeOracle(Checks):
    """Compares the parts of edges after a commit with those before it."""

    def __init__(self, program: Program, violate: Violate, counters: Counter[str]) -> None:
        super().__init__(violate)
        self.program = program
        self._counters = counters

    def check(self, change: Change) -> None:
        """Check one commit that changed something."""
        self._switched(change)
        before, after = change.before.parts, change.after.parts
        if before is after:
            return
        self._require(len(before) <= len(after), "I15", "a part is gone")
        durable = change.after.run["last_durable_epoch"]
        claim = change.attempt.claim if change.is_takeover and change.attempt is not None else None
        ignored = claim is not None and claim.ignore_edges
        for known, part in zip(before, after, strict=False):
            if known is not part and known != part:
                void = {**known, "voided_at": part["voided_at"]} == part and known["voided_at"] is None
                self._require(void, "I15", "a part became another: {} to {}", known, part)
                rightly = ignored and (part["epoch"] > durable or _is_begun(change, part))
                self._require(rightly, "I15", "a part of epoch {} was voided, and should be kept", part["epoch"])
                self._counters["edge ignored by a takeover"] += 1
        if ignored:
            live = [part for part in after if part["voided_at"] is None]
            left = [part for part in live if part["epoch"] > durable or _is_begun(change, part)]
            self._require(not left, "I15", "parts of epochs after {} are kept, and to be ignored", durable)
        new = after[len(before) :]
        for part in new:
            self._marked(change, part)

    def _switched(self, change: Change) -> None:
        """See that an epoch switches to unaligned once, while it is open."""
        for known, epoch in change.epochs:
            before = known["unaligned_by"] if known is not None else None
            if epoch["unaligned_by"] == before:
                continue
            once = before is None and known is not None and known["status"] == "OPEN" and change.said is None
            self._require(once, "I15", "epoch {} switched by {}", epoch["epoch"], epoch["unaligned_by"])
            self._counters[f"epoch switched by {epoch['unaligned_by']}"] += 1

    def _marked(self, change: Change, part: Row) -> None:
        operator = self.program.operator(part["operator_id"])
        epoch = part["epoch"]
        what = f"buckets {part['first_bucket']} to {part['end_bucket']} of {operator.operator_id} in epoch {epoch}"
        self._require(part["fencing_token"] == change.token, "I2", "{} have another token", what)
        total = total_buckets(operator)
        fits = part["total"] == total and 0 <= part["first_bucket"] < part["end_bucket"] <= total
        self._require(fits, "I15", "{}: there are {}", what, total)
        others = [p for p in live_parts(change.after, epoch, operator.operator_id) if p is not part]
        overlaps = [
            p for p in others if p["first_bucket"] < part["end_bucket"] and part["first_bucket"] < p["end_bucket"]
        ]
        self._require(not overlaps, "I15", "{} are marked twice", what)
        if epoch == FOR_GOOD:
            finished = change.before.operators[operator.operator_id]["finished_at"] is not None
            self._require(operator.finishes and not finished, "I15", "{} are for good", what)
            self._counters["part of an operator that finishes marked"] += 1
            return
        self._require(not operator.finishes, "I15", "{} finishes for good", what)
        known, now = (rows.epochs.get((epoch, change.token)) for rows in (change.before, change.after))
        may_have = now is not None and now["status"] in ("OPEN", "ALIGNED") and now["unaligned_by"] is not None
        self._require(known is not None and may_have, "I15", "{}: the epoch has not switched, or is over", what)
        durable = change.after.run["last_durable_epoch"]
        self._require(epoch == durable + 1, "I15", "{}: the epoch before is not durable", what)
        self._require(_is_capturable(self.program, operator, epoch), "I15", "{} may not be captured", what)
        for source in computed_before(self.program, operator, epoch):
            is_narrow = source.kind is operator.kind is Kind.BUCKETS
            needed = range(part["first_bucket"], part["end_bucket"]) if is_narrow else None
            there = finished_buckets(change.after, epoch, source)
            lacking = set(needed or range(total_buckets(source))) - there
            self._require(not lacking, "I15", "{}: {} lacks the buckets {}", what, source.operator_id, lacking)
        if not part["output"]["files"]:
            self._used_up(change, operator, epoch, what)
        if now is not None:
            self._counters[f"marker committed by {now['unaligned_by']}"] += 1
            self._counters[f"marker committed of an {now['status']} epoch"] += 1
        if durable != change.before.run["last_durable_epoch"]:
            self._counters["marker committed with the completion that it waited for"] += 1

    def _used_up(self, change: Change, operator: Operator, epoch: int, what: str) -> None:
        """See that nobody will ask for what is marked without files: all who take it are whole, and there are some."""
        graph = self.program.graph
        users = graph.consumers(operator.name)
        whole = all(len(finished_buckets(change.after, epoch, user)) == total_buckets(user) for user in users)
        is_asked = graph.uses(operator.name) > len(users)
        self._require(users and whole and not is_asked, "I15", "{} have no files, and are asked for", what)
        self._counters["marker without files"] += 1


def live_parts(rows: MemoryRun, epoch: int, operator_id: str) -> list[Row]:
    """Return the parts of an edge that are not voided."""
    return [
        part
        for part in rows.parts
        if part["epoch"] == epoch and part["operator_id"] == operator_id and part["voided_at"] is None
    ]


def finished_buckets(rows: MemoryRun, epoch: int, operator: Operator, *, below_token: int | None = None) -> set[int]:
    """Return which buckets of an operator are durable in an epoch, of those that older tokens marked."""
    return {
        bucket
        for part in live_parts(rows, epoch, operator.operator_id)
        if below_token is None or part["fencing_token"] < below_token
        for bucket in range(part["first_bucket"], part["end_bucket"])
    }


def total_buckets(operator: Operator) -> int:
    """Return how many buckets an operator's output has."""
    return BUCKETS if operator.kind is Kind.BUCKETS else 1


def computed_before(program: Program, operator: Operator, epoch: int) -> list[Operator]:
    """Return what is computed in an epoch, and an operator takes: before epoch 0 that goes for variables too."""
    found = [program.graph.operator(name) for name in operator.inputs]
    is_computed = {Role.DATA: False, Role.OPERATOR: True, Role.VARIABLE: epoch == 0}
    return [source for source in found if is_computed[source.role] and not source.finishes and not _is_state(source)]


def _is_state(operator: Operator) -> bool:
    """Tell whether this is what an operator carries: nothing before epoch 0, and in the checkpoint afterwards."""
    return operator.role is Role.VARIABLE and operator.part_of is not None


def _is_capturable(program: Program, operator: Operator, epoch: int) -> bool:
    return operator.capture and all(
        _is_capturable(program, s, epoch) for s in computed_before(program, operator, epoch)
    )


def _is_begun(change: Change, part: Row) -> bool:
    """Tell whether a part is one of an operator that would finish for good, and has not."""
    return part["epoch"] == NO_EPOCH and change.before.operators[part["operator_id"]]["finished_at"] is None
