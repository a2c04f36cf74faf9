"""Which topologies and markers could there be? A few by hand, any by hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from iteration_lib.protocol.state import NO_EPOCH, EdgeState
from iteration_lib.protocol.topology import Exchange, Input, Topology, Vertex

BUCKETS = 4
WHOLE = ((0, BUCKETS),)


def bucketed(operator_id: str, *inputs: Vertex, finishes: bool = False) -> Vertex:
    """Return an operator on buckets; it takes what has buckets bucket by bucket."""
    return _vertex(operator_id, BUCKETS, inputs, finishes=finishes, is_per_epoch=not finishes)


def whole(operator_id: str, *inputs: Vertex, finishes: bool = False) -> Vertex:
    """Return an operator on whole values."""
    return _vertex(operator_id, 1, inputs, finishes=finishes, is_per_epoch=not finishes)


def variable(operator_id: str, *inputs: Vertex) -> Vertex:
    """Return a variable's value before epoch 0."""
    return _vertex(operator_id, 1, inputs, finishes=False, is_per_epoch=False)


def _vertex(operator_id: str, total: int, inputs: tuple[Vertex, ...], *, finishes: bool, is_per_epoch: bool) -> Vertex:
    narrow = [total == known.total == BUCKETS for known in inputs]
    return Vertex(
        operator_id=operator_id,
        name=operator_id,
        total=total,
        inputs=tuple(
            Input(operator_id=known.operator_id, exchange=Exchange.NARROW if is_narrow else Exchange.WIDE)
            for known, is_narrow in zip(inputs, narrow, strict=True)
        ),
        finishes=finishes,
        is_global=total == 1,
        is_per_epoch=is_per_epoch,
    )


# scaled (for good) ─► centres (a variable) ─► sums ─► moved, still_moving: every kind of edge.
SCALED = bucketed("scaled", finishes=True)
CENTRES = variable("centres", SCALED)
SUMS = bucketed("sums", SCALED, CENTRES)
SHARES = bucketed("shares", SUMS)
MOVED = whole("moved", SHARES, CENTRES)
KMEANS = Topology(vertices=(SCALED, CENTRES, SUMS, SHARES, MOVED))


def edge(vertex: Vertex, *finished: tuple[int, int], epoch: int = 0) -> EdgeState:
    """Return the edge of an operator, all of it unless some buckets are named."""
    return EdgeState(
        epoch=NO_EPOCH if vertex.finishes else epoch,
        operator_id=vertex.operator_id,
        total=vertex.total,
        finished=finished or ((0, vertex.total),),
    )


@st.composite
def any_topology(draw: st.DrawFn) -> Topology:
    """Return operators that finish, variables behind them, and operators of every epoch behind both."""
    finishing: list[Vertex] = []
    variables: list[Vertex] = []
    per_epoch: list[Vertex] = []
    for index in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from((bucketed, whole)))
        finishing.append(kind(f"f{index}", *_some(draw, finishing), finishes=True))
    for index in range(draw(st.integers(1, 2))):
        variables.append(variable(f"v{index}", *_some(draw, finishing)))  # noqa: PERF401 - draws have an order
    for index in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from((bucketed, whole)))
        per_epoch.append(kind(f"o{index}", *_some(draw, [*finishing, *variables, *per_epoch])))
    return Topology(vertices=(*finishing, *variables, *per_epoch))


def _some(draw: st.DrawFn, known: list[Vertex]) -> list[Vertex]:
    return [vertex for vertex in known if draw(st.booleans())]
