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
    CheckpointPinned,
    CheckpointsDiscarded,
    CheckpointTriggered,
    Committable,
    DataPinned,
    DefinitionChanged,
    EpochOpened,
    FellBack,
    ListenerNotified,
    OperatorFinished,
    OutputsPublished,
    SubtasksAligned,
)
from iteration_lib.protocol.state import AttemptId, CheckpointState, FailedOperator
from iteration_lib.protocol.status import AttemptOutcome, CheckpointFailure, CheckpointStatus
from iteration_lib.store.memory_rows import MemoryRun
from iteration_lib.store.row import checkpoint_state
from tests.simulation.change import Row, is_held, live_attempts, of_status, origin_epoch, terminated_by
from tests.simulation.illegal_parts import illegal_parts
from tests.simulation.programs import Program
from tests.simulation.stop_rows import is_asked_to_stop

Illegal = tuple[str, tuple[Event, ...]]

HARMLESS = frozenset(
    {
        "finishes again",
        "declines what is not pending",
        "triggers what is held",
        "triggers behind an open epoch",
        "opens too early, if it is ready",
        "marks parts behind an epoch that is not durable",
        "marks parts of an epoch that aligned without a switch",
        "switches an epoch that has aligned",
        "notifies again",
        "aborts what has ended",
        "aborts what held an epoch that its attempt has left",
    }
)

# What is possible in few states, or for a moment.
SELDOM = frozenset(
    {
        "aborts what held an epoch that its attempt has left",
        "acknowledges for nobody",
        "commits less than is published",
        "commits more than is published",
        "contradicts itself",
        "discards what is pinned",
        "falls back behind what is heard",
        "falls back behind what is pinned",
        "falls back to what has no files",
        "falls back too late",
        "has half a manifest",
        "has no participants",
        "lacks an acknowledgement",
        "marks buckets of another total",
        "marks buckets that are marked in part",
        "marks no bucket",
        "marks too many buckets",
        "marks what comes before half of its input",
        "marks what comes before its bucket",
        "marks what comes before its input",
        "opens after too many failures",
        "opens while it is asked to stop",
        "publishes what is not committed",
        "publishes while a hand-made one is pending",
        "triggers behind an open epoch",
        "triggers what is held",
    }
)


def illegal_events(program: Program, rows: MemoryRun, pinned: Collection[int]) -> Iterator[Illegal]:
    """Yield what must not be accepted now, each in words; `pinned` are the checkpoints that others need."""
    run = rows.run
    stranger = _guard("ffffffff", run["fencing_token"])
    yield "comes from nobody", (_opens(stranger, run["last_durable_epoch"] + 1),)
    for far in (0, run["last_checkpoint_id"] + 2):
        yield "aborts a checkpoint far away", (CheckpointAborted(checkpoint_id=far, aborted_by="ann"),)
    yield "discards what was never triggered", (CheckpointsDiscarded(checkpoint_ids=(run["last_checkpoint_id"] + 1,)),)
    yield "discards for another", (CheckpointsDiscarded(checkpoint_ids=(), attempt_id=stranger["attempt_id"]),)
    if not live_attempts(rows) and is_held(rows):
        ended = CheckpointAborted(checkpoint_id=run["last_checkpoint_id"], aborted_by="ann")
        yield "aborts what held an epoch that its attempt has left", (ended,)
    for live in live_attempts(rows):
        mine = _guard(live["attempt_id"], run["fencing_token"])
        yield from _of_attempt(mine, program, rows)
        yield from _of_fallback(mine, rows, pinned)
    yield from _of_retention(rows, pinned)


