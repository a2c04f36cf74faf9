"""Which statements write a command? A table: one small function per command, every row count checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from iteration_lib.store.row import decision_json, holder_json, to_json

# Runs a named query for the run and the token in force, and returns how many rows it touched.
Execute: TypeAlias = Callable[[str, Mapping[str, object]], int]


# The statements that update the run's own row, and count it in its revision.
RUN_UPDATES = frozenset(
    {"issue_token", "set_run_status", "publish_outputs", "advance_run", "issue_checkpoint_id", "touch_run"}
)


def write_command(command: Command, execute: Execute) -> None:
    """Write one command; raises ProtocolViolationError when a row was not where the protocol left it."""
    _WRITERS[type(command)](command, execute)


def touch_run(execute: Execute) -> None:
    """Count a change of a run that no command wrote into its own row."""
    _one(execute, "touch_run", {})


def _one(execute: Execute, name: str, parameters: Mapping[str, object]) -> None:
    count = execute(name, parameters)
    if count != 1:
        raise ProtocolViolationError(f"{name} touched {count} rows, not 1; this is a bug, please report it")


def _open_attempt(command: OpenAttempt, execute: Execute) -> None:
    _one(execute, "issue_token", {"fencing_token": command.fencing_token})
    _one(
        execute,
        "insert_attempt",
        {
            "fencing_token": command.fencing_token,
            "attempt_id": command.attempt_id,
            "holder": to_json(holder_json(command.holder)),
            "lease_expires_at": command.lease_expires_at,
        },
    )


def _end_attempt(command: EndAttempt, execute: Execute) -> None:
    _one(
        execute,
        "end_attempt",
        {"fencing_token": command.fencing_token, "outcome": command.outcome.value, "reason": command.reason},
    )


def _set_run_status(command: SetRunStatus, execute: Execute) -> None:
    by = command.terminated_by
    _one(
        execute,
        "set_run_status",
        {
            "status": command.status.value,
            "terminated_by": by.value if by is not None else None,
            "failure": command.failure,
        },
    )


def _publish_outputs(command: PublishOutputs, execute: Execute) -> None:
    _one(
        execute,
        "publish_outputs",
        {"outputs": to_json(dict(command.outputs)), "state_digest": command.state_digest},
    )


def _pin_data(command: PinData, execute: Execute) -> None:
    _one(
        execute,
        "insert_pin",
        {"name": command.name, "fingerprint": command.fingerprint, "pin": to_json(dict(command.pin))},
    )


def _open_epoch(command: OpenEpoch, execute: Execute) -> None:
    expected = sum(head.expected for head in command.heads)
    _one(execute, "insert_epoch", {"epoch": command.epoch, "expected_reports": expected})
    for head in command.heads:
        _one(execute, "record_reports", {"epoch": command.epoch, "head": head.name, "records": list(head.values)})


def _record_reports(command: RecordReports, execute: Execute) -> None:
    for head in command.heads:
        _one(execute, "record_reports", {"epoch": command.epoch, "head": head.name, "records": list(head.values)})
    reported = sum(head.reported for head in command.heads)
    if reported < sum(head.expected for head in command.heads):  # else AlignEpoch follows, which counts them
        _one(execute, "count_reports", {"epoch": command.epoch, "reports": reported})


def _align_epoch(command: AlignEpoch, execute: Execute) -> None:
    _one(
        execute,
        "align_epoch",
        {
            "epoch": command.epoch,
            "decision": to_json(decision_json(command.decision)),
            "metrics": to_json(dict(command.metrics)),
            "seconds": command.seconds,
        },
    )


def _void_epochs(command: VoidEpochs, execute: Execute) -> None:
    execute("void_epochs", {"after": command.after})


def _make_epochs_durable(command: MakeEpochsDurable, execute: Execute) -> None:
    if execute("make_epochs_durable", {"through": command.through}) < 1:
        raise ProtocolViolationError("make_epochs_durable touched no row; this is a bug, please report it")
    _one(execute, "advance_run", {"through": command.through})


def _finish_operator(command: FinishOperator, execute: Execute) -> None:
    _one(
        execute,
        "finish_operator",
        {"operator_id": command.operator_id, "epoch": command.epoch, "output": to_json(dict(command.output))},
    )


def _trigger_checkpoint(command: TriggerCheckpoint, execute: Execute) -> None:
    _one(execute, "issue_checkpoint_id", {"checkpoint_id": command.checkpoint_id})
    _one(
        execute,
        "insert_checkpoint",
        {
            "checkpoint_id": command.checkpoint_id,
            "epoch": command.epoch,
            "kind": command.kind.value,
            "expected": sum(participant.expected for participant in command.participants),
        },
    )
    _write_acknowledgements(command, execute)


def _record_acknowledgements(command: RecordAcknowledgements, execute: Execute) -> None:
    _write_acknowledgements(command, execute)
    _one(
        execute,
        "count_acknowledgements",
        {
            "checkpoint_id": command.checkpoint_id,
            "acknowledged": sum(participant.reported for participant in command.participants),
        },
    )


def _write_acknowledgements(command: TriggerCheckpoint | RecordAcknowledgements, execute: Execute) -> None:
    for participant in command.participants:
        _one(
            execute,
            "record_acknowledgements",
            {
                "checkpoint_id": command.checkpoint_id,
                "participant": participant.name,
                "subtasks": list(participant.values),
            },
        )


def _complete_checkpoint(command: CompleteCheckpoint, execute: Execute) -> None:
    _one(
        execute,
        "complete_checkpoint",
        {
            "checkpoint_id": command.checkpoint_id,
            "manifest_path": command.manifest_path,
            "manifest_sha256": command.manifest_sha256,
            "size_bytes": command.size_bytes,
        },
    )


def _subsume_checkpoint(command: SubsumeCheckpoint, execute: Execute) -> None:
    _one(execute, "subsume_checkpoint", {"checkpoint_id": command.checkpoint_id})


def _abort_checkpoint(command: AbortCheckpoint, execute: Execute) -> None:
    _one(execute, "abort_checkpoint", {"checkpoint_id": command.checkpoint_id, "reason": command.reason})


_WRITERS: dict[type[Command], Callable[[Any, Execute], None]] = {  # Any: the command of its own key
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
