"""What is there to explain a run from? All of its rows, read once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from iteration_lib.protocol.state import NO_EPOCH
from iteration_lib.protocol.status import CheckpointStatus, StopKind
from iteration_lib.store.record import (
    AttemptRecord,
    BranchRecord,
    CheckpointRecord,
    CommittableRecord,
    EpochRecord,
    FallbackRecord,
    NoticeRecord,
    OperatorRecord,
    PartRecord,
    RequestRecord,
    RunRecord,
    StopRecord,
)
from iteration_lib.store.seam import History

_NEVER_COMPLETED = (CheckpointStatus.PENDING, CheckpointStatus.ABORTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHistory:
    """A run and everything that was recorded of it, in the order in which the store lists it."""

    run: RunRecord
    attempts: tuple[AttemptRecord, ...] = ()
    epochs: tuple[EpochRecord, ...] = ()
    operators: tuple[OperatorRecord, ...] = ()
    parts: tuple[PartRecord, ...] = ()
    checkpoints: tuple[CheckpointRecord, ...] = ()
    requests: tuple[RequestRecord, ...] = ()
    stops: tuple[StopRecord, ...] = ()
    fallbacks: tuple[FallbackRecord, ...] = ()
    notices: tuple[NoticeRecord, ...] = ()
    committables: tuple[CommittableRecord, ...] = ()
    branch: BranchRecord | None = None

    def attempt(self, fencing_token: int) -> AttemptRecord | None:
        """Return the attempt that holds, or held, a token."""
        return next((known for known in self.attempts if known.fencing_token == fencing_token), None)

    def attempt_after(self, fencing_token: int) -> AttemptRecord | None:
        """Return the attempt that came after the one with a token."""
        return next((known for known in self.attempts if known.fencing_token > fencing_token), None)

    def first_epoch_of(self, attempt: AttemptRecord) -> int:
        """Return the epoch behind the last one that was durable when an attempt began, or that it fell back to."""
        token, origin = attempt.fencing_token, self.branch.epoch if self.branch is not None else NO_EPOCH
        covered = (
            known.epoch
            for known in self.checkpoints
            if known.fencing_token < token
            and known.status not in _NEVER_COMPLETED
            and not self.is_given_up_before(known, token)
        )
        return 1 + max(covered, default=origin)

    def stop_between(self, epoch: EpochRecord, after: AttemptRecord | None) -> StopRecord | None:
        """Return the stop that came over an epoch before the next attempt did."""
        stopped = [(stop.stopped_at, stop) for stop in self.stops if stop.stopped_at is not None]
        return next(
            (stop for at, stop in stopped if epoch.opened_at <= at and (after is None or at <= after.started_at)),
            None,
        )

    def was_stopped(self, attempt: AttemptRecord, after: AttemptRecord) -> bool:
        """Tell whether a run was stopped between two attempts: it was, then, before the second one came."""
        stopped = (stop.stopped_at for stop in self.stops if stop.stopped_at is not None)
        return any(attempt.started_at <= at <= after.started_at for at in stopped)

    def stop_at(self, at: datetime) -> StopRecord | None:
        """Return the request to stop that was in force at an instant."""
        stops = (stop for stop in self.stops if stop.kind is StopKind.STOP and stop.requested_at <= at)
        return next((stop for stop in stops if stop.resumed_at is None or at < stop.resumed_at), None)

    def covers_of(self, epoch: EpochRecord) -> tuple[CheckpointRecord, ...]:
        """Return the checkpoints that were completed and cover an epoch: its own attempt's, the next one voids it."""
        return tuple(
            known
            for known in self.checkpoints
            if known.fencing_token == epoch.fencing_token
            and known.epoch >= epoch.epoch
            and known.status not in _NEVER_COMPLETED
        )

    def fallback_behind(self, checkpoint: CheckpointRecord) -> FallbackRecord | None:
        """Return the fallback that gave up a checkpoint; later ones found it discarded."""
        return next(
            (
                fell
                for fell in self.fallbacks
                if checkpoint.fencing_token < fell.fencing_token
                and fell.to_checkpoint_id < checkpoint.checkpoint_id <= fell.from_checkpoint_id
            ),
            None,
        )

    def is_given_up_before(self, checkpoint: CheckpointRecord, fencing_token: int) -> bool:
        """Tell whether a fallback gave up a checkpoint before an attempt took any: its own fallback comes first."""
        fell = self.fallback_behind(checkpoint)
        return fell is not None and fell.fencing_token <= fencing_token

    def in_force_before(self, begun: CheckpointRecord) -> tuple[CheckpointRecord, ...]:
        """Return the checkpoints that were pending or completed, and not given up, when another one began."""
        return tuple(
            known
            for known in self.checkpoints
            if known.checkpoint_id < begun.checkpoint_id
            and not self.is_given_up_before(known, begun.fencing_token)
            and (
                known.status is not CheckpointStatus.ABORTED
                or known.ended_at is None
                or known.ended_at > begun.triggered_at
            )
        )

    def subsumer_of(self, checkpoint: CheckpointRecord) -> CheckpointRecord | None:
        """Return the checkpoint that took a completed one's place: the first of a later epoch to be completed.

        One that is completed late, of an epoch that is durable already, subsumes none and is subsumed itself. One that
        a run fell back to is the newest again until another is completed.
        """
        restored_at = [
            fell.fell_back_at for fell in self.fallbacks if fell.to_checkpoint_id == checkpoint.checkpoint_id
        ]
        newer = [
            (known.ended_at, known.checkpoint_id, known)
            for known in self.checkpoints
            if known.epoch > checkpoint.epoch
            and known.ended_at is not None
            and all(known.ended_at > at for at in restored_at)
            and known.status not in _NEVER_COMPLETED
            and not self.is_given_up_before(known, checkpoint.fencing_token)
        ]
        return min(newer)[2] if newer else None

    def fallback_over(self, epoch: EpochRecord) -> FallbackRecord | None:
        """Return the fallback that gave up an epoch which was durable."""
        found = (self.fallback_behind(known) for known in self.covers_of(epoch))
        return next((fell for fell in found if fell is not None and fell.epoch < epoch.epoch), None)

    def describe_attempt(self, fencing_token: int) -> str:
        """Name an attempt and who it was: an Airflow task instance, a process."""
        found = self.attempt(fencing_token)
        return f"attempt {fencing_token}" + (f", {found.holder.describe()}" if found is not None else "")


def read_history(store: History, run: RunRecord) -> RunHistory:
    """Read a run's rows; what is written meanwhile may show in some of them already."""
    return RunHistory(
        run=run,
        attempts=store.list_attempts(run.run_id),
        epochs=store.list_epochs(run.run_id),
        operators=store.list_operators(run.run_id),
        parts=store.list_parts(run.run_id),
        checkpoints=store.list_checkpoints(run.run_id),
        requests=store.list_requests(run.run_id),
        stops=store.list_stops(run.run_id),
        fallbacks=store.list_fallbacks(run.run_id),
        notices=store.list_notices(run.run_id),
        committables=store.list_committables(run.run_id),
        branch=store.find_branch(run.run_id),
    )
