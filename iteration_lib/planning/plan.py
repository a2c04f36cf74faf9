"""What would the next attempt do, and would it be let?

Everything that an attempt checks before it computes anything is asked here too: whether the iteration is still the
run's, whether the markers are legal, whether what it reads is there, whether the input is what was pinned, or can be;
but not what sinks say of their targets, nor what data streams make that no file holds yet. What is found is said all at
once. A live attempt is no refusal: its run may be planned while it goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from iteration_lib.continuation import Continuation
from iteration_lib.driver.restore import read_manifest, read_origin_manifest
from iteration_lib.driver.sinks import open_sinks, or_given_up, other_target
from iteration_lib.driver.topology import topology_of
from iteration_lib.errors import IterationError, RunStoppedError
from iteration_lib.marker import edges_of, kept_in_force, parts_in_force
from iteration_lib.model.definition import load_iteration
from iteration_lib.model.graph import Graph
from iteration_lib.model.loop import LOOP_REFERENCE, graph_of_loop
from iteration_lib.model.params import parse_params
from iteration_lib.planning.input import CheckedPin, check_pins, check_unpinned, tried
from iteration_lib.planning.reading import check_durable, check_outputs, check_restored
from iteration_lib.planning.rows import PlanRows, UnheardEpochs, is_still, read_rows
from iteration_lib.protocol.legality import check_restored_epoch
from iteration_lib.protocol.resume import Action, ResumePlan, UnusedEdge, plan_resume
from iteration_lib.protocol.status import RunStatus
from iteration_lib.savepoint import finished_in_force
from iteration_lib.state.manifest import Manifest
from iteration_lib.stopping import live_attempt
from iteration_lib.store.record import (
    AttemptRecord,
    CommittableRecord,
    RunRecord,
    StopRecord,
)
from iteration_lib.store.seam import History, StoreWithHistory

_LOOKS = 10


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
class RunPlan:
    """What the next attempt of a run would do; `resume` is None when it runs no epoch.

    `commits` is what it lets sinks commit before anything else, `unheard` the durable epochs that it tells listeners
    of, `stop` the request to stop or to drain that is in force. `changes` are the differences of the iteration as it is
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
    unheard: tuple[UnheardEpochs, ...] = ()
    stop: StopRecord | None = None


def plan_run(
    store: StoreWithHistory, run: RunRecord, *, allow_dropped_state: bool = False, ignore_edges: bool = False
) -> RunPlan:
    """Return what the next attempt would do.

    Somebody may drive the run meanwhile. A plan is made of rows between which the run has not gone on; and what is
    refused is refused of a run that has not gone on until then: its files go after its rows.

    Raises IterationNotFoundError or DefinitionError where there is no iteration to plan with, and StateCorruptedError
    where a branch has other operators and nobody can read which of its origin's had finished.
    """
    for _ in range(_LOOKS):
        if run.status in (RunStatus.FINISHED, RunStatus.DELETED):
            live = live_attempt(store, run)
            return RunPlan(run=run, resume=None, checkpoint=None, pins=(), changes=(), refusals=(), live=live)
        graph, params = _graph_of(run)
        rows = read_rows(store, run, graph, ignore_edges=ignore_edges)
        if is_still(store, rows):
            planned = _plan(store, rows, params, allow_dropped_state=allow_dropped_state)
            if not planned.refusals or is_still(store, rows):
                return planned
        run = store.find_run(run.run_id) or run
    raise IterationError(
        f"run {run.run_key} goes on faster than it can be planned; plan it again, or when nobody drives it"
    )


def _plan(store: StoreWithHistory, rows: PlanRows, params: type | None, *, allow_dropped_state: bool) -> RunPlan:
    continuation = rows.continuation
    offences = continuation.offences()
    refusals = [
        *_stopped(rows),
        *_misplaced(rows),
        *continuation.refusals(allow_dropped_state=allow_dropped_state),
        *offences,
        *_check_sinks(store, rows, params),
    ]
    resume = _resume(_as_if_kept(store, rows), rows) if rows.runs_epochs else None
    manifest, checkpoint, problems = _checkpoint(rows)
    pins = check_pins(store, rows) if resume is not None else ()
    if resume is not None:
        problems = (*problems, *check_unpinned(rows, params))
        restored = check_restored(store, rows, manifest) if manifest is not None else ()
        durable = () if offences else check_durable(rows, resume)  # illegal markers do not say what is read
        problems = (*problems, *restored, *durable)
    elif rows.run.terminated_by is not None and manifest is not None:
        problems = (*problems, *check_outputs(rows, manifest))
    return RunPlan(
        run=rows.run,
        resume=resume,
        checkpoint=checkpoint,
        pins=pins,
        changes=continuation.evolution.sentences,
        refusals=(*refusals, *problems, *(pin.problem for pin in pins if pin.problem is not None)),
        live=rows.live,
        commits=rows.commits,
        unheard=rows.unheard if not rows.is_stopped_instead else (),
        stop=rows.stop,
    )


