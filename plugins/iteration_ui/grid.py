"""What became of each operator in each epoch? Pure: records in, a grid of cells out.

Where a page has no room for so many epochs, a column stands for a span of them.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from iteration_lib.store.overview import EdgeSpan, Span
from iteration_lib.store.record import OperatorRecord

MAX_COLUMNS = 120


class CellKind(enum.Enum):
    """What a cell shows; of a span of epochs that differ, what comes last here."""

    NONE = "none"  # the run was not there, or the epoch was given up and not run again yet
    RUN = "run"
    SKIPPED = "skipped"  # it had finished for good
    EDGE = "edge"  # its output was durable before the epoch was
    RESTORED = "restored"  # an attempt found that, and did not run it
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
) -> Grid:
    """Return the grid of a run; `failed` is the operator that ended its newest attempt, and in which epoch."""
    spans = _with_failed(spans, failed[1], width=width) if failed is not None else spans
    left = {(edge.first_epoch, edge.operator_id): edge for edge in edges}
    rows = [
        GridRow(
            operator_id=operator.operator_id,
            cells=tuple(_cell(operator, span, left, width=width, failed=failed) for span in spans),
        )
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


def _cell(
    operator: OperatorRecord,
    span: Span,
    left: Mapping[tuple[int, str], EdgeSpan],
    *,
    width: int,
    failed: tuple[str, int] | None,
) -> Cell:
    where = f"{operator.operator_id}, {_column(span)}"
    edge = left.get((span.first_epoch // width * width, operator.operator_id))
    if failed is not None and failed[0] == operator.operator_id and span.first_epoch <= failed[1] <= span.last_epoch:
        return Cell(kind=CellKind.FAILED, title=f"{where}: failed in epoch {failed[1]}")
    if edge is not None and edge.restored:
        what = "not run again, an attempt found its durable edge" + _of(edge.restored, width)
        return Cell(kind=CellKind.RESTORED, title=f"{where}: {what}")
    if edge is not None:
        return Cell(kind=CellKind.EDGE, title=f"{where}: run, with a durable edge{_of(edge.edges, width)}")
    if operator.finished_epoch is not None and operator.finished_epoch < span.first_epoch:
        return Cell(kind=CellKind.SKIPPED, title=f"{where}: skipped, finished in epoch {operator.finished_epoch}")
    if span.durable or span.going_on:
        return Cell(kind=CellKind.RUN, title=f"{where}: run")
    what = "given up, not run again yet" if span.voided else "not run yet"
    return Cell(kind=CellKind.NONE, title=f"{where}: {what}")


def _of(count: int, width: int) -> str:
    return "" if width == 1 else f", in {count} epoch{'' if count == 1 else 's'}"


def _column(span: Span) -> str:
    if span.first_epoch == span.last_epoch:
        return f"epoch {span.first_epoch}"
    return f"epochs {span.first_epoch} to {span.last_epoch}"
