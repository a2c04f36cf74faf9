"""What does a command change in the rows of the store in memory? One small function per command."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from iteration_lib.errors import ProtocolViolationError
from iteration_lib.protocol.command import (
    AlignEpoch,
    Command,
    CompleteCheckpoint,
    DeleteRun,
    EndAttempt,
    FallBack,
    FinishOperator,
    MarkCommitted,
    OpenAttempt,
    OpenEpoch,
    PinData,
    PublishOutputs,
    RecordCommittables,
    RecordNotice,
    RecordParts,
    RecordReports,
    RecordStop,
    ReleaseOrigin,
    ReplaceDefinition,
    ResumeRun,
    SetRunStatus,
    StopRun,
    SwitchToUnaligned,
    TriggerCheckpoint,
)
from iteration_lib.protocol.state import NO_EPOCH
from iteration_lib.protocol.status import AttemptOutcome, RunStatus, check_transition
from iteration_lib.store.memory_checkpoints import CHECKPOINT_WRITERS, refuse_unaborted
from iteration_lib.store.memory_epochs import EPOCH_WRITERS
from iteration_lib.store.memory_rows import (
    MemoryRun,
    MutableRow,
    Writer,
    as_json,
    asked_to,
    expect,
    published_in,
    refuse_if,
    sources_of,
)
from iteration_lib.store.row import failed_columns, holder_json, policy_json

# What an attempt writes only while it is live.
_OF_A_DRIVER = (
    *(OpenEpoch, RecordReports, AlignEpoch, SwitchToUnaligned, RecordParts, PinData, FinishOperator),
    *(TriggerCheckpoint, CompleteCheckpoint, RecordCommittables, RecordNotice),
)
_FINISHED = ("finished_epoch", "fencing_token", "output", "finished_at")


def write_command(run: MemoryRun, command: Command, fencing_token: int, now: datetime) -> None:
    """Write one command; raises ProtocolViolationError when a row was not where the protocol left it."""
    if not isinstance(command, OpenAttempt | EndAttempt) and run.run["fencing_token"] != fencing_token:
        raise ProtocolViolationError(f"token {fencing_token} is not in force; this is a bug, please report it")
    if isinstance(command, _OF_A_DRIVER):
        expect(run.attempts.get(fencing_token), ended_at=None)
    refuse_unaborted(run, command)
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
        "ignores_edges": command.ignores_edges,
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
    is_unsaid = command.outcome is AttemptOutcome.FAILED and not command.reason
    refuse_if(is_unsaid, "an attempt has failed and does not say why")
    attempt.update(ended_at=now, outcome=command.outcome.value, reason=command.reason, **failed_columns(failed))


def _set_run_status(run: MemoryRun, command: SetRunStatus, _token: int, _now: datetime) -> None:
    by, status, had_failed = command.terminated_by, command.status, run.run["status"] == "FAILED"
    refuse_if(run.run["status"] == "STOPPED", "nobody has resumed the run")
    refuse_if(status in (RunStatus.FINISHED, RunStatus.DELETED), f"a run is not {status.value} by that alone")
    known = run.run["terminated_by"]
    refuse_if(known is not None and (by is None or known != by.value), "the rule that terminated the run cannot change")
    is_begun = status is RunStatus.TERMINATING and run.run["status"] != status.value
    if is_begun or (by is not None and known is None):
        durable = [
            e for e in run.epochs.values() if (e["status"], e["epoch"]) == ("DURABLE", run.run["last_durable_epoch"])
        ]
        decided = [epoch["decision"]["terminated_by"] for epoch in durable]
        refuse_if(decided != [by.value if by is not None else None], "no durable epoch decided that the run terminates")
    _move_run(run, status)
    refuse_if(status is RunStatus.RUNNING and by is not None, "a run that goes on was terminated")
    refuse_if(status is RunStatus.TERMINATING and by is None, "a run terminates without a rule")
    refuse_if((status is RunStatus.FAILED) != (command.failure is not None), "a failure and its reason go together")
    last = run.attempts.get(run.run["fencing_token"], {"outcome": None, "reason": None})
    if status is RunStatus.FAILED:
        _refuse_driven(run)
        is_why = (last["outcome"], last["reason"]) == ("FAILED", command.failure)
        refuse_if(not is_why, "a run fails as its last attempt does, and for its reason")
    elif had_failed:
        refuse_if(last["outcome"] is not None, "a run that has failed goes on with another attempt")
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
    for (number, token), epoch in run.epochs.items():
        if number > command.epoch and epoch["status"] != "VOIDED":
            refuse_if(token == fencing_token, "an attempt gives up what it made durable itself")
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
    attempt = expect(run.attempts.get(fencing_token), ended_at=None, definition_changes=None)
    is_begun = any(key[1] == fencing_token and epoch["status"] != "VOIDED" for key, epoch in run.epochs.items())
    refuse_if(is_begun, "the operators of a run cannot change now")
    definition = as_json(dict(command.definition))
    left = {key: row for key, row in run.operators.items() if key not in command.dropped}
    lost = [key for key, row in left.items() if row["finished_at"] is not None and key not in definition["operators"]]
    refuse_if(bool(lost), f"{lost} have finished, and nobody dropped them")
    run.operators = {
        key: {**row, **{column: left[key][column] for column in (*_FINISHED, "added_under") if key in left}}
        for key, row in operator_rows(definition, added_under=fencing_token).items()
    }
    run.void_parts(lambda part: part["epoch"] == NO_EPOCH and part["operator_id"] in command.dropped, now)
    run.run["definition"] = definition
    attempt["definition_changes"] = list(command.changes)


def _publish_outputs(run: MemoryRun, command: PublishOutputs, _token: int, now: datetime) -> None:
    expect(run.run, status="TERMINATING")
    _refuse_rest(run)
    refuse_if(None in [row["committed_at"] for row in run.committables.values()], "something is not committed")
    outputs = as_json(dict(command.outputs))
    run.run.update(status="FINISHED", outputs=outputs, state_digest=command.state_digest, finished_at=now)


def _pin_data(run: MemoryRun, command: PinData, _token: int, _now: datetime) -> None:
    refuse_if(command.name in run.pins, f"{command.name!r} is pinned")
    pin = as_json(dict(command.pin))
    run.pins[command.name] = {"name": command.name, "fingerprint": command.fingerprint, "pin": pin}


def _finish_operator(run: MemoryRun, command: FinishOperator, fencing_token: int, now: datetime) -> None:
    operator = expect(run.operators.get(command.operator_id), finished_at=None)
    sources = [(run.operators[source], source) for source in sources_of(run, command.operator_id)]
    lacking = [source for row, source in sources if row["role"] != "data" and row["finished_at"] is None]
    may_finish = run.run["definition"]["operators"][command.operator_id]["finishes"] and not lacking
    is_next = command.epoch == run.run["last_durable_epoch"] + 1
    refuse_if(not command.output, f"the marker of {command.operator_id!r} names no files")
    refuse_if(
        not may_finish or not is_next, f"{command.operator_id!r} does not finish for good in epoch {command.epoch}"
    )
    output = as_json(dict(command.output))
    operator.update(finished_epoch=command.epoch, fencing_token=fencing_token, output=output, finished_at=now)


def _record_stop(run: MemoryRun, command: RecordStop, _token: int, now: datetime) -> None:
    is_known = command.stop_id in run.stops or asked_to(run) is not None
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
    known = [stop["resumed_at"] for stop in run.stops.values() if stop["resumed_at"] is not None]
    later = [at + timedelta(microseconds=1) for at in known]  # whatever the clock says
    resumed_at = max([now, *later])
    expect(run.stops.get(command.stop_id), resumed_at=None).update(resumed_by=command.resumed_by, resumed_at=resumed_at)
    run.run["status"] = "RUNNING"


def _record_committables(run: MemoryRun, command: RecordCommittables, fencing_token: int, now: datetime) -> None:
    for known in command.committables:
        key = (known.epoch, known.output)
        epoch = expect(run.epochs.get((known.epoch, fencing_token)), status="DURABLE")
        refuse_if(known.output not in published_in(run, epoch), f"epoch {known.epoch} publishes no {known.output!r}")
        refuse_if(key in run.committables, f"{key} is stored already")
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
    others = [known for known in run.notices.values() if known["listener_id"] == command.listener_id]
    kinds = {known["is_final"] for known in others}
    refuse_if(bool(kinds - {command.is_final}), f"{command.listener_id!r} hears of epochs, or of the end")
    origin_epoch = run.branch["epoch"] if run.branch is not None else NO_EPOCH
    heard = max((known["epoch"] for known in others), default=origin_epoch)
    refuse_if(not command.is_final and command.epoch != heard + 1, f"epoch {heard + 1} comes before {command.epoch}")
    ended_with = run.run["last_durable_epoch"] if run.run["status"] == "TERMINATING" else None
    refuse_if(command.is_final and command.epoch != ended_with, f"the run did not end with epoch {command.epoch}")
    run.notices[key] = {
        "listener_id": command.listener_id,
        "epoch": command.epoch,
        "fencing_token": fencing_token,
        "effect": as_json(dict(command.effect)) if command.effect is not None else None,
        "noticed_at": now,
        "is_final": command.is_final,
    }


def operator_rows(definition: Mapping[str, object], *, added_under: int = 0) -> dict[str, MutableRow]:
    """Return the operators of a definition in running order, none of which has finished."""
    operators: Any = definition["operators"]  # Any: JSON that model.definition.describe made
    return {
        operator_id: {
            "operator_id": operator_id,
            **{column: operator[column] for column in ("name", "role", "kind")},
            **dict.fromkeys(_FINISHED),
            "added_under": added_under,
        }
        for operator_id, operator in operators.items()
    }


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
    _refuse_driven(run)
    statuses = [row["status"] for rows in (run.epochs, run.checkpoints) for row in rows.values()]
    refuse_if(not {"OPEN", "ALIGNED", "PENDING"}.isdisjoint(statuses), "something is not durable")


def _refuse_driven(run: MemoryRun) -> None:
    refuse_if(any(attempt["ended_at"] is None for attempt in run.attempts.values()), "an attempt is live")


_WRITERS: dict[type[Command], Writer] = {
    **EPOCH_WRITERS,
    **CHECKPOINT_WRITERS,
    OpenAttempt: _open_attempt,
    EndAttempt: _end_attempt,
    SetRunStatus: _set_run_status,
    FallBack: _fall_back,
    ReplaceDefinition: _replace_definition,
    PublishOutputs: _publish_outputs,
    PinData: _pin_data,
    FinishOperator: _finish_operator,
    RecordStop: _record_stop,
    StopRun: _stop_run,
    ResumeRun: _resume_run,
    ReleaseOrigin: _release_origin,
    DeleteRun: _delete_run,
    RecordCommittables: _record_committables,
    MarkCommitted: _mark_committed,
    RecordNotice: _record_notice,
}
