"""What does the protocol know of a run? Just enough to decide: no history, whatever the number of epochs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NewType

from iteration_lib.protocol.status import CheckpointKind, CheckpointStatus, EpochStatus, RunStatus, TerminatedBy

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

    def describe(self) -> str:
        """Return it in words."""
        process = f"process {self.pid} on {self.host}"
        return f"{self.task} ({process})" if self.task else process


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptState:
    """The live attempt."""

    attempt_id: AttemptId
    fencing_token: int
    holder: Holder
    lease_expires_at: datetime


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
    """An epoch that is not durable yet."""

    epoch: int
    status: EpochStatus
    heads: tuple[Reports, ...]
    decision: Decision | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointState:
    """A pending checkpoint, or the completed one."""

    checkpoint_id: int
    epoch: int
    kind: CheckpointKind
    status: CheckpointStatus
    participants: tuple[Reports, ...]
    manifest_sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """A run as the protocol sees it.

    `epochs` are those after the last durable one, in order; `ended_attempt_id` is the holder of the greatest token when
    that attempt has ended.
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
    finished_operators: frozenset[str] = frozenset()
    pins: Mapping[str, str] = field(default_factory=dict)

    @property
    def last_epoch(self) -> int:
        """The last epoch that is not voided, or NO_EPOCH."""
        return self.epochs[-1].epoch if self.epochs else self.last_durable_epoch
