"""What does it take to run an iteration from settings? The one place that puts the rooms together.

Whatever drives a run comes through here: `iteration run`, the Spark application, the Airflow operators.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field

import pyarrow as pa

from iteration_lib.clock import SystemClock
from iteration_lib.config import Settings
from iteration_lib.continuation import Continuation, check_continuation, read_continuation
from iteration_lib.coordinator import Coordinator
from iteration_lib.crash_point import CrashPoint
from iteration_lib.driver.attempt import Attempt, Claim, open_attempt
from iteration_lib.driver.context import Observer, RunContext, Silent
from iteration_lib.driver.drive import drive_epochs
from iteration_lib.driver.publish import publish_outputs
from iteration_lib.driver.restore import read_completed_manifest
from iteration_lib.driver.sinks import open_sinks
from iteration_lib.driver.sweep import RUNNER_SCRATCH
from iteration_lib.errors import (
    SHOWN_TO_ALL,
    LoopRunError,
    ParameterError,
    RunFinishedError,
    RunMismatchError,
    RunStoppedError,
    StateLocationError,
    without_password,
)
from iteration_lib.fallback import fall_back
from iteration_lib.model.checkpointing import Checkpointing
from iteration_lib.model.definition import describe, load_iteration, params_differences
from iteration_lib.model.graph import Graph
from iteration_lib.model.loop import LOOP_REFERENCE
from iteration_lib.model.operator import Operator
from iteration_lib.model.params import Scalar, params_json, parse_params
from iteration_lib.model.source import ParquetSource
from iteration_lib.process import is_gone
from iteration_lib.protocol.state import AttemptId, Holder, RunId, RunState
from iteration_lib.protocol.status import RunStatus
from iteration_lib.runner.calling import call_source
from iteration_lib.runner.local import LocalRunner
from iteration_lib.runner.pins import pin_parquet
from iteration_lib.runner.seam import Runner
from iteration_lib.state.location import StateLocation
from iteration_lib.state.streams import load_whole
from iteration_lib.store.opening import find_run
from iteration_lib.store.record import NewRun, RunRecord
from iteration_lib.store.run_key import check_run_key
from iteration_lib.store.seam import StoreWithHistory

DEFAULT_MAX_BUCKETS = 16
LARGEST_MAX_BUCKETS = 65_536
_logger = logging.getLogger(__name__)

_LARGEST = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A run as somebody asks for it. `params` are values or texts; what is None is the run's own, or the default.

    `checkpointing` is as Drive has it, to be checked before anything is written.
    """

    reference: str
    run_key: str
    params: Mapping[str, object] = field(default_factory=dict)
    max_buckets: int | None = None
    state_uri: str | None = None
    allow_dropped_state: bool = False
    ignore_edges: bool = False
    checkpointing: Mapping[str, object] = field(default_factory=dict)


# Opens a runner for a run whose files go to a location, with a scratch folder below it, and closes it afterwards.
RunnerFactory = Callable[[RunRecord, StateLocation, str], AbstractContextManager[Runner]]


def open_run(store: StoreWithHistory, settings: Settings, request: Request) -> RunRecord:
    """Return the run of this key, made now if there is none; starts nothing.

    Raises IterationNotFoundError, DefinitionError, ParameterError, StateLocationError or InputError before anything is
    written, and RunMismatchError when the key belongs to a run of other parameters or other code.
    """
    found = store.find_run(request.run_key)
    if found is not None:
        _check_no_loop(found)
    iteration = load_iteration(request.reference)
    graph = iteration.graph()
    graph.checkpointing.but(request.checkpointing)
    params_of_run = parse_params(iteration.params, request.params)
    params = params_json(params_of_run)
    if found is None:
        new = new_run(
            settings,
            run_key=request.run_key,
            reference=request.reference,
            definition=describe(graph),
            params=params,
            max_buckets=request.max_buckets or DEFAULT_MAX_BUCKETS,
        )
        for operator in graph.data:  # a typo must not use up the run's key
            check_input(operator, params_of_run)
        store.add_run(new)
        found = find_run(store, request.run_key)
    check_same(
        found,
        reference=request.reference,
        params=params,
        max_buckets=request.max_buckets,
        state_uri=StateLocation(request.state_uri).uri if request.state_uri is not None else None,
    )
    if found.status is not RunStatus.FINISHED:
        continuation = read_continuation(store, found, graph, ignore_edges=request.ignore_edges)
        check_continuation(continuation, allow_dropped_state=request.allow_dropped_state)
    return found


