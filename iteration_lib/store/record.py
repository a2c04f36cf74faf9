"""What can be read back of a run? Frozen rows, for people and for the driver; nothing here decides anything."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime

from iteration_lib.model.params import Scalar
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.state import NO_EPOCH, AttemptId, FailedOperator, Holder, RunId
from iteration_lib.protocol.status import (
    AttemptOutcome,
    CheckpointFailure,
    CheckpointKind,
    CheckpointStatus,
    EpochStatus,
    RestoreMode,
    RunStatus,
    StopKind,
    TerminatedBy,
    UnalignedBy,
)

Json = Mapping[str, object]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """A run that does not exist yet."""

    run_id: RunId
    run_key: str
    reference: str
    definition: Json
    params: Mapping[str, Scalar]
    state_uri: str
    max_buckets: int
    max_epochs: int | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The checkpoint that a branch starts from.

    `origin_run_id` and `origin_checkpoint_id` are None for a savepoint, which belongs to no run. `manifest_path` is
    relative to the folder at `uri`, as are the paths in that manifest. `keeps` are the ids of the data streams whose
    pins, and of the operators that finished for good whose outputs, the branch takes over. `carries` are the ids of the
    variables, those that hold an operator's state included, whose values it goes on with; None, as older versions
    wrote it, for all that the checkpoint holds.
    """

    origin_run_id: RunId | None
    origin_checkpoint_id: int | None
    epoch: int
    uri: str
    manifest_path: str
    manifest_sha256: str
    mode: RestoreMode
    keeps: tuple[str, ...]
    branched_by: str
    carries: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BranchRecord(Origin):
    """A branch: it pins its origin until `released_at`, when it had a completed checkpoint of its own."""

    run_id: RunId
    branched_at: datetime
    released_at: datetime | None

    @property
    def holds_origin(self) -> bool:
        """Whether it needs its origin still."""
        return self.released_at is None

    @property
    def first_epoch(self) -> int:
        """The epoch that the run begins with: the one behind its origin's checkpoint."""
        return self.epoch + 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord(NewRun):
    """A run. `outputs` maps an output's name to its URI, once the run is FINISHED; `asked_to` is in force.

    `revision` grows with every change of the run, also of what its own row does not tell. How often somebody wrote is
    not what was written: records that differ in it alone are equal.
    """

    status: RunStatus
    fencing_token: int = 0
    last_durable_epoch: int = NO_EPOCH
    last_checkpoint_id: int = 0
    aborted_through: int = 0
    terminated_by: TerminatedBy | None = None
    failure: str | None = None
    outputs: Mapping[str, str] | None = None
    state_digest: str | None = None
    created_at: datetime
    finished_at: datetime | None = None
    deleted_by: str | None = None
    deleted_at: datetime | None = None
    revision: int = dataclasses.field(default=0, compare=False)
    asked_to: StopKind | None = None

    @property
    def epochs(self) -> int:
        """The number of passes that are durable."""
        return self.last_durable_epoch + 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """Who drives, or drove, a run. `definition_changes` says how its operators are others than those before it.

    One that `ignores_edges` has voided what was durable inside the open epoch.

    `failed` is the operator that ended it, where it was one. `is_lease_over` is what the store's own clock said when it
    was read: no other clock tells. Records that differ in it alone are equal.
    """

    fencing_token: int
    attempt_id: AttemptId
    holder: Holder
    started_at: datetime
    lease_expires_at: datetime
    ended_at: datetime | None
    outcome: AttemptOutcome | None
    reason: str | None
    policy: CheckpointPolicy = dataclasses.field(default_factory=CheckpointPolicy)
    checkpoint_failures: int = 0
    definition_changes: tuple[str, ...] | None = None
    failed: FailedOperator | None = None
    ignores_edges: bool = False
    is_lease_over: bool = dataclasses.field(default=False, compare=False)

    @property
    def was_cut_short(self) -> bool:
        """Whether it ended before it had done what it was asked for: it failed, died, or was interrupted."""
        is_done = self.outcome is AttemptOutcome.FINISHED
        is_released = self.outcome is AttemptOutcome.RELEASED and self.reason is None
        return self.ended_at is not None and not (is_done or is_released)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EpochRecord:
    """An epoch under one token. `records` counts, per head and subtask, what it fed back.

    `decision_records` is what was decided from, once it is aligned; it was held from `held_at` until then.
    """

    epoch: int
    fencing_token: int
    status: EpochStatus
    terminated_by: TerminatedBy | None
    records: Mapping[str, tuple[int | None, ...]]
    metrics: Mapping[str, float]
    seconds: float | None
    opened_at: datetime
    aligned_at: datetime | None
    durable_at: datetime | None
    decision_records: Mapping[str, int] | None = None
    held_at: datetime | None = None
    unaligned_by: UnalignedBy | None = None
    unaligned_at: datetime | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRecord:
    """An operator. `output` names its files once it has finished for good, and `fencing_token` who marked it.

    It is the run's operator of this id since the attempt with the token `added_under`, or since the run began (0): what
    is older was another one's.
    """

    operator_id: str
    name: str
    role: str
    kind: str
    finished_epoch: int | None
    output: Json | None
    fencing_token: int | None = None
    added_under: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PinRecord:
    """What a data stream reads."""

    name: str
    fingerprint: str
    pin: Json


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRecord:
    """A checkpoint. `manifest_path` is relative to the run's folder; `failure` says why it was aborted.

    `by_branches` are the runs that pin it, `by_person` is who pinned it by hand; where it is `safe_to_delete` none of
    them needs it, nor does its own run.
    """

    checkpoint_id: int
    epoch: int
    fencing_token: int
    kind: CheckpointKind
    status: CheckpointStatus
    manifest_path: str | None
    manifest_sha256: str | None
    size_bytes: int | None
    reason: str | None
    triggered_at: datetime
    ended_at: datetime | None
    failure: CheckpointFailure | None = None
    by_branches: tuple[RunId, ...] = ()
    by_person: str | None = None
    safe_to_delete: bool = False

    @property
    def has_files(self) -> bool:
        """Whether it was completed, and has not been discarded since."""
        return self.status in (CheckpointStatus.COMPLETED, CheckpointStatus.SUBSUMED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PartRecord:
    """Buckets [first_bucket, end_bucket) of an operator's output that are durable inside an epoch.

    The epoch is NO_EPOCH for an operator that finishes for good; `output` names the files.
    """

    epoch: int
    operator_id: str
    first_bucket: int
    end_bucket: int
    total: int
    fencing_token: int
    output: Json
    metrics: Mapping[str, float]
    finished_at: datetime
    voided_at: datetime | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """A person's request for a checkpoint, and which one answered it."""

    request_id: str
    requested_by: str
    requested_at: datetime
    checkpoint_id: int | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CommittableRecord:
    """What a sink prepared of an output in a durable epoch. `target` says where it goes, in words."""

    epoch: int
    output: str
    fencing_token: int
    target: str
    content: Json
    stored_at: datetime
    committed_at: datetime | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StopRecord:
    """A person's request that a run stops, or drains: when the run was STOPPED by it, and who let it go on."""

    stop_id: str
    kind: StopKind
    requested_by: str
    requested_at: datetime
    stopped_at: datetime | None
    resumed_by: str | None
    resumed_at: datetime | None

    @property
    def is_in_force(self) -> bool:
        """Whether nobody has resumed the run since."""
        return self.resumed_at is None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FallbackRecord:
    """An attempt that went on from an older checkpoint, of `epoch`, because the newest one was broken."""

    fencing_token: int
    from_checkpoint_id: int
    to_checkpoint_id: int
    epoch: int
    reason: str
    fell_back_at: datetime


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NoticeRecord:
    """A durable epoch that a listener has heard of, or the end with the last one, and what it returned."""

    listener_id: str
    epoch: int
    fencing_token: int
    effect: Json | None
    noticed_at: datetime
    is_final: bool = False
