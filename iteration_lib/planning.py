"""What would the next attempt do, and would it be let? A dry run: it reads, writes nothing, and starts no Spark.

Everything that an attempt checks before it computes anything is asked here too: whether the iteration is still the
run's, whether the markers are legal, whether the checkpoint is there, whether the input is what was pinned. What is
found is said all at once. A live attempt is no refusal: its run may be planned while it goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from iteration_lib.continuation import Continuation, read_continuation
from iteration_lib.driver.restore import read_completed_manifest, read_origin_manifest
from iteration_lib.driver.topology import topology_of
from iteration_lib.errors import IterationError, RunStoppedError
from iteration_lib.model.definition import load_iteration
from iteration_lib.model.graph import Graph
from iteration_lib.model.loop import LOOP_REFERENCE, graph_of_loop
from iteration_lib.model.params import parse_params
from iteration_lib.protocol.resume import ResumePlan, UnusedEdge, plan_resume
from iteration_lib.protocol.status import RunStatus
from iteration_lib.runner.pins import check_pinned, pinned_from_json
from iteration_lib.state.location import StateLocation
from iteration_lib.state.manifest import Manifest
from iteration_lib.stopping import live_attempt
from iteration_lib.store.record import AttemptRecord, BranchRecord, CommittableRecord, PinRecord, RunRecord
from iteration_lib.store.seam import History

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredCheckpoint:
    """The checkpoint that an attempt begins with, and the files of it that it reads.

    `origin` says whose it is, where it is not the run's own: a branch begins with another run's, or a savepoint's.
    """

    checkpoint_id: int
    epoch: int
    manifest_path: str
    origin: str | None
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedPin:
    """What a data stream reads, and what is wrong with it, None if nothing is."""

    name: str
    files: int
    rows: int
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What the next attempt of a run would do; `resume` is None when no epoch is left.

    `commits` is what it lets sinks commit before anything else. `changes` are the differences of the iteration as it is
    now; `refusals` say why the attempt would not be let.
    """

    run: RunRecord
    resume: ResumePlan | None
    checkpoint: RestoredCheckpoint | None
    pins: tuple[CheckedPin, ...]
    changes: tuple[str, ...]
    refusals: tuple[str, ...]
    live: AttemptRecord | None
    commits: tuple[CommittableRecord, ...] = ()


def plan_run(
    store: History, run: RunRecord, *, allow_dropped_state: bool = False, ignore_edges: bool = False
) -> RunPlan:
    """Return what the next attempt would do.

    Raises IterationNotFoundError or DefinitionError where there is no iteration to plan with.
    """
    live = live_attempt(store, run)
    if run.status in (RunStatus.FINISHED, RunStatus.DELETED):
        return RunPlan(run=run, resume=None, checkpoint=None, pins=(), changes=(), refusals=(), live=live)
    graph, params = _graph_of(run)
    location = StateLocation(run.state_uri).below(run.run_id)
    continuation = read_continuation(store, run, graph, ignore_edges=ignore_edges)
    refusals = [
        *((str(RunStoppedError(run.run_id)),) if run.status is RunStatus.STOPPED else ()),
        *_tried(lambda: parse_params(params, run.params) if params is not None else None)[1],
        *continuation.refusals(allow_dropped_state=allow_dropped_state),
        *continuation.offences(),
    ]
    branch = store.find_branch(run.run_id)
    held = branch if branch is not None and branch.holds_origin else None
    if held is not None:
        continuation = _as_if_kept(continuation, held)
    resume = _resume(continuation) if run.terminated_by is None else None
    checkpoint, problems = _tried(lambda: _checkpoint(store, run, location))
    pins = tuple(_check_pin(*found) for found in _pins(store, run, location, held)) if resume is not None else ()
    return RunPlan(
        run=run,
        resume=resume,
        checkpoint=checkpoint,
        pins=pins,
        changes=continuation.evolution.sentences,
        refusals=(*refusals, *problems, *(pin.problem for pin in pins if pin.problem is not None)),
        live=live,
        commits=store.list_uncommitted(run.run_id),
    )


def _graph_of(run: RunRecord) -> tuple[Graph, type | None]:
    """Return what a run's epochs consist of, and what declares its parameters: nothing does for a loop in a script."""
    if run.reference == LOOP_REFERENCE:
        return graph_of_loop(run.definition), None
    iteration = load_iteration(run.reference)
    return iteration.graph(), iteration.params


def _as_if_kept(continuation: Continuation, branch: BranchRecord) -> Continuation:
    """Return how a branch goes on once its attempt has taken over what its origin had finished for good."""
    manifest, _ = _tried(lambda: read_origin_manifest(branch))
    finished = set(branch.keeps) & set(manifest.finished if manifest is not None else ())
    markers = replace(continuation.markers, finished=continuation.markers.finished | finished)
    return replace(continuation, markers=markers)


def _pins(
    store: History, run: RunRecord, location: StateLocation, held: BranchRecord | None
) -> list[tuple[StateLocation, PinRecord]]:
    """Return what data streams read, and where: of a branch also what it will take over."""
    own = [(location, pin) for pin in store.list_pins(run.run_id)]
    if held is None or held.origin_run_id is None:
        return own
    names = {pin.name for _, pin in own}
    kept = [pin for pin in store.list_pins(held.origin_run_id) if pin.name in held.keeps and pin.name not in names]
    return [*own, *((StateLocation(held.uri), pin) for pin in kept)]


def _resume(continuation: Continuation) -> ResumePlan:
    """Return what becomes of the operators, and of the edges that other operators have left."""
    topology = topology_of(continuation.graph, max_buckets=continuation.run.max_buckets)
    plan = plan_resume(topology, continuation.kept)
    reason = "the operators are not those that left it"
    voided = tuple(
        UnusedEdge(operator_id=edge.operator_id, buckets=edge.finished, reason=reason)
        for edge in continuation.markers.edges
        if edge not in continuation.kept.edges
    )
    return replace(plan, unused=(*voided, *plan.unused))


def _checkpoint(store: History, run: RunRecord, location: StateLocation) -> RestoredCheckpoint | None:
    found, branch = store.find_completed(run.run_id), store.find_branch(run.run_id)
    if found is not None:
        manifest = read_completed_manifest(store, run, location)
        return _restored(manifest, str(found.manifest_path), origin=None)
    if branch is None:
        return None
    origin = str(branch.origin_run_id) if branch.origin_run_id is not None else branch.uri
    return _restored(read_origin_manifest(branch), branch.manifest_path, origin=origin)


def _restored(manifest: Manifest, path: str, *, origin: str | None) -> RestoredCheckpoint:
    streams = (*manifest.variables.values(), *manifest.states.values(), *manifest.finished.values())
    files = [file for stream in streams for file in stream.files]
    return RestoredCheckpoint(
        checkpoint_id=manifest.checkpoint_id,
        epoch=manifest.epoch,
        manifest_path=path,
        origin=origin,
        files=len(files),
        size_bytes=sum(file.size_bytes for file in files),
    )


def _check_pin(location: StateLocation, pin: PinRecord) -> CheckedPin:
    pinned = pinned_from_json(pin.pin)
    _, problems = _tried(lambda: check_pinned(location, pinned))
    return CheckedPin(
        name=pin.name,
        files=len(pinned.files),
        rows=sum(file.rows for file in pinned.files),
        problem=problems[0] if problems else None,
    )


def _tried(read: Callable[[], T]) -> tuple[T | None, tuple[str, ...]]:
    """Return what was read, or None and why it could not be."""
    try:
        return read(), ()
    except IterationError as err:
        return None, (str(err),)
