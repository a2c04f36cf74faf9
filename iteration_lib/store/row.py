"""How do the database's rows become states and records, and back? One function per table, in each direction."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeAlias

from iteration_lib.errors import ProtocolViolationError
from iteration_lib.protocol.state import (
    AttemptState,
    CheckpointState,
    Decision,
    EpochState,
    Holder,
    Reports,
    RunState,
)
from iteration_lib.protocol.status import (
    AttemptOutcome,
    CheckpointKind,
    CheckpointStatus,
    EpochStatus,
    RunStatus,
    TerminatedBy,
)
from iteration_lib.store.record import (
    AttemptRecord,
    CheckpointRecord,
    EpochRecord,
    OperatorRecord,
    PinRecord,
    RunRecord,
)

Row: TypeAlias = Mapping[str, Any]  # Any: what a column holds, checked by the table's constraints


def run_state(
    run: Row, attempt: Row | None, epochs: Sequence[Row], checkpoints: Sequence[Row], finished: Sequence[Row]
) -> RunState:
    """Rebuild the protocol's state; `epochs` and `checkpoints` have one row per head or participant, in order."""
    known = tuple(
        checkpoint_state(list(rows)) for _, rows in groupby(checkpoints, key=lambda row: int(row["checkpoint_id"]))
    )
    live = attempt is not None and attempt["ended_at"] is None
    return RunState(
        run_id=run["run_id"],
        status=RunStatus(run["status"]),
        max_epochs=run["max_epochs"],
        fencing_token=run["fencing_token"],
        attempt=attempt_state(attempt) if attempt is not None and live else None,
        ended_attempt_id=attempt["attempt_id"] if attempt is not None and not live else None,
        last_durable_epoch=run["last_durable_epoch"],
        terminated_by=_terminated_by(run["terminated_by"]),
        epochs=tuple(epoch_state(list(rows)) for _, rows in groupby(epochs, key=lambda row: int(row["epoch"]))),
        last_checkpoint_id=run["last_checkpoint_id"],
        pending=tuple(c for c in known if c.status is CheckpointStatus.PENDING),
        completed=next((c for c in known if c.status is CheckpointStatus.COMPLETED), None),
        finished_operators=frozenset(row["name"] for row in finished if row["what"] == "operator"),
        pins={row["name"]: row["fingerprint"] for row in finished if row["what"] == "pin"},
    )


def attempt_state(row: Row) -> AttemptState:
    """Rebuild the live attempt."""
    return AttemptState(
        attempt_id=row["attempt_id"],
        fencing_token=row["fencing_token"],
        holder=Holder(**row["holder"]),
        lease_expires_at=row["lease_expires_at"],
    )


def epoch_state(rows: Sequence[Row]) -> EpochState:
    """Rebuild an epoch from one row per head."""
    first = rows[0]
    return EpochState(
        epoch=first["epoch"],
        status=EpochStatus(first["status"]),
        heads=tuple(Reports(name=row["head"], values=tuple(row["records"])) for row in rows),
        decision=decision_from_json(first["decision"]),
    )


def checkpoint_state(rows: Sequence[Row]) -> CheckpointState:
    """Rebuild a checkpoint from one row per participant."""
    first = rows[0]
    return CheckpointState(
        checkpoint_id=first["checkpoint_id"],
        epoch=first["epoch"],
        kind=CheckpointKind(first["kind"]),
        status=CheckpointStatus(first["status"]),
        participants=tuple(Reports(name=row["participant"], values=tuple(row["subtasks"])) for row in rows),
        manifest_sha256=first["manifest_sha256"],
    )


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


def to_json(value: object) -> str:
    """Return the JSON text of a column; raises ProtocolViolationError for what is none, such as NaN."""
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as err:
        raise ProtocolViolationError(f"no JSON holds {value!r} ({err}); this is a bug, please report it") from err


def run_record(row: Row) -> RunRecord:
    """Rebuild a row of `runs`."""
    return RunRecord(
        **{
            **_fields(RunRecord, row),
            "status": RunStatus(row["status"]),
            "terminated_by": _terminated_by(row["terminated_by"]),
        }
    )


def attempt_record(row: Row) -> AttemptRecord:
    """Rebuild a row of `attempts`."""
    outcome = AttemptOutcome(row["outcome"]) if row["outcome"] is not None else None
    return AttemptRecord(**{**_fields(AttemptRecord, row), "holder": Holder(**row["holder"]), "outcome": outcome})


def epoch_record(row: Row) -> EpochRecord:
    """Rebuild a row of `epochs`, with its heads' reports."""
    decision = decision_from_json(row["decision"])
    return EpochRecord(
        **{
            **{name: row[name] for name in ("epoch", "fencing_token", "seconds")},
            "metrics": {name: float(value) for name, value in row["metrics"].items()},  # jsonb writes 1e23 out
            **{name: row[name] for name in ("opened_at", "aligned_at", "durable_at")},
            "status": EpochStatus(row["status"]),
            "terminated_by": decision.terminated_by if decision is not None else None,
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
        }
    )


def _terminated_by(found: str | None) -> TerminatedBy | None:
    return TerminatedBy(found) if found is not None else None


def _fields(record: type, row: Row) -> dict[str, Any]:  # Any: as Row
    names: Iterable[str] = (field.name for field in dataclasses.fields(record))
    return {name: row[name] for name in names}