def new_run(
    settings: Settings,
    *,
    run_key: str,
    reference: str,
    definition: dict[str, object],
    params: Mapping[str, Scalar],
    max_buckets: int = DEFAULT_MAX_BUCKETS,
) -> NewRun:
    """Return a run to be added; raises UsageError for its key, StateLocationError, ParameterError for `max_epochs`."""
    check_run_key(run_key)
    location = StateLocation(settings.state_uri)
    shown = without_password(location.uri)
    if shown != location.uri:
        raise StateLocationError(shown, SHOWN_TO_ALL)
    location.check_writable()
    return NewRun(
        run_id=RunId(str(uuid.uuid4())),
        run_key=run_key,
        reference=reference,
        definition=definition,
        params=params,
        state_uri=location.uri,
        max_buckets=max_buckets,
        max_epochs=max_epochs_of(params),
    )


def _check_no_loop(run: RunRecord) -> None:
    if run.reference == LOOP_REFERENCE:
        raise LoopRunError(run.run_key)


def max_epochs_of(params: Mapping[str, Scalar]) -> int | None:
    """Return the parameter of that name, which is the protocol's too."""
    found = params.get("max_epochs")
    if found is None:
        return None
    if type(found) is not int or not 1 <= found <= _LARGEST:  # True is an int, and no number of epochs
        problem = f"parameter 'max_epochs' is {found!r}; it is a whole number from 1 to {_LARGEST}"
        raise ParameterError(problem, name="max_epochs")
    return found


def check_input(operator: Operator, params: object) -> None:
    """Raise InputError for files that are missing, empty or lack a column; what needs Spark to tell is left to it."""
    if "spark" not in operator.injected:
        source = call_source(operator, params)
        if isinstance(source, ParquetSource):
            pin_parquet(source)


def check_same(
    run: RunRecord,
    *,
    reference: str,
    params: Mapping[str, Scalar],
    max_buckets: int | None = None,
    state_uri: str | None = None,
) -> None:
    """Raise RunMismatchError when a run would go on as another iteration, or with other parameters."""
    asked = (
        (run.reference, reference, "iteration"),
        (run.max_buckets, max_buckets or run.max_buckets, "max_buckets"),
        (run.state_uri, state_uri or run.state_uri, "state location"),
    )
    differences = (
        *(f"{what} was {before}, now {after}" for before, after, what in asked if before != after),
        *params_differences(run.params, params),
    )
    if differences:
        raise RunMismatchError(run.run_key, differences)


