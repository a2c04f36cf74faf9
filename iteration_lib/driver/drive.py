"""How does one attempt drive a run?

The order of effects within an epoch, each repeatable, each behind a crash point:

    run the operators; where a checkpoint is to be expected, the tails go to new files on the way
    report what every head's subtasks feed back; in that same transaction the epoch is aligned, the decision made, a
        checkpoint pending where one is due, and the next epoch open
    after the last epoch, write the outputs; where a checkpoint is pending, pin what it consists of (the synchronous
        part)
    beside the next epoch: write what the driver holds and the manifest, then complete the checkpoint, which makes the
        epoch durable

While as many checkpoints are pending as the policy allows, the alignment of the epoch after them is held, and the
driver waits. A crash leaves files that nothing names; the next attempt runs the epochs after the last durable one
again, from its variables, behind the operators whose edges are durable.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from iteration_lib.crash_point import CrashPoint
from iteration_lib.driver.checkpoint import take_snapshot
from iteration_lib.driver.context import RunContext
from iteration_lib.driver.edge import Edges
from iteration_lib.driver.epoch import EpochResult, EpochRunner
from iteration_lib.driver.listener import Listeners
from iteration_lib.driver.origin import keep_origin
from iteration_lib.driver.restore import read_completed_manifest, restore_carried
from iteration_lib.driver.streams import Streams
from iteration_lib.driver.sweep import sweep_scratch
from iteration_lib.driver.upload import Uploads
from iteration_lib.errors import CheckpointFailedError, ProtocolViolationError, SupersededError
from iteration_lib.protocol import Event, RunState
from iteration_lib.protocol.event import CheckpointTriggered, EpochOpened, SubtasksAligned
from iteration_lib.protocol.pacing import has_paused, is_paced, last_covered
from iteration_lib.protocol.state import EpochState
from iteration_lib.protocol.status import RunStatus
from iteration_lib.runner.seam import Stream
from iteration_lib.state.manifest import Manifest

_logger = logging.getLogger(__name__)


def drive_epochs(context: RunContext, *, until_epoch: int | None = None) -> RunState:
    """Run epochs until the run terminates or `until_epoch` (exclusive) is reached; all of them are durable then."""
    state = context.attempt.opened
    listeners = Listeners(context)
    if state.status is not RunStatus.RUNNING or (
        until_epoch is not None and state.last_durable_epoch + 1 >= until_epoch
    ):
        return listeners.notify_durable(state)
    sweep_scratch(context)
    manifest = _manifest_to_restore(context, state)
    streams = Streams(context)
    streams.check_pins()
    carried = restore_carried(context, streams, manifest) if manifest is not None else streams.first_values()
    context.observer.run_restored(context.run, next_epoch=state.last_durable_epoch + 1)
    loop = _Loop(context, streams, listeners, until_epoch)
    with loop.settling():
        return loop.run(state, carried)


def _manifest_to_restore(context: RunContext, state: RunState) -> Manifest | None:
    """Return what the attempt begins with: the completed checkpoint, what a branch started from, or nothing."""
    if state.completed is not None:
        return read_completed_manifest(context.store, context.run, context.location)
    return keep_origin(context) if state.holds_origin else None


class _Loop:
    """The epochs of one attempt, one after the other."""

    def __init__(self, context: RunContext, streams: Streams, listeners: Listeners, until_epoch: int | None) -> None:
        self._context = context
        self._attempt = context.attempt
        self._streams = streams
        self._listeners = listeners
        self._until_epoch = until_epoch
        self._uploads = Uploads(context)
        self._announced = context.attempt.opened.last_durable_epoch
        self._last_checkpoint_id = context.attempt.opened.last_checkpoint_id
        self._measured: dict[int, tuple[Mapping[str, float], float]] = {}  # of aligned epochs: metrics, seconds

    def run(self, state: RunState, carried: Mapping[str, Stream]) -> RunState:
        """Run epochs after the last durable one until the attempt's last."""
        epoch = state.last_durable_epoch + 1
        state = self._attempt.apply(self._opened(epoch, if_ready=False))
        while True:
            edges = self._edges(state, epoch)
            state = self._announce(state)
            self._context.crash_plan.reach(CrashPoint.EPOCH_OPENED, epoch)
            runner = EpochRunner(self._context, self._streams, carried, edges=edges, epoch=epoch)
            with runner.capturing():
                result = runner.run(is_saved=self._expects_checkpoint(state, epoch))
                self._context.crash_plan.reach(CrashPoint.EPOCH_WRITTEN, epoch)
                state, aligned = self._align(result)
            self._context.crash_plan.reach(CrashPoint.EPOCH_ALIGNED, epoch)
            self._checkpoint(state, aligned, runner, result)
            runner.drop_scratch()  # not before: what is lazy may read it while outputs are written
            if _terminates(aligned) or self._is_last(epoch):
                return self._end(state, epoch)
            carried = result.variables
            epoch += 1

    @contextmanager
    def settling(self) -> Iterator[None]:
        """Give the checkpoints that are being written a little time when an error ends the epochs."""
        try:
            yield
        except SupersededError:
            raise
        except BaseException:
            self._uploads.settle()
            raise

    def _align(self, result: EpochResult) -> tuple[RunState, EpochState]:
        """Report every head's subtasks, and go on once nothing holds the alignment."""
        epoch = result.epoch
        self._measured[epoch] = (result.metrics, result.seconds)
        follow = self._followed_by(result)
        aligned = SubtasksAligned(
            **self._attempt.guard, epoch=epoch, reports=result.reports, metrics=result.metrics, seconds=result.seconds
        )
        state = self._attempt.apply(*self._uploads.expired(), aligned, *follow)
        self._uploads.check(state)
        while (held := state.epoch_state(epoch)) is not None and held.is_held:
            state = self._uploads.wait()
            self._uploads.check(state)
            state = self._attempt.apply(*follow)
            self._uploads.check(state)
        found = state.epoch_state(epoch)
        if found is None or found.decision is None:
            raise ProtocolViolationError(f"epoch {epoch} did not align; this is a bug, please report it")
        self._last_checkpoint_id = state.last_checkpoint_id
        _log_aligned(state, found)
        return state, found

    def _followed_by(self, result: EpochResult) -> list[Event]:
        """Return what belongs into the step that aligns an epoch."""
        epoch, is_last = result.epoch, self._is_last(result.epoch)
        participants = {name: self._context.parallelism_of(self._context.tail(name)) for name in result.variables}
        triggered = CheckpointTriggered(
            **self._attempt.guard,
            epoch=epoch,
            participants=participants,
            is_last=is_last,
            last_checkpoint_id=self._last_checkpoint_id,
        )
        return [triggered] if is_last else [triggered, self._opened(epoch + 1, if_ready=True)]

    def _checkpoint(self, state: RunState, aligned: EpochState, runner: EpochRunner, result: EpochResult) -> None:
        """Take the checkpoint of an epoch, if one is pending: pin it now, and write it beside the next epoch."""
        outputs = runner.write_outputs() if _terminates(aligned) else {}
        self._context.crash_plan.reach(CrashPoint.OUTPUTS_WRITTEN, result.epoch)
        pending = next((known for known in state.pending if known.epoch == result.epoch), None)
        if pending is not None:
            finished = self._streams.finished
            self._uploads.start(take_snapshot(self._context, pending, result, finished=finished, outputs=outputs))

    def _end(self, state: RunState, epoch: int) -> RunState:
        """Wait until the attempt's last epoch is durable."""
        state = self._announce(self._uploads.wait_for_all(state))
        if state.last_durable_epoch < epoch:
            reason = "its checkpoint was aborted"
            raise CheckpointFailedError(state.run_id, epoch, reason)
        return state

    def _announce(self, state: RunState) -> RunState:
        """Tell of the epochs that have become durable."""
        for epoch in range(self._announced + 1, state.last_durable_epoch + 1):
            metrics, seconds = self._measured.pop(epoch)
            self._context.observer.epoch_durable(epoch, metrics=metrics, seconds=seconds)
        self._announced = state.last_durable_epoch
        return self._listeners.notify_durable(state)

    def _expects_checkpoint(self, state: RunState, epoch: int) -> bool:
        """Guess whether an epoch will get a checkpoint: if so, executors write its tails while they compute them."""
        is_end = state.max_epochs is not None and epoch + 1 >= state.max_epochs
        is_due = is_paced(state, epoch) and has_paused(state, self._context.clock.now())
        return is_end or self._is_last(epoch) or state.is_asked or is_due

    def _edges(self, state: RunState, epoch: int) -> Edges:
        found, is_of_use = self._streams.edges.get(epoch, {}), last_covered(state) >= epoch - 1
        return Edges(self._context, found, epoch=epoch, is_of_use=is_of_use)

    def _opened(self, epoch: int, *, if_ready: bool) -> EpochOpened:
        heads = self._context.heads()
        return EpochOpened(**self._attempt.guard, epoch=epoch, heads=heads, if_ready=if_ready)

    def _is_last(self, epoch: int) -> bool:
        return self._until_epoch is not None and epoch + 1 >= self._until_epoch


def _terminates(aligned: EpochState) -> bool:
    return aligned.decision is not None and aligned.decision.terminated_by is not None


def _log_aligned(state: RunState, aligned: EpochState) -> None:
    decision = aligned.decision
    if decision is not None:
        _logger.info(
            "event=epoch_aligned run_id=%s epoch=%s records=%s terminated_by=%s",
            state.run_id,
            aligned.epoch,
            dict(decision.records),
            decision.terminated_by.value if decision.terminated_by is not None else None,
        )
