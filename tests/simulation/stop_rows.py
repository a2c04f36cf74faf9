"""Does a run stop when a person asks it to, at the boundary of an epoch, and go on only when one lets it (I20)?

And does one that a person drains end with the epoch in progress, as if its own rule had ended it there (I5)?
"""

from __future__ import annotations

from collections import Counter

from iteration_lib.protocol.event import StopRequested
from iteration_lib.store.memory_rows import MemoryRun
from tests.simulation.change import Change, Checks, Row, Violate, live_attempts, of_status, terminated_by
from tests.simulation.reference import Reference


class StopOracle(Checks):
    """Compares the requests after a commit with those before it, and the run with what was asked.

    `whole` is what the run gives where nobody drains it.
    """

    def __init__(self, whole: Reference, violate: Violate, counters: Counter[str]) -> None:
        super().__init__(violate)
        self._whole = whole
        self._counters = counters

    def check(self, change: Change) -> None:
        """Check one commit that changed something."""
        before, after = change.before, change.after
        in_force = _in_force(after)
        self._require(len(in_force) <= 1, "I20", "two requests are in force")
        for stop_id, row in before.stops.items():
            self._moved(row, after.stops.get(stop_id))
        for stop_id in after.stops.keys() - before.stops.keys():
            said = change.said if isinstance(change.said, StopRequested) else None
            is_so = said is not None and (stop_id, after.stops[stop_id]["kind"]) == (said.stop_id, said.kind.value)
            self._require(is_so, "I20", "nobody asked for {}", after.stops[stop_id])
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
        self._drained(change)
        for known, epoch in change.epochs:
            if known is None and is_asked_to_stop(before):
                first = (epoch["epoch"] - 1, epoch["fencing_token"]) not in after.epochs
                self._require(first, "I20", "epoch {} opened though the run is to stop", epoch["epoch"])

    def _drained(self, change: Change) -> None:
        """See that an epoch that aligns terminates a run that is asked to drain, and is drained in no other."""
        drains = _is_asked_to(change.before, "DRAIN")
        for known, epoch in change.epochs:
            step = (known["status"] if known is not None else None, epoch["status"])
            if step == ("ALIGNED", "VOIDED"):
                self._counters["drained epoch voided"] += terminated_by(epoch) == "drained"
            if step != ("OPEN", "ALIGNED"):
                continue
            number, by = epoch["epoch"], terminated_by(epoch)
            is_last = number == self._whole.last_epoch
            wanted = self._whole.terminated_by if is_last else ("drained" if drains else None)
            self._require(by == wanted, "I20", "epoch {} ends by {}, not by {}", number, by, wanted)
            self._counters["asked to drain as it ended by itself"] += drains and is_last
        if change.after.run["terminated_by"] == "drained" != change.before.run["terminated_by"]:
            self._counters["run drained"] += 1

    def _moved(self, row: Row, now: Row | None) -> None:
        """See that a request is stopped once, then resumed once, and changes in nothing else."""
        moves = ("stopped_at", "resumed_at", "resumed_by")
        same = now is not None and {**row, **dict.fromkeys(moves)} == {**now, **dict.fromkeys(moves)}
        self._require(same, "I20", "request {} changed", row["stop_id"])
        kept = now is not None and all(row[name] in (None, now[name]) for name in moves)
        self._require(kept, "I20", "request {} was taken back", row["stop_id"])
        is_moved = now is not None and any(now[name] is not None for name in moves)
        self._require(not is_moved or row["kind"] == "STOP", "I20", "request {} to drain stopped it", row["stop_id"])

    @staticmethod
    def _by(change: Change) -> str:
        if change.said is not None:
            return "a person, as nobody drove it"
        return "its attempt" if live_attempts(change.before) else "an attempt that wanted to drive it"


def _in_force(rows: MemoryRun) -> list[Row]:
    return [row for row in rows.stops.values() if row["resumed_at"] is None]


def is_asked_to_stop(rows: MemoryRun) -> bool:
    """Tell whether a person asks the run to stop."""
    return _is_asked_to(rows, "STOP")


def is_asked_otherwise(rows: MemoryRun, kind: str) -> bool:
    """Tell whether a request of another kind than this one is in force."""
    return any(row["kind"] != kind for row in _in_force(rows))


def drained_in(rows: MemoryRun) -> int | None:
    """Return the epoch in which a run is drained as things are, None where it is not."""
    if not rows.stops:
        return None
    drained = [e["epoch"] for e in rows.epochs.values() if e["status"] != "VOIDED" and terminated_by(e) == "drained"]
    return drained[-1] if drained else None


def _is_asked_to(rows: MemoryRun, kind: str) -> bool:
    return any(row["kind"] == kind for row in _in_force(rows))


def was_stopped(rows: MemoryRun) -> bool:
    """Tell whether the run was ever STOPPED."""
    return any(row["stopped_at"] is not None for row in rows.stops.values())
