"""Which rows does a run have, and which state do they make? What a store would keep, for the ledger of the tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from iteration_lib.protocol import RunState
from iteration_lib.protocol.command import FinishOperator, TriggerCheckpoint
from iteration_lib.protocol.event import FinishedPart
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.state import CheckpointState, Decision, EdgeState, EpochState, Reports, StopState
from iteration_lib.protocol.status import CheckpointStatus, EpochStatus, RunStatus, StopKind, TerminatedBy, UnalignedBy

FOR_GOOD = -1  # the epoch of parts of operators that finish for good


@dataclass(slots=True)
class AttemptRow:
    """An attempt, and how many of its checkpoints have failed in a row."""

    attempt_id: str
    policy: CheckpointPolicy
    is_live: bool = True
    failures: int = 0
    definition_changes: tuple[str, ...] | None = None


@dataclass(slots=True)
class EpochRow:
    """An epoch under one token."""

    status: EpochStatus
    heads: tuple[Reports, ...]
    decision: Decision | None = None
    unaligned_by: UnalignedBy | None = None
    is_measured: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether every subtask of every head has reported."""
        return None not in [value for head in self.heads for value in head.values]


@dataclass(slots=True)
class CheckpointRow:
    """A checkpoint."""

    trigger: TriggerCheckpoint
    participants: tuple[Reports, ...]
    status: CheckpointStatus = CheckpointStatus.PENDING
    manifest_sha256: str | None = None
    completed_at: datetime | None = None


@dataclass(slots=True)
class PartRow:
    """A part of a durable edge."""

    epoch: int
    token: int
    part: FinishedPart
    is_live: bool = True

    @property
    def buckets(self) -> set[int]:
        """Its buckets, one by one."""
        return set(range(self.part.first_bucket, self.part.end_bucket))


@dataclass(slots=True)
class StopRow:
    """A request to stop or to drain."""

    kind: StopKind
    is_stopped: bool = False
    is_resumed: bool = False


