"""What became of each operator in each epoch? Pure: records in, a grid of cells out.

Where a page has no room for so many epochs, a column stands for a span of them.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from iteration_lib.store.overview import EdgeSpan, Span
from iteration_lib.store.record import OperatorRecord

MAX_COLUMNS = 120


class CellKind(enum.Enum):
    """What a cell shows; of a span of epochs that differ, what comes last here."""

    NONE = "none"  # nothing was run: the run or its operator was not there, or the epoch was given up
    OPEN = "open"  # of an epoch that has not aligned, durable edges alone tell what has run
    RUN = "run"
    SKIPPED = "skipped"  # it had finished for good
    EDGE = "edge"  # its output, or some parts of it, was durable before the epoch was
    RESTORED = "restored"  # an attempt found all of that, and did not run it
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One operator in one span of epochs; `title` says it in words."""

    kind: CellKind
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRow:
    """One operator."""

    operator_id: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Operators by spans of epochs; `columns` names each span, `width` is the number of epochs of one."""

    width: int
    columns: tuple[str, ...]
    rows: tuple[GridRow, ...]


def width_for(epochs: int) -> int:
    """Return how many epochs a span has, so that all of them have room: 1, 2 or 5 times a power of ten."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if math.ceil(epochs / (factor * power)) <= MAX_COLUMNS:
                return factor * power
        power *= 10


def make_grid(
    operators: Sequence[OperatorRecord],
    spans: Sequence[Span],
    edges: Sequence[EdgeSpan],
    *,
    width: int,
    failed: tuple[str, int] | None = None,
    kept: Collection[str] = (),
) -> Grid:
    """Return the grid of a run.

    `failed` is the operator that ended its newest attempt, and in which epoch; `kept` are those that had finished in
    the run that a branch started from.
    """
    spans = _with_failed(spans, failed[1], width=width) if failed is not None else spans
    left = {(edge.first_epoch, edge.operator_id): edge for edge in edges}
    known = _Known(left=left, width=width, failed=failed, kept=frozenset(kept))
    rows = [
        GridRow(operator_id=operator.operator_id, cells=tuple(known.cell_of(operator, span) for span in spans))
        for operator in operators
        if operator.role == "operator"
    ]
    return Grid(width=width, columns=tuple(_column(span) for span in spans), rows=tuple(rows))


def _with_failed(spans: Sequence[Span], epoch: int, *, width: int) -> Sequence[Span]:
    """Return spans among which the failed epoch has its place: it fails before it is opened where its input does."""
    if spans and epoch <= spans[-1].last_epoch:
        return spans
    if spans and epoch // width == spans[-1].first_epoch // width:
        return [*spans[:-1], replace(spans[-1], last_epoch=epoch)]
    return [*spans, Span.empty(epoch)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What is known of a run's operators beside what became of its epochs."""

    left: Mapping[tuple[int, str], EdgeSpan]
    width: int
    failed: tuple[str, int] | None
    kept: frozenset[str]

    def cell_of(self, operator: OperatorRecord, span: Span) -> Cell:
        """Return what became of an operator in a span."""
        kind, what = self._became(operator, span)
        return Cell(kind=kind, title=f"{operator.operator_id}, {_column(span)}: {what}")

    def _became(self, operator: OperatorRecord, span: Span) -> tuple[CellKind, str]:
        edge = self.left.get((span.first_epoch // self.width * self.width, operator.operator_id))
        if self.failed is not None and self.failed[0] == operator.operator_id and self.failed[1] in _epochs(span):
            return CellKind.FAILED, f"failed in epoch {self.failed[1]}"
        if edge is not None:
            return self._left(edge, span)
        if 0 < span.last_attempt < operator.added_under:
            return CellKind.NONE, "the run had no such operator yet"
        if operator.finished_epoch is not None and operator.operator_id in self.kept:
            return CellKind.SKIPPED, "skipped, finished in the run that this one started from"
        if operator.finished_epoch is not None and operator.finished_epoch < span.first_epoch:
            return CellKind.SKIPPED, f"skipped, finished in epoch {operator.finished_epoch}"
        return _passed(span, has_finished=operator.finished_epoch in _epochs(span))

    def _left(self, edge: EdgeSpan, span: Span) -> tuple[CellKind, str]:
        has_run = span.durable or span.aligned or edge.whole
        if edge.restored:
            found = "not run again, an attempt found its durable edge"
            return CellKind.RESTORED, found + _of(edge.restored, self.width)
        if edge.restored_in_part:
            found = "run in part, the other parts found as durable edges" + _of(edge.restored_in_part, self.width)
            return CellKind.EDGE, found if has_run else "some parts found as durable edges, and the epoch is open"
        left = f"run, with a durable edge{_of(edge.edges, self.width)}"
        return CellKind.EDGE, left if has_run else "run in part, with a durable edge of that, and the epoch is open"


def _passed(span: Span, *, has_finished: bool) -> tuple[CellKind, str]:
    """Say what became of an operator by its epochs alone: all operators have run in one that has aligned."""
    if span.durable or span.aligned or has_finished:
        return CellKind.RUN, "run, and the last epoch is open" if span.open and not has_finished else "run"
    if span.open:
        return CellKind.OPEN, "the epoch is open, and no durable edge says that it has run"
    return CellKind.NONE, "given up, not run again yet" if span.voided else "not run yet"


def _epochs(span: Span) -> range:
    return range(span.first_epoch, span.last_epoch + 1)


def _of(count: int, width: int) -> str:
    return "" if width == 1 else f", in {count} epoch{'' if count == 1 else 's'}"


def _column(span: Span) -> str:
    if span.first_epoch == span.last_epoch:
        return f"epoch {span.first_epoch}"
    return f"epochs {span.first_epoch} to {span.last_epoch}"
