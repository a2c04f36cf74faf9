"""How does an attempt get from one epoch to the next, whoever computes them?

The order of effects at the boundary of an epoch, each repeatable, each behind a crash point:

    report what every head's subtasks feed back; in that same transaction the epoch is aligned, the decision made, a
        checkpoint pending where one is due, and the next epoch open
    write the outputs of every epoch, and after the last one all of them; where a checkpoint is pending, pin what it
        consists of (the synchronous part)
    beside the next epoch: prepare what sinks publish, write what the driver holds and the manifest, then complete the
        checkpoint, which makes the epoch durable; then let the sinks commit

The attempt's last epoch is the run's, or the one before `until_epoch`, or the one in progress when a person asks the
run to stop: no next one is open then. While as many checkpoints are pending as the policy allows, the alignment of the
epoch after them is held, and the driver waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from iteration_lib.crash_point import CrashPoint
from iteration_lib.driver.checkpoint import take_snapshot
from iteration_lib.driver.context import RunContext
from iteration_lib.driver.edge import Edge, Edges
from iteration_lib.driver.epoch import EpochResult
from iteration_lib.driver.listener import Listeners
from iteration_lib.driver.sinks import Key, Sinks
from iteration_lib.driver.upload import Uploads
from iteration_lib.errors import ProtocolViolationError, SupersededError
from iteration_lib.interrupt import ToldToEnd
from iteration_lib.protocol import Event, RunState
from iteration_lib.protocol.event import CheckpointTriggered, EpochOpened, SubtasksAligned
from iteration_lib.protocol.pacing import has_paused, is_paced, last_covered
from iteration_lib.protocol.state import EpochState
from iteration_lib.protocol.status import StopKind
from iteration_lib.state.saved import SavedStream

_logger = logging.getLogger(__name__)

# Writes what an aligned epoch publishes: all outputs, if it is the run's last (which it is told).
WriteOutputs = Callable[[bool], Mapping[str, SavedStream]]


class Boundary:
    """The boundaries between the epochs of one attempt; `state` is the run as the last of them left it.

    `entered` is the epoch that is computed, or was last.
    """

    def __init__(self, context: RunContext, *, until_epoch: int | None = None) -> None:
        """Begin where the attempt found the run; it ends before `until_epoch`, if not earlier."""
        self.state = context.attempt.opened
        self.entered: int | None = None
        self._context = context
        self._attempt = context.attempt
        self._until_epoch = until_epoch
        self._listeners = Listeners(context)
        self._uploads = Uploads(context, Sinks(context))
        self._written: dict[Key, SavedStream] = {}  # of epochs that are not durable, for sinks
        self._announced = context.attempt.opened.last_durable_epoch
        self._last_checkpoint_id = context.attempt.opened.last_checkpoint_id
        self._told_seconds: float | None = None  # when the process was told to end
        self._measured: dict[int, tuple[Mapping[str, float], float]] = {}  # of aligned epochs: metrics, seconds

    def open_first(self) -> int:
        """Open the epoch after the last durable one, and return it."""
        epoch = self.state.last_durable_epoch + 1
        self.state = self._attempt.apply(self._opened(epoch, if_ready=False))
        return epoch

    def enter(self, epoch: int) -> None:
        """Tell of the epochs that have become durable, before an open one is computed."""
        self._announce()
        self.entered = epoch
        self._context.crash_plan.reach(CrashPoint.EPOCH_OPENED, epoch)

    def edges(self, epoch: int, found: Mapping[str, Edge]) -> Edges:
        """Return the durable edges of an open epoch, of which `found` were there; they wait for the epoch before."""
        is_waiting = self.state.last_durable_epoch < epoch - 1
        is_of_use = last_covered(self.state) >= epoch - 1
        edges = Edges(self._context, found, epoch=epoch, is_of_use=is_of_use, is_waiting=is_waiting)
        if is_waiting:
            self._uploads.release_when_durable(edges)
        return edges

    def expects_checkpoint(self, epoch: int) -> bool:
        """Guess whether an epoch will get a checkpoint: if so, executors write its tails while they compute them."""
        state = self.state
        is_end = state.asked_to is not None or (state.max_epochs is not None and epoch + 1 >= state.max_epochs)
        now, completed = self._context.clock.now(), state.completed
        if completed is not None and completed.completed_at is not None:
            now = max(now, completed.completed_at)  # by the store's clock, which this machine's may be behind
        is_due = is_paced(state, epoch) and has_paused(state, now)
        return is_end or self._is_last(epoch) or state.is_asked or is_due

    def align(self, result: EpochResult) -> None:
        """Report every head's subtasks, and go on once nothing holds the alignment; the next epoch is open then."""
        epoch = result.epoch
        self._context.crash_plan.reach(CrashPoint.EPOCH_WRITTEN, epoch)
        self._measured[epoch] = (result.metrics, result.seconds)
        follow = self._followed_by(result)
        aligned = SubtasksAligned(
            **self._attempt.guard, epoch=epoch, reports=result.reports, metrics=result.metrics, seconds=result.seconds
        )
        with self._uploads.expiring() as expired:
            self.state = self._attempt.apply(*expired, aligned, *follow)
        self._uploads.check(self.state)
        while (held := self.state.epoch_state(epoch)) is not None and held.is_held:
            self.state = self._uploads.wait()
            self._uploads.check(self.state)
            self.state = self._attempt.apply(*follow)
            self._uploads.check(self.state)
        self._last_checkpoint_id = self.state.last_checkpoint_id
        _log_aligned(self.state, self._aligned(epoch))

    def checkpoint(self, result: EpochResult, *, finished: Mapping[str, SavedStream], write: WriteOutputs) -> bool:
        """Take the checkpoint of an aligned epoch, if one is pending: pin it now, write it beside the next epoch.

        Return whether the epoch is the attempt's last: no other one is open.
        """
        epoch, terminates = result.epoch, _terminates(self._aligned(result.epoch))
        self._context.crash_plan.reach(CrashPoint.EPOCH_ALIGNED, epoch)
        with self._uploads.noting_errors():
            self._pin(result, terminates=terminates, finished=finished, written=write(terminates))
        return self.state.last_epoch == epoch

    def _pin(
        self,
        result: EpochResult,
        *,
        terminates: bool,
        finished: Mapping[str, SavedStream],
        written: Mapping[str, SavedStream],
    ) -> None:
        epoch, durable = result.epoch, self.state.last_durable_epoch
        self._context.crash_plan.reach(CrashPoint.OUTPUTS_WRITTEN, epoch)
        self._written = {key: saved for key, saved in self._written.items() if key[0] > durable}
        self._written |= {(epoch, output): saved for output, saved in written.items() if output in self._context.sinks}
        pending = next((known for known in self.state.pending if known.epoch == epoch), None)
        if pending is not None:
            snapshot = take_snapshot(
                self._context,
                pending,
                result,
                finished=finished,
                outputs=written if terminates else {},
                written=self._written,
            )
            self._uploads.start(snapshot)

    def end(self, epoch: int) -> RunState:
        """Wait until the attempt's last epoch is durable, and return the run as it is then."""
        self.state = self._uploads.wait_for_all(self.state)
        self._announce()
        if self.state.last_durable_epoch < epoch:
            raise self._uploads.error_of(self.state, self._last_checkpoint_id)
        if self.state.asked_to is StopKind.STOP:
            self._context.crash_plan.reach(CrashPoint.STOP_REACHED, epoch)
        return self.state

    def leave(self) -> RunState:
        """Wait until what is being written is, for an attempt that ends before its last epoch."""
        self.state = self._uploads.wait_for_all(self.state)
        return self._announce()

    @contextmanager
    def settling(self) -> Iterator[None]:
        """Let the checkpoints that are being written complete when an error ends the epochs.

        Where that is because the process is told to end, or interrupted, they have a little time only: what the grace
        period leaves.
        """
        try:
            with self.hearing_the_end(), self._completing():
                yield
        except SupersededError:
            raise
        except BaseException:
            self._settle()
            raise
        finally:
            self._uploads.forget_all()

    def _settle(self) -> None:
        is_told = self._told_seconds is not None
        try:
            with self.hearing_the_end():
                self._uploads.settle(told_seconds=self._told_seconds)
        except ToldToEnd:
            if not is_told:  # while it settled for an error: its grace period begins now
                self._uploads.settle(told_seconds=self._told_seconds)
            raise

    @contextmanager
    def hearing_the_end(self) -> Iterator[None]:
        """Note when the process is told to end; from then on its grace period runs."""
        try:
            yield
        except ToldToEnd as told:
            if self._told_seconds is None:
                now = self._context.clock.monotonic_seconds()
                self._told_seconds = now if told.told_seconds is None else told.told_seconds
            raise

    @contextmanager
    def _completing(self) -> Iterator[None]:
        """Wait for what is pending when an error passes: the error of one epoch takes nothing from those before it."""
        try:
            yield
        except (ToldToEnd, KeyboardInterrupt):
            raise
        except BaseException:
            self._uploads.wait_for_pending()
            raise

    def _aligned(self, epoch: int) -> EpochState:
        found = self.state.epoch_state(epoch)
        if found is None or found.decision is None:
            raise ProtocolViolationError(f"epoch {epoch} did not align; this is a bug, please report it")
        return found

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

    def _announce(self) -> RunState:
        """Tell of the epochs that have become durable."""
        for epoch in range(self._announced + 1, self.state.last_durable_epoch + 1):
            metrics, seconds = self._measured.pop(epoch)
            self._context.observer.epoch_durable(epoch, metrics=metrics, seconds=seconds)
        self._announced = self.state.last_durable_epoch
        self.state = self._listeners.notify_durable(self.state)
        return self.state

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
