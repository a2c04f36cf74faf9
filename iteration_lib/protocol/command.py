"""What has to be written, when an event is accepted? Each command is one guarded write of the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from iteration_lib.protocol.event import Committable, FinishedPart
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.state import AttemptId, Decision, FailedOperator, Holder, Reports
from iteration_lib.protocol.status import (
    AttemptOutcome,
    CheckpointFailure,
    CheckpointKind,
    RunStatus,
    StopKind,
    TerminatedBy,
    UnalignedBy,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAttempt:
    """Issue the next fencing token to a new live attempt, whose checkpoints have not failed yet.

    One that `ignores_edges` leaves none: they are voided in the same step.
    """

    attempt_id: AttemptId
    fencing_token: int
    holder: Holder
    lease_expires_at: datetime
    policy: CheckpointPolicy
    ignores_edges: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EndAttempt:
    """End the live attempt that holds `fencing_token`."""

    fencing_token: int
    outcome: AttemptOutcome
    reason: str | None
    failed: FailedOperator | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRunStatus:
    """Set the run's status; `terminated_by` is kept once it is set, `failure` is set on FAILED and cleared else."""

    status: RunStatus
    terminated_by: TerminatedBy | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FallBack:
    """SUBSUMED → COMPLETED, of an older checkpoint; newer ones → DISCARDED, and every epoch after its own → VOIDED."""

    from_checkpoint_id: int
    to_checkpoint_id: int
    epoch: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceDefinition:
    """Make the run's operators those of `definition`, matched by id; the attempt in force says what changed.

    Those in `dropped` are gone, with their markers and all their live edges, also those that finished in part for good.
    """

    definition: Mapping[str, object]
    changes: tuple[str, ...]
    dropped: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PinData:
    """Record a data stream's pin."""

    name: str
    fingerprint: str
    pin: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenEpoch:
    """Insert an OPEN epoch with its heads, none of whose subtasks has reported."""

    epoch: int
    heads: tuple[Reports, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordReports:
    """Store what an OPEN epoch's subtasks have reported up to now, and once that is all, what it measured.

    `metrics` and `seconds` are None as long as a report is missing.
    """

    epoch: int
    heads: tuple[Reports, ...]
    metrics: Mapping[str, float] | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignEpoch:
    """OPEN → ALIGNED, with the decision and what it was made from."""

    epoch: int
    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchToUnaligned:
    """Let an OPEN epoch have durable edges from now on."""

    epoch: int
    by: UnalignedBy


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordParts:
    """Insert parts of durable edges of an epoch."""

    epoch: int
    parts: tuple[FinishedPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VoidEdges:
    """Void the live edges of every epoch after `after`, whoever wrote them, but those of the operators in `keeping`."""

    after: int
    keeping: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VoidParts:
    """Void the live parts of operators that would finish for good, whoever wrote them."""

    operators: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VoidEpochs:
    """Every epoch after the last durable one → VOIDED."""

    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeEpochsDurable:
    """Every aligned epoch up to `through` → DURABLE; the run's last durable epoch becomes `through`."""

    through: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishOperator:
    """Mark an operator as finished for good, with the files of its output."""

    operator_id: str
    epoch: int
    output: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerCheckpoint:
    """Insert a PENDING checkpoint."""

    checkpoint_id: int
    epoch: int
    kind: CheckpointKind
    participants: tuple[Reports, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRequest:
    """Insert a person's request for a checkpoint."""

    request_id: str
    requested_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRequests:
    """Say which checkpoint answers every request that none has answered."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordStop:
    """Insert a person's request that the run stops, or drains."""

    stop_id: str
    kind: StopKind
    requested_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRun:
    """RUNNING or FAILED → STOPPED, as a request in force asks for."""

    stop_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRun:
    """STOPPED → RUNNING; the request is in force no more."""

    stop_id: str
    resumed_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortThrough:
    """No checkpoint up to this id will begin any more."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordAcknowledgements:
    """Store who has acknowledged a pending checkpoint up to now."""

    checkpoint_id: int
    participants: tuple[Reports, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteCheckpoint:
    """PENDING → COMPLETED with its manifest; at once SUBSUMED when it comes after a newer one.

    Without an instant it is completed when that is written.
    """

    checkpoint_id: int
    manifest_path: str
    manifest_sha256: str
    size_bytes: int
    completed_at: datetime | None
    is_subsumed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsumeCheckpoint:
    """COMPLETED → SUBSUMED."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortCheckpoint:
    """PENDING → ABORTED, with the reason."""

    checkpoint_id: int
    failure: CheckpointFailure
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardCheckpoints:
    """SUBSUMED, or COMPLETED of a run that is DELETED → DISCARDED, of as many of these as are there still."""

    checkpoint_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PinCheckpoint:
    """Store that a person keeps a checkpoint."""

    checkpoint_id: int
    pinned_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseCheckpoint:
    """Take back that a person keeps a checkpoint."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseOrigin:
    """The branch does not need the checkpoint any more that it started from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRun:
    """Any status → DELETED."""

    deleted_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCommittables:
    """Insert what sinks prepared of epochs that are durable now; those in the store are committed at once."""

    committables: tuple[Committable, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkCommitted:
    """Mark committables, each by its epoch and output, as committed."""

    committed: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordNotice:
    """Store that a listener has heard of an epoch, or of the end (`is_final`), and what it returned."""

    listener_id: str
    epoch: int
    effect: Mapping[str, object] | None
    is_final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOutputs:
    """TERMINATING → FINISHED, with where the outputs are, and their digest."""

    outputs: Mapping[str, str]
    state_digest: str


Command: TypeAlias = (
    OpenAttempt
    | EndAttempt
    | SetRunStatus
    | FallBack
    | ReplaceDefinition
    | PinData
    | OpenEpoch
    | RecordReports
    | AlignEpoch
    | SwitchToUnaligned
    | RecordParts
    | VoidEpochs
    | VoidEdges
    | VoidParts
    | MakeEpochsDurable
    | FinishOperator
    | TriggerCheckpoint
    | RecordRequest
    | AnswerRequests
    | RecordStop
    | StopRun
    | ResumeRun
    | AbortThrough
    | RecordAcknowledgements
    | CompleteCheckpoint
    | SubsumeCheckpoint
    | AbortCheckpoint
    | DiscardCheckpoints
    | PinCheckpoint
    | ReleaseCheckpoint
    | ReleaseOrigin
    | DeleteRun
    | RecordCommittables
    | MarkCommitted
    | RecordNotice
    | PublishOutputs
)
