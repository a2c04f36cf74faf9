"""What would the next attempt skip, restore, go on with and run?

What is true of every plan whose markers are legal (`legality`):

    P1  nothing of an operator that is not run again was computed from something that is. So no two operators of an
        epoch ever see two different results of one input, however undeterministic the functions are.
    P2  the converse does not hold: an operator may run although its inputs are durable.
    P3  no bucket that an edge in use covers is run again.
    P4  while something is to run, the frontier is not empty, and everything on it can begin at once.

An edge is *in use* when it fits the operators and P1 holds with it. One of epoch 0 needs, beside its inputs, the edges
of the variables behind it: their first values are in no checkpoint yet.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from iteration_lib.protocol.bucket_range import Ranges, all_buckets, common_buckets, missing_buckets, show_share
from iteration_lib.protocol.legality import Markers
from iteration_lib.protocol.state import EdgeState
from iteration_lib.protocol.status import OperatorStatus
from iteration_lib.protocol.topology import Exchange, Topology, Vertex


class Action(enum.Enum):
    """What the next attempt does with an operator."""

    SKIPPED = "SKIPPED"
    RESTORED = "RESTORED"
    CONTINUED = "CONTINUED"
    RUN = "RUN"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedEdge:
    """Buckets that are durable, and run again all the same."""

    operator_id: str
    buckets: Ranges
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UsableEdges:
    """The edges that a plan uses, cut down to what it uses of them, and what it does not use."""

    used: tuple[EdgeState, ...]
    unused: tuple[UnusedEdge, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What becomes of one operator: which of its buckets are there, and which run."""

    vertex: Vertex
    action: Action
    reason: str
    durable: Ranges = ()
    running: Ranges = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """Buckets of an operator that can begin at once: all that they need is there."""

    operator_id: str
    buckets: Ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePlan:
    """What an attempt that runs `epoch` next does, in running order."""

    epoch: int
    steps: tuple[Step, ...]
    frontier: tuple[Trigger, ...]
    unused: tuple[UnusedEdge, ...]

    def step(self, operator_id: str) -> Step | None:
        """Return what becomes of an operator."""
        return next((step for step in self.steps if step.vertex.operator_id == operator_id), None)


def usable_edges(topology: Topology, markers: Markers) -> UsableEdges:
    """Return the edges that fit the operators and leave nothing that was computed from what runs again (P1)."""
    there: dict[str, Ranges] = {}
    used, unused = [], []
    edges = {edge.operator_id: edge for edge in map(markers.edge, topology.vertices) if edge is not None}
    for vertex in topology.vertices:
        edge = edges.get(vertex.operator_id)
        if edge is None or markers.has_value_of(vertex):
            there[vertex.operator_id] = all_buckets(vertex.total) if markers.has_value_of(vertex) else ()
            continue
        kept, reason = _usable(topology, there, vertex, edge)
        there[vertex.operator_id] = kept
        dropped = missing_buckets(kept, edge.finished)
        if kept:
            used.append(replace(edge, finished=kept))
        if dropped:
            unused.append(UnusedEdge(operator_id=vertex.operator_id, buckets=dropped, reason=reason))
    unused += [
        UnusedEdge(operator_id=edge.operator_id, buckets=edge.finished, reason=_why_stray(topology, edge))
        for edge in markers.edges
        if edge not in edges.values()
    ]
    return UsableEdges(used=tuple(used), unused=tuple(unused))


def plan_resume(topology: Topology, markers: Markers) -> ResumePlan:
    """Return what becomes of each operator, and with what the epoch begins."""
    usable = usable_edges(topology, markers)
    used = {edge.operator_id: edge.finished for edge in usable.used}
    unused = {known.operator_id: known.reason for known in usable.unused}
    steps = tuple(
        _step(markers, vertex, used.get(vertex.operator_id, ()), unused.get(vertex.operator_id))
        for vertex in topology.vertices
    )
    return ResumePlan(epoch=markers.epoch, steps=steps, frontier=_frontier(topology, steps), unused=usable.unused)


