"""Which parts of durable edges must never be marked (I15)?"""

from __future__ import annotations

from collections.abc import Iterator

from iteration_lib.driver.attempt import Guard
from iteration_lib.model.operator import Kind, Operator, Role
from iteration_lib.protocol import Event
from iteration_lib.protocol.event import AlignmentTimedOut, FinishedPart, PartsFinished
from iteration_lib.protocol.status import UnalignedBy
from iteration_lib.store.memory_rows import MemoryRun
from tests.simulation.change import Row
from tests.simulation.edge_rows import FOR_GOOD, finished_buckets, live_parts, total_buckets
from tests.simulation.programs import Program

Illegal = tuple[str, tuple[Event, ...]]


def illegal_parts(mine: Guard, program: Program, rows: MemoryRun, last: Row | None) -> Iterator[Illegal]:
    """Yield what must not be marked now, each in words."""
    number = last["epoch"] if last is not None else rows.run["last_durable_epoch"]
    operators = [o for o in program.graph.operators if o.role is Role.OPERATOR and not o.finishes]
    yield "marks an epoch that is not there", (_marks(mine, number + 1, _part(operators[0])),)
    yield "switches an epoch that is not there", (_switches(mine, number + 1),)
    if last is None:
        return
    if last["status"] != "OPEN":
        yield "switches an epoch that has aligned", (_switches(mine, number),)
    if last["unaligned_by"] is None and last["status"] != "OPEN":
        yield "marks parts of an epoch that aligned without a switch", (_marks(mine, number, _part(operators[0])),)
    elif last["unaligned_by"] is None:
        yield "marks parts of an epoch that has not switched", (_marks(mine, number, _part(operators[0])),)
    elif number != rows.run["last_durable_epoch"] + 1:
        yield "marks parts behind an epoch that is not durable", (_marks(mine, number, _part(operators[0])),)
    else:
        for operator in operators:
            yield from _of_operator(mine, program, rows, number, operator)
    for operator in (o for o in program.graph.operators if o.finishes):
        yield from _of_buckets(mine, rows, FOR_GOOD, operator)


def _of_operator(mine: Guard, program: Program, rows: MemoryRun, epoch: int, operator: Operator) -> Iterator[Illegal]:
    there = finished_buckets(rows, epoch, operator)
    yield from _of_buckets(mine, rows, epoch, operator)
    sources = [program.graph.operator(name) for name in operator.inputs]
    for source in (s for s in sources if s.role is Role.OPERATOR and not s.finishes):
        lacking = set(range(total_buckets(source))) - finished_buckets(rows, epoch, source)
        if lacking and not there:
            part = _part(operator, after_wide=(source.operator_id,))
            yield "marks what comes before its input", (_marks(mine, epoch, part),)
        half = set(range(total_buckets(source))) - lacking
        if half and lacking and not there and source.kind is operator.kind is Kind.BUCKETS:
            part = _part(operator, first=min(half), end=min(half) + 1, after_wide=(source.operator_id,))
            yield "marks what comes before half of its input", (_marks(mine, epoch, part),)
        if 0 in lacking and not there and source.kind is operator.kind is Kind.BUCKETS:
            part = _part(operator, end=1, after_narrow=(source.operator_id,))
            yield "marks what comes before its bucket", (_marks(mine, epoch, part),)


def _of_buckets(mine: Guard, rows: MemoryRun, epoch: int, operator: Operator) -> Iterator[Illegal]:
    """Yield parts of buckets that there are not, or that are marked in part."""
    if rows.operators[operator.operator_id]["finished_at"] is not None:
        return
    total = total_buckets(operator)
    yield "marks too many buckets", (_marks(mine, epoch, _part(operator, first=total, end=total + 1)),)
    yield "marks no bucket", (_marks(mine, epoch, _part(operator, end=0)),)
    for known in live_parts(rows, epoch, operator.operator_id)[:1]:
        yield "marks buckets of another total", (_marks(mine, epoch, _part(operator, total=total + 1)),)
        if known["first_bucket"] > 0 or known["end_bucket"] < total:
            whole = _part(operator)
            if len(finished_buckets(rows, epoch, operator)) < total:
                yield "marks buckets that are marked in part", (_marks(mine, epoch, whole),)


def _part(
    operator: Operator,
    *,
    first: int = 0,
    end: int | None = None,
    total: int | None = None,
    after_narrow: tuple[str, ...] = (),
    after_wide: tuple[str, ...] = (),
) -> FinishedPart:
    return FinishedPart(
        operator_id=operator.operator_id,
        total=total if total is not None else total_buckets(operator),
        first_bucket=first,
        end_bucket=end if end is not None else total_buckets(operator),
        output={"files": []},
        after_narrow=after_narrow,
        after_wide=after_wide,
    )


def _marks(mine: Guard, epoch: int, *parts: FinishedPart) -> PartsFinished:
    return PartsFinished(**mine, epoch=epoch, parts=parts)


def _switches(mine: Guard, epoch: int) -> AlignmentTimedOut:
    return AlignmentTimedOut(**mine, epoch=epoch, by=UnalignedBy.TIMEOUT)
