"""How do the database's rows become states and records, and back? One function per table, in each direction."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from iteration_lib.errors import ProtocolViolationError
from iteration_lib.protocol.edge import merge_ranges
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.retention import RetainedCheckpoint
from iteration_lib.protocol.state import (
    NO_EPOCH,
    AttemptState,
    CheckpointState,
    Decision,
    EdgeState,
    EpochState,
    FailedOperator,
    Holder,
    Reports,
    RunState,
    StopState,
)
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
    PinRecord,
    RequestRecord,
    RunRecord,
    StopRecord,
)

Row: TypeAlias = Mapping[str, Any]  # Any: what a column holds, checked by the table's constraints

_ENCODER = json.JSONEncoder(allow_nan=False)


# What a state is rebuilt from: each name is that of a query select_*_state.
STATE_PARTS = ("run", "attempt", "epochs", "checkpoints", "edges", "finished", "requests", "notices", "committables")


def run_state(found: Mapping[str, Sequence[Row]]) -> RunState:
    """Rebuild the protocol's state."""
    (run,) = found["run"]
    attempt = next(iter(found["attempt"]), None)
    live = attempt if attempt is not None and attempt["ended_at"] is None else None
    known = tuple(checkpoint_state(row) for row in found["checkpoints"])
    return RunState(
        run_id=run["run_id"],
        status=RunStatus(run["status"]),
        max_epochs=run["max_epochs"],
        fencing_token=run["fencing_token"],
        attempt=attempt_state(live) if live is not None else None,
        ended_attempt_id=attempt["attempt_id"] if attempt is not None and live is None else None,
        last_durable_epoch=run["last_durable_epoch"],
        terminated_by=_terminated_by(run["terminated_by"]),
        epochs=tuple(epoch_state(row) for row in found["epochs"]),
        last_checkpoint_id=run["last_checkpoint_id"],
        pending=tuple(c for c in known if c.status is CheckpointStatus.PENDING),
        completed=next((c for c in known if c.status is CheckpointStatus.COMPLETED), None),
        checkpoint_failures=live["checkpoint_failures"] if live is not None else 0,
        aborted_through=run["aborted_through"],
        requests={row["request_id"]: row["checkpoint_id"] for row in found["requests"]},
        stop=_stop_state(run),
        edges=edge_states(found["edges"]),
        finished_operators=frozenset(row["name"] for row in found["finished"] if row["what"] == "operator"),
        pins={row["name"]: row["fingerprint"] for row in found["finished"] if row["what"] == "pin"},
        notified={row["listener_id"]: row["epoch"] for row in found["notices"]},
        origin_epoch=run["origin_epoch"] if run["origin_epoch"] is not None else NO_EPOCH,
        holds_origin=run["holds_origin"],
        pinned=frozenset(run["pinned"]),
        pinned_by_hand=frozenset(run["pinned_by_hand"]),
        sinks=run["sinks"],
        uncommitted=frozenset((row["epoch"], row["output"]) for row in found["committables"]),
    )


def _stop_state(run: Row) -> StopState | None:
    if run["stop_id"] is None:
        return None
    return StopState(stop_id=run["stop_id"], kind=StopKind(run["stop_kind"]), is_resumed=run["is_resumed"])


def attempt_state(row: Row) -> AttemptState:
    """Rebuild the live attempt."""
    return AttemptState(
        attempt_id=row["attempt_id"],
        fencing_token=row["fencing_token"],
        holder=_holder(row["holder"]),
        lease_expires_at=row["lease_expires_at"],
        policy=policy_from_json(row["policy"]),
        definition_changes=_definition_changes(row["definition_changes"]),
    )


def epoch_state(row: Row) -> EpochState:
    """Rebuild an epoch."""
    return EpochState(
        epoch=row["epoch"],
        status=EpochStatus(row["status"]),
        heads=_reports(row["records"]),
        decision=decision_from_json(row["decision"]),
        unaligned_by=_unaligned_by(row["unaligned_by"]),
    )


def _reports(found: Mapping[str, Sequence[int | None]]) -> tuple[Reports, ...]:
    return tuple(Reports(name=name, values=tuple(values)) for name, values in sorted(found.items()))