def read_outputs(store: StoreWithHistory, run: RunRecord) -> dict[str, pa.Table]:
    """Return the outputs of a FINISHED run, by name; raises StateCorruptedError that names the file."""
    location = StateLocation(run.state_uri).below(run.run_id)
    manifest = read_completed_manifest(store, run, location)
    return {name: pa.Table.from_batches([load_whole(location, saved)]) for name, saved in manifest.outputs.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """How a run is to be driven: who does it, how far, on what.

    `checkpointing` holds the fields of Checkpointing that differ from what the iteration declares. With
    `allow_fallback` a broken newest checkpoint is given up for an older one. `reads_values` says that the runner is
    asked for what the run holds at its end, too. `when_superseded` is called once another attempt has the run, from a
    thread of its own.
    """

    holder: Holder
    open_runner: RunnerFactory
    parallelism: int
    until_epoch: int | None = None
    publish: bool = True
    takeover: bool = False
    allow_dropped_state: bool = False
    ignore_edges: bool = False
    allow_fallback: bool = False
    reads_values: bool = False
    checkpointing: Mapping[str, object] = field(default_factory=dict)
    observer: Observer = field(default_factory=Silent)
    when_superseded: Callable[[], None] = field(default=lambda: None)

    def runner_for(self, opened: RunState) -> RunnerFactory:
        """Return what opens the runner of an attempt that found the run like this: no Spark where nothing is to do."""
        is_reached = self.until_epoch is not None and opened.last_durable_epoch + 1 >= self.until_epoch
        has_epochs = opened.status is RunStatus.RUNNING and (self.allow_fallback or not is_reached)
        return self.open_runner if has_epochs or self.reads_values else _open_idle


def drive_run(store: StoreWithHistory, settings: Settings, run: RunRecord, drive: Drive) -> RunRecord:
    """Run epochs up to `until_epoch` (exclusive), or to the end and then publish; return the run as it is then.

    One whose attempt was cut short with all of them durable has listeners left to call.

    Raises LeaseHeldError, RunStoppedError, SupersededError, and what the operators' execution raises; the run can be
    resumed after any. A run that a person stops meanwhile is returned as STOPPED.
    """
    terminating = run.terminated_by is not None
    reached = drive.until_epoch is not None and run.epochs >= drive.until_epoch
    done = reached or (terminating and not drive.publish)
    # What sinks do not show yet is left to this attempt, whatever sinks the definition has by now.
    is_left = done and (is_cut_short(store, run, drive.holder) or bool(store.list_uncommitted(run.run_id)))
    if run.status is RunStatus.FINISHED or (done and not is_left):
        return run
    _check_no_loop(run)
    if run.status is RunStatus.STOPPED:
        raise RunStoppedError(run.run_id)
    iteration = load_iteration(run.reference)
    graph = iteration.graph()
    _checked_continuation(store, run, graph, drive)  # a refusal must not supersede a live attempt
    params = parse_params(iteration.params, run.params)
    with (
        suppress(RunFinishedError),  # another attempt finished it since `run` was read
        open_context(store, settings, run, drive, graph=graph, params=params) as context,
    ):
        if drive.allow_fallback:
            context = fall_back(store, context)  # noqa: PLW2901 - the attempt, as it goes on
        # The attempt before may have finished operators, or changed the definition, until this one was open.
        continuation = _checked_continuation(store, find_run(store, run.run_id), graph, drive)
        if continuation.has_changed and context.attempt.opened.status is RunStatus.RUNNING:
            _change_definition(context.attempt, continuation)
        driven = drive_epochs(context, until_epoch=drive.until_epoch)
        if drive.publish:
            publish_outputs(context, driven)
    return find_run(store, run.run_id)


def check_restorable(store: StoreWithHistory, run: RunRecord) -> None:
    """Look whether an attempt may go on with a run, for whoever has another process drive it; opens none.

    Raises IterationNotFoundError or DefinitionError for the file as it is now, and RunMismatchError or
    IllegalRestoreError with the names of all operators that stand in the way.
    """
    graph = load_iteration(run.reference).graph()
    check_continuation(read_continuation(store, run, graph), allow_dropped_state=False)


def is_cut_short(store: StoreWithHistory, run: RunRecord, holder: Holder) -> bool:
    """Tell whether the run's last attempt was cut short, or is dead: listeners may not have heard of epochs.

    It is dead where its process is proved to be gone, or where it was an earlier try of the holder's own task. Whoever
    may be alive has them hear himself, also where he is another task of the same DAG run. Of a run that is stopped they
    hear when it has been resumed.
    """
    attempts = store.list_attempts(run.run_id)
    live = [attempt.holder for attempt in attempts if attempt.ended_at is None]
    has_ended = run.status is not RunStatus.STOPPED and any(known.was_cut_short for known in attempts[-1:])
    return has_ended or any(is_gone(known) or known.is_of_task(holder) for known in live)


@contextmanager
def open_context(
    store: StoreWithHistory, settings: Settings, run: RunRecord, drive: Drive, *, graph: Graph, params: object
) -> Iterator[RunContext]:
    """Open an attempt of a run and a runner for it, and end both; see `open_attempt`."""
    checkpointing = graph.checkpointing.but(drive.checkpointing)
    location = StateLocation(run.state_uri).below(run.run_id)
    sinks = open_sinks(graph, params, store_url=store.url)  # first: a refusal must not supersede a live attempt
    with (
        open_attempt(store, Coordinator(store), run.run_id, _claim(store, run, drive, checkpointing)) as attempt,
        drive.runner_for(attempt.opened)(run, location, f"{attempt.folder}/{RUNNER_SCRATCH}") as runner,
    ):
        attempt.heartbeat.when_superseded(lambda: _cancel(runner, drive))
        settings.crash_plan.reach(CrashPoint.ATTEMPT_OPENED)
        yield RunContext(
            run=run,
            attempt=attempt,
            graph=graph,
            params=params,
            runner=runner,
            store=store,
            location=location,
            clock=SystemClock(),
            parallelism=drive.parallelism,
            alignment_timeout_seconds=checkpointing.alignment_timeout_seconds,
            termination_grace_seconds=settings.termination_grace_seconds,
            sinks=sinks,
            observer=drive.observer,
            crash_plan=settings.crash_plan,
        )


def _cancel(runner: Runner, drive: Drive) -> None:
    drive.when_superseded()
    runner.cancel()


def _checked_continuation(store: StoreWithHistory, run: RunRecord, graph: Graph, drive: Drive) -> Continuation:
    continuation = read_continuation(store, run, graph, ignore_edges=drive.ignore_edges)
    check_continuation(continuation, allow_dropped_state=drive.allow_dropped_state)
    return continuation


def _change_definition(attempt: Attempt, continuation: Continuation) -> None:
    """Go on with the operators as they are now."""
    attempt.apply(continuation.change(attempt.guard))
    for edge in continuation.markers.edges:
        why = continuation.why_void(edge)
        if why is not None:
            _logger.info("event=edge_voided operator_id=%s epoch=%s reason=%s", edge.operator_id, edge.epoch, why)


def _claim(store: StoreWithHistory, run: RunRecord, drive: Drive, checkpointing: Checkpointing) -> Claim:
    """Claim a run, naming its live attempt as gone where that is proved.

    This machine proves it by its process, Airflow by running the next task, or the next try, of the same DAG run: it
    runs one at a time, and should the older one still be alive after all, its token stops it.
    """
    live = [attempt for attempt in store.list_attempts(run.run_id) if attempt.ended_at is None]
    gone = [
        attempt.attempt_id for attempt in live if is_gone(attempt.holder) or _is_followed(attempt.holder, drive.holder)
    ]
    return Claim(
        attempt_id=AttemptId(str(uuid.uuid4())),
        holder=drive.holder,
        gone_attempt_id=gone[0] if gone else None,
        takeover=drive.takeover,
        ignore_edges=drive.ignore_edges,
        policy=checkpointing.policy,
    )


def _is_followed(holder: Holder, claimant: Holder) -> bool:
    """Tell whether Airflow has gone on from the holder's task to the claimant's; from a later try it never does."""
    if holder.is_of_task(claimant):
        return _try_number(holder) <= _try_number(claimant)
    return holder.is_of_dag_run(claimant)


def _try_number(holder: Holder) -> int:
    number = (holder.task or "").rpartition("/")[2]
    return int(number) if number.isdecimal() else 0


def _open_idle(run: RunRecord, location: StateLocation, _scratch: str) -> AbstractContextManager[Runner]:
    """Open a runner that has no epochs to run."""
    return closing(LocalRunner(location, max_buckets=run.max_buckets, parallelism=1))
