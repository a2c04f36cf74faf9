"""What does a command change in the rows of the store in memory? One small function per command."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from iteration_lib.errors import ProtocolViolationError
from iteration_lib.protocol.command import (
    AbortCheckpoint,
    AbortThrough,
    AlignEpoch,
    AnswerRequests,
    Command,
    CompleteCheckpoint,
    CountCheckpointFailures,
    DeleteRun,
    DiscardCheckpoints,
    EndAttempt,
    FallBack,
    FinishOperator,
    MakeEpochsDurable,
    MarkCommitted,
    OpenAttempt,
    OpenEpoch,
    PinData,
    PublishOutputs,
    RecordAcknowledgements,
    RecordCommittables,
    RecordNotice,
    RecordParts,
    RecordReports,
    RecordRequest,
    RecordStop,
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
from iteration_lib.protocol.event import FinishedPart
from iteration_lib.protocol.state import NO_EPOCH
from iteration_lib.protocol.status import AttemptOutcome, CheckpointStatus, RunStatus, TerminatedBy, check_transition
from iteration_lib.store.memory_rows import MemoryRun, MutableRow, as_json, expect, refuse_if
from iteration_lib.store.row import decision_json, failed_columns, holder_json, policy_json


def write_command(run: MemoryRun, command: Command, fencing_token: int, now: datetime) -> None:
    """Write one command; raises ProtocolViolationError when a row was not where the protocol left it."""
    if not isinstance(command, OpenAttempt | EndAttempt) and run.run["fencing_token"] != fencing_token:
        raise ProtocolViolationError(f"token {fencing_token} is not in force; this is a bug, please report it")
    _WRITERS[type(command)](run, command, fencing_token, now)


def _open_attempt(run: MemoryRun, command: OpenAttempt, _token: int, now: datetime) -> None:
    expect(run.run, fencing_token=command.fencing_token - 1)
    refuse_if(any(attempt["ended_at"] is None for attempt in run.attempts.values()), "another attempt is live")
    run.run.update(fencing_token=command.fencing_token, attempt_id=command.attempt_id)
    run.attempts[command.fencing_token] = {
        "fencing_token": command.fencing_token,
        "attempt_id": command.attempt_id,
        "holder": holder_json(command.holder),
        "policy": as_json(policy_json(command.policy)),
        "checkpoint_failures": 0,
        "definition_changes": None,
        "started_at": now,
        "lease_expires_at": command.lease_expires_at,
        "ended_at": None,
        "outcome": None,
        "reason": None,
        **failed_columns(None),
    }


def _end_attempt(run: MemoryRun, command: EndAttempt, _token: int, now: datetime) -> None:
    attempt = expect(run.attempts.get(command.fencing_token), ended_at=None)
    failed = command.failed
    refuse_if(failed is not None and command.outcome is not AttemptOutcome.FAILED, "an operator failed, and no attempt")
    attempt.update(ended_at=now, outcome=command.outcome.value, reason=command.reason, **failed_columns(failed))


def _set_run_status(run: MemoryRun, command: SetRunStatus, _token: int, _now: datetime) -> None:
    by, status = command.terminated_by, command.status
    if status is RunStatus.TERMINATING and run.run["status"] != status.value:
        last = [
            e for e in run.epochs.values() if (e["status"], e["epoch"]) == ("DURABLE", run.run["last_durable_epoch"])
        ]
        decided = [epoch["decision"]["terminated_by"] for epoch in last]
        refuse_if(decided != [by.value if by is not None else None], "no durable epoch decided that the run terminates")
    _move_run(run, status)
    refuse_if(status is RunStatus.RUNNING and by is not None, "a run that goes on was terminated")
    refuse_if(status is RunStatus.TERMINATING and by is None, "a run terminates without a rule")
    is_drained = any(stop["kind"] == "DRAIN" for stop in run.stops.values())
    refuse_if(by is TerminatedBy.DRAINED and not is_drained, "nobody asked the run to drain")
    refuse_if((status is RunStatus.FAILED) != (command.failure is not None), "a failure and its reason go together")
    run.run.update(status=status.value, terminated_by=by.value if by is not None else None, failure=command.failure)


def _move_run(run: MemoryRun, status: RunStatus) -> None:
    before = RunStatus(run.run["status"])
    if before is not status:
        check_transition(before, status)


def _fall_back(run: MemoryRun, command: FallBack, fencing_token: int, now: datetime) -> None:
    expect(run.attempts.get(fencing_token), ended_at=None)
    expect(run.run, status="RUNNING")
    newest = expect(run.checkpoints.get(command.from_checkpoint_id), status="COMPLETED")
    older = expect(run.checkpoints.get(command.to_checkpoint_id), status="SUBSUMED", epoch=command.epoch)
    refuse_if(newest["checkpoint_id"] <= older["checkpoint_id"], "this is no older checkpoint")
    refuse_if(any(epoch > command.epoch for _, epoch in run.notices), "a listener has heard of what would be void")
    refuse_if(any(epoch > command.epoch for epoch, _ in run.committables), "a sink publishes what would be void")
    refuse_if(fencing_token in run.fallbacks, "the attempt fell back before")
    refuse_if(any(epoch["status"] in ("OPEN", "ALIGNED") for epoch in run.epochs.values()), "an epoch is open")
    for checkpoint_id, row in run.checkpoints.items():
        if checkpoint_id > command.to_checkpoint_id and row["status"] in ("COMPLETED", "SUBSUMED"):
            row["status"] = "DISCARDED"
    older["status"] = "COMPLETED"
    for (number, _), epoch in run.epochs.items():
        if number > command.epoch and epoch["status"] != "VOIDED":
            epoch.update(status="VOIDED", durable_at=None)
    run.void_parts(lambda part: part["epoch"] > command.epoch, now)
    run.run["last_durable_epoch"] = command.epoch
    run.fallbacks[fencing_token] = {
        "fencing_token": fencing_token,
        "from_checkpoint_id": command.from_checkpoint_id,
        "to_checkpoint_id": command.to_checkpoint_id,
        "epoch": command.epoch,
        "reason": command.reason,
        "fell_back_at": now,
    }


def _replace_definition(run: MemoryRun, command: ReplaceDefinition, fencing_token: int, now: datetime) -> None:
    attempt = expect(run.attempts.get(fencing_token), ended_at=None)
    is_begun = any(key[1] == fencing_token and epoch["status"] != "VOIDED" for key, epoch in run.epochs.items())
    refuse_if(is_begun, "the operators of a run cannot change now")
    definition = as_json(dict(command.definition))
    left = {key: row for key, row in run.operators.items() if key not in command.dropped}
    lost = [key for key, row in left.items() if row["finished_at"] is not None and key not in definition["operators"]]
    refuse_if(bool(lost), f"{lost} have finished, and nobody dropped them")
    run.operators = {
        key: {**row, **{column: left[key][column] for column in _FINISHED if key in left}}
        for key, row in operator_rows(definition).items()
    }
    run.void_parts(lambda part: part["epoch"] == NO_EPOCH and part["operator_id"] in command.dropped, now)
    run.run["definition"] = definition
    attempt["definition_changes"] = list(command.changes)


def _publish_outputs(run: MemoryRun, command: PublishOutputs, _token: int, now: datetime) -> None:
    expect(run.run, status="TERMINATING")
    statuses = [row["status"] for rows in (run.epochs, run.checkpoints) for row in rows.values()]
    refuse_if(not {"OPEN", "ALIGNED", "PENDING"}.isdisjoint(statuses), "something is not durable")
    refuse_if(None in [row["committed_at"] for row in run.committables.values()], "something is not committed")
    outputs = as_json(dict(command.outputs))
    run.run.update(status="FINISHED", outputs=outputs, state_digest=command.state_digest, finished_at=now)


def _pin_data(run: MemoryRun, command: PinData, _token: int, _now: datetime) -> None:
    refuse_if(command.name in run.pins, f"{command.name!r} is pinned")
    pin = as_json(dict(command.pin))
    run.pins[command.name] = {"name": command.name, "fingerprint": command.fingerprint, "pin": pin}


def _open_epoch(run: MemoryRun, command: OpenEpoch, fencing_token: int, now: datetime) -> None:
    in_force = [epoch for epoch in run.epochs.values() if epoch["status"] != "VOIDED"]
    refuse_if(command.epoch < 0 or command.epoch in [e["epoch"] for e in in_force], f"epoch {command.epoch} is there")
    refuse_if("OPEN" in [epoch["status"] for epoch in in_force], "another epoch is open")
    before = [e for e in in_force if e["epoch"] == command.epoch - 1 and e["decision"]["terminated_by"] is None]
    is_first = command.epoch == (run.branch["epoch"] + 1 if run.branch is not None else 0)
    refuse_if(not is_first and not before, f"epoch {command.epoch} does not follow another one")
    refuse_if(not command.heads or any(not head.values for head in command.heads), "a head has no subtasks")
    is_to_stop = any(stop["kind"] == "STOP" and stop["resumed_at"] is None for stop in run.stops.values())
    refuse_if(is_to_stop and (command.epoch - 1, fencing_token) in run.epochs, "a person asks the run to stop")
    run.epochs[command.epoch, fencing_token] = {
        "epoch": command.epoch,
        "fencing_token": fencing_token,
        "status": "OPEN",
        "records": {head.name: head.values for head in command.heads},
        "unaligned_by": None,
        "unaligned_at": None,
        "decision": None,
        "metrics": {},
        "seconds": None,
        "opened_at": now,
        "held_at": None,
        "aligned_at": None,
        "durable_at": None,
    }


def _record_reports(run: MemoryRun, command: RecordReports, fencing_token: int, now: datetime) -> None:
    epoch = expect(run.epochs.get((command.epoch, fencing_token)), status="OPEN", held_at=None)
    records = {head.name: head.values for head in command.heads}
    refuse_if(_subtasks(records) != _subtasks(epoch["records"]), "the reports are of other subtasks")
    refuse_if(_lacks_any(records) != (command.metrics is None), f"epoch {command.epoch} lacks reports, or its metrics")
    epoch["records"] = records
    if command.metrics is not None:
        epoch.update(metrics=as_json(dict(command.metrics)), seconds=command.seconds, held_at=now)


def _align_epoch(run: MemoryRun, command: AlignEpoch, fencing_token: int, now: datetime) -> None:
    epoch = expect(run.epochs.get((command.epoch, fencing_token)), status="OPEN")
    refuse_if(epoch["held_at"] is None, f"epoch {command.epoch} lacks reports")
    epoch.update(status="ALIGNED", decision=as_json(decision_json(command.decision)), aligned_at=now)


def _switch_to_unaligned(run: MemoryRun, command: SwitchToUnaligned, fencing_token: int, now: datetime) -> None:
    epoch = expect(run.epochs.get((command.epoch, fencing_token)), status="OPEN", unaligned_by=None)
    epoch.update(unaligned_by=command.by.value, unaligned_at=now)


def _record_parts(run: MemoryRun, command: RecordParts, fencing_token: int, now: datetime) -> None:
    if command.epoch != NO_EPOCH:
        epoch = expect(run.epochs.get((command.epoch, fencing_token)), status="OPEN")
        refuse_if(epoch["unaligned_by"] is None, f"epoch {command.epoch} has no durable edges")
    for part in command.parts:
        _refuse_part(run, command.epoch, part)
        run.parts.append(
            {
                "epoch": command.epoch,
                "operator_id": part.operator_id,
                "first_bucket": part.first_bucket,
                "end_bucket": part.end_bucket,
                "total": part.total,
                "fencing_token": fencing_token,
                "output": as_json(dict(part.output)),
                "metrics": as_json(dict(part.metrics)),
                "finished_at": now,
                "voided_at": None,
            }
        )


def _refuse_part(run: MemoryRun, epoch: int, part: FinishedPart) -> None:
    """Refuse what the constraints of `edge_parts` would."""
    refuse_if(not 0 <= part.first_bucket < part.end_bucket <= part.total, "a part has no such buckets")
    for known in run.live_parts(epoch, part.operator_id):
        refuse_if(known["total"] != part.total, "a part of another total")
        overlaps = known["first_bucket"] < part.end_bucket and part.first_bucket < known["end_bucket"]
        refuse_if(overlaps, "buckets are finished twice")
    finished = run.operators.get(part.operator_id, {}).get("finished_at")
    refuse_if(epoch == NO_EPOCH and finished is not None, f"{part.operator_id!r} has finished")


def _void_edges(run: MemoryRun, command: VoidEdges, _token: int, now: datetime) -> None:
    parts = run.parts
    run.void_parts(lambda part: part["epoch"] > command.after, now)
    refuse_if(parts == run.parts, f"no edge is live after epoch {command.after}")


def _void_parts(run: MemoryRun, command: VoidParts, _token: int, now: datetime) -> None:
    parts = run.parts
    run.void_parts(lambda part: part["epoch"] == NO_EPOCH and part["operator_id"] in command.operators, now)
    refuse_if(parts == run.parts, f"no part of {command.operators} is live")


def _void_epochs(run: MemoryRun, command: VoidEpochs, _token: int, _now: datetime) -> None:
    voided = [
        epoch
        for (number, _), epoch in run.epochs.items()
        if number > command.after and epoch["status"] in ("OPEN", "ALIGNED")
    ]
    refuse_if(not voided, f"no epoch is open after {command.after}")
    for epoch in voided:
        epoch["status"] = "VOIDED"


def _make_epochs_durable(run: MemoryRun, command: MakeEpochsDurable, fencing_token: int, now: datetime) -> None:
    refuse_if(command.through < run.run["last_durable_epoch"], "durable epochs are taken back")
    covered = [
        epoch
        for (number, token), epoch in run.epochs.items()
        if number <= command.through and token == fencing_token and epoch["status"] == "ALIGNED"
    ]
    refuse_if(not covered, f"no epoch is aligned up to {command.through}")
    for epoch in covered:
        epoch.update(status="DURABLE", durable_at=now)
    left = [
        n for (n, _), epoch in run.epochs.items() if n <= command.through and epoch["status"] in ("OPEN", "ALIGNED")
    ]
    completed = [known["epoch"] for known in run.checkpoints.values() if known["status"] == "COMPLETED"]
    refuse_if(
        bool(left) or completed != [command.through], f"nothing makes every epoch up to {command.through} durable"
    )
    run.run["last_durable_epoch"] = command.through


def _finish_operator(run: MemoryRun, command: FinishOperator, fencing_token: int, now: datetime) -> None:
    operator = expect(run.operators.get(command.operator_id), finished_at=None)
    output = as_json(dict(command.output))
    operator.update(finished_epoch=command.epoch, fencing_token=fencing_token, output=output, finished_at=now)


def _trigger_checkpoint(run: MemoryRun, command: TriggerCheckpoint, fencing_token: int, now: datetime) -> None:
    key = (command.epoch, fencing_token)
    known = [(c["epoch"], c["fencing_token"]) for c in run.checkpoints.values() if c["status"] != "ABORTED"]
    refuse_if(command.checkpoint_id <= run.run["last_checkpoint_id"], "checkpoint ids are taken back")
    expect(run.epochs.get(key), status="ALIGNED")
    refuse_if(key in known, f"epoch {command.epoch} has a checkpoint")
    participants = command.participants
    refuse_if(not participants or any(not p.values for p in participants), "a participant has no subtasks")
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
        "failure": None,
        "reason": None,
        "triggered_at": now,
        "ended_at": None,
    }


def _record_request(run: MemoryRun, command: RecordRequest, _token: int, now: datetime) -> None:
    refuse_if(command.request_id in run.requests, "a request is made twice")
    run.requests[command.request_id] = {
        "request_id": command.request_id,
        "requested_by": command.requested_by,
        "requested_at": now,
        "checkpoint_id": None,
    }


def _answer_requests(run: MemoryRun, command: AnswerRequests, _token: int, _now: datetime) -> None:
    refuse_if(command.checkpoint_id not in run.checkpoints, f"there is no checkpoint {command.checkpoint_id}")
    asked = [request for request in run.requests.values() if request["checkpoint_id"] is None]
    refuse_if(not asked, "nobody asked")
    for request in asked:
        request["checkpoint_id"] = command.checkpoint_id


def _record_stop(run: MemoryRun, command: RecordStop, _token: int, now: datetime) -> None:
    is_known = command.stop_id in run.stops or any(stop["resumed_at"] is None for stop in run.stops.values())
    refuse_if(is_known, "a stop is in force")
    expect(run.run, status="RUNNING")
    run.stops[command.stop_id] = {
        "stop_id": command.stop_id,
        "kind": command.kind.value,
        "requested_by": command.requested_by,
        "requested_at": now,
        "stopped_at": None,
        "resumed_by": None,
        "resumed_at": None,
    }


def _stop_run(run: MemoryRun, command: StopRun, _token: int, now: datetime) -> None:
    stop = expect(run.stops.get(command.stop_id), kind="STOP", stopped_at=None, resumed_at=None)
    _move_run(run, RunStatus.STOPPED)
    _refuse_rest(run)
    run.run.update(status="STOPPED", failure=None)
    stop["stopped_at"] = now


def _resume_run(run: MemoryRun, command: ResumeRun, _token: int, now: datetime) -> None:
    expect(run.run, status="STOPPED")
    expect(run.stops.get(command.stop_id), resumed_at=None).update(resumed_by=command.resumed_by, resumed_at=now)
    run.run["status"] = "RUNNING"


def _abort_through(run: MemoryRun, command: AbortThrough, _token: int, _now: datetime) -> None:
    refuse_if(
        not run.run["aborted_through"] <= command.checkpoint_id <= run.run["last_checkpoint_id"] + 1,
        f"checkpoint {command.checkpoint_id} is not the next one",
    )
    run.run["aborted_through"] = command.checkpoint_id


def _count_checkpoint_failures(
    run: MemoryRun, command: CountCheckpointFailures, fencing_token: int, _now: datetime
) -> None:
    refuse_if(command.count < 0, "a negative count")
    expect(run.attempts.get(fencing_token), ended_at=None)["checkpoint_failures"] = command.count


def _record_acknowledgements(
    run: MemoryRun, command: RecordAcknowledgements, fencing_token: int, _now: datetime
) -> None:
    checkpoint = expect(run.checkpoints.get(command.checkpoint_id), status="PENDING", fencing_token=fencing_token)
    acknowledgements = {participant.name: participant.values for participant in command.participants}
    refuse_if(
        _subtasks(acknowledgements) != _subtasks(checkpoint["acknowledgements"]), "these are acknowledgements of others"
    )
    checkpoint["acknowledgements"] = acknowledgements


def _complete_checkpoint(run: MemoryRun, command: CompleteCheckpoint, fencing_token: int, _now: datetime) -> None:
    checkpoint = expect(run.checkpoints.get(command.checkpoint_id), status="PENDING", fencing_token=fencing_token)
    status = CheckpointStatus.SUBSUMED if command.is_subsumed else CheckpointStatus.COMPLETED
    completed = [known["status"] for known in run.checkpoints.values()].count("COMPLETED")
    refuse_if(bool(completed) and not command.is_subsumed, "another one is completed")
    refuse_if(_lacks_any(checkpoint["acknowledgements"]), "an acknowledgement is missing")
    refuse_if(_SHA256.fullmatch(command.manifest_sha256) is None, "a manifest has no digest")
    checkpoint.update(
        status=status.value,
        manifest_path=command.manifest_path,
        manifest_sha256=command.manifest_sha256,
        size_bytes=command.size_bytes,
        ended_at=command.completed_at,
    )


def _subsume_checkpoint(run: MemoryRun, command: SubsumeCheckpoint, _token: int, _now: datetime) -> None:
    expect(run.checkpoints.get(command.checkpoint_id), status="COMPLETED")["status"] = "SUBSUMED"


def _abort_checkpoint(run: MemoryRun, command: AbortCheckpoint, _token: int, now: datetime) -> None:
    checkpoint = expect(run.checkpoints.get(command.checkpoint_id), status="PENDING")
    checkpoint.update(status="ABORTED", failure=command.failure.value, reason=command.reason, ended_at=now)


def _record_committables(run: MemoryRun, command: RecordCommittables, fencing_token: int, now: datetime) -> None:
    for known in command.committables:
        key = (known.epoch, known.output)
        expect(run.epochs.get((known.epoch, fencing_token)), status="DURABLE")
        refuse_if(key in run.committables or not known.output, f"{key} is stored already, or has no name")
        run.committables[key] = {
            "epoch": known.epoch,
            "output": known.output,
            "fencing_token": fencing_token,
            "target": known.target,
            "content": as_json(dict(known.content)),
            "stored_at": now,
            "committed_at": now if known.in_store else None,
        }


def _mark_committed(run: MemoryRun, command: MarkCommitted, _token: int, now: datetime) -> None:
    for key in command.committed:
        expect(run.committables.get(key), committed_at=None)["committed_at"] = now


def _record_notice(run: MemoryRun, command: RecordNotice, fencing_token: int, now: datetime) -> None:
    key = (command.listener_id, command.epoch)
    refuse_if(not 0 <= command.epoch <= run.run["last_durable_epoch"], f"epoch {command.epoch} is not durable")
    refuse_if(key in run.notices, f"{command.listener_id!r} has heard of epoch {command.epoch}")
    run.notices[key] = {
        "listener_id": command.listener_id,
        "epoch": command.epoch,
        "fencing_token": fencing_token,
        "effect": as_json(dict(command.effect)) if command.effect is not None else None,
        "noticed_at": now,
    }


def operator_rows(definition: Mapping[str, object]) -> dict[str, MutableRow]:
    """Return the operators of a definition in running order, none of which has finished."""
    operators: Any = definition["operators"]  # Any: JSON that model.definition.describe made
    return {
        operator_id: {
            "operator_id": operator_id,
            **{column: operator[column] for column in ("name", "role", "kind")},
            **dict.fromkeys(_FINISHED),
        }
        for operator_id, operator in operators.items()
    }


def _subtasks(reports: Mapping[str, Sequence[int | None]]) -> dict[str, int]:
    return {name: len(values) for name, values in reports.items()}


def _lacks_any(reports: Mapping[str, Sequence[int | None]]) -> bool:
    return any(value is None for values in reports.values() for value in values)


_FINISHED = ("finished_epoch", "fencing_token", "output", "finished_at")
_SHA256 = re.compile("[0-9a-f]{64}")


def _discard_checkpoints(run: MemoryRun, command: DiscardCheckpoints, _token: int, _now: datetime) -> None:
    for checkpoint_id in command.checkpoint_ids:
        checkpoint = run.checkpoints.get(checkpoint_id, {})
        status = checkpoint.get("status")
        is_newest = status == "COMPLETED" and run.run["status"] != "DELETED"
        refuse_if(is_newest, f"checkpoint {checkpoint_id} is needed")
        if status in ("COMPLETED", "SUBSUMED"):
            checkpoint["status"] = "DISCARDED"


def _release_origin(run: MemoryRun, _command: ReleaseOrigin, _token: int, now: datetime) -> None:
    is_own = "COMPLETED" in [checkpoint["status"] for checkpoint in run.checkpoints.values()]
    refuse_if(not is_own and run.run["status"] != "DELETED", "the branch has no checkpoint of its own")
    expect(run.branch, released_at=None)["released_at"] = now


def _delete_run(run: MemoryRun, command: DeleteRun, _token: int, now: datetime) -> None:
    _move_run(run, RunStatus.DELETED)
    _refuse_rest(run)
    run.run.update(status="DELETED", deleted_by=command.deleted_by, deleted_at=now)


def _refuse_rest(run: MemoryRun) -> None:
    """Refuse to let a run rest that is driven, or of which something is not durable."""
    refuse_if(any(attempt["ended_at"] is None for attempt in run.attempts.values()), "an attempt is live")
    statuses = [row["status"] for rows in (run.epochs, run.checkpoints) for row in rows.values()]
    refuse_if(not {"OPEN", "ALIGNED", "PENDING"}.isdisjoint(statuses), "something is not durable")


_WRITERS: dict[type[Command], Callable[[MemoryRun, Any, int, datetime], None]] = {  # Any: the command of its key
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
    CountCheckpointFailures: _count_checkpoint_failures,
    RecordAcknowledgements: _record_acknowledgements,
    CompleteCheckpoint: _complete_checkpoint,
    SubsumeCheckpoint: _subsume_checkpoint,
    AbortCheckpoint: _abort_checkpoint,
    DiscardCheckpoints: _discard_checkpoints,
    ReleaseOrigin: _release_origin,
    DeleteRun: _delete_run,
    RecordCommittables: _record_committables,
    MarkCommitted: _mark_committed,
    RecordNotice: _record_notice,
}
