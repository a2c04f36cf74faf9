"""What becomes of an event that no legal driver sends? It has to be refused, and to change nothing.

`illegal` makes them. Each is put to the protocol and sent through a coordinator; now and then somebody writes past
both, and the store itself has to refuse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import IterationError
from iteration_lib.protocol import Command, Event, decide
from iteration_lib.protocol.command import AbortThrough
from iteration_lib.store.memory_rows import MemoryRun
from tests.simulation.illegal import HARMLESS, SELDOM, illegal_events

if TYPE_CHECKING:
    from tests.simulation.run import SimulatedRun

_SELDOM = 0.7  # how often it is one that is seldom possible, where one is


def probe(run: SimulatedRun, coordinator: Coordinator) -> str:
    """Send one illegal event, or batch; return what it was."""
    world, rows = run.world, run.rows
    if world.random.random() < 0.1:
        return _write_under_another_token(run, rows)
    probes: dict[str, list[tuple[Event, ...]]] = {}
    for what, events in illegal_events(run.program, rows, run.pinned | rows.checkpoint_pins.keys()):
        probes.setdefault(what, []).append(events)
    seldom = [name for name in probes if name in SELDOM]
    what = world.random.choice(seldom if seldom and world.random.random() < _SELDOM else list(probes))
    events = world.random.choice(probes[what])
    world.counters[f"probe: {what}"] += 1
    _ask_the_protocol(run, what, events)
    try:
        coordinator.apply(run.run_id, *events)
    except IterationError as err:
        if what in HARMLESS:
            run.oracle.violate("I12", f"a probe that {what} was refused: {err!r}")
    else:
        if what not in HARMLESS:
            run.oracle.violate("I12", f"a probe that {what} was accepted: {events}")
    run.oracle.nothing_changed(f"a probe that {what}")
    return what


def _ask_the_protocol(run: SimulatedRun, what: str, events: tuple[Event, ...]) -> None:
    """See that the protocol itself refuses, not only the constraints of the store behind it."""
    with run.world.store.transaction(run.run_id) as transaction:
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
                run.oracle.violate("I12", f"a probe that {what} changed the state that it was decided from")
    if commands or what not in HARMLESS:
        run.oracle.violate("I12", f"a probe that {what} was accepted by the protocol: {commands}")


def _write_under_another_token(run: SimulatedRun, rows: MemoryRun) -> str:
    """Write as a stale reader of states would: the store itself has to refuse it."""
    token = rows.run["fencing_token"]
    command = AbortThrough(checkpoint_id=rows.run["last_checkpoint_id"] + 1)
    try:
        with run.world.store.transaction(run.run_id) as transaction:
            transaction.write((command,), run.world.random.choice((token - 1, token + 1)))
    except IterationError:
        run.world.counters["probe: store refuses another token"] += 1
    else:
        run.oracle.violate("I2", "the store wrote under another token")
    return "writes under another token"
