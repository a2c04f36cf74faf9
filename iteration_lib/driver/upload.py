"""Which checkpoints are being written beside the epochs, and what becomes of each?

The asynchronous part of a checkpoint writes what the driver holds (values, carried state), then the manifest, and
acknowledges: that completes it. An error that only this checkpoint suffers declines it; one that ends the attempt is
raised where the driver next looks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from iteration_lib.crash_point import CrashPoint
from iteration_lib.driver.background import Job
from iteration_lib.driver.checkpoint import Snapshot, write_manifest
from iteration_lib.driver.context import RunContext
from iteration_lib.driver.edge import Edges
from iteration_lib.driver.keepable import printable
from iteration_lib.driver.retention import Retention
from iteration_lib.driver.sinks import Sinks
from iteration_lib.errors import (
    CheckpointFailedError,
    CommitLostError,
    IterationError,
    OutcomeUnknownError,
    ProtocolViolationError,
    SinkTargetError,
    SupersededError,
    say,
)
from iteration_lib.protocol import RunState
from iteration_lib.protocol.alignment import has_failed
from iteration_lib.protocol.event import CheckpointDeclined
from iteration_lib.protocol.status import CheckpointFailure
from iteration_lib.store.record import CheckpointRecord

_logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.5  # how soon an abort from another process is noticed
_SETTLE_SECONDS = 2.0  # what an attempt has in any case; within the grace that Airflow gives a task that it ends
_LAST_WORD_SECONDS = 1.0  # of a grace period, for the attempt to end in order
# After these nothing that is pending can be completed any more, or nobody knows.
_LETS_GO_OF_PENDING = (SupersededError, OutcomeUnknownError, CommitLostError)
_ENDS_THE_ATTEMPT = (*_LETS_GO_OF_PENDING, ProtocolViolationError)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Upload:
    snapshot: Snapshot
    job: Job
    started_seconds: float
    stop_timing: Callable[[], None]


class Uploads:
    """The checkpoints of one attempt that are being written."""

    def __init__(self, context: RunContext, sinks: Sinks) -> None:
        """Start with none; what their epochs publish goes to `sinks`."""
        self._context = context
        self._sinks = sinks
        self._retention = Retention(context)
        self._attempt = context.attempt
        self._uploads: list[_Upload] = []
        self._committing: dict[int, float] = {}  # by checkpoint, since when its sinks commit
        self._declined: dict[int, Exception] = {}  # why checkpoints were not written that may end the attempt
        self._error: BaseException | None = None  # the first that left a checkpoint pending
        self._released: set[int] = set()  # the checkpoints whose completion has marked what waited for it
        self._waiting: dict[int, Edges] = {}  # by the epoch that they are of, for the one before to be durable
        self._completed: RunState | None = None  # the run as a checkpoint of this attempt completed, the last by epoch

    @contextmanager
    def noting_errors(self) -> Iterator[None]:
        """Note what ends the synchronous part of a checkpoint: nobody completes that one any more."""
        try:
            yield
        except Exception as err:
            self._error = self._error or err
            raise

    def start(self, snapshot: Snapshot) -> None:
        """Write a pending checkpoint beside what comes next; it expires on time, however long that takes."""
        started, background = self._context.clock.monotonic_seconds(), self._context.background
        stop_timing = background.after(self._context.policy.timeout_seconds, lambda: self._expire(snapshot))

        def write() -> RunState:
            try:
                return self._write(snapshot, started_seconds=started)
            finally:
                stop_timing()

        job = background.start(f"checkpoint-{snapshot.checkpoint_id}", write)
        self._uploads.append(_Upload(snapshot=snapshot, job=job, started_seconds=started, stop_timing=stop_timing))

    def release_when_durable(self, edges: Edges) -> None:
        """Mark what waits of an epoch's edges in the step that makes the epoch before durable, if that comes."""
        self._waiting[edges.epoch] = edges
        if self._completed is not None:  # by another thread, perhaps in this moment
            edges.release(self._completed)

    def wait(self) -> RunState:
        """Wait until something may have changed, here or by another process, and return the run as it is then."""
        jobs = [upload.job for upload in self._uploads]
        self._context.background.wait(jobs, timeout_seconds=_POLL_SECONDS)
        self._raise_errors()
        with self.expiring() as expired:
            return self._attempt.apply(*expired) if expired else self._attempt.look()

    def wait_for_all(self, state: RunState) -> RunState:
        """Wait until what is being written is, and what became durable is committed.

        Raises as `check` does, also what was raised before: a script may have swallowed it, and nobody completes that
        checkpoint any more.
        """
        if self._error is not None:
            raise self._error
        while self._uploads and (state.pending or state.uncommitted):
            state = self.wait()
            self.check(state)
        if state.pending or state.uncommitted:  # as it was before the last job ended
            state = self._attempt.look()
        self.check(state)
        if state.uncommitted:
            epoch, seconds = state.last_durable_epoch, self._context.policy.timeout_seconds
            problem = f"epoch {epoch} is durable, and its outputs were not committed within {seconds:g} seconds"
            raise CheckpointFailedError(state.run_id, epoch, problem)
        return state

    def wait_for_pending(self) -> None:
        """Wait until whatever is pending has completed, or is aborted, for an attempt that an epoch's error ends.

        That error is the one to show: nothing is raised, and where one of several fails, the others are waited for.
        """
        while any(self._is_pending(upload) for upload in self._uploads):
            try:
                self.check(self.wait())
            except _LETS_GO_OF_PENDING:
                return
            except Exception:  # noqa: BLE001, S112 - whatever befell one of them
                continue

    def settle(self, *, told_seconds: float | None) -> None:
        """Wait a moment for what is being written, without looking at how it went: the attempt ends anyway.

        A process that was told to end, at `told_seconds`, waits for what is pending as long as its grace period allows:
        with a checkpoint go the epochs that it covers, and the durable edges of the open one.
        """
        self._settle(self._context.clock.monotonic_seconds() + _SETTLE_SECONDS, only_pending=False)
        if told_seconds is not None:
            grace_seconds = self._context.termination_grace_seconds
            self._settle(told_seconds + grace_seconds - _LAST_WORD_SECONDS, only_pending=True)

    def _settle(self, deadline: float, *, only_pending: bool) -> None:
        while True:
            awaited = [upload.job for upload in self._uploads if self._is_pending(upload) or not only_pending]
            jobs = [job for job in awaited if not job.done()]
            left = deadline - self._context.clock.monotonic_seconds()
            if not jobs or left <= 0:
                return
            self._context.background.wait(jobs, timeout_seconds=min(_POLL_SECONDS, left))

    def _is_pending(self, upload: _Upload) -> bool:
        is_completed = upload.snapshot.checkpoint_id in self._released
        return not (is_completed or self._is_late(upload.started_seconds))

    def check(self, state: RunState) -> None:
        """Forget what has ended; raise what ended the attempt, or CheckpointFailedError when too many have failed."""
        self._raise_errors()
        pending = {known.checkpoint_id for known in state.pending}
        is_committing = bool(state.uncommitted)
        given_up = [
            upload
            for upload in self._uploads
            if not (upload.job.done() or upload.snapshot.checkpoint_id in pending or is_committing)
        ]
        self._forget(given_up)
        if has_failed(state):
            raise self._error_of(state, self._ended_by(state))
        settled = set(self._declined) - pending - {state.last_checkpoint_id}
        for checkpoint_id in settled:  # tolerated
            self._declined.pop(checkpoint_id)

    def error_of(self, state: RunState, checkpoint_id: int) -> IterationError:
        """Return why the checkpoint was not completed that an attempt cannot end without."""
        (known,) = self._context.store.list_checkpoints(state.run_id, [checkpoint_id])
        return self._error_of(state, known)

    def _ended_by(self, state: RunState) -> CheckpointRecord:
        """Return the checkpoint by which the attempt has failed; others may have failed behind it, or since the look.

        It brought the count to one more than is tolerable, whatever its kind, and each one behind it adds one (I13).
        """
        pending = {known.checkpoint_id for known in state.pending}
        found = self._context.store.list_checkpoints(state.run_id)
        mine = (known for known in found if known.fencing_token == state.fencing_token)
        failed = [known for known in mine if known.failure is not None and known.failure.is_counted]
        failed.sort(key=lambda known: (known.ended_at or known.triggered_at, known.checkpoint_id))
        as_seen = [known for known in failed if known.checkpoint_id not in pending]
        behind_it = state.checkpoint_failures - state.policy.tolerable_failures - 1
        return as_seen[-1 - behind_it]

    def _error_of(self, state: RunState, known: CheckpointRecord) -> IterationError:
        """Return what ended a checkpoint, as its row has it: it may have expired, and then not been written either."""
        err = self._declined.get(known.checkpoint_id) if known.failure is CheckpointFailure.DECLINED else None
        if isinstance(err, IterationError):
            return err
        if known.failure is CheckpointFailure.EXPIRED:
            reason = "it took too long"
        elif known.failure is CheckpointFailure.DECLINED:
            reason = str(known.reason)
        else:
            reason = f"it was {known.reason}"
        problem = f"the checkpoint of epoch {known.epoch} failed ({reason})"
        error = CheckpointFailedError(state.run_id, known.epoch, problem)
        error.__cause__ = err
        return error

    def _raise_errors(self) -> None:
        ended = [upload for upload in self._uploads if upload.job.done()]
        self._forget(ended)
        for upload in ended:
            self._error = self._error or upload.job.exception()
            upload.job.result()

    @contextmanager
    def expiring(self) -> Iterator[list[CheckpointDeclined]]:
        """Give what declines the checkpoints that have taken too long; then a job that hangs is left to itself.

        To let the sinks commit may take as long again.
        """
        writing = [upload for upload in self._uploads if not upload.job.done()]
        late = [upload for upload in writing if self._is_late(self._since(upload))]
        yield [
            self._expiry(upload.snapshot) for upload in late if upload.snapshot.checkpoint_id not in self._committing
        ]
        self._forget(late)

    def forget_all(self) -> None:
        """Leave what is being written to itself, and time it no more: the attempt's epochs are over."""
        self._forget(self._uploads)

    def _forget(self, forgotten: Sequence[_Upload]) -> None:
        self._uploads = [upload for upload in self._uploads if upload not in forgotten]
        for upload in forgotten:
            upload.stop_timing()

    def _expire(self, snapshot: Snapshot) -> None:
        """Decline a checkpoint whose time is over, also while the driver looks at nothing: in a long operator, say."""
        if snapshot.checkpoint_id in self._committing:
            return
        try:
            self._attempt.apply(self._expiry(snapshot))
        except IterationError as err:  # the driver declines it, or hears of it, at its own next step
            _logger.warning("event=not_expired checkpoint_id=%s error=%s", snapshot.checkpoint_id, err)

    def _since(self, upload: _Upload) -> float:
        return self._committing.get(upload.snapshot.checkpoint_id, upload.started_seconds)

    def _is_late(self, started_seconds: float) -> bool:
        return self._context.clock.monotonic_seconds() - started_seconds >= self._context.policy.timeout_seconds

    def _expiry(self, snapshot: Snapshot) -> CheckpointDeclined:
        return CheckpointDeclined(
            **self._attempt.guard,
            checkpoint_id=snapshot.checkpoint_id,
            reason=f"it took longer than {self._context.policy.timeout_seconds:g} seconds",
            failure=CheckpointFailure.EXPIRED,
        )

    def _write(self, snapshot: Snapshot, *, started_seconds: float) -> RunState:
        """Write a checkpoint and complete it; runs beside the next epoch."""
        try:
            committables = self._sinks.prepare(snapshot.written, keeps=snapshot.outputs)
            acknowledged = replace(write_manifest(self._context, snapshot), committables=committables)
        except _ENDS_THE_ATTEMPT:
            raise
        except (IterationError, OSError) as err:
            return self._decline(snapshot, err)
        self._context.crash_plan.reach(CrashPoint.MANIFEST_WRITTEN, snapshot.epoch)
        if self._is_late(started_seconds):
            return self._attempt.apply(self._expiry(snapshot))
        behind = self._waiting.get(snapshot.epoch + 1)
        waiting = behind.waiting() if behind is not None else ()
        try:
            state = self._attempt.apply(acknowledged, *waiting, publish=self._sinks.publish)
        except SinkTargetError as refused:  # of a table in the store's database: nothing was stored, nothing shows
            return self._decline(snapshot, refused)
        self._committing[snapshot.checkpoint_id] = self._context.clock.monotonic_seconds()
        self._release(state)
        self._released.add(snapshot.checkpoint_id)
        self._context.crash_plan.reach(CrashPoint.CHECKPOINT_COMPLETED, snapshot.epoch)
        state = self._sinks.commit(state)
        self._retention.discard()
        return state

    def _release(self, state: RunState) -> None:
        if self._completed is None or self._completed.last_durable_epoch < state.last_durable_epoch:
            self._completed = state  # before the edges are looked for: they come, and look for it, in the other order
        for epoch, edges in list(self._waiting.items()):
            edges.release(state)
            if epoch <= state.last_durable_epoch + 1:
                self._waiting.pop(epoch, None)

    def _decline(self, snapshot: Snapshot, err: Exception) -> RunState:
        self._declined[snapshot.checkpoint_id] = err
        reason = printable(str(err) if isinstance(err, IterationError) else say(err))
        _logger.warning(
            "event=checkpoint_declined run_id=%s checkpoint_id=%s error=%s",
            self._attempt.run_id,
            snapshot.checkpoint_id,
            reason,
        )
        declined = CheckpointDeclined(**self._attempt.guard, checkpoint_id=snapshot.checkpoint_id, reason=reason)
        return self._attempt.apply(declined)