def _usable(topology: Topology, there: dict[str, Ranges], vertex: Vertex, edge: EdgeState) -> tuple[Ranges, str]:
    """Return what can be used of an edge, and why the rest cannot."""
    if edge.total != vertex.total:
        return (), f"it has {edge.total} buckets, and the operator now {vertex.total}"
    if vertex.is_global and edge.status is OperatorStatus.PARTIALLY_FINISHED:
        return (), "it gives its output as a whole, and only a part is there"
    kept, reason = edge.finished, ""
    for input_id, exchange in vertex.predecessors.items():
        ready = _ready(topology, there, vertex, input_id, exchange)
        left = common_buckets(kept, ready)
        if left != kept:
            kept, reason = left, reason or f"its input {input_id!r} runs again"
    return kept, reason


def _ready(topology: Topology, there: dict[str, Ranges], vertex: Vertex, input_id: str, exchange: Exchange) -> Ranges:
    """Return the buckets of an operator that an input, as far as it is there, lets begin."""
    source = topology.vertex(input_id)
    if source is None:
        return ()
    if exchange is Exchange.NARROW and source.total == vertex.total:
        return there[input_id]
    return all_buckets(vertex.total) if there[input_id] == all_buckets(source.total) else ()


def _why_stray(topology: Topology, edge: EdgeState) -> str:
    vertex = topology.vertex(edge.operator_id)
    if vertex is None:
        return "no operator has this id now"
    return "the operator finishes for good now" if vertex.finishes else "the operator now runs in every epoch"


def _step(markers: Markers, vertex: Vertex, used: Ranges, unused: str | None) -> Step:
    everything = all_buckets(vertex.total)
    if vertex.operator_id in markers.finished:
        return Step(vertex=vertex, action=Action.SKIPPED, reason="it has finished for good", durable=everything)
    if markers.has_value_of(vertex):
        reason = f"its value after epoch {markers.epoch - 1} is in the checkpoint"
        return Step(vertex=vertex, action=Action.RESTORED, reason=reason, durable=everything)
    if used == everything:
        return Step(vertex=vertex, action=Action.RESTORED, reason="its edge is durable", durable=everything)
    running = missing_buckets(used, everything)
    if used:
        reason = f"{show_share(used, vertex.total)} are durable"
        return Step(vertex=vertex, action=Action.CONTINUED, reason=reason, durable=used, running=running)
    reason = f"its edge is not used: {unused}" if unused is not None else _why_run(markers, vertex)
    return Step(vertex=vertex, action=Action.RUN, reason=reason, running=running)


def _why_run(markers: Markers, vertex: Vertex) -> str:
    """Say why nothing of an operator is durable."""
    if vertex.finishes:
        return "it has not finished"
    if vertex.is_variable:
        return "its value before epoch 0 is in no checkpoint yet"
    if markers.was_unaligned is None:
        return f"epoch {markers.epoch} has not begun"
    if not vertex.is_capturable:
        return "its output is never captured"
    if not markers.was_unaligned:
        return f"the last attempt at epoch {markers.epoch} had not switched to unaligned, so it left no edge"
    return "it had not finished"


def _frontier(topology: Topology, steps: tuple[Step, ...]) -> tuple[Trigger, ...]:
    """Return the buckets that run and wait for nothing (FLIP-147: those that are triggered).

    One bucket of a wide input that runs keeps the whole operator waiting, one of a narrow input only the same bucket.
    """
    there = {step.vertex.operator_id: step.durable for step in steps}
    frontier = []
    for step in steps:
        vertex, buckets = step.vertex, step.running
        for input_id, exchange in vertex.predecessors.items():
            buckets = common_buckets(buckets, _ready(topology, there, vertex, input_id, exchange))
        if buckets:
            frontier.append(Trigger(operator_id=vertex.operator_id, buckets=buckets))
    return tuple(frontier)
