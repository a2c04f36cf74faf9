"""Do the rows of a run keep the invariants I1 to I12 of iteration_lib/protocol, from one commit to the next?

It reads the rows of the store in memory as they lie there and shares no code with the protocol: what should be there
it works out for itself, from the reference and from the rows before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import pairwise
from typing import Any, TypeAlias

from iteration_lib.store.memory_write import MemoryRun
from tests.simulation.programs import BUCKETS, Reference

Row: TypeAlias = Mapping[str, Any]  # Any: what a column holds
Violate: TypeAlias = Callable[[str, str], None]

RUN_STEPS = {
    ("RUNNING", "RUNNING"),
    ("RUNNING", "TERMINATING"),
    ("TERMINATING", "TERMINATING"),
    ("TERMINATING", "FINISHED"),
    ("RUNNING", "FAILED"),
    ("TERMINATING", "FAILED"),
    ("FAILED", "FAILED"),
    ("FAILED", "RUNNING"),
    ("FAILED", "TERMINATING"),
}
EPOCH_STEPS = {
    ("OPEN", "OPEN"),
    ("OPEN", "ALIGNED"),
    ("ALIGNED", "DURABLE"),
    ("OPEN", "VOIDED"),
    ("ALIGNED", "VOIDED"),
}
CHECKPOINT_STEPS = {
    ("PENDING", "PENDING"),
    ("PENDING", "COMPLETED"),
    ("PENDING", "ABORTED"),
    ("COMPLETED", "SUBSUMED"),
}


class RowOracle:
    """Compares the rows after a commit with those before it."""

    def __init__(self, reference: Reference, violate: Violate, counters: Counter[str]) -> None:
        self._reference = reference
        self._violate = violate
        self._counters = counters

    def check(self, before: MemoryRun, after: MemoryRun, *, actor: str | None, now: datetime) -> None:
        """Check one commit that changed something; `actor` is the id of the attempt that made it."""
        self._who(before, after, actor)
        self._attempts(before, after)
        self._run(before, after, now)
        self._epochs(before, after)
        self._checkpoints(before, after)
        self._operators(before, after)
        self._pins(before, after)

    def _require(self, holds: object, rule: str, text: str) -> None:
        if not holds:
            self._violate(rule, text)

    def _who(self, before: MemoryRun, after: MemoryRun, actor: str | None) -> None:
        """I2: only the attempt in force changes anything, or the one that comes into force by it."""
        in_force = {live["attempt_id"] for rows in (before, after) for live in live_attempts(rows)}
        self._require(actor in in_force, "I2", f"{actor} changed rows, but in force is {sorted(in_force)}")
        self._require(
            after.run["revision"] > before.run["revision"], "I2", "rows changed, and the revision stayed what it was"
        )

    def _attempts(self, before: MemoryRun, after: MemoryRun) -> None:
        tokens = sorted(after.attempts)
        live = live_attempts(after)
        self._require(list(range(1, len(tokens) + 1)) == tokens, "I1", f"tokens are {tokens}")
        self._require(len(tokens) == after.run["fencing_token"], "I1", "the run's token is not the last one issued")
        self._require(len(live) <= 1, "I1", "two attempts are live")
        for attempt in live:
            self._require(attempt["fencing_token"] == tokens[-1], "I1", "the live attempt has not the greatest token")
        ids = {attempt["attempt_id"] for attempt in after.attempts.values()}
        self._require(len(ids) == len(tokens), "I1", "an attempt that has ended came back")
        for token, attempt in before.attempts.items():
            known = after.attempts.get(token)
            if attempt["ended_at"] is not None:
                self._require(known == attempt, "I1", f"the attempt of token {token} ended, and changed afterwards")

    def _run(self, before: MemoryRun, after: MemoryRun, now: datetime) -> None:
        old, new = before.run, after.run
        step = (old["status"], new["status"])
        self._require(step in RUN_STEPS, "I10", f"the run went from {step[0]} to {step[1]}")
        self._require(new["fencing_token"] >= old["fencing_token"], "I1", "the token fell")
        by = new["terminated_by"]
        terminating = [e for e in after.epochs.values() if e["status"] == "DURABLE" and _terminated_by(e)]
        self._require(
            by == (_terminated_by(terminating[0]) if terminating else None), "I6", f"terminated_by is {by} in the run"
        )
        self._require(
            new["status"] != "RUNNING" or by is None, "I9", "the run goes on, though its last epoch terminated it"
        )
        self._require((new["failure"] is not None) == (new["status"] == "FAILED"), "I10", "failure without FAILED")
        if new["status"] in ("TERMINATING", "FINISHED"):
            self._require(by == self._reference.terminated_by, "I5", f"terminated by {by}")
            self._require(not _of(after.epochs, "OPEN", "ALIGNED"), "I10", f"{new['status']} with an epoch not durable")
            self._require(not _of(after.checkpoints, "PENDING"), "I10", f"{new['status']} with a checkpoint pending")
        if new["status"] == "FINISHED":
            self._require(not live_attempts(after), "I10", "the run is FINISHED and an attempt lives on")
            self._require(
                set(new["outputs"] or ()) == set(self._reference.outputs), "I10", "FINISHED without its outputs"
            )
        else:
            self._require(new["outputs"] is None, "I10", f"outputs are named in a run that is {new['status']}")
        if old["status"] == "FINISHED":
            self._violate("I10", f"a FINISHED run changed at {now}")
        if step == ("FAILED", "TERMINATING"):
            self._counters["failed while TERMINATING, and resumed"] += 1

    def _epochs(self, before: MemoryRun, after: MemoryRun) -> None:
        in_force = sorted((e["epoch"], e["fencing_token"]) for e in after.epochs.values() if e["status"] != "VOIDED")
        numbers = [epoch for epoch, _ in in_force]
        self._require(numbers == list(range(len(numbers))), "I3", f"the epochs in force are {numbers}")
        durable = sorted(e["epoch"] for e in _of(after.epochs, "DURABLE"))
        self._require(durable == list(range(len(durable))), "I6", f"the durable epochs are {durable}")
        self._require(after.run["last_durable_epoch"] == len(durable) - 1, "I6", "last_durable_epoch is another")
        self._require(len(_of(after.epochs, "OPEN")) <= 1, "I3", "two epochs are open")
        ending = [e["epoch"] for e in after.epochs.values() if e["status"] != "VOIDED" and _terminated_by(e)]
        self._require(not ending or numbers[-1] == ending[0], "I9", f"epoch {numbers[-1:]} follows a terminating one")
        token = after.run["fencing_token"]
        for key, epoch in after.epochs.items():
            known = before.epochs.get(key)
            if epoch == known:
                stale = epoch["status"] in ("OPEN", "ALIGNED") and epoch["fencing_token"] < token
                self._require(not stale, "I6", f"epoch {key} is kept over a takeover")
                continue
            self._epoch(known, epoch, token)
        self._require(before.epochs.keys() <= after.epochs.keys(), "I6", "an epoch's row is gone")

    def _epoch(self, known: Row | None, epoch: Row, token: int) -> None:
        what = f"epoch {epoch['epoch']} of token {epoch['fencing_token']}"
        if known is None:
            self._require(epoch["fencing_token"] == token, "I2", f"{what} was opened under another token")
            self._require(epoch["status"] in ("OPEN", "ALIGNED", "DURABLE"), "I4", f"{what} began {epoch['status']}")
        else:
            step = (known["status"], epoch["status"])
            self._require(step in EPOCH_STEPS, "I4", f"{what} went from {step[0]} to {step[1]}")
            if step[1] == "VOIDED":
                self._counters[f"{known['status']} epoch voided"] += 1
                self._require(epoch["fencing_token"] < token, "I6", f"{what} was voided under its own token")
            else:
                self._require(epoch["fencing_token"] == token, "I2", f"{what} went on under another token")
            for head, counts in known["records"].items():
                heard = zip(counts, epoch["records"].get(head, ()), strict=False)
                self._require(all(b in (None, a) for b, a in heard), "I4", f"{what}: {head} changed what it reported")
            self._require(
                known["decision"] in (None, epoch["decision"]), "I5", f"{what}: the decision changed afterwards"
            )
        if epoch["status"] != "VOIDED":
            self._alignment(epoch, what)

    def _alignment(self, epoch: Row, what: str) -> None:
        """I4 and I5: what was reported is what was fed back; the decision follows from it."""
        number, records = epoch["epoch"], epoch["records"]
        if number > self._reference.last_epoch:
            self._violate("I9", f"{what} is opened, but epoch {self._reference.last_epoch} terminates the run")
            return
        expected = self._reference.records[number]
        self._require(set(records) == set(expected), "I4", f"{what} has the heads {sorted(records)}")
        is_full = all(count is not None for counts in records.values() for count in counts)
        self._require(is_full == (epoch["status"] != "OPEN"), "I4", f"{what} is {epoch['status']} with {records}")
        for head, counts in records.items():
            wanted = spread(expected.get(head, ()), over=len(counts))
            same = all(count in (None, want) for count, want in zip(counts, wanted, strict=True))
            self._require(same, "I4", f"{what}: {head} reported {counts}, but fed back {wanted}")
        if epoch["status"] == "OPEN":
            self._require(epoch["decision"] is None, "I5", f"{what} is open and decided")
            return
        by = self._reference.terminated_by if number == self._reference.last_epoch else None
        decided = {"records": {head: sum(counts) for head, counts in expected.items()}, "terminated_by": by}
        self._require(epoch["decision"] == decided, "I5", f"{what} decided {epoch['decision']}, not {decided}")

    def _checkpoints(self, before: MemoryRun, after: MemoryRun) -> None:
        ids = sorted(after.checkpoints)
        self._require(ids == list(range(1, len(ids) + 1)), "I7", f"checkpoint ids are {ids}")
        self._require(after.run["last_checkpoint_id"] == len(ids), "I7", "last_checkpoint_id is another")
        completed = [c["epoch"] for c in _of(after.checkpoints, "COMPLETED")]
        self._require(len(completed) <= 1, "I8", "two checkpoints are COMPLETED")
        last = after.run["last_durable_epoch"]
        self._require(completed == ([last] if last >= 0 else []), "I6", f"{completed} is completed, {last} is durable")
        live = [attempt["fencing_token"] for attempt in live_attempts(after)]
        for checkpoint_id, checkpoint in after.checkpoints.items():
            what = f"checkpoint {checkpoint_id}"
            if checkpoint["status"] == "PENDING":
                self._require(checkpoint["fencing_token"] in live, "I8", f"{what} is pending, its attempt has ended")
            known = before.checkpoints.get(checkpoint_id)
            if checkpoint != known:
                self._checkpoint(known, checkpoint, after, what)
        self._require(before.checkpoints.keys() <= after.checkpoints.keys(), "I7", "a checkpoint's row is gone")

    def _checkpoint(self, known: Row | None, checkpoint: Row, after: MemoryRun, what: str) -> None:
        status = checkpoint["status"]
        if known is None:
            self._require(checkpoint["fencing_token"] == after.run["fencing_token"], "I2", f"{what} has another token")
            epochs = [e for e in after.epochs.values() if e["epoch"] == checkpoint["epoch"] and e["status"] != "VOIDED"]
            aligned = [e for e in epochs if e["status"] in ("ALIGNED", "DURABLE")]
            self._require(aligned, "I6", f"{what} is of epoch {checkpoint['epoch']}, which is not aligned")
            is_last = checkpoint["epoch"] == self._reference.last_epoch
            self._require((checkpoint["kind"] == "FINAL") == is_last, "I8", f"{what} is {checkpoint['kind']}")
            covered = [
                c["epoch"]
                for c in after.checkpoints.values()
                if c is not checkpoint and c["status"] in ("PENDING", "COMPLETED")
            ]
            self._require(max(covered, default=-1) < checkpoint["epoch"], "I6", f"{what} covers nothing new")
        else:
            self._require((known["status"], status) in CHECKPOINT_STEPS, "I8", f"{what}: {known['status']} to {status}")
            identity = ("epoch", "fencing_token", "kind", "triggered_at")
            same = all(known[column] == checkpoint[column] for column in identity)
            self._require(same, "I7", f"{what} became another one")
            if (known["status"], status) == ("PENDING", "ABORTED"):
                self._counters["pending checkpoint aborted"] += 1
        acknowledged = all(value is not None for values in checkpoint["acknowledgements"].values() for value in values)
        if status == "COMPLETED":
            self._require(acknowledged, "I8", f"{what} is completed without every acknowledgement")
            self._require(checkpoint["manifest_path"], "I8", f"{what} is completed without a manifest")
        elif status in ("PENDING", "ABORTED"):
            self._require(checkpoint["manifest_path"] is None, "I8", f"{what} is {status} and has a manifest")

    def _operators(self, before: MemoryRun, after: MemoryRun) -> None:
        for operator_id, operator in after.operators.items():
            known = before.operators[operator_id]
            if operator == known:
                continue
            self._require(known["finished_at"] is None, "I11", f"operator {operator_id} finished for good, twice")
            token = after.run["fencing_token"]
            self._require(operator["fencing_token"] == token, "I2", f"operator {operator_id}: another token")
            self._require(operator_id in self._reference.finished, "I11", f"operator {operator_id} never finishes")

    def _pins(self, before: MemoryRun, after: MemoryRun) -> None:
        for name, pin in before.pins.items():
            self._require(after.pins.get(name) == pin, "pins", f"the pin of {name} changed")


def live_attempts(rows: MemoryRun) -> list[Row]:
    """Return the attempts that have not ended."""
    return [attempt for attempt in rows.attempts.values() if attempt["ended_at"] is None]


def spread(records: tuple[int, ...], *, over: int) -> tuple[int, ...]:
    """Return what each of `over` subtasks feeds back, of the records in each bucket."""
    if len(records) == 1:
        return (*records, *(0 for _ in range(over - 1)))
    cuts = [-(-subtask * BUCKETS // over) for subtask in range(over + 1)]
    return tuple(sum(records[start:end]) for start, end in pairwise(cuts))


def _of(rows: Mapping[Any, Row], *statuses: str) -> list[Row]:
    return [row for row in rows.values() if row["status"] in statuses]


def _terminated_by(epoch: Row) -> str | None:
    decision = epoch["decision"]
    found: str | None = decision["terminated_by"] if decision is not None else None
    return found