def edge_states(parts: Iterable[Row]) -> tuple[EdgeState, ...]:
    """Rebuild durable edges from one row per part."""
    by_edge: dict[tuple[int, str], list[Row]] = {}
    for part in parts:
        by_edge.setdefault((part["epoch"], part["operator_id"]), []).append(part)
    return tuple(
        EdgeState(
            epoch=epoch,
            operator_id=operator_id,
            total=rows[0]["total"],
            finished=merge_ranges((row["first_bucket"], row["end_bucket"]) for row in rows),
        )
        for (epoch, operator_id), rows in sorted(by_edge.items())
    )


def checkpoint_state(row: Row) -> CheckpointState:
    """Rebuild a checkpoint."""
    return CheckpointState(
        checkpoint_id=row["checkpoint_id"],
        epoch=row["epoch"],
        kind=CheckpointKind(row["kind"]),
        status=CheckpointStatus(row["status"]),
        participants=_reports(row["acknowledgements"]),
        manifest_sha256=row["manifest_sha256"],
        completed_at=row["ended_at"],
    )


def one_checkpoint_state(found: Sequence[Row]) -> CheckpointState | None:
    """Rebuild the checkpoint that was looked for; None where there is none."""
    return checkpoint_state(found[0]) if found else None


def decision_json(decision: Decision) -> dict[str, object]:
    """Return a decision as the database keeps it."""
    by = decision.terminated_by
    return {"records": dict(decision.records), "terminated_by": by.value if by is not None else None}


def decision_from_json(found: Row | None) -> Decision | None:
    """Rebuild a decision."""
    if found is None:
        return None
    return Decision(records=found["records"], terminated_by=_terminated_by(found["terminated_by"]))


def holder_json(holder: Holder) -> dict[str, object]:
    """Return a holder as the database keeps it."""
    return dataclasses.asdict(holder)


def _holder(found: Row) -> Holder:
    return Holder(**_known(Holder, found))


def policy_json(policy: CheckpointPolicy) -> dict[str, object]:
    """Return a policy as the database keeps it."""
    return dataclasses.asdict(policy)


def policy_from_json(found: Row) -> CheckpointPolicy:
    """Rebuild a policy, passing over fields of later versions; attempts of version 1 had none but the default."""
    policy = CheckpointPolicy(**_known(CheckpointPolicy, found))
    return dataclasses.replace(
        policy, min_pause_seconds=float(policy.min_pause_seconds), timeout_seconds=float(policy.timeout_seconds)
    )


def operator_columns(definition: Mapping[str, object]) -> dict[str, list[object]]:
    """Return the operators of a definition, in running order, as columns of `operators`."""
    operators: Any = definition["operators"]  # Any: JSON that model.definition.describe made
    return {
        "operator_ids": list(operators),
        **{f"{field}s": [operator[field] for operator in operators.values()] for field in ("name", "role", "kind")},
    }


def to_json(value: object) -> str:
    """Return the JSON text of a column; raises ProtocolViolationError for what is none, such as NaN."""
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError) as err:
        raise ProtocolViolationError(f"no JSON holds {value!r} ({err}); this is a bug, please report it") from err


def run_record(row: Row) -> RunRecord:
    """Rebuild a row of `runs`."""
    return RunRecord(
        **{
            **_fields(RunRecord, row),
            "status": RunStatus(row["status"]),
            "terminated_by": _terminated_by(row["terminated_by"]),
            "asked_to": StopKind(row["asked_to"]) if row["asked_to"] is not None else None,
        }
    )


def attempt_record(row: Row) -> AttemptRecord:
    """Rebuild a row of `attempts`."""
    outcome = AttemptOutcome(row["outcome"]) if row["outcome"] is not None else None
    return AttemptRecord(
        **{
            **_fields(AttemptRecord, {**row, "failed": _failed_operator(row)}),
            "holder": _holder(row["holder"]),
            "policy": policy_from_json(row["policy"]),
            "outcome": outcome,
            "definition_changes": _definition_changes(row["definition_changes"]),
        }
    )


def failed_columns(failed: FailedOperator | None) -> dict[str, str | int | None]:
    """Return the columns of the operator that ended an attempt."""
    if failed is None:
        return {"failed_operator_id": None, "failed_epoch": None}
    return {"failed_operator_id": failed.operator_id, "failed_epoch": failed.epoch}


