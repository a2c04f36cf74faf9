"""Which operators of an iteration take which others bucket by bucket, and what is always there?"""

from __future__ import annotations

from iteration_lib.model.graph import Graph
from iteration_lib.model.operator import Kind, Operator, Role
from iteration_lib.protocol.topology import Exchange, Input, Topology, Vertex


def topology_of(graph: Graph, *, max_buckets: int) -> Topology:
    """Return how a graph's operators depend on each other.

    Data streams are pinned, and carried state is nothing before the first epoch: neither is ever computed, so neither
    is a vertex. Behind an operator that may not be captured none can be.
    """
    computed = {operator.name: operator for operator in graph.operators if _is_computed(operator)}
    capturable: dict[str, bool] = {}
    vertices = []
    for name, operator in computed.items():
        sources = [computed[taken] for taken in operator.inputs if taken in computed]
        capturable[name] = operator.capture and all(capturable[source.name] for source in sources)
        vertices.append(
            Vertex(
                operator_id=operator.operator_id,
                name=name,
                total=max_buckets if operator.kind is Kind.BUCKETS else 1,
                inputs=tuple(
                    Input(operator_id=source.operator_id, exchange=_exchange(source, operator)) for source in sources
                ),
                finishes=operator.finishes,
                is_global=operator.kind is not Kind.BUCKETS,
                is_capturable=capturable[name],
                is_per_epoch=operator.role is Role.OPERATOR and not operator.finishes,
            )
        )
    return Topology(vertices=tuple(vertices))


def _is_computed(operator: Operator) -> bool:
    is_state = operator.role is Role.VARIABLE and operator.part_of is not None
    return operator.role is not Role.DATA and not is_state


def _exchange(source: Operator, operator: Operator) -> Exchange:
    return Exchange.NARROW if source.kind is operator.kind is Kind.BUCKETS else Exchange.WIDE
