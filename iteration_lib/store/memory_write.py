"""What does a command change in the rows of the store in memory? One small function per command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from iteration_lib.errors import ProtocolViolationError
from iteration_lib.protocol.command import (
    AbortCheckpoint,
    AlignEpoch,
    Command,
    CompleteCheckpoint,
    EndAttempt,
    FinishOperator,
    MakeEpochsDurable,
    OpenAttempt,
    OpenEpoch,
    PinData,
    PublishOutputs,
    RecordAcknowledgements,
    RecordReports,
    SetRunStatus,
    SubsumeCheckpoint,
    TriggerCheckpoint,
    VoidEpochs,
)
from iteration_lib.store.row import decision_json, holder_json

MutableRow: TypeAlias = dict[str, Any]  # Any: what a column holds


@dataclass(slots=True, kw_only=True)
class MemoryRun:
    """The rows of one run."""

    run: MutableRow
    attempts: dict[int, MutableRow] = field(default_factory=dict)
    operators: dict[str, MutableRow] = field(default_factory=dict)
    pins: dict[str, MutableRow] = field(default_factory=dict)
    epochs: dict[tuple[int, int], MutableRow] = field(default_factory=dict)
    checkpoints: dict[int, MutableRow] = field(default_factory=dict)

    def copy(self) -> MemoryRun:
        """Return rows that can be changed apart from these; what a column holds is replaced, never changed."""
        return MemoryRun(
            run=dict(self.run),
            attempts={key: dict(row) for key, row in self.attempts.items()},
            operators={key: dict(row) for key, row in self.operators.items()},
            pins={key: dict(row) for key, row in self.pins.items()},
            epochs={key: dict(row) for key, row in self.epochs.items()},
            checkpoints={key: dict(row) for key, row in self.checkpoints.items()},
        )


def write_command(run: MemoryRun, command: Command, fencing_token: int, now: datetime) -> None:
    """Write one command; raises ProtocolViolationError when a row was not where the protocol left it."""
    if not isinstance(command, OpenAttempt | EndAttempt) and run.run["fencing_token"] != fencing_token:
        raise ProtocolViolationError(f"token {fencing_token} is not in force; this is a bug, please report it")
    _WRITERS[type(command)](run, command, fencing_token, now)


def _expect(row: MutableRow | None, **columns: object) -> MutableRow:
    if row is None or any(row[name] != value for name, value in columns.items()):
        raise ProtocolViolationError(f"no row where {columns}; this is a bug, please report it")
    return row


def _open_attempt(run: MemoryRun, command: OpenAttempt, _token: int, now: datetime) -> None:
    _expect(run.run, fencing_token=command.fencing_token - 1)
    if any(attempt["ended_at"] is None for attempt in run.attempts.values()):
        raise ProtocolViolationError("another attempt is live; this is a bug, please report it")
    run.run["fencing_token"] = command.fencing_token
    run.attempts[command.fencing_token] = {
        "fencing_token": command.fencing_token,
        "attempt_id": command.attempt_id,
        "holder": holder_json(command.holder),
        "started_at": now,
        "lease_expires_at": command.lease_expires_at,
        "ended_at": None,
        "outcome": None,
        "reason": None,
    }


def _end_attempt(run: MemoryRun, command: EndAttempt, _token: int, now: datetime) -> None:
    attempt = _expect(run.attempts.get(command.fencing_token), ended_at=None)
    attempt.update(ended_at=now, outcome=command.outcome.value, reason=command.reason)


def _set_run_status(run: MemoryRun, command: SetRunStatus, _token: int, _now: datetime) -> None:
    by = command.terminated_by
    run.run.update(
        status=command.status.value, terminated_by=by.value if by is not None else None, failure=command.failure
    )


def _publish_outputs(run: MemoryRun, command: PublishOutputs, _token: int, now: datetime) -> None:
    _expect(run.run, status="TERMINATING")
    run.run.update(status="FINISHED", outputs=dict(command.outputs), state_digest=command.state_digest, finished_at=now)


def _pin_data(run: MemoryRun, command: PinData, _token: int, _now: datetime) -> None:
    run.pins[command.name] = {"name": command.name, "fingerprint": command.fingerprint, "pin": dict(command.pin)}


def _open_epoch(run: MemoryRun, command: OpenEpoch, fencing_token: int, now: datetime) -> None:
    if any(e["epoch"] == command.epoch and e["status"] != "VOIDED" for e in run.epochs.values()):
        raise ProtocolViolationError(f"epoch {command.epoch} is there; this is a bug, please report it")
    run.epochs[command.epoch, fencing_token] = {
        "epoch": command.epoch,
        "fencing_token": fencing_token,
        "status": "OPEN",
        "records": {head.name: head.values for head in command.heads},
        "decision": None,
        "metrics": {},
        "seconds": None,
        "opened_at": now,
        "aligned_at": None,
        "durable_at": None,
    }


def _record_reports(run: MemoryRun, command: RecordReports, fencing_token: int, _now: datetime) -> None:
    epoch = _expect(run.epochs.get((command.epoch, fencing_token)), status="OPEN")
    epoch["records"] = {head.name: head.values for head in command.heads}


def _align_epoch(run: MemoryRun, command: AlignEpoch, fencing_token: int, now: datetime) -> None:
    epoch = _expect(run.epochs.get((command.epoch, fencing_token)), status="OPEN")
    if any(value is None for values in epoch["records"].values() for value in values):
        raise ProtocolViolationError(f"epoch {command.epoch} lacks reports; this is a bug, please report it")
    epoch.update(
        status="ALIGNED",
        decision=decision_json(command.decision),
        metrics=dict(command.metrics),
        seconds=command.seconds,
        aligned_at=now,
    )


def _void_epochs(run: MemoryRun, command: VoidEpochs, _token: int, _now: datetime) -> None:
    for (number, _), epoch in run.epochs.items():
        if number > command.after and epoch["status"] in ("OPEN", "ALIGNED"):
            epoch["status"] = "VOIDED"


def _make_epochs_durable(run: MemoryRun, command: MakeEpochsDurable, fencing_token: int, now: datetime) -> None:
    for (number, token), epoch in run.epochs.items():
        if number <= command.through and token == fencing_token and epoch["status"] == "ALIGNED":
            epoch.update(status="DURABLE", durable_at=now)
    run.run["last_durable_epoch"] = command.through


def _finish_operator(run: MemoryRun, command: FinishOperator, fencing_token: int, now: datetime) -> None:
    operator = _expect(run.operators.get(command.operator_id), finished_at=None)
    operator.update(
        finished_epoch=command.epoch, fencing_token=fencing_token, output=dict(command.output), finished_at=now
    )


def _trigger_checkpoint(run: MemoryRun, command: TriggerCheckpoint, fencing_token: int, now: datetime) -> None:
    run.run["last_checkpoint_id"] = command.checkpoint_id
    run.checkpoints[command.checkpoint_id] = {
        "checkpoint_id": command.checkpoint_id,
        "epoch": command.epoch,
        "fencing_token": fencing_token,
        "kind": command.kind.value,
        "status": "PENDING",
        "acknowledgements": {participant.name: participant.values for participant in command.participants},
        "manifest_path": None,
        "manifest_sha256": None,
        "size_bytes": None,
        "reason": None,
        "triggered_at": now,
        "ended_at": None,
    }


def _record_acknowledgements(
    run: MemoryRun, command: RecordAcknowledgements, fencing_token: int, _now: datetime
) -> None:
    checkpoint = _expect(run.checkpoints.get(command.checkpoint_id), status="PENDING", fencing_token=fencing_token)
    checkpoint["acknowledgements"] = {participant.name: participant.values for participant in command.participants}


def _complete_checkpoint(run: MemoryRun, command: CompleteCheckpoint, fencing_token: int, now: datetime) -> None:
    checkpoint = _expect(run.checkpoints.get(command.checkpoint_id), status="PENDING", fencing_token=fencing_token)
    if any(known["status"] == "COMPLETED" for known in run.checkpoints.values()):
        raise ProtocolViolationError("another checkpoint is completed; this is a bug, please report it")
    checkpoint.update(
        status="COMPLETED",
        manifest_path=command.manifest_path,
        manifest_sha256=command.manifest_sha256,
        size_bytes=command.size_bytes,
        ended_at=now,
    )


def _subsume_checkpoint(run: MemoryRun, command: SubsumeCheckpoint, _token: int, _now: datetime) -> None:
    _expect(run.checkpoints.get(command.checkpoint_id), status="COMPLETED")["status"] = "SUBSUMED"


def _abort_checkpoint(run: MemoryRun, command: AbortCheckpoint, _token: int, now: datetime) -> None:
    checkpoint = _expect(run.checkpoints.get(command.checkpoint_id), status="PENDING")
    checkpoint.update(status="ABORTED", reason=command.reason, ended_at=now)


_WRITERS: dict[type[Command], Callable[[MemoryRun, Any, int, datetime], None]] = {  # Any: the command of its key
    OpenAttempt: _open_attempt,
    EndAttempt: _end_attempt,
    SetRunStatus: _set_run_status,
    PublishOutputs: _publish_outputs,
    PinData: _pin_data,
    OpenEpoch: _open_epoch,
    RecordReports: _record_reports,
    AlignEpoch: _align_epoch,
    VoidEpochs: _void_epochs,
    MakeEpochsDurable: _make_epochs_durable,
    FinishOperator: _finish_operator,
    TriggerCheckpoint: _trigger_checkpoint,
    RecordAcknowledgements: _record_acknowledgements,
    CompleteCheckpoint: _complete_checkpoint,
    SubsumeCheckpoint: _subsume_checkpoint,
    AbortCheckpoint: _abort_checkpoint,
}
