"""How does one attempt drive a run whose epochs are a loop in a user's script?

As it drives the operators of an iteration (see `drive`), but for what computes an epoch: the body of the loop, which
runs between two steps of a generator. The variables' next values are taken when the loop asks for its next epoch; so an
epoch whose body was left, by an error or by `break`, was never finished, and is run again by the next attempt.

What the body gets came through files' own form, also where nothing was restored: it sees the same in every attempt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial

import pyarrow as pa

from iteration_lib.driver.boundary import Boundary
from iteration_lib.driver.context import RunContext
from iteration_lib.driver.epoch import EpochResult, spread
from iteration_lib.driver.loop_epoch import LoopEpoch, Pass
from iteration_lib.driver.publish import write_output
from iteration_lib.driver.restore import read_completed_manifest
from iteration_lib.driver.sweep import sweep_scratch
from iteration_lib.errors import IterationError, OperatorError, RunStoppedError, SupersededError, say
from iteration_lib.model.loop import BODY
from iteration_lib.model.operator import Kind
from iteration_lib.protocol.state import CRITERIA
from iteration_lib.protocol.status import AttemptOutcome, RunStatus
from iteration_lib.runner.seam import Runner, Stream
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import SavedStream
from iteration_lib.state.value import batch_of_value, value_of_batch
from iteration_lib.store.record import RunRecord
from iteration_lib.store.seam import History


def loop_epochs(context: RunContext, boundary: Boundary, start: Mapping[str, object]) -> Iterator[LoopEpoch]:
    """Yield the epochs after the last durable one until the run terminates, or is to stop; all are durable then.

    The first one begins with what the completed checkpoint holds, or with `start`, of which a function is called.
    """
    state = context.attempt.opened
    sweep_scratch(context)
    streams: Mapping[str, Stream] = (
        _restore(context.store, context.run, context.runner) if state.completed is not None else _begin(context, start)
    )
    context.observer.run_restored(context.run, next_epoch=state.last_durable_epoch + 1)
    number, is_over = boundary.open_first(), False
    while not is_over:
        boundary.enter(number)
        started_seconds = context.clock.monotonic_seconds()
        found = Pass(
            number=number, read={name: partial(_value, context.runner, stream) for name, stream in streams.items()}
        )
        yield LoopEpoch(found)
        found.is_over = True
        result = _finish(context, found, streams, is_saved=boundary.expects_checkpoint(number), since=started_seconds)
        boundary.align(result)
        is_over = boundary.checkpoint(result, finished={}, write=partial(_write_outputs, context, result))
        streams, number = result.variables, number + 1
    boundary.end(number - 1)
    if boundary.state.status is RunStatus.RUNNING:  # a person asked it to stop
        context.attempt.end(AttemptOutcome.RELEASED)
        raise RunStoppedError(boundary.state.run_id)


@contextmanager
def leaving(context: RunContext, boundary: Boundary) -> Iterator[None]:
    """End the attempt in order where the loop is left before its end; what is being written is waited for.

    An error of the script's own is told with its type, which alone says what a KeyError is about. One of ours may come
    from a run that is STOPPED, whose attempt has ended; what has become of another run, which the script drives too, is
    an error of its own.
    """
    try:
        with boundary.settling():
            try:
                yield
            except GeneratorExit:  # the block is in a generator of the script's, which was closed: left as by `break`
                _leave(context, boundary)
                raise
            _leave(context, boundary)
    except Exception as err:  # the border to the user's code: whatever the body raises
        if isinstance(err, IterationError) and not _is_of_another_run(err, context, boundary):
            raise
        if not context.attempt.heartbeat.is_superseded:
            with suppress(IterationError):  # the script's error is the one to show
                context.attempt.end(AttemptOutcome.FAILED, reason=say(err))
        raise


def _leave(context: RunContext, boundary: Boundary) -> None:
    if boundary.state.status is RunStatus.RUNNING and not context.attempt.has_ended:
        boundary.leave()
        context.attempt.end(AttemptOutcome.RELEASED, reason="its loop was left")


def _is_of_another_run(err: IterationError, context: RunContext, boundary: Boundary) -> bool:
    """Tell whether an attempt was superseded, or an operator is to blame, that is none of this loop."""
    if isinstance(err, SupersededError):
        return err.run_id != context.run.run_id
    if not isinstance(err, OperatorError):
        return False
    operator_ids = [operator.operator_id for operator in context.graph.operators]
    return err.operator_id not in operator_ids or err.epoch not in (None, boundary.entered)


def restore_values(store: History, run: RunRecord, runner: Runner) -> dict[str, object]:
    """Return what the variables of the completed checkpoint hold, every file verified; raises StateCorruptedError."""
    return {name: _value(runner, stream) for name, stream in _restore(store, run, runner).items()}


def _restore(store: History, run: RunRecord, runner: Runner) -> dict[str, Stream]:
    manifest = read_completed_manifest(store, run, StateLocation(run.state_uri).below(run.run_id))
    return {name: runner.restore(saved) for name, saved in manifest.variables.items()}


def _begin(context: RunContext, start: Mapping[str, object]) -> dict[str, Stream]:
    streams: dict[str, Stream] = {}
    for name, given in start.items():
        value = given() if callable(given) else given
        stream = _hold(context, name, value, epoch=None)
        streams[name] = context.runner.materialise(stream, folder=None).stream
    return streams


def _finish(
    context: RunContext, found: Pass, before: Mapping[str, Stream], *, is_saved: bool, since: float
) -> EpochResult:
    """Take what the body left; with `is_saved`, what executors hold is written to new files on the way."""
    written = {}
    for name, stream in before.items():
        held = _next(context, found, name, stream)
        in_files = is_saved and held.kind is not Kind.VALUE
        folder = context.epoch_folder(context.graph.operator(BODY), found.number) if in_files else None
        written[name] = context.runner.materialise(held, folder=folder)
    records = {name: spread(tail.records, over=1) for name, tail in written.items()}
    return EpochResult(
        epoch=found.number,
        variables={name: tail.stream for name, tail in written.items()},
        saved={name: tail.saved for name, tail in written.items() if tail.saved is not None},
        reports={**records, CRITERIA: {0: 0 if found.is_stopped else 1}},
        metrics=found.metrics.values(),
        seconds=context.clock.monotonic_seconds() - since,
    )


def _next(context: RunContext, found: Pass, name: str, before: Stream) -> Stream:
    """Return a variable as the body left it; a DataFrame is written again, as the files of its epoch will go."""
    if name in found.values:
        return _hold(context, name, found.values[name], epoch=found.number)
    return (
        before
        if before.kind is Kind.VALUE
        else _hold(context, name, _value(context.runner, before), epoch=found.number)
    )


def _hold(context: RunContext, name: str, value: object, *, epoch: int | None) -> Stream:
    held = value if _is_spark_frame(value) else batch_of_value(value, variable=name)
    when = "start" if epoch is None else str(epoch)
    return context.runner.hold(
        held,
        operator=context.graph.operator(name),
        epoch=epoch,
        description=f"{context.run.run_key}/{when}/{name}",
    )


def _value(runner: Runner, stream: Stream) -> object:
    held = runner.give(stream)
    return value_of_batch(held) if isinstance(held, pa.RecordBatch) else held


def _is_spark_frame(value: object) -> bool:
    """Tell without Spark, which may not be there; a Connect session's DataFrame is one, too."""
    classes = type(value).__mro__
    return any(known.__name__ == "DataFrame" and known.__module__.startswith("pyspark.sql.") for known in classes)


def _write_outputs(context: RunContext, result: EpochResult, is_last: bool) -> dict[str, SavedStream]:  # noqa: FBT001
    outputs = context.graph.outputs if is_last else ()
    return {name: write_output(context, name, result.variables[name], epoch=result.epoch) for name in outputs}
