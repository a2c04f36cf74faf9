"""What must never be accepted? Events that no legal driver sends, from the live attempt and from impostors.

Each is made from the rows as they are, so that it is wrong in one way only; it has to be refused, and to change
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from iteration_lib.coordinator import Coordinator
from iteration_lib.driver.attempt import Guard
from iteration_lib.errors import IterationError
from iteration_lib.protocol import Command, Event, decide
from iteration_lib.protocol.command import SetRunStatus
from iteration_lib.protocol.event import (
    AttemptEnded,
    CheckpointAcknowledged,
    CheckpointDeclined,
    CheckpointTriggered,
    DataPinned,
    EpochOpened,
    OperatorFinished,
    OutputsPublished,
    SubtasksAligned,
)
from iteration_lib.protocol.state import AttemptId
from iteration_lib.protocol.status import AttemptOutcome, RunStatus
from iteration_lib.store.memory_write import MemoryRun
from tests.simulation.rows import live_attempts

if TYPE_CHECKING:
    from tests.simulation.world import World

Row = Mapping[str, Any]  # Any: what a column holds
Probe = tuple[str, tuple[Event, ...]]

_HARMLESS = ("finishes again", "declines what is not pending")  # answered, without a change


def probe(world: World, coordinator: Coordinator) -> str:
    """Send one illegal event, or batch; return what it was."""
    rows = world.oracle.rows
    if world.random.random() < 0.1:
        return _write_under_another_token(world, rows)
    probes = list(_probes(rows))
    if not probes:
        return "nothing"
    what, events = world.random.choice(probes)
    world.counters[f"probe: {what}"] += 1
    _ask_the_protocol(world, what, events)
    try:
        coordinator.apply(world.run_id, *events)
    except IterationError:
        pass
    else:
        if what not in _HARMLESS:
            world.oracle.violate("I12", f"a probe that {what} was accepted: {events}")
    world.oracle.nothing_changed(f"a probe that {what}")
    return what


def _ask_the_protocol(world: World, what: str, events: tuple[Event, ...]) -> None:
    """See that the protocol itself refuses, not only the constraints of the store behind it."""
    with world.store.transaction(world.run_id) as transaction:
        state = before = transaction.read_state()
        commands: list[Command] = []
        try:
            for event in events:
                state, decided = decide(state, event, transaction.now)
                commands += decided
        except IterationError:
            return
        finally:
            if before != transaction.read_state():
                world.oracle.violate("I12", f"a probe that {what} changed the state that it was decided from")
    if commands or what not in _HARMLESS:
        world.oracle.violate("I12", f"a probe that {what} was accepted by the protocol: {commands}")


def _write_under_another_token(world: World, rows: MemoryRun) -> str:
    """Write as a stale reader of states would: the store itself has to refuse it."""
    token = rows.run["fencing_token"]
    command = SetRunStatus(status=RunStatus.FAILED, failure="a probe")
    try:
        with world.store.transaction(world.run_id) as transaction:
            transaction.write((command,), world.random.choice((token - 1, token + 1)))
    except IterationError:
        world.counters["probe: store refuses another token"] += 1
    else:
        world.oracle.violate("I2", "the store wrote under another token")
    return "writes under another token"


def _probes(rows: MemoryRun) -> Iterator[Probe]:
    run, live = rows.run, live_attempts(rows)
    token = run["fencing_token"]
    yield "comes from nobody", (_opens(_guard("ffffffff", token), run["last_durable_epoch"] + 1),)
    if not live:
        return
    mine = _guard(live[0]["attempt_id"], token)
    in_force = sorted((e for e in rows.epochs.values() if e["status"] != "VOIDED"), key=lambda e: int(e["epoch"]))
    last = in_force[-1] if in_force else None
    number = last["epoch"] if last is not None else -1
    for impostor in (_guard(live[0]["attempt_id"], token + 1), _guard(live[0]["attempt_id"], token - 1)):
        yield "names another token", (_opens(impostor, number + 1),)
        yield "ends another token", (AttemptEnded(**impostor, outcome=AttemptOutcome.RELEASED),)
    yield "has the token of another", (_opens(_guard("ffffffff", token), number + 1),)
    yield "leaves a gap", (_opens(mine, number + 2),)
    yield "opens an epoch before 0", (_opens(mine, -1),)
    yield "opens without heads", (EpochOpened(**mine, epoch=number + 1, heads={}),)
    yield "opens without subtasks", (EpochOpened(**mine, epoch=number + 1, heads={"criteria": 0}),)
    yield "reports what is not open", (_reports(mine, number + 1, {"criteria": {0: 1}}),)
    yield "triggers what is not there", (_triggers(mine, number + 1),)
    yield "acknowledges what was never triggered", (_acknowledges(mine, run["last_checkpoint_id"] + 1),)
    yield "ends as SUPERSEDED", (AttemptEnded(**mine, outcome=AttemptOutcome.SUPERSEDED),)
    yield "fails without a reason", (AttemptEnded(**mine, outcome=AttemptOutcome.FAILED),)
    if run["status"] != "TERMINATING":
        yield "publishes too early", (OutputsPublished(**mine, outputs={}, state_digest=""),)
    if last is not None:
        yield from _of_epoch(mine, last, rows)
    yield from _of_checkpoints(mine, rows)
    for name in rows.pins:
        yield "pins something else", (DataPinned(**mine, name=name, fingerprint="other", pin={}),)
    for operator_id, operator in rows.operators.items():
        if operator["finished_at"] is not None:
            yield "finishes again", (OperatorFinished(**mine, operator_id=operator_id, output={"files": []}),)


def _of_epoch(mine: Guard, last: Row, rows: MemoryRun) -> Iterator[Probe]:
    """Yield what contradicts the last epoch in force."""
    number, status = last["epoch"], last["status"]
    decision = last["decision"]
    if status == "OPEN":
        yield "opens the next too early", (_opens(mine, number + 1),)
        yield "triggers what is not aligned", (_triggers(mine, number),)
    elif decision["terminated_by"] is not None:
        yield "opens after the last", (_opens(mine, number + 1),)
    if status == "DURABLE":
        return
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
        yield "has no participants", (CheckpointTriggered(**mine, epoch=number, participants={}),)


def _of_checkpoints(mine: Guard, rows: MemoryRun) -> Iterator[Probe]:
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
        else:
            yield (
                "declines what is not pending",
                (CheckpointDeclined(**mine, checkpoint_id=checkpoint_id, reason="late"),),
            )
        if status == "COMPLETED":
            yield "brings another manifest", (_acknowledges(mine, checkpoint_id, {}, "cd" * 32),)


def _guard(attempt_id: str, token: int) -> Guard:
    return {"attempt_id": AttemptId(attempt_id), "fencing_token": token}


def _opens(guard: Guard, epoch: int) -> EpochOpened:
    return EpochOpened(**guard, epoch=epoch, heads={"criteria": 1})


def _reports(guard: Guard, epoch: int, reports: Mapping[str, Mapping[int, int]]) -> SubtasksAligned:
    return SubtasksAligned(**guard, epoch=epoch, reports=reports, metrics={}, seconds=0.0)


def _triggers(guard: Guard, epoch: int) -> CheckpointTriggered:
    return CheckpointTriggered(**guard, epoch=epoch, participants={"criteria": 1})


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
