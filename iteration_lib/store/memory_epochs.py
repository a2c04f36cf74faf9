"""How are commands on epochs and durable edges written to rows in memory? As the database does it, guards included."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from iteration_lib.protocol.alignment import decide_termination
from iteration_lib.protocol.command import (
    AlignEpoch,
    Command,
    MakeEpochsDurable,
    OpenEpoch,
    RecordParts,
    RecordReports,
    SwitchToUnaligned,
    VoidEdges,
    VoidEpochs,
    VoidParts,
)
from iteration_lib.protocol.event import FinishedPart
from iteration_lib.protocol.state import NO_EPOCH, Reports
from iteration_lib.store.memory_rows import (
    MemoryRun,
    MutableRow,
    Writer,
    as_json,
    asked_to,
    expect,
    heard,
    is_full,
    lacks_any,
    refuse_failed,
    refuse_heard,
    refuse_if,
    refuse_unmeasured,
    sources_of,
    subtasks,
    takes_back,
)
from iteration_lib.store.row import decision_json


def _open_epoch(run: MemoryRun, command: OpenEpoch, fencing_token: int, now: datetime) -> None:
    in_force = [epoch for epoch in run.epochs.values() if epoch["status"] != "VOIDED"]
    refuse_if(command.epoch < 0 or command.epoch in [e["epoch"] for e in in_force], f"epoch {command.epoch} is there")
    refuse_if("OPEN" in [epoch["status"] for epoch in in_force], "another epoch is open")
    before = [
        e
        for e in in_force
        if e["epoch"] == command.epoch - 1
        and (e["status"] == "DURABLE" or e["fencing_token"] == fencing_token)
        and e["decision"]["terminated_by"] is None
    ]
    is_first = command.epoch == (run.branch["epoch"] + 1 if run.branch is not None else 0)
    refuse_if(not is_first and not before, f"epoch {command.epoch} does not follow another one")
    records = {head.name: head.values for head in command.heads}
    refuse_heard(records)
    refuse_if(
        asked_to(run) == "STOP" and (command.epoch - 1, fencing_token) in run.epochs, "a person asks the run to stop"
    )
    refuse_failed(run, fencing_token)
    run.epochs[command.epoch, fencing_token] = {
        "epoch": command.epoch,
        "fencing_token": fencing_token,
        "status": "OPEN",
        "records": records,
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
    refuse_if(subtasks(records) != subtasks(epoch["records"]), "the reports are of other subtasks")
    refuse_if(takes_back(epoch["records"], records), f"a report of epoch {command.epoch} is taken back")
    refuse_if(lacks_any(records) != (command.metrics is None), f"epoch {command.epoch} lacks reports, or its metrics")
    refuse_if(min(heard(records), default=0) < 0, f"the reports of epoch {command.epoch} are no counts")
    epoch["records"] = records
    if command.metrics is not None:
        refuse_unmeasured(command.metrics)
        epoch.update(metrics=as_json(dict(command.metrics)), seconds=command.seconds, held_at=now)


def _align_epoch(run: MemoryRun, command: AlignEpoch, fencing_token: int, now: datetime) -> None:
    epoch = expect(run.epochs.get((command.epoch, fencing_token)), status="OPEN")
    refuse_if(epoch["held_at"] is None, f"epoch {command.epoch} lacks reports")
    heads = tuple(Reports(name=name, values=values) for name, values in epoch["records"].items())
    refuse_if(is_full(run, fencing_token), f"epoch {command.epoch} is held by checkpoints that are pending")
    is_drained = any(stop["kind"] == "DRAIN" for stop in run.stops.values())
    expected = decide_termination(command.epoch, heads, max_epochs=run.run["max_epochs"], is_drained=is_drained)
    refuse_if(command.decision != expected, f"epoch {command.epoch} decided by another rule, or other reports")
    epoch.update(status="ALIGNED", decision=as_json(decision_json(command.decision)), aligned_at=now)


def _switch_to_unaligned(run: MemoryRun, command: SwitchToUnaligned, fencing_token: int, now: datetime) -> None:
    epoch = expect(run.epochs.get((command.epoch, fencing_token)), status="OPEN", unaligned_by=None)
    epoch.update(unaligned_by=command.by.value, unaligned_at=now)


def _record_parts(run: MemoryRun, command: RecordParts, fencing_token: int, now: datetime) -> None:
    if command.epoch != NO_EPOCH:
        epoch = expect(run.epochs.get((command.epoch, fencing_token)), epoch=run.run["last_durable_epoch"] + 1)
        has_edges = epoch["status"] in ("OPEN", "ALIGNED") and epoch["unaligned_by"] is not None
        refuse_if(not has_edges, f"epoch {command.epoch} has no durable edges")
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
    refuse_if(not part.output, f"a part of {part.operator_id!r} names no files")
    refuse_unmeasured(part.metrics)
    declared = run.run["definition"]["operators"].get(part.operator_id, {"kind": None})
    totals = {"buckets": run.run["max_buckets"], "value": 1, "frame": 1}
    is_known = part.total == totals.get(declared["kind"])
    refuse_if(not is_known, f"the run has no operator {part.operator_id!r} with {part.total} buckets")
    for known in run.live_parts(epoch, part.operator_id):
        refuse_if(known["total"] != part.total, "a part of another total")
        overlaps = known["first_bucket"] < part.end_bucket and part.first_bucket < known["end_bucket"]
        refuse_if(overlaps, "buckets are finished twice")
    finished = run.operators[part.operator_id]["finished_at"]
    refuse_if(epoch == NO_EPOCH and finished is not None, f"{part.operator_id!r} has finished")
    is_first = epoch == 0 and declared.get("part_of") is None
    is_computed = declared["finishes"] is (epoch == NO_EPOCH) and (declared["role"] != "variable" or is_first)
    refuse_if(not is_computed, f"{part.operator_id!r} is not computed in epoch {epoch}")
    for source in sources_of(run, part.operator_id):
        refuse_if(not _is_behind(run, epoch, part, source), f"{part.operator_id!r} comes before {source!r}")


def _is_behind(run: MemoryRun, epoch: int, part: FinishedPart, source: str) -> bool:
    """Tell whether what a part was computed from is there: data always, a variable but before epoch 0."""
    operators = run.run["definition"]["operators"]
    declared = operators[source]
    if declared["role"] == "data":
        return True
    if declared["finishes"]:
        return run.operators[source]["finished_at"] is not None
    if declared["role"] == "variable" and (epoch != 0 or declared.get("part_of") is not None):
        return True
    edge = run.live_parts(epoch, source)
    if "buckets" == declared["kind"] == operators[part.operator_id]["kind"]:
        there = {bucket for known in edge for bucket in range(known["first_bucket"], known["end_bucket"])}
        return there.issuperset(range(part.first_bucket, part.end_bucket))
    return bool(edge) and sum(known["end_bucket"] - known["first_bucket"] for known in edge) == edge[0]["total"]


def _refuse_voiding(run: MemoryRun, voided: Iterable[MutableRow], fencing_token: int) -> None:
    """Refuse to void what others would find, but by an attempt that has opened no epoch and says why."""
    attempt = expect(run.attempts.get(fencing_token), ended_at=None)
    begun = [e for (_, token), e in run.epochs.items() if token == fencing_token and e["status"] != "VOIDED"]
    for part in voided:
        finished = run.operators.get(part["operator_id"], {}).get("finished_at")
        is_ignored = attempt["ignores_edges"] and (part["epoch"] >= 0 or finished is None)
        is_over = 0 <= part["epoch"] <= run.run["last_durable_epoch"]
        may_void = (is_ignored or attempt["definition_changes"] is not None) and not is_over
        refuse_if(not may_void or bool(begun), f"attempt {fencing_token} may void no edge now")


def refuse_kept_edges(run: MemoryRun, before: MemoryRun) -> None:
    """Refuse an attempt that has begun, ignores edges, and leaves some, or a part of what has not finished for good."""
    for token in run.attempts.keys() - before.attempts.keys():
        left = [
            part
            for part in run.parts
            if part["voided_at"] is None
            and part["fencing_token"] < token
            and not 0 <= part["epoch"] <= run.run["last_durable_epoch"]
            and not (part["epoch"] == NO_EPOCH and run.operators[part["operator_id"]]["finished_at"] is not None)
        ]
        refuse_if(run.attempts[token]["ignores_edges"] and bool(left), f"attempt {token} leaves edges that it ignores")


def _void_edges(run: MemoryRun, command: VoidEdges, fencing_token: int, now: datetime) -> None:
    def is_void(part: MutableRow) -> bool:
        return part["epoch"] > command.after and part["operator_id"] not in command.keeping

    voided = run.void_parts(is_void, now)
    refuse_if(not voided, f"no edge is live after epoch {command.after}")
    _refuse_voiding(run, voided, fencing_token)


def _void_parts(run: MemoryRun, command: VoidParts, fencing_token: int, now: datetime) -> None:
    voided = run.void_parts(lambda part: part["epoch"] == NO_EPOCH and part["operator_id"] in command.operators, now)
    refuse_if(not voided, f"no part of {command.operators} is live")
    _refuse_voiding(run, voided, fencing_token)


def _void_epochs(run: MemoryRun, command: VoidEpochs, _token: int, _now: datetime) -> None:
    voided = [
        epoch
        for (number, _), epoch in run.epochs.items()
        if number > command.after and epoch["status"] in ("OPEN", "ALIGNED")
    ]
    refuse_if(not voided, f"no epoch is open after {command.after}")
    for epoch in voided:
        is_live = run.attempts[epoch["fencing_token"]]["ended_at"] is None
        refuse_if(is_live, f"epoch {epoch['epoch']} is not void while its attempt is live")
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


EPOCH_WRITERS: dict[type[Command], Writer] = {
    OpenEpoch: _open_epoch,
    RecordReports: _record_reports,
    AlignEpoch: _align_epoch,
    SwitchToUnaligned: _switch_to_unaligned,
    RecordParts: _record_parts,
    VoidEdges: _void_edges,
    VoidParts: _void_parts,
    VoidEpochs: _void_epochs,
    MakeEpochsDurable: _make_epochs_durable,
}
