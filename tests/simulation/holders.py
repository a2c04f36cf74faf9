"""Which rows need a file? Each that named it, as long as that row counts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from iteration_lib.store.memory_rows import MemoryRun
from tests.simulation.change import Row, of_status
from tests.simulation.edge_rows import FOR_GOOD

_HOLDS_A_CHECKPOINT = ("COMPLETED", "SUBSUMED")


@dataclass(frozen=True, slots=True)
class Holder:
    """A row of one of these tables, or the run itself; parts are known by their place. `what` says it in words."""

    table: str
    key: object
    what: str

    def of(self, what: str) -> Holder:
        """Return the same row, in the words of one thing that it names."""
        return replace(self, what=what)


class Holders:
    """Who has named which file of a run."""

    def __init__(self) -> None:
        self._by_path: dict[str, list[Holder]] = {}

    def hold(self, path: str, holder: Holder) -> None:
        """Note that a row names a file."""
        self._by_path.setdefault(path, []).append(holder)

    def named_in(self, checkpoint_id: int) -> list[str]:
        """Return the files that a checkpoint names, its manifest among them."""
        row = ("checkpoints", checkpoint_id)
        return [path for path, known in self._by_path.items() if any((of.table, of.key) == row for of in known)]

    def named_by(self, path: str) -> str | None:
        """Return who was the first to name a file, whether or not that counts still."""
        return self._by_path[path][0].what if path in self._by_path else None

    def needed_by(self, path: str, rows: MemoryRun) -> str | None:
        """Return who needs a file; None where nobody does."""
        return next((known.what for known in self._by_path.get(path, ()) if _counts(known, path, rows)), None)


def _counts(holder: Holder, path: str, rows: MemoryRun) -> bool:
    if holder.table == "checkpoints":
        return rows.checkpoints[holder.key]["status"] in _HOLDS_A_CHECKPOINT  # type: ignore[index]  # an id
    is_deleted = rows.run["status"] == "DELETED"
    if holder.table == "pins":
        return not is_deleted or bool(of_status(rows.checkpoints, *_HOLDS_A_CHECKPOINT))
    if holder.table == "operators":
        return not is_deleted and _is_output(path, rows.operators.get(str(holder.key)))
    if holder.table == "parts":
        return not is_deleted and _is_live(rows.parts[holder.key], rows)  # type: ignore[call-overload]  # a place
    return not is_deleted


def _is_output(path: str, operator: Row | None) -> bool:
    """Tell whether an operator is there still that finished for good with a file: another one may have its id."""
    output = operator["output"] if operator is not None else None
    return output is not None and path in (file["path"] for file in output["files"])


def _is_live(part: Row, rows: MemoryRun) -> bool:
    """Tell whether an attempt may go on behind a part, or a checkpoint that is pending may come to name it."""
    pending = {checkpoint["epoch"] for checkpoint in of_status(rows.checkpoints, "PENDING")}
    is_ahead = part["epoch"] == FOR_GOOD or part["epoch"] > rows.run["last_durable_epoch"]
    return part["voided_at"] is None and (is_ahead or part["epoch"] in pending)
