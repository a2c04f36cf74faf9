"""Which events must never be accepted? Those that no legal driver and no sane person sends.

Each is made from the rows as they are, so that it is wrong in one way only. A few are harmless instead: they have to be
answered, without a change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from iteration_lib.driver.attempt import Guard
from iteration_lib.protocol import Event
from iteration_lib.protocol.event import (
    AttemptEnded,
    CheckpointAborted,
    CheckpointAcknowledged,
    CheckpointDeclined,
    CheckpointsDiscarded,
    CheckpointTriggered,
    DataPinned,
    DefinitionChanged,
    EpochOpened,
    FellBack,
    ListenerNotified,
    OperatorFinished,
    OutputsPublished,
    SubtasksAligned,
)
from iteration_lib.protocol.state import AttemptId
from iteration_lib.protocol.status import AttemptOutcome, CheckpointFailure
from iteration_lib.store.memory_rows import MemoryRun
from iteration_lib.store.row import one_checkpoint_state
from tests.simulation.change import Row, live_attempts, of_status, origin_epoch
from tests.simulation.illegal_parts import illegal_parts
from tests.simulation.programs import Program

Illegal = tuple[str, tuple[Event, ...]]

HARMLESS = frozenset(
    {
        "finishes again",
        "declines what is not pending",
        "triggers what is held",
        "opens too early, if it is ready",
        "marks parts of an epoch that has aligned",
        "switches an epoch that has aligned",
        "notifies again",
        "aborts what has ended",
    }
)


def illegal_events(program: Program, rows: MemoryRun, pinned: Collection[int]) -> Iterator[Illegal]:
    """Yield what must not be accepted now, each in words; `pinned` are the checkpoints that others need."""
    run, live = rows.run, live_attempts(rows)
    token, last_id = run["fencing_token"], run["last_checkpoint_id"]
    yield "comes from nobody", (_opens(_guard("ffffffff", token), run["last_durable_epoch"] + 1),)
    for far in (0, last_id + 2):
        yield "aborts a checkpoint far away", (CheckpointAborted(checkpoint_id=far, aborted_by="ann"),)
    yield from _of_retention(rows, pinned)
    if not live:
        return
    mine = _guard(live[0]["attempt_id"], token)
    in_force = sorted((e for e in rows.epochs.values() if e["status"] != "VOIDED"), key=lambda e: int(e["epoch"]))
    last = in_force[-1] if in_force else None
    number = last["epoch"] if last is not None else run["last_durable_epoch"]
    for impostor in (_guard(live[0]["attempt_id"], token + 1), _guard(live[0]["attempt_id"], token - 1)):
        yield "names another token", (_opens(impostor, number + 1),)
        yield "ends another token", (AttemptEnded(**impostor, outcome=AttemptOutcome.RELEASED),)
    yield "has the token of another", (_opens(_guard("ffffffff", token), number + 1),)
    yield "leaves a gap", (_opens(mine, number + 2),)
    yield "opens an epoch before 0", (_opens(mine, -1),)
    yield "opens without heads", (EpochOpened(**mine, epoch=number + 1, heads={}),)
    yield "opens without subtasks", (EpochOpened(**mine, epoch=number + 1, heads={"criteria": 0}),)
    yield "reports what is not open", (_reports(mine, number + 1, {"criteria": {0: 1}}),)
    yield "triggers what is not there", (_triggers(mine, rows, number + 1),)
    yield "acknowledges what was never triggered", (_acknowledges(mine, last_id + 1),)
    yield "ends as SUPERSEDED", (AttemptEnded(**mine, outcome=AttemptOutcome.SUPERSEDED),)
    yield "fails without a reason", (AttemptEnded(**mine, outcome=AttemptOutcome.FAILED),)
    if run["status"] != "TERMINATING":
        yield "publishes too early", (OutputsPublished(**mine, outputs={}, state_digest=""),)
    if last is not None:
        yield from _of_epoch(mine, last, rows)
    yield from illegal_parts(mine, program, rows, last)
    yield from _of_checkpoints(mine, rows)
    yield from _of_listeners(mine, program, rows)
    for name in rows.pins:
        yield "pins something else", (DataPinned(**mine, name=name, fingerprint="other", pin={}),)
    for operator_id, operator in rows.operators.items():
        if operator["finished_at"] is not None:
            yield "finishes again", (OperatorFinished(**mine, operator_id=operator_id, output={"files": []}),)


def _of_epoch(mine: Guard, last: Row, rows: MemoryRun) -> Iterator[Illegal]:
    """Yield what contradicts the last epoch in force."""
    number, status = last["epoch"], last["status"]
    decision = last["decision"]
    if status == "OPEN":
        yield "opens the next too early", (_opens(mine, number + 1),)
        yield "opens too early, if it is ready", (_opens(mine, number + 1, if_ready=True),)
        held = "triggers what is held" if last["held_at"] is not None else "triggers what is not aligned"
        yield held, (_triggers(mine, rows, number),)
    elif decision["terminated_by"] is not None:
        yield "opens after the last", (_opens(mine, number + 1),)
    if status == "DURABLE":
        return
    for older in of_status(rows.checkpoints, "SUBSUMED"):
        checkpoint = one_checkpoint_state([older])
        if checkpoint is not None:
            yield (
                "falls back too late",
                (FellBack(**mine, checkpoint=checkpoint, reason="a probe", published=frozenset()),),
            )
    yield "changes the operators too late", (DefinitionChanged(**mine, definition={"operators": {}}, changes=("all",)),)
    for head, counts in last["records"].items():
        yield "has too many subtasks", (_reports(mine, number, {head: {len(counts): 1}}),)
        yield "has subtask -1", (_reports(mine, number, {head: {-1: 1}}),)
        for index, count in enumerate(counts):
            if count is not None:
                yield "contradicts itself", (_reports(mine, number, {head: {index: count + 1}}),)
            else:
                yield "counts below 0", (_reports(mine, number, {head: {index: -1}}),)
                good = _reports(mine, number, {head: {index: 0}})
                yield "is half good", (good, _reports(mine, number, {"nobody": {0: 1}}))
    yield "names no head", (_reports(mine, number, {"nobody": {0: 1}}),)
    if status == "ALIGNED" and not any(c["status"] == "PENDING" for c in rows.checkpoints.values()):
        yield "has no participants", (replace(_triggers(mine, rows, number), participants={}),)


def _of_checkpoints(mine: Guard, rows: MemoryRun) -> Iterator[Illegal]:
    for checkpoint_id, checkpoint in rows.checkpoints.items():
        status = checkpoint["status"]
        if status == "PENDING":
            missing = {
                name: tuple(index for index in range(len(values) - 1))
                for name, values in checkpoint["acknowledgements"].items()
            }
            if any(values[-1] is None for values in checkpoint["acknowledgements"].values()):
                yield "lacks an acknowledgement", (_acknowledges(mine, checkpoint_id, missing, "ab" * 32),)
            yield "has half a manifest", (_acknowledges(mine, checkpoint_id, missing, None, path="x"),)
            yield "acknowledges for nobody", (_acknowledges(mine, checkpoint_id, {"nobody": (0,)}),)
            yield "declines as a person", (_declines(mine, checkpoint_id, CheckpointFailure.ABORTED_BY_USER),)
        else:
            yield "declines what is not pending", (_declines(mine, checkpoint_id, CheckpointFailure.EXPIRED),)
            if all(c["status"] != "PENDING" for known, c in rows.checkpoints.items() if known <= checkpoint_id):
                yield "aborts what has ended", (CheckpointAborted(checkpoint_id=checkpoint_id, aborted_by="ann"),)
        if status == "COMPLETED":
            yield "brings another manifest", (_acknowledges(mine, checkpoint_id, {}, "cd" * 32),)


def _of_retention(rows: MemoryRun, pinned: Collection[int]) -> Iterator[Illegal]:
    """Yield what discards a checkpoint that there is not, or that is needed; with one that is not, too."""
    yield (
        "discards what was never triggered",
        (CheckpointsDiscarded(checkpoint_ids=(rows.run["last_checkpoint_id"] + 1,)),),
    )
    free = tuple(
        c["checkpoint_id"] for c in of_status(rows.checkpoints, "SUBSUMED") if c["checkpoint_id"] not in pinned
    )
    for checkpoint_id in pinned:
        yield "discards what is pinned", (CheckpointsDiscarded(checkpoint_ids=(*free, checkpoint_id)),)
    if rows.run["status"] != "DELETED":
        for newest in of_status(rows.checkpoints, "COMPLETED"):
            yield "discards the newest", (CheckpointsDiscarded(checkpoint_ids=(*free, newest["checkpoint_id"])),)


def _of_listeners(mine: Guard, program: Program, rows: MemoryRun) -> Iterator[Illegal]:
    durable, origin = rows.run["last_durable_epoch"], origin_epoch(rows)
    for listener in program.graph.listeners:
        known = max((epoch for name, epoch in rows.notices if name == listener.listener_id), default=origin)
        if known == durable:
            yield "notifies of what is not durable", (_notifies(mine, listener.listener_id, durable + 1),)
        if known + 2 <= durable:
            yield "notifies out of order", (_notifies(mine, listener.listener_id, known + 2),)
        if known >= 0:
            yield "notifies again", (_notifies(mine, listener.listener_id, known),)
        if rows.run["terminated_by"] is None:
            yield "notifies of an end that is none", (_notifies(mine, "told", max(durable, origin + 1), is_final=True),)
        elif durable > 0 and known < durable - 1:
            yield "notifies of another end", (_notifies(mine, "told", durable - 1, is_final=True),)


def _guard(attempt_id: str, token: int) -> Guard:
    return {"attempt_id": AttemptId(attempt_id), "fencing_token": token}


def _opens(guard: Guard, epoch: int, *, if_ready: bool = False) -> EpochOpened:
    return EpochOpened(**guard, epoch=epoch, heads={"criteria": 1}, if_ready=if_ready)


def _reports(guard: Guard, epoch: int, reports: Mapping[str, Mapping[int, int]]) -> SubtasksAligned:
    return SubtasksAligned(**guard, epoch=epoch, reports=reports, metrics={}, seconds=0.0)


def _triggers(guard: Guard, rows: MemoryRun, epoch: int) -> CheckpointTriggered:
    last_id = rows.run["last_checkpoint_id"]
    return CheckpointTriggered(**guard, epoch=epoch, participants={"criteria": 1}, last_checkpoint_id=last_id)


def _declines(guard: Guard, checkpoint_id: int, failure: CheckpointFailure) -> CheckpointDeclined:
    return CheckpointDeclined(**guard, checkpoint_id=checkpoint_id, reason="a probe", failure=failure)


def _notifies(guard: Guard, listener_id: str, epoch: int, *, is_final: bool = False) -> ListenerNotified:
    return ListenerNotified(**guard, listener_id=listener_id, epoch=epoch, is_final=is_final)


def _acknowledges(
    guard: Guard,
    checkpoint_id: int,
    acknowledgements: Mapping[str, tuple[int, ...]] | None = None,
    sha256: str | None = None,
    path: str | None = None,
) -> CheckpointAcknowledged:
    return CheckpointAcknowledged(
        **guard,
        checkpoint_id=checkpoint_id,
        acknowledgements=acknowledgements or {},
        manifest_path=path or ("probe.json" if sha256 is not None else None),
        manifest_sha256=sha256,
        size_bytes=1,
    )
