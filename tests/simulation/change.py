"""What did one commit change in a run's rows, and who made it?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from iteration_lib.protocol.event import OpenEvent
from iteration_lib.store.memory_rows import MemoryRun

if TYPE_CHECKING:
    from tests.simulation.attempt import SimulatedAttempt

Row: TypeAlias = Mapping[str, Any]  # Any: what a column holds
Violate: TypeAlias = Callable[[str, str], None]

TABLES = (
    *("operators", "pins", "epochs", "checkpoints", "requests", "parts", "notices", "committables", "stops"),
    *("branch", "checkpoint_pins"),
)


class Checks:
    """What every part of the oracle has: a way to note a violation, whose text is only made when there is one."""

    def __init__(self, violate: Violate) -> None:
        self._violate = violate

    def _require(self, holds: object, rule: str, text: str, *values: object) -> None:
        if not holds:
            self._violate(rule, text.format(*values))


@dataclass(frozen=True)
class Change:
    """The rows before and after a commit; made by an attempt, or by a person who `said` something."""

    before: MemoryRun
    after: MemoryRun
    attempt: SimulatedAttempt | None
    said: OpenEvent | None
    now: datetime

    @cached_property
    def token(self) -> int:
        """The token in force afterwards."""
        return int(self.after.run["fencing_token"])

    @cached_property
    def is_takeover(self) -> bool:
        """Whether an attempt was opened."""
        return self.token > int(self.before.run["fencing_token"])

    @cached_property
    def policy(self) -> Row:
        """How the attempt in force paces its checkpoints, also if it has ended."""
        policy: Row = self.after.attempts[self.token]["policy"] if self.token else {}
        return policy

    @cached_property
    def is_live(self) -> bool:
        """Whether the attempt in force has not ended."""
        return self.token > 0 and not self.after.attempts[self.token]["ended_at"]

    @cached_property
    def moves_the_run(self) -> bool:
        """Whether more changed than what operators and listeners leave: pins, markers, parts, notices."""
        before, after = self.before, self.after
        same = all(getattr(before, name) == getattr(after, name) for name in ("attempts", "requests"))
        run = {**before.run, "revision": None} == {**after.run, "revision": None}
        return bool(self.epochs or self.checkpoints or before.checkpoints.keys() - after.checkpoints.keys()) or not (
            same and run
        )

    @cached_property
    def checkpoints(self) -> tuple[tuple[Row | None, Row], ...]:
        """The checkpoints that changed, each with what it was."""
        known = self.before.checkpoints
        return tuple((known.get(key), row) for key, row in self.after.checkpoints.items() if known.get(key) != row)

    @cached_property
    def epochs(self) -> tuple[tuple[Row | None, Row], ...]:
        """The epochs that changed, each with what it was."""
        known = self.before.epochs
        return tuple((known.get(key), row) for key, row in self.after.epochs.items() if known.get(key) != row)

    @cached_property
    def discarded(self) -> tuple[int, ...]:
        """The checkpoints that were discarded."""
        return tuple(sorted(row["checkpoint_id"] for _, row in self.checkpoints if row["status"] == "DISCARDED"))

    @cached_property
    def only_discards(self) -> bool:
        """Whether it discards checkpoints and changes nothing else: anybody may do that, at any time."""
        before, after = self.before, self.after
        same = all(getattr(before, name) == getattr(after, name) for name in TABLES if name != "checkpoints")
        run = {**before.run, "revision": None} == {**after.run, "revision": None}
        is_other = before.checkpoints.keys() != after.checkpoints.keys() or len(self.discarded) < len(self.checkpoints)
        return not is_other and same and run and _without_leases(before) == _without_leases(after)

    @cached_property
    def opened(self) -> Row | None:
        """The epoch that was opened, if one was."""
        return next((row for known, row in self.epochs if known is None), None)


def is_same(before: MemoryRun, after: MemoryRun) -> bool:
    """Tell whether two rows are the same, without leases, which are renewed beside every commit."""
    if before is after:
        return True
    unchanged = all(getattr(before, table) == getattr(after, table) for table in TABLES)
    if not unchanged or {**before.run, "revision": None} != {**after.run, "revision": None}:
        return False
    return _without_leases(before) == _without_leases(after)


def _without_leases(rows: MemoryRun) -> list[Row]:
    return [{**row, "lease_expires_at": None} for row in rows.attempts.values()]


def live_attempts(rows: MemoryRun) -> list[Row]:
    """Return the attempts that have not ended."""
    return [attempt for attempt in rows.attempts.values() if attempt["ended_at"] is None]


def of_status(rows: Mapping[Any, Row], *statuses: str) -> list[Row]:
    """Return the rows that have one of these statuses."""
    return [row for row in rows.values() if row["status"] in statuses]


def is_held(rows: MemoryRun) -> bool:
    """Tell whether an epoch is held, or was until its attempt ended."""
    return any(epoch["held_at"] is not None for epoch in of_status(rows.epochs, "OPEN"))


def origin_epoch(rows: MemoryRun) -> int:
    """Return the epoch of the checkpoint that a branch started from; -1 for a run that started from nothing."""
    return int(rows.branch["epoch"]) if rows.branch is not None else -1


def terminated_by(epoch: Row) -> str | None:
    """Return by which rule an epoch terminates the run, None where it does not."""
    decision = epoch["decision"]
    found: str | None = decision["terminated_by"] if decision is not None else None
    return found
