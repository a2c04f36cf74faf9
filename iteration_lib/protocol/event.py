"""What can happen to a run? Events are in the past tense; repeating one is harmless, always."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.state import AttemptId, CheckpointState, FailedOperator, Holder
from iteration_lib.protocol.status import AttemptOutcome, CheckpointFailure, CheckpointStatus, StopKind, UnalignedBy


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptOpened:
    """A process wants to drive the run.

    `gone_attempt_id` names an attempt whose holder was proved to be gone (its process, by its own machine; its task
    instance, by Airflow). `takeover` is a person's word for it. With `ignore_edges` the attempt begins without what the
    ones before it left of operators that had not finished.
    """

    attempt_id: AttemptId
    holder: Holder
    lease_ttl_seconds: float
    gone_attempt_id: AttemptId | None = None
    takeover: bool = False
    ignore_edges: bool = False
    policy: CheckpointPolicy = field(default_factory=CheckpointPolicy)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRequested:
    """A person asks for a checkpoint by hand, of the next epoch that aligns in an attempt that has not failed.

    `request_id` is a UUID.
    """

    request_id: str
    requested_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointAborted:
    """A person aborts a checkpoint and all that are pending before it; the next one may be aborted before it begins."""

    checkpoint_id: int
    aborted_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointsDiscarded:
    """Somebody lets checkpoints go that are neither the newest nor pinned; of a run that was deleted, any unpinned.

    An attempt goes by its own policy, and says who it is: it is heard until another one begins.
    """

    checkpoint_ids: tuple[int, ...]
    attempt_id: AttemptId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPinned:
    """A person keeps a checkpoint, which was found in this status, until a person releases it."""

    checkpoint_id: int
    status: CheckpointStatus
    pinned_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointReleased:
    """A person keeps a checkpoint no longer."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDeleted:
    """A person deletes a run that nobody drives; `gone_attempt_id` is as in AttemptOpened."""

    deleted_by: str
    gone_attempt_id: AttemptId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested:
    """A person asks the run to stop, or to drain; `stop_id` is a UUID, `gone_attempt_id` is as in AttemptOpened."""

    stop_id: str
    kind: StopKind
    requested_by: str
    gone_attempt_id: AttemptId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResumed:
    """A person lets a run go on that is STOPPED by the request `stop_id`."""

    stop_id: str
    resumed_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedEvent:
    """An event that only the live attempt may send (I2)."""

    attempt_id: AttemptId
    fencing_token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionChanged(GuardedEvent):
    """The user's file describes other operators than the run was started with, within what is allowed.

    `changes` says it in sentences; `dropped` are the ids of operators whose state nobody will read again, `kept` of
    those whose edges in the open epoch are what they, and all before them, would compute again.
    """

    definition: Mapping[str, object]
    changes: tuple[str, ...]
    dropped: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FellBack(GuardedEvent):
    """A person lets the run go on from an older `checkpoint`, as the store has it; `reason` says what is broken.

    `published` are the outputs of which sinks have something of later epochs.
    """

    checkpoint: CheckpointState
    reason: str
    published: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPinned(GuardedEvent):
    """A data stream's input was fixed: `pin` is JSON for whoever reads it back."""

    name: str
    fingerprint: str
    pin: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochOpened(GuardedEvent):
    """The next epoch begins; `heads` maps each head to its parallelism.

    With `if_ready` nothing happens while the epoch before is still open, after one that terminates the run, or where
    a person asks it to stop.
    """

    epoch: int
    heads: Mapping[str, int]
    if_ready: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtasksAligned(GuardedEvent):
    """Subtasks of heads are done with an epoch: head to subtask index to the records that it feeds back."""

    epoch: int
    reports: Mapping[str, Mapping[int, int]]
    metrics: Mapping[str, float]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignmentTimedOut(GuardedEvent):
    """An open epoch switches to the unaligned checkpoint: its operators' outputs become durable edges (FLIP-76)."""

    epoch: int
    by: UnalignedBy


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedPart:
    """Buckets [first_bucket, end_bucket) of an operator's output, durable; a stream without buckets is one of 1.

    `after` names the operators inside the epoch whose results went into it: a narrow one by the same buckets, a wide
    one whole. `output` is JSON that names the files; `metrics` is what the operator reported.
    """

    operator_id: str
    total: int
    first_bucket: int
    end_bucket: int
    output: Mapping[str, object]
    after_narrow: tuple[str, ...] = ()
    after_wide: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsFinished(GuardedEvent):
    """Parts of durable edges of an epoch are complete, in an order in which each comes after its inputs.

    Before the epoch before is durable this says nothing. The epoch is NO_EPOCH for operators that finish for good.
    """

    epoch: int
    parts: tuple[FinishedPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFinished(GuardedEvent):
    """An operator will emit nothing more, ever; `output` is JSON that names its files."""

    operator_id: str
    output: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTriggered(GuardedEvent):
    """A checkpoint of an aligned epoch begins, if one is due; `participants` maps each stream to its acknowledgements.

    One of the attempt's last epoch (`is_last`) is due whatever the pace. Nothing begins while the alignment is held.
    `last_checkpoint_id` is the run's last one, as the sender knows it: where it is another, the sender repeats itself.
    """

    epoch: int
    participants: Mapping[str, int]
    last_checkpoint_id: int
    is_last: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Committable:
    """What a sink prepared of one output in one epoch; `content` is JSON that it takes to commit it.

    `target` says in words where it goes. One that is `in_store` is committed by the very transaction that stores it.
    """

    epoch: int
    output: str
    target: str
    content: Mapping[str, object]
    in_store: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointAcknowledged(GuardedEvent):
    """Participants have written their part, or (with `manifest_*`) the manifest that names every part is written.

    With the manifest come the committables of every epoch that becomes durable by it; older ones may come again.
    """

    checkpoint_id: int
    acknowledgements: Mapping[str, tuple[int, ...]]
    manifest_path: str | None = None
    manifest_sha256: str | None = None
    size_bytes: int = 0
    committables: tuple[Committable, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointDeclined(GuardedEvent):
    """A pending checkpoint will not be: a participant cannot take part, or it took too long."""

    checkpoint_id: int
    reason: str
    failure: CheckpointFailure = CheckpointFailure.DECLINED


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittablesCommitted(GuardedEvent):
    """Sinks show what was prepared of these outputs, each by its epoch and name."""

    committed: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerNotified(GuardedEvent):
    """A listener has heard that an epoch is durable; or, with `is_final`, that the run terminated after it.

    `effect` is what it returned.
    """

    listener_id: str
    epoch: int
    is_final: bool = False
    effect: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputsPublished(GuardedEvent):
    """The outputs of a terminating run are where readers look for them."""

    outputs: Mapping[str, str]
    state_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded(GuardedEvent):
    """The attempt stops; FAILED also marks the run, and may say which operator failed."""

    outcome: AttemptOutcome
    reason: str | None = None
    failed: FailedOperator | None = None


# What anybody may say of a run, whoever drives it.
OpenEvent: TypeAlias = (
    CheckpointRequested
    | CheckpointAborted
    | CheckpointsDiscarded
    | CheckpointPinned
    | CheckpointReleased
    | StopRequested
    | RunResumed
    | RunDeleted
)

Event: TypeAlias = (
    AttemptOpened
    | OpenEvent
    | DefinitionChanged
    | FellBack
    | DataPinned
    | EpochOpened
    | SubtasksAligned
    | AlignmentTimedOut
    | PartsFinished
    | OperatorFinished
    | CheckpointTriggered
    | CheckpointAcknowledged
    | CheckpointDeclined
    | CommittablesCommitted
    | ListenerNotified
    | OutputsPublished
    | AttemptEnded
)
