"""What can happen to a run? Events are in the past tense; repeating one is harmless, always."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from iteration_lib.protocol.state import AttemptId, Holder
from iteration_lib.protocol.status import AttemptOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptOpened:
    """A process wants to drive the run.

    `gone_attempt_id` names an attempt whose holder was proved to be gone (its process, by its own machine; its task
    instance, by Airflow). `takeover` is a person's word for it.
    """

    attempt_id: AttemptId
    holder: Holder
    lease_ttl_seconds: float
    gone_attempt_id: AttemptId | None = None
    takeover: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedEvent:
    """An event that only the live attempt may send (I2)."""

    attempt_id: AttemptId
    fencing_token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPinned(GuardedEvent):
    """A data stream's input was fixed: `pin` is JSON for whoever reads it back."""

    name: str
    fingerprint: str
    pin: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochOpened(GuardedEvent):
    """The next epoch begins; `heads` maps each head to its parallelism."""

    epoch: int
    heads: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtasksAligned(GuardedEvent):
    """Subtasks of heads are done with an epoch: head to subtask index to the records that it feeds back."""

    epoch: int
    reports: Mapping[str, Mapping[int, int]]
    metrics: Mapping[str, float]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFinished(GuardedEvent):
    """An operator will emit nothing more, ever; `output` is JSON that names its files."""

    operator_id: str
    output: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTriggered(GuardedEvent):
    """A checkpoint of an aligned epoch begins; `participants` maps each stream to its number of acknowledgements."""

    epoch: int
    participants: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointAcknowledged(GuardedEvent):
    """Participants have written their part, or (with `manifest_*`) the manifest that names every part is written."""

    checkpoint_id: int
    acknowledgements: Mapping[str, tuple[int, ...]]
    manifest_path: str | None = None
    manifest_sha256: str | None = None
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointDeclined(GuardedEvent):
    """A participant cannot take part in a checkpoint."""

    checkpoint_id: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputsPublished(GuardedEvent):
    """The outputs of a terminating run are where readers look for them."""

    outputs: Mapping[str, str]
    state_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded(GuardedEvent):
    """The attempt stops; FAILED also marks the run."""

    outcome: AttemptOutcome
    reason: str | None = None


Event: TypeAlias = (
    AttemptOpened
    | DataPinned
    | EpochOpened
    | SubtasksAligned
    | OperatorFinished
    | CheckpointTriggered
    | CheckpointAcknowledged
    | CheckpointDeclined
    | OutputsPublished
    | AttemptEnded
)
