"""How are commands on checkpoints, and requests for them, written to rows in memory? As the database does it."""

from __future__ import annotations

import re
from datetime import datetime

from iteration_lib.protocol.command import (
    AbortCheckpoint,
    AbortThrough,
    AnswerRequests,
    Command,
    CompleteCheckpoint,
    DiscardCheckpoints,
    PinCheckpoint,
    RecordAcknowledgements,
    RecordRequest,
    ReleaseCheckpoint,
    SubsumeCheckpoint,
    TriggerCheckpoint,
)
from iteration_lib.protocol.status import CheckpointFailure, CheckpointKind, CheckpointStatus
from iteration_lib.store.memory_rows import (
    MemoryRun,
    MutableRow,
    Writer,
    asked_to,
    expect,
    heard,
    is_full,
    lacks_any,
    refuse_failed,
    refuse_heard,
    refuse_if,
    subtasks,
    takes_back,
)

_SHA256 = re.compile("[0-9a-f]{64}")


def _trigger_checkpoint(run: MemoryRun, command: TriggerCheckpoint, fencing_token: int, now: datetime) -> None:
    key = (command.epoch, fencing_token)
    known = [(c["epoch"], c["fencing_token"]) for c in run.checkpoints.values() if c["status"] != "ABORTED"]
    refuse_if(command.checkpoint_id != run.run["last_checkpoint_id"] + 1, "checkpoint ids are taken back, or left out")
    expect(run.epochs.get(key), status="ALIGNED")
    kind = _kind_of(run, is_last=run.epochs[key]["decision"]["terminated_by"] is not None)
    refuse_if(command.kind is not kind, f"a checkpoint of epoch {command.epoch} of another kind than {kind.value}")
    refuse_if(key in known, f"epoch {command.epoch} has a checkpoint")
    is_last = all(number <= command.epoch for (number, _), e in run.epochs.items() if e["status"] != "VOIDED")
    refuse_if(not is_last, f"epoch {command.epoch} is not the last one")
    refuse_failed(run, fencing_token)
    participants = {participant.name: participant.values for participant in command.participants}
    refuse_heard(participants)
    run.run["last_checkpoint_id"] = command.checkpoint_id
    run.checkpoints[command.checkpoint_id] = {
        "checkpoint_id": command.checkpoint_id,
        "epoch": command.epoch,
        "fencing_token": fencing_token,
        "kind": command.kind.value,
        "status": "PENDING",
        "acknowledgements": participants,
        "manifest_path": None,
        "manifest_sha256": None,
        "size_bytes": None,
        "failure": None,
        "reason": None,
        "triggered_at": now,
        "ended_at": None,
    }


def _kind_of(run: MemoryRun, *, is_last: bool) -> CheckpointKind:
    if is_last:
        return CheckpointKind.FINAL
    return CheckpointKind.MANUAL if _unanswered(run) or asked_to(run) == "STOP" else CheckpointKind.PERIODIC


def _unanswered(run: MemoryRun) -> list[MutableRow]:
    """Return the requests of persons that no checkpoint has answered."""
    return [request for request in run.requests.values() if request["checkpoint_id"] is None]


def _record_request(run: MemoryRun, command: RecordRequest, _token: int, now: datetime) -> None:
    refuse_if(command.request_id in run.requests, "a request is made twice")
    goes_on = run.run["status"] in ("RUNNING", "FAILED") and run.run["terminated_by"] is None
    refuse_if(not goes_on, "a run does not go on")
    run.requests[command.request_id] = {
        "request_id": command.request_id,
        "requested_by": command.requested_by,
        "requested_at": now,
        "checkpoint_id": None,
        "behind": run.run["last_checkpoint_id"],
    }


def _answer_requests(run: MemoryRun, command: AnswerRequests, _token: int, _now: datetime) -> None:
    known = expect(run.checkpoints.get(command.checkpoint_id), checkpoint_id=run.run["last_checkpoint_id"])
    refuse_if(known["kind"] == CheckpointKind.PERIODIC.value, f"nobody asked for checkpoint {command.checkpoint_id}")
    asked = _unanswered(run)
    refuse_if(not asked, "nobody asked")
    is_last = known["kind"] == CheckpointKind.FINAL.value and known["status"] == "COMPLETED"
    is_before = not is_last and any(r["behind"] >= command.checkpoint_id for r in asked)
    refuse_if(is_before, f"checkpoint {command.checkpoint_id} began before somebody asked")
    for request in asked:
        request["checkpoint_id"] = command.checkpoint_id


def _abort_through(run: MemoryRun, command: AbortThrough, _token: int, _now: datetime) -> None:
    refuse_if(run.run["status"] in ("FINISHED", "STOPPED", "DELETED"), "the run is over or stopped")
    refuse_if(
        not run.run["aborted_through"] <= command.checkpoint_id <= run.run["last_checkpoint_id"] + 1,
        f"checkpoint {command.checkpoint_id} is not the next one",
    )
    for known, row in run.checkpoints.items():
        is_meant = known <= command.checkpoint_id and row["status"] == "PENDING"
        refuse_if(is_meant, f"checkpoint {known} is not aborted, as all through {command.checkpoint_id} are")
    run.run["aborted_through"] = command.checkpoint_id