def _graph_of(run: RunRecord) -> tuple[Graph, type | None]:
    """Return what a run's epochs consist of, and what declares its parameters: nothing does for a loop in a script."""
    if run.reference == LOOP_REFERENCE:
        return graph_of_loop(run.definition), None
    iteration = load_iteration(run.reference)
    return iteration.graph(), iteration.params


def _stopped(rows: PlanRows) -> tuple[str, ...]:
    """Say whether a stop keeps the attempt from being let: it is in force, or was."""
    run_id = rows.run.run_id
    if rows.run.status is RunStatus.STOPPED:
        return (str(RunStoppedError(run_id)),)
    if not rows.is_stopped_instead:
        return ()
    return (f"run {run_id} is asked to stop, and is STOPPED instead; then `iteration resume {run_id}` lets it go on",)


def _misplaced(rows: PlanRows) -> tuple[str, ...]:
    """Say whether what the attempt would begin with is not of the last durable epoch."""
    run = rows.run
    _, problems = tried(
        lambda: check_restored_epoch(run.run_id, restored=rows.restored_epoch, last_durable=run.last_durable_epoch)
    )
    return problems


def _check_sinks(store: StoreWithHistory, rows: PlanRows, params: type | None) -> tuple[str, ...]:
    """Return what is wrong with the parameters and the sinks that are made of them, their targets unasked."""
    continuation = rows.continuation
    parsed, problems = tried(lambda: parse_params(params, rows.run.params) if params is not None else None)
    if problems:
        return problems
    sinks, problems = tried(lambda: open_sinks(continuation.graph, parsed, store_url=store.url))
    if sinks is None:
        return problems
    others = ((other_target(sinks, stored), stored) for stored in rows.commits)
    return tuple(str(or_given_up(error, stored)) for error, stored in others if error is not None)


def _as_if_kept(store: History, rows: PlanRows) -> Continuation:
    """Return how a branch goes on once its attempt has taken over what its origin had finished for good."""
    continuation, held = rows.continuation, rows.held
    if held is None:
        return continuation
    manifest, _ = tried(lambda: read_origin_manifest(held))
    if manifest is None:
        return continuation
    finished = kept_in_force(rows.operators, held) & set(finished_in_force(store, held.origin_run_id, manifest))
    markers = replace(continuation.markers, finished=continuation.markers.finished | finished)
    return replace(continuation, markers=markers)


def _resume(continuation: Continuation, rows: PlanRows) -> ResumePlan:
    """Return what becomes of the operators, and of edges: what others have left, or is ignored."""
    topology = topology_of(continuation.graph, max_buckets=continuation.run.max_buckets)
    plan = plan_resume(topology, continuation.kept)
    unfit = [(edge, why) for edge in continuation.markers.edges if (why := continuation.why_void(edge)) is not None]
    ignored = edges_of(parts_in_force(rows.run, rows.operators, rows.ignored))
    voided = tuple(
        UnusedEdge(operator_id=edge.operator_id, buckets=edge.finished, reason=reason)
        for edge, reason in (*unfit, *((edge, "edges are ignored") for edge in ignored))
    )
    reasons = {edge.operator_id: f"its edge is not used: {edge.reason}" for edge in voided}
    steps = tuple(
        replace(step, reason=reasons.get(step.vertex.operator_id, step.reason)) if step.action is Action.RUN else step
        for step in plan.steps
    )
    return replace(plan, steps=steps, unused=(*voided, *plan.unused))


def _checkpoint(rows: PlanRows) -> tuple[Manifest | None, RestoredCheckpoint | None, tuple[str, ...]]:
    """Return what the attempt begins with, and why it cannot: the completed checkpoint, an origin, or nothing."""
    completed, held = rows.completed, rows.held
    if rows.is_stopped_instead or (completed is None and held is None):
        return None, None, ()
    if completed is not None:
        manifest, problems = tried(lambda: read_manifest(rows.location, completed))
        path, origin = str(completed.manifest_path), None
    elif held is not None:
        manifest, problems = tried(lambda: read_origin_manifest(held))
        path, origin = held.manifest_path, str(held.origin_run_id or held.uri)
    return manifest, _restored(manifest, path, origin=origin) if manifest is not None else None, problems


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
