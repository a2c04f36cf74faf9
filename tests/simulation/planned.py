"""Does an attempt run what the dry run says that it will?

`iteration plan` asks a pure function (protocol.resume), the driver looks for each edge as it comes to the operator:
here the one is held against the other, in the first epoch of an attempt and before it. Where the attempt computes each
operator into files, it has run all of it when that epoch aligns; else some of it may be computed later, or never. Where
the file may change, what was foreseen before the attempt opened is what comes of it, if nobody came between.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, TypeAlias

from iteration_lib.driver.topology import topology_of
from iteration_lib.protocol.edge import merge_ranges
from iteration_lib.protocol.legality import Markers
from iteration_lib.protocol.resume import plan_resume
from iteration_lib.protocol.state import NO_EPOCH, EdgeState
from iteration_lib.protocol.topology import Vertex
from tests.simulation.edge_rows import finished_buckets, total_buckets
from tests.simulation.programs import BUCKETS

if TYPE_CHECKING:
    from iteration_lib.store.memory_rows import MemoryRun
    from tests.simulation.programs import Program

Run: TypeAlias = tuple[str, int | None, int]  # an operator's id, the epoch if it runs in each, and a bucket


def planned_runs(
    program: Program, rows: MemoryRun, *, epoch: int, token: int, finished: Collection[str]
) -> dict[Run, Vertex]:
    """Return what an attempt will run before and in its first `epoch`, by what older tokens left."""
    edges = []
    for operator in program.graph.operators:
        of = NO_EPOCH if operator.finishes else epoch
        buckets = finished_buckets(rows, of, operator, below_token=token)
        if buckets and operator.operator_id not in finished:
            ranges = merge_ranges((bucket, bucket + 1) for bucket in sorted(buckets))
            total = total_buckets(operator)
            edges.append(EdgeState(epoch=of, operator_id=operator.operator_id, total=total, finished=ranges))
    return runs_by(program, Markers(epoch=epoch, finished=frozenset(finished), edges=tuple(edges)))


def runs_by(program: Program, markers: Markers) -> dict[Run, Vertex]:
    """Return what the dry run says that an attempt will run that begins with some markers."""
    plan = plan_resume(topology_of(program.graph, max_buckets=BUCKETS), markers)
    return {
        (step.vertex.operator_id, markers.epoch if step.vertex.is_per_epoch else None, bucket): step.vertex
        for step in plan.steps
        for first, end in step.running
        for bucket in range(first, end)
    }
