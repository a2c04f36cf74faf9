"""Do checkpoints go when nobody needs them, and not before (I18)? And what becomes of a run that a person deletes?

What a policy keeps is worked out here from the rows, and from what the undisturbed run measures.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from iteration_lib.protocol.event import CheckpointPinned, CheckpointReleased, RunDeleted
from iteration_lib.store.memory_rows import MemoryRun
from tests.simulation.change import TABLES, Change, Checks, Row, Violate, live_attempts, of_status
from tests.simulation.reference import Reference

if TYPE_CHECKING:
    from iteration_lib.protocol.policy import CheckpointPolicy
    from tests.simulation.run import SimulatedRun

_THERE = ("COMPLETED", "SUBSUMED")
_OWN = (*_THERE, "DISCARDED")
_KEPT_IN_A_DELETION = ("operators", "pins", "requests", "notices")


class RetentionOracle(Checks):
    """Looks at what is discarded, at who holds what, and at a deletion."""

    def __init__(self, run: SimulatedRun, reference: Reference, violate: Violate) -> None:
        super().__init__(violate)
        self._run = run
        self.reference = reference
        self._counters = run.world.counters

    def check(self, change: Change, keeping: CheckpointPolicy | None) -> None:
        """Check one commit that changed something; `keeping` is by what policy somebody discards."""
        discarded = {row["checkpoint_id"] for row in of_status(change.after.checkpoints, "DISCARDED")}
        lost = sorted(discarded & (self._run.pinned | change.after.checkpoint_pins.keys()))
        self._require(not lost, "I18", "the checkpoints {} are discarded, and branches or persons pin them", lost)
        self._origin(change)
        if isinstance(change.said, RunDeleted):
            self._deleted(change, change.said)
        elif change.before.run["status"] == "DELETED":
            self._require(change.only_discards, "I18", "the run was deleted, and changed afterwards")
        if change.discarded:
            self._discarded(change, keeping)

    def check_pin(self, change: Change) -> None:
        """Check a commit that changed what persons pin: one pin, of a checkpoint that is there, and nothing else."""
        before, after, said = change.before, change.after, change.said
        others = [
            name for name in TABLES if name != "checkpoint_pins" and getattr(before, name) != getattr(after, name)
        ]
        run = {**before.run, "revision": None} == {**after.run, "revision": None}
        self._require(run and not others, "I18", "a pin changed {}, or the run", others)
        wanted = dict(before.checkpoint_pins)
        if isinstance(said, CheckpointPinned):
            wanted[said.checkpoint_id] = {"pinned_by": said.pinned_by, "pinned_at": change.now}
            self._counters["checkpoint pinned by hand"] += 1
        elif isinstance(said, CheckpointReleased):
            wanted.pop(said.checkpoint_id, None)
            self._counters["checkpoint released by hand"] += 1
        self._require(wanted == after.checkpoint_pins, "I18", "{}, and pinned are {}", said, after.checkpoint_pins)
        gone = sorted(
            after.checkpoint_pins.keys() - {c["checkpoint_id"] for c in of_status(after.checkpoints, *_THERE)}
        )
        self._require(not gone, "I18", "the checkpoints {} are pinned, and not there", gone)

    def was_held(self, said: RunDeleted, rows: MemoryRun, now: datetime) -> None:
        """See that a deletion was refused because an attempt is live."""
        self._counters["deletion refused"] += 1
        held = [live for live in live_attempts(rows) if live["lease_expires_at"] > now]
        by_right = not held or said.gone_attempt_id == held[0]["attempt_id"]
        self._require(not by_right, "lease", "a deletion by right was refused")

    def _discarded(self, change: Change, keeping: CheckpointPolicy | None) -> None:
        self._require(change.only_discards, "I18", "{} are discarded on the way", change.discarded)
        if keeping is None:
            self._violate("I18", f"{change.discarded} are discarded, and nobody discards")
            return
        wanted = self.beyond(change.before, keeping)
        self._require(wanted == change.discarded, "I18", "{} are discarded, not {}", change.discarded, wanted)
        claimed = self._claimed()
        self._counters["claimed checkpoint discarded"] += len(claimed.intersection(change.discarded))
        self._counters["checkpoint discarded"] += 1

    def beyond(self, rows: MemoryRun, policy: CheckpointPolicy) -> tuple[int, ...]:
        """Return which checkpoints a policy lets go: neither the newest nor pinned, and not kept, or claimed."""
        is_deleted = rows.run["status"] == "DELETED"
        there = sorted(of_status(rows.checkpoints, "COMPLETED", "SUBSUMED"), key=lambda row: -int(row["checkpoint_id"]))
        kept = set() if is_deleted else self._kept(there, policy)
        found = []
        for row in there:
            checkpoint_id = row["checkpoint_id"]
            if checkpoint_id in rows.checkpoint_pins:
                self._counters["discarding met a person's pin"] += checkpoint_id not in kept
            elif checkpoint_id in self._run.pinned:
                self._counters["discarding met a pin"] += checkpoint_id not in kept
            elif (row["status"] == "SUBSUMED" or is_deleted) and (
                checkpoint_id not in kept or checkpoint_id in self._claimed()
            ):
                found.append(checkpoint_id)
        return tuple(sorted(found))

    def _kept(self, there: list[Row], policy: CheckpointPolicy) -> set[int]:
        """Return which checkpoints a policy keeps of those that are there, newest first."""
        last = policy.retain_last if policy.retain_last is not None else (1 if policy.retain_best else len(there))
        metric, is_least = policy.retain_metric, policy.retain_mode == "min"
        measured = [row for row in there if metric is not None and metric in self.reference.metrics[row["epoch"]]]
        measured.sort(key=lambda row: self.reference.metrics[row["epoch"]][str(metric)], reverse=not is_least)
        ranked = measured[: policy.retain_best] if measured or not policy.retain_best else there
        best = {row["checkpoint_id"] for row in ranked}  # of equals the newer: it comes first
        newest = {row["checkpoint_id"] for row in there[:last]}
        self._counters["checkpoint kept for its metric"] += bool(best - newest)
        return best | newest

    def _claimed(self) -> set[int]:
        """Return the checkpoints that branches took over which own one themselves by now."""
        branches = [run for run in self._run.world.runs if run.origin is self._run]
        rows = [run.rows.branch for run in branches if of_status(run.rows.checkpoints, *_OWN)]
        return {row["origin_checkpoint_id"] for row in rows if row is not None and row["mode"] == "CLAIM"}

    def _origin(self, change: Change) -> None:
        """See that a branch holds its origin until it owns a checkpoint, or is deleted."""
        known, branch = change.before.branch, change.after.branch
        if branch is None or known is None:
            return
        owns = bool(of_status(change.after.checkpoints, *_OWN))
        is_free = owns or change.after.run["status"] == "DELETED"
        self._require((branch["released_at"] is not None) is is_free, "I18", "it holds its origin, or not: {}", branch)
        self._require({**known, "released_at": None} == {**branch, "released_at": None}, "I18", "its origin changed")
        if known["released_at"] is None and branch["released_at"] is not None:
            self._counters[f"origin released by {'a checkpoint' if owns else 'deletion'}"] += 1

    def _deleted(self, change: Change, said: RunDeleted) -> None:
        """See that a person deletes what nobody drives, and that rows stay as they are but for what was going on."""
        before, after = change.before, change.after
        self._counters["run deleted"] += 1
        self._require(after.run["status"] == "DELETED" != before.run["status"], "I18", "it is {}", after.run["status"])
        for live in live_attempts(before):
            is_gone = said.gone_attempt_id == live["attempt_id"] or live["lease_expires_at"] <= change.now
            self._require(is_gone, "lease", "the run was deleted under {}", live["attempt_id"])
            self._counters["run deleted under its attempt"] += 1
        self._require(not live_attempts(after), "I1", "the run was deleted, and an attempt lives on")
        same = [getattr(before, name) == getattr(after, name) for name in _KEPT_IN_A_DELETION]
        self._require(all(same), "I18", "a deletion changed some of {}", _KEPT_IN_A_DELETION)
        steps = {(known["status"] if known else None, row["status"]) for known, row in change.epochs}
        self._require(steps <= {("OPEN", "VOIDED"), ("ALIGNED", "VOIDED")}, "I6", "a deletion moved epochs: {}", steps)
        for known, row in change.checkpoints:
            step = (known["status"] if known is not None else None, row["status"], row["failure"])
            self._require(
                step == ("PENDING", "ABORTED", "ATTEMPT_ENDED"), "I8", "a deletion made a checkpoint {}", step
            )
        going_on = [*of_status(after.epochs, "OPEN", "ALIGNED"), *of_status(after.checkpoints, "PENDING")]
        self._require(not going_on, "I6", "the run was deleted, and {} go on", going_on)
