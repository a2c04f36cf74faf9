"""What would an attempt read before it computes, and is it all there? Every file is verified, as an attempt does it.

It reads the variables and states of the checkpoint, and of what is durable beside it what something that runs takes.
Of a branch that begins with its origin, it copies all that it goes on with.
"""

from __future__ import annotations

from collections.abc import Iterable

from iteration_lib.driver.restore import carried_streams
from iteration_lib.driver.topology import topology_of
from iteration_lib.errors import StateCorruptedError
from iteration_lib.marker import (
    carried_from_origin,
    carried_in_force,
    finished_for_good,
    kept_in_force,
    parts_in_force,
)
from iteration_lib.model.graph import Graph
from iteration_lib.model.operator import Operator, Role
from iteration_lib.planning.rows import PlanRows
from iteration_lib.protocol.resume import ResumePlan, usable_edges
from iteration_lib.savepoint import finished_in_force, open_savepoint
from iteration_lib.state.location import StateLocation
from iteration_lib.state.manifest import Manifest
from iteration_lib.state.saved import SavedStream
from iteration_lib.store.seam import History
from iteration_lib.verification import verify_streams

_WITHOUT_EDGES = "or compute anew what is durable inside the open epoch with --ignore-edges"


def check_restored(store: History, rows: PlanRows, manifest: Manifest) -> tuple[str, ...]:
    """Say which files are bad of those that an attempt begins its epochs with, a sentence each."""
    graph, held = rows.continuation.graph, rows.held
    if held is not None and held.origin_run_id is None:
        return _check_savepoint(held.uri)
    restored = (
        carried_in_force(rows.operators, manifest)
        if held is None
        else carried_from_origin(rows.operators, held, manifest)
    )
    streams = carried_streams(graph, restored)
    if held is None:
        return _problems(rows.location, streams)
    taken = kept_in_force(rows.operators, held) - finished_for_good(rows.operators)
    in_force = finished_in_force(store, held.origin_run_id, manifest)
    finished = [saved for operator_id, saved in in_force.items() if operator_id in taken]
    return _problems(StateLocation(held.uri), (*streams, *finished))


def check_durable(rows: PlanRows, resume: ResumePlan) -> tuple[str, ...]:
    """Say the same of what operators have left that are not run again, in this epoch or for good."""
    graph = rows.continuation.graph
    read = {operator.operator_id for operator in graph.operators if _is_read(graph, resume, operator)}
    outputs = [known.output for known in rows.operators if known.output is not None and known.operator_id in read]
    topology = topology_of(graph, max_buckets=rows.run.max_buckets)
    used = {(edge.epoch, edge.operator_id) for edge in usable_edges(topology, rows.continuation.kept).used}
    edges = [
        part.output
        for part in parts_in_force(rows.run, rows.operators, rows.parts)
        if (part.epoch, part.operator_id) in used and part.operator_id in read
    ]
    return (
        *_problems(rows.location, map(SavedStream.from_json, outputs)),
        *_problems(rows.location, map(SavedStream.from_json, edges), way_out=_WITHOUT_EDGES),
    )


def check_outputs(rows: PlanRows, manifest: Manifest) -> tuple[str, ...]:
    """Say the same of what an attempt publishes that runs no epoch any more."""
    return _problems(rows.location, manifest.outputs.values())


def _is_read(graph: Graph, resume: ResumePlan, operator: Operator) -> bool:
    """Tell whether something that runs takes an operator's output: in this epoch, or in a later one if it has finished.

    The variables' first values are read whatever runs.
    """
    running = {step.vertex.operator_id for step in resume.steps if step.running}
    consumers = graph.consumers(operator.name)
    return (
        operator.role is Role.VARIABLE
        or graph.is_asked_later(operator.name)
        or any(taker.operator_id in running or (operator.finishes and not taker.finishes) for taker in consumers)
    )


def _check_savepoint(uri: str) -> tuple[str, ...]:
    """Say which file of a savepoint is bad; whoever starts from one wants all of it."""
    try:
        open_savepoint(uri)
    except StateCorruptedError as err:
        return (str(err),)
    return ()


def _problems(
    location: StateLocation, streams: Iterable[SavedStream], *, way_out: str = "nothing was changed"
) -> tuple[str, ...]:
    return tuple(
        str(StateCorruptedError(location.path(file.path), file.problem, way_out=way_out))
        for file in verify_streams(location, "", streams)
        if file.problem is not None
    )