def _of_attempt(mine: Guard, program: Program, rows: MemoryRun) -> Iterator[Illegal]:
    """Yield what the live attempt must not say, or nobody else in its name."""
    in_force = sorted((e for e in rows.epochs.values() if e["status"] != "VOIDED"), key=lambda e: int(e["epoch"]))
    last = in_force[-1] if in_force else None
    number = last["epoch"] if last is not None else rows.run["last_durable_epoch"]
    for token in (mine["fencing_token"] + 1, mine["fencing_token"] - 1):
        impostor = _guard(mine["attempt_id"], token)
        yield "names another token", (_opens(impostor, number + 1),)
        yield "ends another token", (AttemptEnded(**impostor, outcome=AttemptOutcome.RELEASED),)
    yield "has the token of another", (_opens(_guard("ffffffff", mine["fencing_token"]), number + 1),)
    yield "leaves a gap", (_opens(mine, number + 2),)
    yield "opens an epoch before 0", (_opens(mine, -1),)
    yield "opens without heads", (EpochOpened(**mine, epoch=number + 1, heads={}),)
    yield "opens without subtasks", (EpochOpened(**mine, epoch=number + 1, heads={"criteria": 0}),)
    yield "reports what is not open", (_reports(mine, number + 1, {"criteria": {0: 1}}),)
    yield "triggers what is not there", (_triggers(mine, rows, number + 1),)
    yield "acknowledges what was never triggered", (_acknowledges(mine, rows.run["last_checkpoint_id"] + 1),)
    for name in rows.pins:
        yield "pins something else", (DataPinned(**mine, name=name, fingerprint="other", pin={}),)
    for operator_id, operator in rows.operators.items():
        if operator["finished_at"] is not None:
            yield "finishes again", (OperatorFinished(**mine, operator_id=operator_id, output={"files": []}),)
    yield from _of_the_end(mine)
    yield from _of_listeners(mine, program, rows)
    if last is not None:
        yield from _of_epoch(mine, last, rows)
    yield from _of_checkpoints(mine, program, rows)
    yield from illegal_parts(mine, program, rows, last)
    if last is not None:
        yield from _of_the_next(mine, last, rows)
    yield from _of_publishing(mine, rows)


def _of_the_end(mine: Guard) -> Iterator[Illegal]:
    """Yield what ends an attempt as none ends."""
    yield "ends as SUPERSEDED", (AttemptEnded(**mine, outcome=AttemptOutcome.SUPERSEDED),)
    yield "fails without a reason", (AttemptEnded(**mine, outcome=AttemptOutcome.FAILED),)
    culprit = FailedOperator(operator_id="nobody", epoch=0)
    yield "lets go, and blames", (AttemptEnded(**mine, outcome=AttemptOutcome.RELEASED, failed=culprit),)


def _of_the_next(mine: Guard, last: Row, rows: MemoryRun) -> Iterator[Illegal]:
    """Yield what comes too early behind the last epoch in force, or must not come at all."""
    number, status, decision = last["epoch"], last["status"], last["decision"]
    if status == "OPEN":
        yield "opens the next too early", (_opens(mine, number + 1),)
        yield "opens too early, if it is ready", (_opens(mine, number + 1, if_ready=True),)
        covered = max((known["epoch"] for known in of_status(rows.checkpoints, "PENDING")), default=-1)
        is_aligned = any(known["epoch"] == number - 1 for known in of_status(rows.epochs, "ALIGNED"))
        if is_aligned and covered < number - 1:
            yield "triggers behind an open epoch", (_triggers(mine, rows, number - 1),)
        if last["held_at"] is not None:
            yield "triggers what is held", (_triggers(mine, rows, number),)
        else:
            yield "triggers what is not aligned", (_triggers(mine, rows, number),)
    elif decision["terminated_by"] is not None:
        yield "opens after the last", (_opens(mine, number + 1),)
    elif _has_failed(rows):
        yield "opens after too many failures", (_opens(mine, number + 1),)
    elif is_asked_to_stop(rows) and status == "ALIGNED":
        yield "opens while it is asked to stop", (_opens(mine, number + 1),)


def _of_epoch(mine: Guard, last: Row, rows: MemoryRun) -> Iterator[Illegal]:
    """Yield what contradicts the last epoch in force."""
    number, status = last["epoch"], last["status"]
    if status == "DURABLE":
        return
    for older in of_status(rows.checkpoints, "SUBSUMED"):
        yield "falls back too late", (_falls_back(mine, checkpoint_state(older)),)
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


def _of_publishing(mine: Guard, rows: MemoryRun) -> Iterator[Illegal]:
    """Yield what publishes the outputs of a run that is not at its end."""
    publishes = (OutputsPublished(**mine, outputs={}, state_digest=""),)
    if rows.run["status"] != "TERMINATING":
        yield "publishes too early", publishes
    elif of_status(rows.checkpoints, "PENDING"):
        yield "publishes while a hand-made one is pending", publishes
    elif any(row["committed_at"] is None for row in rows.committables.values()):
        yield "publishes what is not committed", publishes


