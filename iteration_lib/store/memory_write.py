"""What does a command change in the rows of the store in memory? One small function per command."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
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
from iteration_lib.protocol.status import RunStatus, check_transition
from iteration_lib.store.row import decision_json, holder_json, to_json

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


def as_json(value: object) -> Any:  # noqa: ANN401 - JSON
    """Return a value as a JSON column gives it back."""
    return json.loads(to_json(value))


def _refuse_if(broken: bool, what: str) -> None:  # noqa: FBT001 - reads as a sentence
    """Refuse what a constraint of the database would."""
    if broken:
        raise ProtocolViolationError(f"{what}; this is a bug, please report it")


def _expect(row: MutableRow | None, **columns: object) -> MutableRow:
    if row is None or any(row[name] != value for name, value in columns.items()):
        raise ProtocolViolationError(f"no row where {columns}; this is a bug, please report it")
    return row


def _open_attempt(run: MemoryRun, command: OpenAttempt, _token: int, now: datetime) -> None:
    _expect(run.run, fencing_token=command.fencing_token - 1)
    _refuse_if(any(attempt["ended_at"] is None for attempt in run.attempts.values()), "another attempt is live")
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
    by, status = command.terminated_by, command.status
    _move_run(run, status)
    _refuse_if(status is RunStatus.RUNNING and by is not None, "a run that goes on was terminated")
    _refuse_if(status is RunStatus.TERMINATING and by is None, "a run terminates without a rule")
    _refuse_if((status is RunStatus.FAILED) != (command.failure is not None), "a failure and its reason go together")
    run.run.update(status=status.value, terminated_by=by.value if by is not None else None, failure=command.failure)


def _move_run(run: MemoryRun, status: RunStatus) -> None:
    before = RunStatus(run.run["status"])
    if before is not status:
        check_transition(before, status)


def _publish_outputs(run: MemoryRun, command: PublishOutputs, _token: int, now: datetime) -> None:
    _expect(run.run, status="TERMINATING")
    outputs = as_json(dict(command.outputs))
    run.run.update(status="FINISHED", outputs=outputs, state_digest=command.state_digest, finished_at=now)


def _pin_data(run: MemoryRun, command: PinData, _token: int, _now: datetime) -> None:
    _refuse_if(command.name in run.pins, f"{command.name!r} is pinned")
    pin = as_json(dict(command.pin))
    run.pins[command.name] = {"name": command.name, "fingerprint": command.fingerprint, "pin": pin}


def _open_epoch(run: MemoryRun, command: OpenEpoch, fencing_token: int, now: datetime) -> None:
    in_force = [epoch for epoch in run.epochs.values() if epoch["status"] != "VOIDED"]
    _refuse_if(command.epoch < 0 or command.epoch in [e["epoch"] for e in in_force], f"epoch {command.epoch} is there")
    _refuse_if("OPEN" in [epoch["status"] for epoch in in_force], "another epoch is open")
    _refuse_if(not command.heads or any(not head.values for head in command.heads), "a head has no subtasks")
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
    _refuse_if(_lacks_any(epoch["records"]), f"epoch {command.epoch} lacks reports")
    epoch.update(
        status="ALIGNED",
        decision=as_json(decision_json(command.decision)),
        metrics=as_json(dict(command.metrics)),
        seconds=command.seconds,
        aligned_at=now,
    )


def _void_epochs(run: MemoryRun, command: VoidEpochs, _token: int, _now: datetime) -> None:
    for (number, _), epoch in run.epochs.items():
        if number > command.after and epoch["status"] in ("OPEN", "ALIGNED"):
            epoch["status"] = "VOIDED"


def _make_epochs_durable(run: MemoryRun, command: MakeEpochsDurable, fencing_token: int, now: datetime) -> None:
    _refuse_if(command.through < run.run["last_durable_epoch"], "durable epochs are taken back")
    for (number, token), epoch in run.epochs.items():
        if number <= command.through and token == fencing_token and epoch["status"] == "ALIGNED":
            epoch.update(status="DURABLE", durable_at=now)
    run.run["last_durable_epoch"] = command.through


def _finish_operator(run: MemoryRun, command: FinishOperator, fencing_token: int, now: datetime) -> None:
    operator = _expect(run.operators.get(command.operator_id), finished_at=None)
    output = as_json(dict(command.output))
    operator.update(finished_epoch=command.epoch, fencing_token=fencing_token, output=output, finished_at=now)


def _trigger_checkpoint(run: MemoryRun, command: TriggerCheckpoint, fencing_token: int, now: datetime) -> None:
    key = (command.epoch, fencing_token)
    known = [(c["epoch"], c["fencing_token"]) for c in run.checkpoints.values() if c["status"] != "ABORTED"]
    _refuse_if(command.checkpoint_id <= run.run["last_checkpoint_id"], "checkpoint ids are taken back")
    _refuse_if(key not in run.epochs, f"there is no epoch {command.epoch}")
    _refuse_if(key in known, f"epoch {command.epoch} has a checkpoint")
    participants = command.participants
    _refuse_if(not participants or any(not p.values for p in participants), "a participant has no subtasks")
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
    _refuse_if("COMPLETED" in [known["status"] for known in run.checkpoints.values()], "another one is completed")
    _refuse_if(_lacks_any(checkpoint["acknowledgements"]), "an acknowledgement is missing")
    _refuse_if(_SHA256.fullmatch(command.manifest_sha256) is None, "a manifest has no digest")
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


def _lacks_any(reports: Mapping[str, Sequence[int | None]]) -> bool:
    return any(value is None for values in reports.values() for value in values)


_SHA256 = re.compile("[0-9a-f]{64}")
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