def _record_acknowledgements(
    run: MemoryRun, command: RecordAcknowledgements, fencing_token: int, _now: datetime
) -> None:
    checkpoint = expect(run.checkpoints.get(command.checkpoint_id), status="PENDING", fencing_token=fencing_token)
    acknowledgements = {participant.name: participant.values for participant in command.participants}
    refuse_if(
        subtasks(acknowledgements) != subtasks(checkpoint["acknowledgements"]), "these are acknowledgements of others"
    )
    refuse_if(takes_back(checkpoint["acknowledgements"], acknowledgements), "an acknowledgement is taken back")
    refuse_if(any(word != 1 for word in heard(acknowledgements)), "this is no acknowledgement")
    checkpoint["acknowledgements"] = acknowledgements


def _complete_checkpoint(run: MemoryRun, command: CompleteCheckpoint, fencing_token: int, now: datetime) -> None:
    checkpoint = expect(run.checkpoints.get(command.checkpoint_id), status="PENDING", fencing_token=fencing_token)
    status = CheckpointStatus.SUBSUMED if command.is_subsumed else CheckpointStatus.COMPLETED
    completed = [known["status"] for known in run.checkpoints.values()].count("COMPLETED")
    refuse_if(bool(completed) and not command.is_subsumed, "another one is completed")
    refuse_if(lacks_any(checkpoint["acknowledgements"]), "an acknowledgement is missing")
    refuse_if(_SHA256.fullmatch(command.manifest_sha256) is None, "a manifest has no digest")
    refuse_if(command.size_bytes < 0, "a checkpoint has no size")
    checkpoint.update(
        status=status.value,
        manifest_path=command.manifest_path,
        manifest_sha256=command.manifest_sha256,
        size_bytes=command.size_bytes,
        ended_at=command.completed_at or now,
    )
    attempt = run.attempts[fencing_token]
    if not command.is_subsumed and attempt["checkpoint_failures"] <= attempt["policy"]["tolerable_failures"]:
        attempt["checkpoint_failures"] = 0


def _subsume_checkpoint(run: MemoryRun, command: SubsumeCheckpoint, _token: int, _now: datetime) -> None:
    expect(run.checkpoints.get(command.checkpoint_id), status="COMPLETED")["status"] = "SUBSUMED"


def _abort_checkpoint(run: MemoryRun, command: AbortCheckpoint, _token: int, now: datetime) -> None:
    checkpoint = expect(run.checkpoints.get(command.checkpoint_id), status="PENDING")
    is_doomed = command.checkpoint_id <= run.run["aborted_through"]
    is_by_user = command.failure is CheckpointFailure.ABORTED_BY_USER
    refuse_if(is_doomed and not is_by_user, f"a person aborted checkpoint {command.checkpoint_id} before it began")
    checkpoint.update(status="ABORTED", failure=command.failure.value, reason=command.reason, ended_at=now)
    if command.failure.is_counted:
        attempt = expect(run.attempts.get(checkpoint["fencing_token"]), ended_at=None)
        is_tolerable = checkpoint["kind"] == CheckpointKind.PERIODIC.value
        least = 0 if is_tolerable else attempt["policy"]["tolerable_failures"]
        attempt["checkpoint_failures"] = max(attempt["checkpoint_failures"], least) + 1


def _discard_checkpoints(run: MemoryRun, command: DiscardCheckpoints, _token: int, _now: datetime) -> None:
    for checkpoint_id in command.checkpoint_ids:
        checkpoint = run.checkpoints.get(checkpoint_id, {})
        status = checkpoint.get("status")
        is_newest = status == "COMPLETED" and run.run["status"] != "DELETED"
        refuse_if(is_newest, f"checkpoint {checkpoint_id} is needed")
        if status in ("COMPLETED", "SUBSUMED"):
            checkpoint["status"] = "DISCARDED"


def _pin_checkpoint(run: MemoryRun, command: PinCheckpoint, _token: int, now: datetime) -> None:
    status = run.checkpoints.get(command.checkpoint_id, {}).get("status")
    refuse_if(status not in ("COMPLETED", "SUBSUMED"), f"checkpoint {command.checkpoint_id} is not there")
    refuse_if(command.checkpoint_id in run.checkpoint_pins, f"checkpoint {command.checkpoint_id} is pinned")
    run.checkpoint_pins[command.checkpoint_id] = {"pinned_by": command.pinned_by, "pinned_at": now}


def _release_checkpoint(run: MemoryRun, command: ReleaseCheckpoint, _token: int, _now: datetime) -> None:
    refuse_if(command.checkpoint_id not in run.checkpoint_pins, f"checkpoint {command.checkpoint_id} is not pinned")
    del run.checkpoint_pins[command.checkpoint_id]