def _failed_operator(row: Row) -> FailedOperator | None:
    if row["failed_operator_id"] is None:
        return None
    return FailedOperator(operator_id=row["failed_operator_id"], epoch=row["failed_epoch"])


def epoch_record(row: Row) -> EpochRecord:
    """Rebuild a row of `epochs`, with its heads' reports."""
    decision = decision_from_json(row["decision"])
    return EpochRecord(
        **{
            **{name: row[name] for name in ("epoch", "fencing_token", "seconds")},
            "metrics": _metrics(row["metrics"]),
            **{name: row[name] for name in ("opened_at", "held_at", "aligned_at", "durable_at", "unaligned_at")},
            "status": EpochStatus(row["status"]),
            "unaligned_by": _unaligned_by(row["unaligned_by"]),
            "terminated_by": decision.terminated_by if decision is not None else None,
            "decision_records": decision.records if decision is not None else None,
            "records": {head: tuple(records) for head, records in row["records"].items()},
        }
    )


def operator_record(row: Row) -> OperatorRecord:
    """Rebuild a row of `operators`."""
    return OperatorRecord(**_fields(OperatorRecord, row))


def pin_record(row: Row) -> PinRecord:
    """Rebuild a row of `pins`."""
    return PinRecord(**_fields(PinRecord, row))


def checkpoint_record(row: Row) -> CheckpointRecord:
    """Rebuild a row of `checkpoints`."""
    return CheckpointRecord(
        **{
            **_fields(CheckpointRecord, row),
            "kind": CheckpointKind(row["kind"]),
            "status": CheckpointStatus(row["status"]),
            "failure": CheckpointFailure(row["failure"]) if row["failure"] is not None else None,
            "by_branches": tuple(str(run_id) for run_id in row["by_branches"]),
        }
    )


def retained_checkpoint(row: Row) -> RetainedCheckpoint:
    """Rebuild what is told of a checkpoint that may be discarded."""
    return RetainedCheckpoint(**_fields(RetainedCheckpoint, row))


def branch_record(row: Row) -> BranchRecord:
    """Rebuild a row of `branches`."""
    carries = tuple(row["carries"]) if row["carries"] is not None else None
    lists = {"keeps": tuple(row["keeps"]), "carries": carries}
    return BranchRecord(**{**_fields(BranchRecord, row), "mode": RestoreMode(row["mode"]), **lists})


def part_record(row: Row) -> PartRecord:
    """Rebuild a row of `edge_parts`."""
    return PartRecord(**{**_fields(PartRecord, row), "metrics": _metrics(row["metrics"])})


def request_record(row: Row) -> RequestRecord:
    """Rebuild a row of `checkpoint_requests`."""
    return RequestRecord(**_fields(RequestRecord, row))


def committable_record(row: Row) -> CommittableRecord:
    """Rebuild a row of `committables`."""
    return CommittableRecord(**_fields(CommittableRecord, row))


def fallback_record(row: Row) -> FallbackRecord:
    """Rebuild a row of `fallbacks`."""
    return FallbackRecord(**_fields(FallbackRecord, row))


def stop_record(row: Row) -> StopRecord:
    """Rebuild a row of `stops`."""
    return StopRecord(**{**_fields(StopRecord, row), "kind": StopKind(row["kind"])})


def notice_record(row: Row) -> NoticeRecord:
    """Rebuild a row of `listener_notices`."""
    return NoticeRecord(**_fields(NoticeRecord, row))


def _metrics(found: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in found.items()}  # jsonb writes 1e23 out


def _definition_changes(found: Sequence[str] | None) -> tuple[str, ...] | None:
    return tuple(found) if found is not None else None


def _unaligned_by(found: str | None) -> UnalignedBy | None:
    return UnalignedBy(found) if found is not None else None


def _terminated_by(found: str | None) -> TerminatedBy | None:
    return TerminatedBy(found) if found is not None else None


def _known(record: type, found: Row) -> dict[str, Any]:  # Any: as Row
    """Return the fields that this version knows, as a manifest's reader does."""
    return {field.name: found[field.name] for field in dataclasses.fields(record) if field.name in found}


def _fields(record: type, row: Row) -> dict[str, Any]:  # Any: as Row
    names: Iterable[str] = (field.name for field in dataclasses.fields(record))
    return {name: row[name] for name in names}
