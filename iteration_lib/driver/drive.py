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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from iteration_lib.crash_point import CrashPoint
from iteration_lib.driver.checkpoint import write_manifest
from iteration_lib.driver.context import Attempt, RunContext
from iteration_lib.driver.epoch import EpochResult, EpochRunner
from iteration_lib.driver.restore import restore_variables
from iteration_lib.driver.streams import Streams
from iteration_lib.errors import IterationError, ProtocolViolationError, SupersededError
from iteration_lib.heartbeat import Heartbeat
from iteration_lib.protocol import RunState
from iteration_lib.protocol.event import (
    AttemptEnded,
    AttemptOpened,
    CheckpointTriggered,
    EpochOpened,
    SubtasksAligned,
)
from iteration_lib.protocol.state import AttemptId, Decision, Holder
from iteration_lib.protocol.status import AttemptOutcome, RunStatus
from iteration_lib.runner.seam import Stream

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Who asks to drive, and by what right if another attempt still holds the run; see AttemptOpened."""

    attempt_id: AttemptId
    holder: Holder
    gone_attempt_id: AttemptId | None = None
    takeover: bool = False
    lease_ttl_seconds: float = 30.0


@contextmanager
def open_attempt(context: RunContext, claim: Claim) -> Iterator[tuple[Attempt, RunState]]:
    """Open an attempt and keep its lease; on the way out it has ended, FAILED when an error passed.

    Raises LeaseHeldError; SupersededError when another attempt took the run meanwhile.
    """
    run_id = context.run.run_id
    state = context.coordinator.apply(
        run_id,
        AttemptOpened(
            attempt_id=claim.attempt_id,
            holder=claim.holder,
            lease_ttl_seconds=claim.lease_ttl_seconds,
            gone_attempt_id=claim.gone_attempt_id,
            takeover=claim.takeover,
        ),
    )
    attempt = Attempt(context=context, attempt_id=claim.attempt_id, fencing_token=state.fencing_token)
    _logger.info("event=attempt_opened run_id=%s token=%s", run_id, attempt.fencing_token)
    heartbeat = Heartbeat(
        renew=lambda: context.store.renew_lease(
            run_id,
            attempt.attempt_id,
            fencing_token=attempt.fencing_token,
            lease_ttl_seconds=claim.lease_ttl_seconds,
        ),
        lease_ttl_seconds=claim.lease_ttl_seconds,
        on_superseded=context.runner.cancel,
    )
    with heartbeat:
        try:
            context.crash_plan.reach(CrashPoint.ATTEMPT_OPENED)
            yield attempt, state
        except SupersededError:
            raise
        except BaseException as err:
            if heartbeat.is_superseded:
                raise SupersededError(run_id=run_id, held=attempt.fencing_token, current=None) from err
            _end_after(attempt, err)
            raise
    attempt.apply(AttemptEnded(**attempt.guard, outcome=AttemptOutcome.RELEASED))


def drive_epochs(attempt: Attempt, state: RunState, *, until_epoch: int | None = None) -> RunState:
    """Run epochs until the run terminates or `until_epoch` (exclusive) is reached; all of them are durable then."""
    context = attempt.context
    epoch = state.last_durable_epoch + 1
    if state.status is not RunStatus.RUNNING or (until_epoch is not None and epoch >= until_epoch):
        return state
    streams = Streams(attempt)
    streams.check_pins()
    variables: Mapping[str, Stream] = (
        restore_variables(context) if state.completed is not None else streams.first_values()
    )
    context.observer.run_restored(context.run, next_epoch=epoch)
    attempt.apply(EpochOpened(**attempt.guard, epoch=epoch, heads=context.heads()))
    while True:
        context.crash_plan.reach(CrashPoint.EPOCH_OPENED, epoch)
        runner = EpochRunner(attempt, streams, variables, epoch=epoch)
        result = runner.run()
        context.crash_plan.reach(CrashPoint.EPOCH_WRITTEN, epoch)
        state, decision = _align(attempt, result)
        context.crash_plan.reach(CrashPoint.EPOCH_ALIGNED, epoch)
        outputs = runner.write_outputs() if decision.terminated_by is not None else {}
        context.crash_plan.reach(CrashPoint.OUTPUTS_WRITTEN, epoch)
        acknowledged = write_manifest(attempt, state, result, streams, outputs)
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


def _align(attempt: Attempt, result: EpochResult) -> tuple[RunState, Decision]:
    """Report every head's subtasks and trigger the checkpoint, in one transaction."""
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


def _end_after(attempt: Attempt, err: BaseException) -> None:
    """End an attempt that an error stopped; an interrupt is no failure of the run."""
    if isinstance(err, KeyboardInterrupt | SystemExit):
        outcome, reason = AttemptOutcome.RELEASED, "interrupted"
    else:
        outcome, reason = AttemptOutcome.FAILED, str(err) or type(err).__name__
    try:
        attempt.apply(AttemptEnded(**attempt.guard, outcome=outcome, reason=reason))
    except IterationError as second:  # the first error is the one to show
        _logger.warning("event=attempt_not_ended run_id=%s error=%s", attempt.context.run.run_id, second)