def refuse_unaborted(run: MemoryRun, command: Command | None) -> None:
    """Refuse what comes behind a checkpoint that was aborted before it began, but its abort; None is the end."""
    known = run.run["last_checkpoint_id"]
    is_pending = run.checkpoints.get(known, {}).get("status") == "PENDING"
    is_aborted = isinstance(command, AbortCheckpoint) and command.checkpoint_id == known
    is_doomed = is_pending and known <= run.run["aborted_through"]
    refuse_if(is_doomed and not is_aborted, f"checkpoint {known} was aborted before it began")


def refuse_ends(run: MemoryRun, before: MemoryRun) -> None:
    """Refuse how checkpoints stand at the end of a transaction, whose steps only together are legal."""
    completed = {known: row["epoch"] for known, row in run.checkpoints.items() if row["status"] == "COMPLETED"}
    is_covered = list(completed.values()) in ([], [run.run["last_durable_epoch"]])
    refuse_if(not is_covered, "a checkpoint is completed, and its epoch is not the last durable one")
    for known, row in run.checkpoints.items():
        was = before.checkpoints.get(known, {}).get("status")
        is_subsumed = row["status"] == "SUBSUMED" and was != "SUBSUMED"
        refuse_if(is_subsumed and known > max(completed, default=0), f"no newer checkpoint subsumes checkpoint {known}")
        if row["status"] == "COMPLETED" and was != "COMPLETED":
            _refuse_completed(run, known)
        if was is None and row["kind"] != CheckpointKind.PERIODIC.value:
            is_owed = any(request["behind"] < known for request in _unanswered(run))
            refuse_if(is_owed, f"checkpoint {known} does not answer who asked for it")
        if was in (None, "PENDING") and row["status"] != "PENDING":
            is_meant = row["failure"] is None or _is_meant(run, known, row["failure"], newest=max(completed, default=0))
            refuse_if(not is_meant, f"checkpoint {known} is not aborted by {row['failure']}")
    held = [e["fencing_token"] for e in run.epochs.values() if e["status"] == "OPEN" and e["held_at"] is not None]
    left = [token for token in held if _is_live(run, token) and not is_full(run, token)]
    refuse_if(bool(left), "nothing holds an epoch that has not aligned")
    refuse_unaborted(run, None)


def _refuse_completed(run: MemoryRun, checkpoint_id: int) -> None:
    """Refuse one that completes and leaves an older one pending, but by hand, or the origin of a branch pinned."""
    pending = [known for known, row in run.checkpoints.items() if row["status"] == "PENDING" and known < checkpoint_id]
    left = [known for known in pending if run.checkpoints[known]["kind"] != CheckpointKind.MANUAL.value]
    refuse_if(bool(left), f"checkpoint {checkpoint_id} is completed, and {left} are pending")
    is_final = run.checkpoints[checkpoint_id]["kind"] == CheckpointKind.FINAL.value
    refuse_if(
        is_final and bool(_unanswered(run)), f"checkpoint {checkpoint_id} is the last, and does not answer who asked"
    )
    pins_origin = run.branch is not None and run.branch["released_at"] is None
    refuse_if(pins_origin, f"checkpoint {checkpoint_id} is completed, and the branch pins its origin")


def _is_live(run: MemoryRun, fencing_token: int) -> bool:
    return run.attempts[fencing_token]["ended_at"] is None


def _is_meant(run: MemoryRun, checkpoint_id: int, failure: str, *, newest: int) -> bool:
    """Tell whether what aborted a checkpoint happened: its attempt ended, a person said so, a newer one completed."""
    match CheckpointFailure(failure):
        case CheckpointFailure.ATTEMPT_ENDED:
            return not _is_live(run, run.checkpoints[checkpoint_id]["fencing_token"])
        case CheckpointFailure.ABORTED_BY_USER:
            return checkpoint_id <= int(run.run["aborted_through"])
        case CheckpointFailure.SUBSUMED:
            return checkpoint_id < newest and run.checkpoints[checkpoint_id]["kind"] != CheckpointKind.MANUAL.value
        case CheckpointFailure.DECLINED | CheckpointFailure.EXPIRED:
            return True


CHECKPOINT_WRITERS: dict[type[Command], Writer] = {
    TriggerCheckpoint: _trigger_checkpoint,
    RecordRequest: _record_request,
    AnswerRequests: _answer_requests,
    AbortThrough: _abort_through,
    RecordAcknowledgements: _record_acknowledgements,
    CompleteCheckpoint: _complete_checkpoint,
    SubsumeCheckpoint: _subsume_checkpoint,
    AbortCheckpoint: _abort_checkpoint,
    DiscardCheckpoints: _discard_checkpoints,
    PinCheckpoint: _pin_checkpoint,
    ReleaseCheckpoint: _release_checkpoint,
}
