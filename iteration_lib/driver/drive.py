"""How does one attempt drive a run?

The order of effects within an epoch, each repeatable, each behind a crash point:

    open the epoch
    run the operators; write the variables' next values to new files
    report what every head's subtasks feed back: the epoch is aligned, the decision made, a checkpoint pending
    after the last epoch, write the outputs
    write the manifest, then complete the checkpoint: the epoch is durable

A crash before the last step leaves files that nothing names; the next attempt runs the epoch again, from the variables
of the last durable one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from iteration_lib.crash_point import CrashPoint
from iteration_lib.driver.checkpoint import write_manifest
from iteration_lib.driver.context import RunContext
from iteration_lib.driver.epoch import EpochResult, EpochRunner
from iteration_lib.driver.restore import restore_variables
from iteration_lib.driver.streams import Streams
from iteration_lib.errors import ProtocolViolationError
from iteration_lib.protocol import RunState
from iteration_lib.protocol.event import (
    CheckpointTriggered,
    EpochOpened,
    SubtasksAligned,
)
from iteration_lib.protocol.state import Decision
from iteration_lib.protocol.status import RunStatus
from iteration_lib.runner.seam import Stream

_logger = logging.getLogger(__name__)


def drive_epochs(context: RunContext, *, until_epoch: int | None = None) -> RunState:
    """Run epochs until the run terminates or `until_epoch` (exclusive) is reached; all of them are durable then."""
    attempt, state = context.attempt, context.attempt.opened
    epoch = state.last_durable_epoch + 1
    if state.status is not RunStatus.RUNNING or (until_epoch is not None and epoch >= until_epoch):
        return state
    streams = Streams(context)
    streams.check_pins()
    variables: Mapping[str, Stream] = (
        restore_variables(context) if state.completed is not None else streams.first_values()
    )
    context.observer.run_restored(context.run, next_epoch=epoch)
    attempt.apply(EpochOpened(**attempt.guard, epoch=epoch, heads=context.heads()))
    while True:
        context.crash_plan.reach(CrashPoint.EPOCH_OPENED, epoch)
        runner = EpochRunner(context, streams, variables, epoch=epoch)
        result = runner.run()
        context.crash_plan.reach(CrashPoint.EPOCH_WRITTEN, epoch)
        state, decision = _align(context, result)
        context.crash_plan.reach(CrashPoint.EPOCH_ALIGNED, epoch)
        outputs = runner.write_outputs() if decision.terminated_by is not None else {}
        context.crash_plan.reach(CrashPoint.OUTPUTS_WRITTEN, epoch)
        acknowledged = write_manifest(context, state, result, streams, outputs)
        context.crash_plan.reach(CrashPoint.MANIFEST_WRITTEN, epoch)
        goes_on = decision.terminated_by is None and (until_epoch is None or epoch + 1 < until_epoch)
        following = [EpochOpened(**attempt.guard, epoch=epoch + 1, heads=context.heads())] if goes_on else []
        state = attempt.apply(acknowledged, *following)
        context.crash_plan.reach(CrashPoint.CHECKPOINT_COMPLETED, epoch)
        context.observer.epoch_durable(epoch, metrics=result.metrics, seconds=result.seconds)
        if not goes_on:
            return state
        variables = result.variables
        epoch += 1


def _align(context: RunContext, result: EpochResult) -> tuple[RunState, Decision]:
    """Report every head's subtasks and trigger the checkpoint, in one transaction."""
    attempt = context.attempt
    state = attempt.apply(
        SubtasksAligned(
            **attempt.guard,
            epoch=result.epoch,
            reports=result.reports,
            metrics=result.metrics,
            seconds=result.seconds,
        ),
        CheckpointTriggered(
            **attempt.guard,
            epoch=result.epoch,
            participants={name: len(result.reports[name]) for name in result.saved},
        ),
    )
    decision = next(known.decision for known in state.epochs if known.epoch == result.epoch)
    if decision is None:
        raise ProtocolViolationError(f"epoch {result.epoch} did not align; this is a bug, please report it")
    _logger.info(
        "event=epoch_aligned run_id=%s epoch=%s records=%s terminated_by=%s",
        state.run_id,
        result.epoch,
        dict(decision.records),
        decision.terminated_by.value if decision.terminated_by is not None else None,
    )
    return state, decision
