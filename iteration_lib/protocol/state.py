"""What does the protocol know of a run? Just enough to decide: no history, whatever the number of epochs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NewType

from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.status import (
    CheckpointKind,
    CheckpointStatus,
    EpochStatus,
    OperatorStatus,
    RunStatus,
    StopKind,
    TerminatedBy,
    UnalignedBy,
)

RunId = NewType("RunId", str)
AttemptId = NewType("AttemptId", str)

CRITERIA = "criteria"  # the head of the criteria stream; no variable can have this name
NO_EPOCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who drives a run: a process, told from a later one with the same pid by when it started.

    `task` names the Airflow task instance (`dag/dag_run/task/try`), or is None for a command line.
    """

    host: str
    pid: int
    process_started: str
    task: str | None = None

    def is_of_dag_run(self, other: Holder) -> bool:
        """Tell whether both are tasks of one Airflow DAG run."""
        if self.task is None or other.task is None:
            return False
        return self.task.rsplit("/", 2)[0] == other.task.rsplit("/", 2)[0]

    def is_of_task(self, other: Holder) -> bool:
        """Tell whether both are tries of one Airflow task."""
        if self.task is None or other.task is None:
            return False
        return self.task.rsplit("/", 1)[0] == other.task.rsplit("/", 1)[0]

    def describe(self) -> str:
        """Return it in words."""
        process = f"process {self.pid} on {self.host}"
        return f"{self.task} ({process})" if self.task else process


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptState:
    """The live attempt; `definition_changes` says how its operators are others than those before it, if they are."""

    attempt_id: AttemptId
    fencing_token: int
    holder: Holder
    lease_expires_at: datetime
    policy: CheckpointPolicy = field(default_factory=CheckpointPolicy)
    definition_changes: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedOperator:
    """The user's operator, or listener, that ended an attempt; in NO_EPOCH, where the error tells of none."""

    operator_id: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """What the subtasks of one head (or of one participant of a checkpoint) said; None for one not heard yet."""

    name: str
    values: tuple[int | None, ...]

    @property
    def expected(self) -> int:
        """How many subtasks there are."""
        return len(self.values)

    @property
    def reported(self) -> int:
        """How many have been heard."""
        return len(self.values) - self.values.count(None)

    @property
    def total(self) -> int:
        """The sum of what was reported."""
        return sum(value for value in self.values if value is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether the run terminates after an epoch, and what this was decided from (I5)."""

    records: Mapping[str, int]
    terminated_by: TerminatedBy | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochState:
    """An epoch that is not durable yet. `unaligned_by` says why its operators' outputs become durable edges."""

    epoch: int
    status: EpochStatus
    heads: tuple[Reports, ...]
    decision: Decision | None = None
    unaligned_by: UnalignedBy | None = None

    @property
    def is_held(self) -> bool:
        """Whether all have reported, but the alignment waits for a pending checkpoint."""
        return self.status is EpochStatus.OPEN and all(head.reported == head.expected for head in self.heads)


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeState:
    """A durable edge: which of an operator's `total` buckets have been marked as finished in an epoch.

    `finished` holds disjoint ranges (first, end), sorted, none touching the next. The epoch is NO_EPOCH for an operator
    that finishes for good.
    """

    epoch: int
    operator_id: str
    total: int
    finished: tuple[tuple[int, int], ...] = ()

    @property
    def status(self) -> OperatorStatus:
        """What is left of the operator in this epoch."""
        if not self.finished:
            return OperatorStatus.RUNNING
        if self.finished == ((0, self.total),):
            return OperatorStatus.FINISHED
        return OperatorStatus.PARTIALLY_FINISHED

    def covers(self, first: int, end: int) -> bool:
        """Tell whether every bucket of a range is marked."""
        return any(known <= first and end <= known_end for known, known_end in self.finished)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointState:
    """A pending checkpoint, or the completed one.

    `completed_at` is None while it is pending, and where it was completed without a look at the clock.
    """

    checkpoint_id: int
    epoch: int
    kind: CheckpointKind
    status: CheckpointStatus
    participants: tuple[Reports, ...]
    manifest_sha256: str | None = None
    completed_at: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopState:
    """What a person asked of the run, to stop or to drain; it is in force until a person has resumed the run."""

    stop_id: str
    kind: StopKind
    is_resumed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """A run as the protocol sees it.

    `epochs` are those after the last durable one, in order; `ended_attempt_id` is the holder of the greatest token when
    that attempt has ended. `checkpoint_failures` counts those in a row that the live attempt has met;
    `aborted_through` is the greatest checkpoint id that a person has aborted, begun or not. `requests` maps what
    persons asked for to the checkpoint that answered it, None where none has; earlier answers than the latest are not
    kept; `stop` is the latest request to stop or to drain. `edges` are those of finishing operators and of the epoch
    after the last durable one. `notified` maps a listener to the last epoch that it has heard of.

    A branch begins behind `origin_epoch`, the epoch of the checkpoint that it started from, and `holds_origin` until it
    has a completed checkpoint of its own. `pinned` are the run's own checkpoints that branches hold, `pinned_by_hand`
    those that persons do.

    `sinks` maps the outputs that go to a sink to whether those of every epoch do; `uncommitted` are the epochs and
    outputs that are durable and that their sinks may not show yet.
    """

    run_id: RunId
    status: RunStatus = RunStatus.RUNNING
    max_epochs: int | None = None
    fencing_token: int = 0
    attempt: AttemptState | None = None
    ended_attempt_id: AttemptId | None = None
    last_durable_epoch: int = NO_EPOCH
    terminated_by: TerminatedBy | None = None
    epochs: tuple[EpochState, ...] = ()
    last_checkpoint_id: int = 0
    pending: tuple[CheckpointState, ...] = ()
    completed: CheckpointState | None = None
    checkpoint_failures: int = 0
    aborted_through: int = 0
    requests: Mapping[str, int | None] = field(default_factory=dict)
    stop: StopState | None = None
    edges: tuple[EdgeState, ...] = ()
    finished_operators: frozenset[str] = frozenset()
    pins: Mapping[str, str] = field(default_factory=dict)
    notified: Mapping[str, int] = field(default_factory=dict)
    origin_epoch: int = NO_EPOCH
    holds_origin: bool = False
    pinned: frozenset[int] = frozenset()
    pinned_by_hand: frozenset[int] = frozenset()
    sinks: Mapping[str, bool] = field(default_factory=dict)
    uncommitted: frozenset[tuple[int, str]] = frozenset()

    @property
    def last_attempt_id(self) -> AttemptId | None:
        """Who holds the greatest token, live or not."""
        return self.attempt.attempt_id if self.attempt is not None else self.ended_attempt_id

    @property
    def policy(self) -> CheckpointPolicy:
        """How checkpoints are paced: the live attempt's way."""
        return self.attempt.policy if self.attempt is not None else CheckpointPolicy()

    @property
    def is_asked(self) -> bool:
        """Whether a person asked for a checkpoint that has not begun."""
        return None in self.requests.values()

    @property
    def asked_to(self) -> StopKind | None:
        """What a person asked for that is in force."""
        return self.stop.kind if self.stop is not None and not self.stop.is_resumed else None

    def epoch_state(self, epoch: int) -> EpochState | None:
        """Return an epoch that is not durable, if it is there."""
        return next((known for known in self.epochs if known.epoch == epoch), None)

    def edge(self, epoch: int, operator_id: str) -> EdgeState | None:
        """Return an operator's edge in an epoch, if any part of it is marked."""
        return next((e for e in self.edges if e.epoch == epoch and e.operator_id == operator_id), None)

    @property
    def last_epoch(self) -> int:
        """The last epoch that is not voided, or NO_EPOCH."""
        return self.epochs[-1].epoch if self.epochs else self.last_durable_epoch
