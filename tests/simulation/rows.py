"""Do the rows of a run keep the invariants I1 to I6 and I9 to I12 of iteration_lib/protocol, from commit to commit?

It reads the rows of the store in memory as they lie there and shares no code with the protocol: what should be there
it works out for itself, from the reference and from the rows before.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from iteration_lib.store.memory_rows import MemoryRun
from tests.simulation.change import Change, Checks, Row, Violate, live_attempts, of_status, origin_epoch, terminated_by
from tests.simulation.programs import BUCKETS
from tests.simulation.reference import Reference

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
    ("RUNNING", "STOPPED"),
    ("FAILED", "STOPPED"),
    ("STOPPED", "STOPPED"),
    ("STOPPED", "RUNNING"),
}
EPOCH_STEPS = {
    ("OPEN", "OPEN"),
    ("OPEN", "ALIGNED"),
    ("ALIGNED", "DURABLE"),
    ("OPEN", "VOIDED"),
    ("ALIGNED", "VOIDED"),
}


class RowOracle(Checks):
    """Compares the rows after a commit with those before it."""

    def __init__(self, reference: Reference, violate: Violate, counters: Counter[str]) -> None:
        super().__init__(violate)
        self.reference = reference
        self._counters = counters

    def check(self, change: Change) -> None:
        """Check one commit that changed something."""
        before, after = change.before, change.after
        self._who(change)
        if change.moves_the_run:
            self._attempts(before, after)
            self._run(before, after, change)
            self._epochs(change)
        self._operators(before, after)
        for name, pin in before.pins.items():
            self._require(after.pins.get(name) == pin, "pins", "the pin of {} changed", name)

    def _who(self, change: Change) -> None:
        """I2: only the attempt in force changes anything, or the one that comes into force by it, or a person."""
        before, after = change.before, change.after
        if change.said is None:
            actor = change.attempt.attempt_id if change.attempt is not None else None
            in_force = {live["attempt_id"] for rows in (before, after) for live in live_attempts(rows)}
            stops = after.run["status"] == "STOPPED" != before.run["status"]  # who wants to drive it stops it instead
            self._require(
                stops or actor in in_force, "I2", "{} changed rows, but in force is {}", actor, sorted(in_force)
            )
        self._require(
            after.run["revision"] > before.run["revision"], "I2", "rows changed, and the revision stayed what it was"
        )

    def _attempts(self, before: MemoryRun, after: MemoryRun) -> None:
        tokens = sorted(after.attempts)
        live = live_attempts(after)
        self._require(list(range(1, len(tokens) + 1)) == tokens, "I1", "tokens are {}", tokens)
        self._require(len(tokens) == after.run["fencing_token"], "I1", "the run's token is not the last one issued")
        self._require(len(live) <= 1, "I1", "two attempts are live")
        for attempt in live:
            self._require(attempt["fencing_token"] == tokens[-1], "I1", "the live attempt has not the greatest token")
        ids = {attempt["attempt_id"] for attempt in after.attempts.values()}
        self._require(len(ids) == len(tokens), "I1", "an attempt that has ended came back")
        for token, attempt in before.attempts.items():
            known = after.attempts.get(token)
            if attempt["ended_at"] is not None:
                self._require(known == attempt, "I1", "the attempt of token {} ended, and changed afterwards", token)
            elif known is not None:
                self._require(known["policy"] == attempt["policy"], "I1", "the policy of token {} changed", token)

    def _run(self, before: MemoryRun, after: MemoryRun, change: Change) -> None:
        old, new = before.run, after.run
        step = (old["status"], new["status"])
        self._require(step in RUN_STEPS, "I10", "the run went from {} to {}", step[0], step[1])
        self._require(new["fencing_token"] >= old["fencing_token"], "I1", "the token fell")
        by = new["terminated_by"]
        terminating = [e for e in after.epochs.values() if e["status"] == "DURABLE" and terminated_by(e)]
        self._require(
            by == (terminated_by(terminating[0]) if terminating else None), "I6", "terminated_by is {} in the run", by
        )
        self._require(
            new["status"] != "RUNNING" or by is None, "I9", "the run goes on, though its last epoch terminated it"
        )
        self._require((new["failure"] is not None) == (new["status"] == "FAILED"), "I10", "failure without FAILED")
        if new["status"] in ("TERMINATING", "FINISHED"):
            self._require(by == self.reference.terminated_by, "I5", "terminated by {}", by)
            self._require(
                not of_status(after.epochs, "OPEN", "ALIGNED"), "I10", "{} with an epoch not durable", new["status"]
            )
            pending = [c["kind"] for c in of_status(after.checkpoints, "PENDING")]
            still = pending if new["status"] == "FINISHED" else [kind for kind in pending if kind != "MANUAL"]
            self._require(not still, "I10", "{} with {} pending", new["status"], still)
        if new["status"] == "FINISHED":
            self._require(not live_attempts(after), "I10", "the run is FINISHED and an attempt lives on")
            self._require(
                set(new["outputs"] or ()) == set(self.reference.outputs), "I10", "FINISHED without its outputs"
            )
        else:
            self._require(new["outputs"] is None, "I10", "outputs are named in a run that is {}", new["status"])
        if old["status"] == "FINISHED":
            self._violate("I10", f"a FINISHED run changed at {change.now}")
        if step == ("RUNNING", "TERMINATING"):
            self._counters["terminating while a hand-made checkpoint is pending"] += bool(
                of_status(after.checkpoints, "PENDING")
            )
        if step == ("FAILED", "TERMINATING"):
            self._counters["failed while TERMINATING, and resumed"] += 1

    def _epochs(self, change: Change) -> None:
        before, after = change.before, change.after
        in_force = sorted((e["epoch"], e["fencing_token"]) for e in after.epochs.values() if e["status"] != "VOIDED")
        numbers = [epoch for epoch, _ in in_force]
        first = origin_epoch(after) + 1
        self._require(numbers == list(range(first, first + len(numbers))), "I3", "the epochs in force are {}", numbers)
        durable = sorted(e["epoch"] for e in of_status(after.epochs, "DURABLE"))
        self._require(durable == numbers[: len(durable)], "I6", "the durable epochs are {}", durable)
        last = first + len(durable) - 1
        self._require(after.run["last_durable_epoch"] == last, "I6", "last_durable_epoch is not {}", last)
        self._require(len(of_status(after.epochs, "OPEN")) <= 1, "I3", "two epochs are open")
        ending = [e["epoch"] for e in after.epochs.values() if e["status"] != "VOIDED" and terminated_by(e)]
        self._require(not ending or numbers[-1] == ending[0], "I9", "epoch {} follows a terminating one", numbers[-1:])
        stale = [e["epoch"] for e in of_status(after.epochs, "OPEN", "ALIGNED") if e["fencing_token"] < change.token]
        self._require(not stale, "I6", "epochs {} are kept over a takeover", stale)
        for known, epoch in change.epochs:
            self._epoch(known, epoch, change)
        self._require(before.epochs.keys() <= after.epochs.keys(), "I6", "an epoch's row is gone")

    def _epoch(self, known: Row | None, epoch: Row, change: Change) -> None:
        token = change.token
        what = f"epoch {epoch['epoch']} of token {epoch['fencing_token']}"
        if known is None:
            self._require(epoch["fencing_token"] == token, "I2", "{} was opened under another token", what)
            self._require(epoch["status"] == "OPEN", "I4", "{} began {}", what, epoch["status"])
        else:
            step = (known["status"], epoch["status"])
            self._require(step in EPOCH_STEPS, "I4", "{} went from {} to {}", what, step[0], step[1])
            if step[1] == "VOIDED":
                self._counters[f"{known['status']} epoch voided"] += 1
                by_right = epoch["fencing_token"] < token or change.after.run["status"] == "STOPPED"
                self._require(by_right, "I6", "{} was voided under its own token", what)
            else:
                self._require(epoch["fencing_token"] == token, "I2", "{} went on under another token", what)
            for head, counts in known["records"].items():
                heard = zip(counts, epoch["records"].get(head, ()), strict=False)
                self._require(
                    all(b in (None, a) for b, a in heard), "I4", "{}: {} changed what it reported", what, head
                )
            self._require(
                known["decision"] in (None, epoch["decision"]), "I5", "{}: the decision changed afterwards", what
            )
        if epoch["status"] != "VOIDED":
            self._alignment(epoch, what, change)

    def _alignment(self, epoch: Row, what: str, change: Change) -> None:
        """I4 and I5: what was reported is what was fed back; the decision follows from it."""
        number, records = epoch["epoch"], epoch["records"]
        if number > self.reference.last_epoch:
            self._violate("I9", f"{what} is opened, but epoch {self.reference.last_epoch} terminates the run")
            return
        expected = self.reference.records[number]
        self._require(set(records) == set(expected), "I4", "{} has the heads {}", what, sorted(records))
        is_full = all(count is not None for counts in records.values() for count in counts)
        self._require(is_full or epoch["status"] == "OPEN", "I4", "{} is {} with {}", what, epoch["status"], records)
        self._require(is_full == (epoch["held_at"] is not None), "I14", "{}: held at {}", what, epoch["held_at"])
        restored = any(part["epoch"] == number for part in change.after.parts)
        for head, counts in records.items():
            wanted = _reports(expected.get(head, ()), over=len(counts), is_restored=restored)
            same = any(all(c in (None, w) for c, w in zip(counts, one, strict=True)) for one in wanted)
            self._require(same, "I4", "{}: {} reported {}, but fed back {}", what, head, counts, wanted)
        if is_full:
            metrics = self.reference.metrics[number]
            self._require(epoch["metrics"] == metrics, "I5", "{} measured {}", what, epoch["metrics"])
        if epoch["status"] == "OPEN":
            self._require(epoch["decision"] is None, "I5", "{} is open and decided", what)
            return
        by = self.reference.terminated_by if number == self.reference.last_epoch else None
        decided = {"records": {head: sum(counts) for head, counts in expected.items()}, "terminated_by": by}
        self._require(epoch["decision"] == decided, "I5", "{} decided {}, not {}", what, epoch["decision"], decided)

    def _operators(self, before: MemoryRun, after: MemoryRun) -> None:
        for operator_id, operator in after.operators.items():
            known = before.operators[operator_id]
            if operator == known:
                continue
            self._require(known["finished_at"] is None, "I11", "operator {} finished for good, twice", operator_id)
            token = after.run["fencing_token"]
            self._require(operator["fencing_token"] == token, "I2", "operator {}: another token", operator_id)
            self._require(operator_id in self.reference.finished, "I11", "operator {} never finishes", operator_id)


def _reports(records: tuple[int, ...], *, over: int, is_restored: bool) -> list[tuple[int, ...]]:
    """Return what each of `over` subtasks may report, of the records in each bucket.

    As a rule one per subtask; of a result that was restored each partition counts for the subtask that it falls to.
    """
    if len(records) == 1:
        return [(*records, *(0 for _ in range(over - 1)))]
    found = []
    for partitions in range(1, BUCKETS + 1) if is_restored else (over,):
        counts = [0] * over
        for partition, count in enumerate(_cut(records, partitions)):
            counts[partition * over // partitions] += count
        found.append(tuple(counts))
    return found


def _cut(records: tuple[int, ...], partitions: int) -> list[int]:
    cuts = [-(-partition * BUCKETS // partitions) for partition in range(partitions + 1)]
    return [sum(records[start:end]) for start, end in pairwise(cuts)]
