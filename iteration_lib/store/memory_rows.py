"""Which rows does a run have in the store in memory, and how is an illegal one refused?"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from iteration_lib.errors import ProtocolViolationError
from iteration_lib.store.row import to_json

MutableRow: TypeAlias = dict[str, Any]  # Any: what a column holds


@dataclass(slots=True, kw_only=True)
class MemoryRun:
    """The rows of one run."""

    run: MutableRow
    attempts: dict[int, MutableRow] = field(default_factory=dict)
    operators: dict[str, MutableRow] = field(default_factory=dict)
    pins: dict[str, MutableRow] = field(default_factory=dict)
    epochs: dict[tuple[int, int], MutableRow] = field(default_factory=dict)
    checkpoints: dict[int, MutableRow] = field(default_factory=dict)
    checkpoint_pins: dict[int, MutableRow] = field(default_factory=dict)
    requests: dict[str, MutableRow] = field(default_factory=dict)
    stops: dict[str, MutableRow] = field(default_factory=dict)
    fallbacks: dict[int, MutableRow] = field(default_factory=dict)
    parts: list[MutableRow] = field(default_factory=list)
    notices: dict[tuple[str, int], MutableRow] = field(default_factory=dict)
    committables: dict[tuple[int, str], MutableRow] = field(default_factory=dict)
    branch: MutableRow | None = None

    def copy(self) -> MemoryRun:
        """Return rows that can be changed apart from these; what a column holds is replaced, never changed."""
        return MemoryRun(
            run=dict(self.run),
            attempts={key: dict(row) for key, row in self.attempts.items()},
            operators={key: dict(row) for key, row in self.operators.items()},
            pins={key: dict(row) for key, row in self.pins.items()},
            epochs={key: dict(row) for key, row in self.epochs.items()},
            checkpoints={key: dict(row) for key, row in self.checkpoints.items()},
            checkpoint_pins=dict(self.checkpoint_pins),
            requests={key: dict(row) for key, row in self.requests.items()},
            stops={key: dict(row) for key, row in self.stops.items()},
            fallbacks=dict(self.fallbacks),
            parts=list(self.parts),  # here a changed row takes the place of the old one: there may be many
            notices=dict(self.notices),
            committables={key: dict(row) for key, row in self.committables.items()},
            branch=dict(self.branch) if self.branch is not None else None,
        )

    def live_parts(self, epoch: int, operator_id: str) -> list[MutableRow]:
        """Return the parts of an edge that are not voided."""
        return [
            part
            for part in self.parts
            if (part["epoch"], part["operator_id"]) == (epoch, operator_id) and part["voided_at"] is None
        ]

    def void_parts(self, is_void: Callable[[MutableRow], bool], now: datetime) -> list[MutableRow]:
        """Void live parts, and return them."""
        known = self.parts
        self.parts = [
            {**part, "voided_at": now} if part["voided_at"] is None and is_void(part) else part for part in known
        ]
        return [before for before, after in zip(known, self.parts, strict=True) if before is not after]


# Writes one command to the rows, under a token, at an instant.
Writer: TypeAlias = Callable[[MemoryRun, Any, int, datetime], None]  # Any: the command that it is for


def pinned_by(branches: Iterable[MutableRow]) -> frozenset[int]:
    """Return the checkpoints that branches hold."""
    return frozenset(branch["origin_checkpoint_id"] for branch in branches if branch["released_at"] is None)


def as_json(value: object) -> Any:  # noqa: ANN401 - JSON
    """Return a value as a JSON column gives it back."""
    return json.loads(to_json(value))


def refuse_if(broken: bool, what: str) -> None:  # noqa: FBT001 - reads as a sentence
    """Refuse what a constraint of the database would."""
    if broken:
        raise ProtocolViolationError(f"{what}; this is a bug, please report it")


def is_full(run: MemoryRun, fencing_token: int) -> bool:
    """Tell whether as many checkpoints are pending as an attempt's policy allows."""
    pending = [checkpoint for checkpoint in run.checkpoints.values() if checkpoint["status"] == "PENDING"]
    return len(pending) >= int(run.attempts[fencing_token]["policy"]["max_pending"])


def refuse_failed(run: MemoryRun, fencing_token: int) -> None:
    """Refuse what an attempt would begin after more checkpoints have failed than it puts up with."""
    attempt = run.attempts[fencing_token]
    too_many = attempt["checkpoint_failures"] > attempt["policy"]["tolerable_failures"]
    refuse_if(too_many, f"too many checkpoints of attempt {fencing_token} have failed")


def expect(row: MutableRow | None, **columns: object) -> MutableRow:
    """Return a row that is there and holds these values; raises ProtocolViolationError when it is not."""
    if row is None or any(row[name] != value for name, value in columns.items()):
        raise ProtocolViolationError(f"no row where {columns}; this is a bug, please report it")
    return row


def sources_of(run: MemoryRun, operator_id: str) -> list[str]:
    """Return the ids of what an operator takes, by the run's definition; of format 1, which names them, too."""
    definition = run.run["definition"]
    operators = definition["operators"]
    ids = {known if "format" in definition else operators[known]["name"]: known for known in operators}
    return [ids[name] for name in operators[operator_id]["inputs"]]


def asked_to(run: MemoryRun) -> str | None:
    """Return the kind of the stop in force: at most one is."""
    return next((stop["kind"] for stop in run.stops.values() if stop["resumed_at"] is None), None)


def published_in(run: MemoryRun, epoch: MutableRow) -> set[str]:
    """Return the outputs that an epoch publishes: through some sinks each one does, through the others the last."""
    sinks: dict[str, bool] = run.run["definition"].get("sinks", {})
    is_last = epoch["decision"]["terminated_by"] is not None
    return {output for output, each_epoch in sinks.items() if each_epoch or is_last}


def subtasks(reports: Mapping[str, Sequence[int | None]]) -> dict[str, int]:
    """Return how many subtasks each name has."""
    return {name: len(values) for name, values in reports.items()}


def heard(reports: Mapping[str, Sequence[int | None]]) -> list[int]:
    """Return what the subtasks have said that were heard."""
    return [value for values in reports.values() for value in values if value is not None]


def refuse_heard(reports: Mapping[str, Sequence[int | None]]) -> None:
    """Refuse what begins without subtasks, or as if one had been heard."""
    refuse_if(not reports or any(not values for values in reports.values()), "there are no subtasks")
    refuse_if(bool(heard(reports)), "a subtask was heard before it began")


def refuse_unmeasured(metrics: Mapping[str, object]) -> None:
    """Refuse metrics that are no numbers."""
    others = [name for name, value in metrics.items() if isinstance(value, bool) or not isinstance(value, int | float)]
    refuse_if(bool(others), f"{others} are no numbers")


def takes_back(before: Mapping[str, Sequence[int | None]], after: Mapping[str, Sequence[int | None]]) -> bool:
    """Tell whether a subtask that was heard says something else, or nothing; both are of the same subtasks."""
    heard = ((b, a) for name, values in before.items() for b, a in zip(values, after[name], strict=True))
    return any(b not in (None, a) for b, a in heard)


def lacks_any(reports: Mapping[str, Sequence[int | None]]) -> bool:
    """Tell whether a subtask has not been heard."""
    return any(value is None for values in reports.values() for value in values)