def _of_fallback(mine: Guard, rows: MemoryRun, pinned: Collection[int]) -> Iterator[Illegal]:
    """Yield what falls back to something else than an older checkpoint with files, or behind what others had."""
    is_going = of_status(rows.epochs, "OPEN", "ALIGNED")
    for row in of_status(rows.checkpoints, "COMPLETED") if rows.run["status"] == "RUNNING" and not is_going else ():
        newest = checkpoint_state(row)
        newer = replace(newest, checkpoint_id=newest.checkpoint_id + 1, status=CheckpointStatus.SUBSUMED)
        yield "falls back to what is newer", (_falls_back(mine, newer),)
        before = replace(newest, epoch=newest.epoch - 1, status=CheckpointStatus.SUBSUMED)
        for known in pinned:
            older = replace(before, checkpoint_id=known - 1)
            yield "falls back behind what is pinned", (_falls_back(mine, older),)
        for older in map(checkpoint_state, of_status(rows.checkpoints, "SUBSUMED")):
            lost = replace(older, status=CheckpointStatus.ABORTED)
            yield "falls back to what has no files", (_falls_back(mine, lost),)
            if any(epoch > older.epoch for _, epoch in rows.notices):
                yield "falls back behind what is heard", (_falls_back(mine, older),)


def _of_checkpoints(mine: Guard, program: Program, rows: MemoryRun) -> Iterator[Illegal]:
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
            yield from _of_committables(mine, program, rows, checkpoint)
        else:
            yield "declines what is not pending", (_declines(mine, checkpoint_id, CheckpointFailure.EXPIRED),)
            if all(c["status"] != "PENDING" for known, c in rows.checkpoints.items() if known <= checkpoint_id):
                yield "aborts what has ended", (CheckpointAborted(checkpoint_id=checkpoint_id, aborted_by="ann"),)
        if status == "COMPLETED":
            yield "brings another manifest", (_acknowledges(mine, checkpoint_id, {}, "cd" * 32),)


def _of_committables(mine: Guard, program: Program, rows: MemoryRun, checkpoint: Row) -> Iterator[Illegal]:
    """Yield what completes a checkpoint with something else than its epochs publish; one that comes late has none."""
    aligned = of_status(rows.epochs, "ALIGNED")
    covered = sorted((e for e in aligned if e["epoch"] <= checkpoint["epoch"]), key=lambda e: int(e["epoch"]))
    if not covered:
        return
    wanted = [
        Committable(epoch=epoch["epoch"], output=output, target="a probe", content={})
        for epoch in covered
        for output, sink in program.graph.sinks.items()
        if sink.each_epoch or terminated_by(epoch) is not None
    ]
    all_of_it = {name: tuple(range(len(values))) for name, values in checkpoint["acknowledgements"].items()}
    completes = _acknowledges(mine, checkpoint["checkpoint_id"], all_of_it, "ab" * 32)
    other = Committable(epoch=checkpoint["epoch"], output="nobody", target="a probe", content={})
    yield "commits more than is published", (replace(completes, committables=(*wanted, other)),)
    if wanted:
        yield "commits less than is published", (replace(completes, committables=tuple(wanted[1:])),)


def _of_retention(rows: MemoryRun, pinned: Collection[int]) -> Iterator[Illegal]:
    """Yield what pins a checkpoint that is not there, or discards one that is needed; with one that is not, too."""
    for row in of_status(rows.checkpoints, "PENDING", "ABORTED", "DISCARDED"):
        known, status = row["checkpoint_id"], CheckpointStatus(row["status"])
        yield "pins what has no files", (CheckpointPinned(checkpoint_id=known, status=status, pinned_by="ann"),)
    free = tuple(
        c["checkpoint_id"] for c in of_status(rows.checkpoints, "SUBSUMED") if c["checkpoint_id"] not in pinned
    )
    if rows.run["status"] != "DELETED":
        for newest in of_status(rows.checkpoints, "COMPLETED"):
            yield "discards the newest", (CheckpointsDiscarded(checkpoint_ids=(*free, newest["checkpoint_id"])),)
    for checkpoint_id in pinned:
        yield "discards what is pinned", (CheckpointsDiscarded(checkpoint_ids=(*free, checkpoint_id)),)


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


def _has_failed(rows: MemoryRun) -> bool:
    """Tell whether more checkpoints have failed in a row than the last attempt puts up with."""
    last = rows.attempts[max(rows.attempts)]
    return int(last["checkpoint_failures"]) > int(last["policy"]["tolerable_failures"])


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


def _falls_back(guard: Guard, to: CheckpointState) -> FellBack:
    return FellBack(**guard, checkpoint=to, reason="a probe", published=frozenset())


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