@dataclass(slots=True)
class Rows:
    """Every row of one run."""

    max_epochs: int | None
    status: RunStatus = RunStatus.RUNNING
    terminated_by: TerminatedBy | None = None
    last_durable_epoch: int = -1
    aborted_through: int = 0
    attempts: dict[int, AttemptRow] = field(default_factory=dict)
    epochs: dict[tuple[int, int], EpochRow] = field(default_factory=dict)
    checkpoints: dict[int, CheckpointRow] = field(default_factory=dict)
    requests: dict[str, int | None] = field(default_factory=dict)
    stops: dict[str, StopRow] = field(default_factory=dict)
    parts: list[PartRow] = field(default_factory=list)
    finished: dict[str, FinishOperator] = field(default_factory=dict)
    pins: dict[str, str] = field(default_factory=dict)
    notices: list[tuple[str, int]] = field(default_factory=list)
    sinks: Mapping[str, bool] = field(default_factory=dict)
    unpublished: set[tuple[int, str]] = field(default_factory=set)  # inside one decision
    committables: dict[tuple[int, str], bool] = field(default_factory=dict)  # whether it is committed
    origin_epoch: int = -1
    holds_origin: bool = False
    pinned_by_hand: set[int] = field(default_factory=set)

    def is_live(self) -> bool:
        """Tell whether an attempt is live."""
        return any(row.is_live for row in self.attempts.values())

    def token(self) -> int:
        """Return the live attempt's token."""
        return max(token for token, row in self.attempts.items() if row.is_live)

    def policy(self) -> CheckpointPolicy:
        """Return how the live attempt paces its checkpoints."""
        return self.attempts[self.token()].policy if self.is_live() else CheckpointPolicy()

    def asked_to(self) -> StopKind | None:
        """Return what a person asked for and nobody has resumed since."""
        return next((row.kind for row in self.stops.values() if not row.is_resumed), None)

    def epoch(self, epoch: int, status: EpochStatus) -> EpochRow:
        """Return the live attempt's row of an epoch, which has to have a status."""
        row = self.epochs[epoch, self.token()]
        assert status is row.status
        return row

    def checkpoint(self, checkpoint_id: int, status: CheckpointStatus) -> CheckpointRow:
        """Return a checkpoint, which has to have a status."""
        row = self.checkpoints[checkpoint_id]
        assert status is row.status
        return row

    def in_force(self) -> dict[tuple[int, int], EpochRow]:
        """Return the epochs that are not voided."""
        return {key: row for key, row in self.epochs.items() if row.status is not EpochStatus.VOIDED}

    def last_epoch(self) -> int:
        """Return the last epoch that is not voided, or -1."""
        return max((epoch for epoch, _ in self.in_force()), default=self.origin_epoch)

    def pending(self) -> list[int]:
        """Return the ids of the pending checkpoints, in order."""
        return [key for key, row in sorted(self.checkpoints.items()) if row.status is CheckpointStatus.PENDING]

    def live_parts(self) -> list[PartRow]:
        """Return the parts that count: of epochs that are not durable yet, and of what finishes for good."""
        return [row for row in self.parts if row.is_live and not 0 <= row.epoch <= self.last_durable_epoch]

    def rebuilt(self, state: RunState) -> RunState:
        """Return the state that the rows make; what a row does not hold (leases, holders, ended ids) is the state's."""
        live = state.attempt
        known_live = {
            token: (row.attempt_id, row.policy, row.definition_changes)
            for token, row in self.attempts.items()
            if row.is_live
        }
        told = {live.fencing_token: (live.attempt_id, live.policy, live.definition_changes)} if live is not None else {}
        assert known_live == told
        known = {key: self._checkpoint_state(row) for key, row in sorted(self.checkpoints.items())}
        completed = [c for c in known.values() if c.status is CheckpointStatus.COMPLETED]
        latest = max((answer for answer in self.requests.values() if answer is not None), default=None)
        return RunState(
            run_id=state.run_id,
            status=self.status,
            max_epochs=self.max_epochs,
            fencing_token=max(self.attempts, default=0),
            attempt=live,
            ended_attempt_id=state.ended_attempt_id,
            last_durable_epoch=self.last_durable_epoch,
            terminated_by=self.terminated_by,
            epochs=tuple(
                EpochState(
                    epoch=epoch,
                    status=row.status,
                    heads=row.heads,
                    decision=row.decision,
                    unaligned_by=row.unaligned_by,
                )
                for (epoch, _), row in sorted(self.in_force().items())
                if row.status is not EpochStatus.DURABLE
            ),
            last_checkpoint_id=max(self.checkpoints, default=0),
            pending=tuple(known[key] for key in self.pending()),
            completed=completed[0] if completed else None,
            checkpoint_failures=self.attempts[self.token()].failures if self.is_live() else 0,
            aborted_through=self.aborted_through,
            requests={key: answer for key, answer in self.requests.items() if answer in (None, latest)},
            stop=next((self._stop_state(key) for key in reversed(self.stops)), None),
            edges=tuple(self._edge_states()),
            finished_operators=frozenset(self.finished),
            pins=self.pins,
            notified=dict(self.notices),
            origin_epoch=self.origin_epoch,
            holds_origin=self.holds_origin,
            sinks=dict(self.sinks),
            uncommitted=frozenset(key for key, is_committed in self.committables.items() if not is_committed),
            pinned=state.pinned,  # which is what rows of other runs say
            pinned_by_hand=frozenset(self.pinned_by_hand),
        )

    def _stop_state(self, stop_id: str) -> StopState:
        row = self.stops[stop_id]
        return StopState(stop_id=stop_id, kind=row.kind, is_resumed=row.is_resumed)

    def _edge_states(self) -> Iterator[EdgeState]:
        live = self.live_parts()
        for epoch, operator_id in sorted({(row.epoch, row.part.operator_id) for row in live}):
            parts = [row for row in live if (row.epoch, row.part.operator_id) == (epoch, operator_id)]
            buckets = sorted(bucket for row in parts for bucket in row.buckets)
            firsts = [bucket for bucket in buckets if bucket - 1 not in buckets]
            ends = [bucket + 1 for bucket in buckets if bucket + 1 not in buckets]
            yield EdgeState(
                epoch=epoch,
                operator_id=operator_id,
                total=parts[0].part.total,
                finished=tuple(zip(firsts, ends, strict=True)),
            )

    def _checkpoint_state(self, row: CheckpointRow) -> CheckpointState:
        return CheckpointState(
            checkpoint_id=row.trigger.checkpoint_id,
            epoch=row.trigger.epoch,
            kind=row.trigger.kind,
            status=row.status,
            participants=row.participants,
            manifest_sha256=row.manifest_sha256,
            completed_at=row.completed_at,
        )
