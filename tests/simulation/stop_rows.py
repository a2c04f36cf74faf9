"""Does a run stop when a person asks it to, at the boundary of an epoch, and go on only when one lets it (I20)?"""

from __future__ import annotations

from collections import Counter

from iteration_lib.store.memory_rows import MemoryRun
from tests.simulation.change import Change, Checks, Row, Violate, live_attempts, of_status


class StopOracle(Checks):
    """Compares the requests after a commit with those before it, and the run with what was asked."""

    def __init__(self, violate: Violate, counters: Counter[str]) -> None:
        super().__init__(violate)
        self._counters = counters

    def check(self, change: Change) -> None:
        """Check one commit that changed something."""
        before, after = change.before, change.after
        in_force = _in_force(after)
        self._require(len(in_force) <= 1, "I20", "two requests are in force")
        for stop_id, row in before.stops.items():
            self._moved(row, after.stops.get(stop_id))
        for stop_id in after.stops.keys() - before.stops.keys():
            self._require(change.said is not None, "I20", "nobody asked for {}", stop_id)
            self._require(before.run["status"] == "RUNNING", "I20", "asked of a run that is {}", before.run["status"])
        steps = (before.run["status"], after.run["status"])
        is_stopped = [row["stopped_at"] is not None for row in in_force] == [True]
        self._require(is_stopped == (steps[1] == "STOPPED"), "I20", "the run is {}, and {}", steps[1], in_force)
        if steps[1] == "STOPPED":
            rest = [*of_status(after.epochs, "OPEN", "ALIGNED"), *of_status(after.checkpoints, "PENDING")]
            self._require(not rest and not live_attempts(after), "I20", "the run is STOPPED, and {} is left", rest)
        if steps[1] == "STOPPED" != steps[0]:
            self._counters[f"stopped by {self._by(change)}"] += 1
        if steps == ("STOPPED", "RUNNING"):
            self._require(change.said is not None, "I20", "nobody resumed the run")
            self._counters["stopped run resumed"] += 1
        for known, epoch in change.epochs:
            if known is None and _in_force(before):
                first = (epoch["epoch"] - 1, epoch["fencing_token"]) not in after.epochs
                self._require(first, "I20", "epoch {} opened though the run is to stop", epoch["epoch"])

    def _moved(self, row: Row, now: Row | None) -> None:
        """See that a request is stopped once, then resumed once, and changes in nothing else."""
        moves = ("stopped_at", "resumed_at", "resumed_by")
        same = now is not None and {**row, **dict.fromkeys(moves)} == {**now, **dict.fromkeys(moves)}
        self._require(same, "I20", "request {} changed", row["stop_id"])
        kept = now is not None and all(row[name] in (None, now[name]) for name in moves)
        self._require(kept, "I20", "request {} was taken back", row["stop_id"])

    @staticmethod
    def _by(change: Change) -> str:
        if change.said is not None:
            return "a person, as nobody drove it"
        return "its attempt" if live_attempts(change.before) else "an attempt that wanted to drive it"


def _in_force(rows: MemoryRun) -> list[Row]:
    return [row for row in rows.stops.values() if row["resumed_at"] is None]


def is_asked_to_stop(rows: MemoryRun) -> bool:
    """Tell whether a person asks the run to stop."""
    return bool(_in_force(rows))


def was_stopped(rows: MemoryRun) -> bool:
    """Tell whether the run was ever STOPPED."""
    return any(row["stopped_at"] is not None for row in rows.stops.values())
