"""Which statements write a command? A table: one small function per command, every row count checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeAlias

from iteration_lib.protocol.command import (
    AbortCheckpoint,
    AbortThrough,
    AlignEpoch,
    AnswerRequests,
    Command,
    CompleteCheckpoint,
    DeleteRun,
    DiscardCheckpoints,
    EndAttempt,
    FallBack,
    FinishOperator,
    MakeEpochsDurable,
    MarkCommitted,
    OpenAttempt,
    OpenEpoch,
    PinCheckpoint,
    PinData,
    PublishOutputs,
    RecordAcknowledgements,
    RecordCommittables,
    RecordNotice,
    RecordParts,
    RecordReports,
    RecordRequest,
    RecordStop,
    ReleaseCheckpoint,
    ReleaseOrigin,
    ReplaceDefinition,
    ResumeRun,
    SetRunStatus,
    StopRun,
    SubsumeCheckpoint,
    SwitchToUnaligned,
    TriggerCheckpoint,
    VoidEdges,
    VoidEpochs,
    VoidParts,
)
from iteration_lib.protocol.state import Reports
from iteration_lib.protocol.status import CheckpointFailure, CheckpointStatus
from iteration_lib.store.row import decision_json, failed_columns, holder_json, operator_columns, policy_json, to_json
from iteration_lib.store.statement import ONE_ROW

# Runs a named query for the run and the token in force; the server refuses any other number of rows than are said.
Execute: TypeAlias = Callable[[str, Mapping[str, object], str], None]


# The statements that update a run's row, and count it in its revision.
RUN_UPDATES = frozenset(
    {
        "issue_token",
        "set_run_status",
        "replace_definition",
        "publish_outputs",
        "make_epochs_durable",
        "trigger_checkpoint",
        "trigger_aborted_checkpoint",
        "abort_through",
        "touch_run",
        "delete_run",
        "stop_run",
        "resume_run",
        "fall_back_run",
        "touch_origin",
    }
)


def write_commands(commands: Sequence[Command], execute: Execute) -> None:
    """Write commands in order; of some that follow one another right away there is one write."""
    position = 0
    while position < len(commands):
        count, write = _writer(commands, position)
        write(*commands[position : position + count], execute)
        position += count


def _writer(commands: Sequence[Command], position: int) -> tuple[int, Callable[..., None]]:
    """Return how many commands there are written together, and what writes them."""
    first = type(commands[position])
    if first in _WRITERS_TOGETHER:
        types, key, write = _WRITERS_TOGETHER[first]
        together = commands[position : position + len(types)]
        if types == tuple(type(command) for command in together) and key(together[-2]) == key(together[-1]):
            return len(types), write
    return 1, _WRITERS[first]


def touch_run(execute: Execute) -> None:
    """Count a change of a run that no command wrote into its own row."""
    _one(execute, "touch_run", {})


def _one(execute: Execute, name: str, parameters: Mapping[str, object]) -> None:
    execute(name, parameters, ONE_ROW)


def _exactly(expected: int, execute: Execute, name: str, parameters: Mapping[str, object]) -> None:
    execute(name, parameters, f"[{expected},{expected}]")


def _some(execute: Execute, name: str, parameters: Mapping[str, object]) -> None:
    execute(name, parameters, "[1,)")


def _any(execute: Execute, name: str, parameters: Mapping[str, object]) -> None:
    execute(name, parameters, "[0,)")


def _open_attempt(command: OpenAttempt, execute: Execute) -> None:
    _one(execute, "issue_token", {"fencing_token": command.fencing_token, "attempt_id": command.attempt_id})
    _one(
        execute,
        "insert_attempt",
        {
            "fencing_token": command.fencing_token,
            "holder": to_json(holder_json(command.holder)),
            "policy": to_json(policy_json(command.policy)),
            "lease_expires_at": command.lease_expires_at,
            "ignores_edges": command.ignores_edges,
        },
    )


def _end_attempt(command: EndAttempt, execute: Execute) -> None:
    _one(
        execute,
        "end_attempt",
        {
            "fencing_token": command.fencing_token,
            "outcome": command.outcome.value,
            "reason": command.reason,
            **failed_columns(command.failed),
        },
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


def _replace_definition(command: ReplaceDefinition, execute: Execute) -> None:
    operators = operator_columns(command.definition)
    ids, dropped = operators["operator_ids"], list(command.dropped)
    _one(execute, "record_definition_changes", {"changes": list(command.changes)})
    _any(execute, "void_dropped_parts", {"dropped": dropped})
    _any(execute, "delete_operators", {"dropped": dropped, "operator_ids": ids})
    _exactly(len(ids), execute, "replace_operators", operators)
    _one(execute, "replace_definition", {"definition": to_json(command.definition), "operator_ids": ids})


def _fall_back(command: FallBack, execute: Execute) -> None:
    older = {"checkpoint_id": command.to_checkpoint_id, "epoch": command.epoch}
    newest = {"from_checkpoint_id": command.from_checkpoint_id, "reason": command.reason}
    _one(execute, "record_fallback", {**older, **newest})
    _some(execute, "discard_newer_checkpoints", {"checkpoint_id": command.to_checkpoint_id})
    _one(execute, "complete_again", {"checkpoint_id": command.to_checkpoint_id})
    _some(execute, "void_durable_epochs", {"after": command.epoch})
    _any(execute, "void_edges", {"after": command.epoch, "keeping": []})
    _one(execute, "fall_back_run", {"epoch": command.epoch})


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
    _one(execute, "insert_epoch", {"epoch": command.epoch, "records": _reports_json(command.heads)})


def _record_reports(command: RecordReports, execute: Execute) -> None:
    name = "record_reports" if command.metrics is None else "measure_epoch"
    _one(execute, name, _reported(command))


def _align_epoch(command: AlignEpoch, execute: Execute) -> None:
    _one(execute, "align_epoch", {"epoch": command.epoch, "decision": to_json(decision_json(command.decision))})


def _report_and_align_epoch(reported: RecordReports, command: AlignEpoch, execute: Execute) -> None:
    decision = to_json(decision_json(command.decision))
    _one(execute, "measure_and_align_epoch", {**_reported(reported), "decision": decision})


def _reported(command: RecordReports) -> dict[str, object]:
    reported: dict[str, object] = {"epoch": command.epoch, "records": _reports_json(command.heads)}
    if command.metrics is None:
        return reported
    return {**reported, "metrics": to_json(dict(command.metrics)), "seconds": command.seconds}


def _reports_json(reports: Sequence[Reports]) -> str:
    return to_json({known.name: known.values for known in reports})


def _switch_to_unaligned(command: SwitchToUnaligned, execute: Execute) -> None:
    _one(execute, "switch_to_unaligned", {"epoch": command.epoch, "by": command.by.value})


def _record_parts(command: RecordParts, execute: Execute) -> None:
    parts = command.parts
    _exactly(
        len(parts),
        execute,
        "insert_parts",
        {
            "epoch": command.epoch,
            "operator_ids": [part.operator_id for part in parts],
            "first_buckets": [part.first_bucket for part in parts],
            "end_buckets": [part.end_bucket for part in parts],
            "totals": [part.total for part in parts],
            "outputs": [to_json(dict(part.output)) for part in parts],
            "metrics": [to_json(dict(part.metrics)) for part in parts],
        },
    )


def _void_edges(command: VoidEdges, execute: Execute) -> None:
    _some(execute, "void_edges", {"after": command.after, "keeping": list(command.keeping)})


def _void_parts(command: VoidParts, execute: Execute) -> None:
    _some(execute, "void_dropped_parts", {"dropped": list(command.operators)})


def _void_epochs(command: VoidEpochs, execute: Execute) -> None:
    _some(execute, "void_epochs", {"after": command.after})


def _make_epochs_durable(command: MakeEpochsDurable, execute: Execute) -> None:
    _one(execute, "make_epochs_durable", {"through": command.through})


def _finish_operator(command: FinishOperator, execute: Execute) -> None:
    _one(
        execute,
        "finish_operator",
        {"operator_id": command.operator_id, "epoch": command.epoch, "output": to_json(dict(command.output))},
    )


def _trigger_checkpoint(command: TriggerCheckpoint, execute: Execute) -> None:
    _one(execute, "trigger_checkpoint", _triggered(command))


def _trigger_aborted_checkpoint(triggered: TriggerCheckpoint, command: AbortCheckpoint, execute: Execute) -> None:
    why = {"failure": command.failure.value, "reason": command.reason}
    _one(execute, "trigger_aborted_checkpoint", {**_triggered(triggered), **why})


def _triggered(command: TriggerCheckpoint) -> dict[str, object]:
    return {
        "checkpoint_id": command.checkpoint_id,
        "epoch": command.epoch,
        "kind": command.kind.value,
        "acknowledgements": _reports_json(command.participants),
    }


def _record_request(command: RecordRequest, execute: Execute) -> None:
    _one(execute, "record_request", {"request_id": command.request_id, "requested_by": command.requested_by})


def _answer_requests(command: AnswerRequests, execute: Execute) -> None:
    _some(execute, "answer_requests", {"checkpoint_id": command.checkpoint_id})


def _record_stop(command: RecordStop, execute: Execute) -> None:
    _one(
        execute,
        "record_stop",
        {"stop_id": command.stop_id, "kind": command.kind.value, "requested_by": command.requested_by},
    )


def _stop_run(command: StopRun, execute: Execute) -> None:
    _one(execute, "stop_run", {})
    _one(execute, "answer_stop", {"stop_id": command.stop_id})


def _resume_run(command: ResumeRun, execute: Execute) -> None:
    _one(execute, "resume_stop", {"stop_id": command.stop_id, "resumed_by": command.resumed_by})
    _one(execute, "resume_run", {})


def _abort_through(command: AbortThrough, execute: Execute) -> None:
    _one(execute, "abort_through", {"checkpoint_id": command.checkpoint_id})


def _record_acknowledgements(command: RecordAcknowledgements, execute: Execute) -> None:
    _one(execute, "record_acknowledgements", _acknowledged(command))


def _complete_checkpoint(command: CompleteCheckpoint, execute: Execute) -> None:
    _one(execute, "complete_checkpoint", _completed(command))


def _acknowledge_and_complete(
    acknowledged: RecordAcknowledgements, command: CompleteCheckpoint, execute: Execute
) -> None:
    _one(execute, "acknowledge_and_complete_checkpoint", {**_acknowledged(acknowledged), **_completed(command)})


def _subsume_and_complete(
    subsumed: SubsumeCheckpoint, acknowledged: RecordAcknowledgements, command: CompleteCheckpoint, execute: Execute
) -> None:
    parameters = {**_acknowledged(acknowledged), **_completed(command), "subsumed_id": subsumed.checkpoint_id}
    _one(execute, "subsume_and_complete_checkpoint", parameters)


def _acknowledged(command: RecordAcknowledgements) -> dict[str, object]:
    return {"checkpoint_id": command.checkpoint_id, "acknowledgements": _reports_json(command.participants)}


def _completed(command: CompleteCheckpoint) -> dict[str, object]:
    status = CheckpointStatus.SUBSUMED if command.is_subsumed else CheckpointStatus.COMPLETED
    return {
        "checkpoint_id": command.checkpoint_id,
        "status": status.value,
        "manifest_path": command.manifest_path,
        "manifest_sha256": command.manifest_sha256,
        "size_bytes": command.size_bytes,
        "completed_at": command.completed_at,
    }


def _subsume_checkpoint(command: SubsumeCheckpoint, execute: Execute) -> None:
    _one(execute, "subsume_checkpoint", {"checkpoint_id": command.checkpoint_id})


def _abort_checkpoint(command: AbortCheckpoint, execute: Execute) -> None:
    _one(
        execute,
        "abort_checkpoint",
        {"checkpoint_id": command.checkpoint_id, "failure": command.failure.value, "reason": command.reason},
    )


def _record_committables(command: RecordCommittables, execute: Execute) -> None:
    known = command.committables
    _exactly(
        len(known),
        execute,
        "store_committables",
        {
            "epochs": [committable.epoch for committable in known],
            "outputs": [committable.output for committable in known],
            "targets": [committable.target for committable in known],
            "contents": [to_json(dict(committable.content)) for committable in known],
            "in_store": [committable.in_store for committable in known],
        },
    )


def _mark_committed(command: MarkCommitted, execute: Execute) -> None:
    committed = command.committed
    parameters = {"epochs": [epoch for epoch, _ in committed], "outputs": [output for _, output in committed]}
    _exactly(len(committed), execute, "mark_committed", parameters)


def _record_notice(command: RecordNotice, execute: Execute) -> None:
    effect = to_json(dict(command.effect)) if command.effect is not None else None
    notice = {"listener_id": command.listener_id, "epoch": command.epoch, "effect": effect}
    _one(execute, "record_notice", {**notice, "is_final": command.is_final})


def _discard_checkpoints(command: DiscardCheckpoints, execute: Execute) -> None:
    _any(execute, "discard_checkpoints", {"checkpoint_ids": list(command.checkpoint_ids)})


def _pin_checkpoint(command: PinCheckpoint, execute: Execute) -> None:
    _one(execute, "pin_checkpoint", {"checkpoint_id": command.checkpoint_id, "pinned_by": command.pinned_by})


def _release_checkpoint(command: ReleaseCheckpoint, execute: Execute) -> None:
    _one(execute, "release_checkpoint", {"checkpoint_id": command.checkpoint_id})


def _release_origin(_command: ReleaseOrigin, execute: Execute) -> None:
    _one(execute, "release_origin", {})


def _delete_run(command: DeleteRun, execute: Execute) -> None:
    _one(execute, "delete_run", {"deleted_by": command.deleted_by})


_WRITERS: dict[type[Command], Callable[[Any, Execute], None]] = {  # Any: the command of its own key
    OpenAttempt: _open_attempt,
    EndAttempt: _end_attempt,
    SetRunStatus: _set_run_status,
    FallBack: _fall_back,
    ReplaceDefinition: _replace_definition,
    PublishOutputs: _publish_outputs,
    PinData: _pin_data,
    OpenEpoch: _open_epoch,
    RecordReports: _record_reports,
    AlignEpoch: _align_epoch,
    SwitchToUnaligned: _switch_to_unaligned,
    RecordParts: _record_parts,
    VoidEdges: _void_edges,
    VoidParts: _void_parts,
    VoidEpochs: _void_epochs,
    MakeEpochsDurable: _make_epochs_durable,
    FinishOperator: _finish_operator,
    TriggerCheckpoint: _trigger_checkpoint,
    RecordRequest: _record_request,
    AnswerRequests: _answer_requests,
    RecordStop: _record_stop,
    StopRun: _stop_run,
    ResumeRun: _resume_run,
    AbortThrough: _abort_through,
    RecordAcknowledgements: _record_acknowledgements,
    CompleteCheckpoint: _complete_checkpoint,
    SubsumeCheckpoint: _subsume_checkpoint,
    AbortCheckpoint: _abort_checkpoint,
    DiscardCheckpoints: _discard_checkpoints,
    PinCheckpoint: _pin_checkpoint,
    ReleaseCheckpoint: _release_checkpoint,
    ReleaseOrigin: _release_origin,
    DeleteRun: _delete_run,
    RecordCommittables: _record_committables,
    MarkCommitted: _mark_committed,
    RecordNotice: _record_notice,
}


def _unbegun(command: TriggerCheckpoint | AbortCheckpoint) -> object:
    """Which checkpoint never begins: one that a person aborts; one that fails has begun."""
    failure = command.failure if isinstance(command, AbortCheckpoint) else CheckpointFailure.ABORTED_BY_USER
    return command.checkpoint_id, failure


# By the first of them: commands that have one write where they follow one another right away, if the last two are about
# the same epoch or checkpoint.
_EPOCH, _CHECKPOINT = attrgetter("epoch"), attrgetter("checkpoint_id")
_COMPLETION = (RecordAcknowledgements, CompleteCheckpoint)
_WRITERS_TOGETHER: dict[
    type[Command], tuple[tuple[type[Command], ...], Callable[[Any], object], Callable[..., None]]
] = {
    RecordReports: ((RecordReports, AlignEpoch), _EPOCH, _report_and_align_epoch),
    TriggerCheckpoint: ((TriggerCheckpoint, AbortCheckpoint), _unbegun, _trigger_aborted_checkpoint),
    RecordAcknowledgements: (_COMPLETION, _CHECKPOINT, _acknowledge_and_complete),
    SubsumeCheckpoint: ((SubsumeCheckpoint, *_COMPLETION), _CHECKPOINT, _subsume_and_complete),
}
