"""How does a loop in a user's script become a run? What `open_run` gives, and the rooms that it puts together."""

from __future__ import annotations

import dataclasses
import signal
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from iteration_lib.config import Settings
from iteration_lib.driver.boundary import Boundary
from iteration_lib.driver.loop import leaving, loop_epochs, restore_values
from iteration_lib.driver.loop_epoch import LoopEpoch
from iteration_lib.driver.publish import publish_outputs
from iteration_lib.driver.sweep import RUNNER_SCRATCH
from iteration_lib.engine import Engine, EngineKind, GivenSession
from iteration_lib.errors import ParameterError, RunMismatchError, UsageError, VariableNotFoundError
from iteration_lib.fallback import fall_back
from iteration_lib.interrupt import end_in_order
from iteration_lib.launch import Drive, check_same, new_run, open_context
from iteration_lib.model.checkpointing import Checkpointing
from iteration_lib.model.definition import describe
from iteration_lib.model.loop import LOOP_REFERENCE, graph_of_loop, loop_differences, loop_graph
from iteration_lib.model.params import Scalar
from iteration_lib.process import this_holder
from iteration_lib.protocol.status import RunStatus
from iteration_lib.state.location import StateLocation
from iteration_lib.store.opening import find_run, open_store
from iteration_lib.store.record import RunRecord
from iteration_lib.store.seam import StoreWithHistory


class LoopResult:
    """What the variables of a FINISHED run are, as attributes."""

    def __init__(self, values: Mapping[str, object]) -> None:
        """Show values by their names."""
        self._values = dict(values)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a variable's type is the script's business
        """Return a variable."""
        if name.startswith("_"):  # no variable is called so; who copies a result asks before it has values
            raise AttributeError(name)
        if name not in self._values:
            raise VariableNotFoundError(name, known=tuple(self._values))
        return self._values[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopRequest:
    """A run as a script asks for it; the variables are known when its loop begins."""

    run_key: str
    params: Mapping[str, Scalar]
    state_uri: str | None
    checkpointing: Checkpointing


class LoopRun:
    """A run whose epochs are a loop in a script."""

    def __init__(
        self, store: StoreWithHistory, settings: Settings, request: LoopRequest, drive: Drive, stack: ExitStack
    ) -> None:
        """Prepare; what `epochs` opens is closed with `stack`."""
        self._store = store
        self._settings = settings
        self._request = request
        self._drive = drive
        self._stack = stack
        self._is_left = False
        stack.callback(self._leave)
        self._run: RunRecord | None = None
        self._values: Mapping[str, object] | None = None

    def epochs(self, *, max_epochs: int | None = None, **start: Any) -> Iterator[LoopEpoch]:  # noqa: ANN401 - values of any type
        """Yield the epochs that are not durable yet, in order; none if the run has FINISHED.

        `start` names the variables and gives the value of each before epoch 0, or a function that gives it, which is
        called only where there is no durable epoch yet. The run terminates after the epoch that calls `stop()`, or
        after `max_epochs` of them. A loop that is left by `break` or an error goes on there in the next attempt, with
        the epoch in which it was left.

        Raises RunMismatchError, LeaseHeldError, StateCorruptedError (FallbackRefusedError where a fallback is allowed),
        and where an epoch ends SupersededError and ValueNotKeptError.
        """
        if self._is_left:
            raise UsageError(f"run {self._request.run_key!r} is closed; loop over its epochs inside the `with` block")
        if self._run is not None:
            raise UsageError(f"run {self._request.run_key!r} has one loop; open another run for another loop")
        self._run = run = self._open(start, max_epochs=max_epochs)
        if run.status is not RunStatus.FINISHED:
            yield from self._epochs(run, start)
            return
        location = StateLocation(run.state_uri).below(run.run_id)
        with self._drive.open_runner(run, location, f"{RUNNER_SCRATCH}-{uuid.uuid4().hex}") as runner:
            self._values = restore_values(self._store, run, runner)

    @property
    def result(self) -> LoopResult:
        """The variables' last values. Raises UsageError before the run has FINISHED."""
        if self._values is None:
            raise UsageError(
                f"run {self._request.run_key!r} has no result before its loop has come to its end; end it by "
                "epoch.stop(), not by break, and run the script again to go on with it"
            )
        return LoopResult(self._values)

    def _leave(self) -> None:
        """Hear that the block is over: nobody would end an attempt that is opened after it."""
        self._is_left = True

    def _epochs(self, run: RunRecord, start: Mapping[str, object]) -> Iterator[LoopEpoch]:
        """Drive the run to its end."""
        graph = graph_of_loop(run.definition)
        opened = open_context(self._store, self._settings, run, self._drive, graph=graph, params=None)
        context = self._stack.enter_context(opened)
        if self._drive.allow_fallback:
            context = fall_back(self._store, context)
        boundary = Boundary(context)
        self._stack.enter_context(leaving(context, boundary))
        if boundary.state.status is RunStatus.RUNNING:
            yield from loop_epochs(context, boundary, start)
        publish_outputs(context, boundary.state)
        self._values = restore_values(self._store, run, context.runner)

    def _open(self, start: Mapping[str, object], *, max_epochs: int | None) -> RunRecord:
        """Return the run of this key, made now if there is none."""
        key, graph = self._request.run_key, loop_graph(start)
        params = _params_of(self._request.params, max_epochs)
        found = self._store.find_run(key)
        if found is None:
            new = new_run(
                self._settings,
                run_key=key,
                reference=LOOP_REFERENCE,
                definition=describe(graph),
                params=params,
            )
            self._store.add_run(new)
            found = find_run(self._store, key)
        state_uri = self._request.state_uri
        asked = StateLocation(state_uri).uri if state_uri is not None else None
        check_same(found, reference=LOOP_REFERENCE, params=params, state_uri=asked)
        differences = loop_differences(graph_of_loop(found.definition), graph)
        if differences:
            raise RunMismatchError(key, differences)
        return found


def _params_of(params: Mapping[str, Scalar], max_epochs: int | None) -> Mapping[str, Scalar]:
    """Return the run's parameters, of which `max_epochs` is one."""
    if max_epochs is None:
        return params
    if params.get("max_epochs", max_epochs) != max_epochs:
        problem = (
            f"parameter 'max_epochs' is {params['max_epochs']!r}, but the loop has {max_epochs!r}; drop one of them"
        )
        raise ParameterError(problem, name="max_epochs")
    return {**params, "max_epochs": max_epochs}


@contextmanager
def loop_run(
    settings: Settings, request: LoopRequest, *, spark: object, takeover: bool, allow_fallback: bool = False
) -> Iterator[LoopRun]:
    """Open the store and give the run; on the way out its attempt has ended, FAILED when an error passed."""
    engine = GivenSession(spark=spark) if spark is not None else Engine(kind=EngineKind.LOCAL)
    drive = Drive(
        holder=this_holder(),
        open_runner=engine.open_runner,
        parallelism=1,
        takeover=takeover,
        allow_fallback=allow_fallback,
        reads_values=True,
        checkpointing=dataclasses.asdict(request.checkpointing),
    )
    with _told_to_end(), open_store(settings) as store, ExitStack() as stack:
        yield LoopRun(store, settings, request, drive, stack)


@contextmanager
def _told_to_end() -> Iterator[None]:
    """Let SIGTERM end the attempt in order, unless the script has said itself what it does."""
    is_ours = threading.current_thread() is threading.main_thread()
    if not is_ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    signal.signal(signal.SIGTERM, end_in_order)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is end_in_order:  # the script may have said meanwhile what it does
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
