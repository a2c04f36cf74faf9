"""What may a person do to a run, from a process of their own? Abort checkpoints, and ask for one, at any time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import IterationError, RunFinishedError
from iteration_lib.protocol.event import CheckpointAborted, CheckpointRequested, OpenEvent

if TYPE_CHECKING:
    from tests.simulation.world import World


_REPEATS = 0.3  # how often a person's answer is lost, and the same is sent again


def abort_checkpoint(world: World, coordinator: Coordinator) -> str:
    """Abort everything up to a checkpoint: one that is pending, as a rule, or the one that comes next."""
    run = world.oracle.rows.run
    last = run["last_checkpoint_id"]
    checkpoint_id = world.random.choice((last, last + 1) if last > 0 else (1,))
    return _send(world, coordinator, CheckpointAborted(checkpoint_id=checkpoint_id, aborted_by="ann"))


def request_checkpoint(world: World, coordinator: Coordinator) -> str:
    """Ask for a checkpoint by hand."""
    request_id = f"00000000-0000-4000-8001-{len(world.oracle.rows.requests):012d}"
    event = CheckpointRequested(request_id=request_id, requested_by="ann")
    if world.random.random() < _REPEATS:
        _send(world, coordinator, event)
    return _send(world, coordinator, event)


def _send(world: World, coordinator: Coordinator, event: OpenEvent) -> str:
    what = f"a person sends {event}"
    try:
        coordinator.apply(world.run_id, event)
    except IterationError as err:
        world.oracle.nothing_changed("a person's refused event")
        is_late = isinstance(err, RunFinishedError) and world.oracle.rows.run["terminated_by"] is not None
        is_kept = isinstance(event, CheckpointRequested) and event.request_id in world.oracle.rows.requests
        if is_kept or not is_late:
            world.oracle.violate("errors", f"{what}, and is refused with {err!r}")
        world.counters["a person comes too late"] += 1
        return f"{what}: {type(err).__name__}"
    world.oracle.observe(None, said=event)
    _check_answered(world, event)
    return what


def _check_answered(world: World, event: OpenEvent) -> None:
    """See that a person's word is kept, whether or not it changed anything just now."""
    rows = world.oracle.rows
    if isinstance(event, CheckpointRequested):
        kept = event.request_id in rows.requests
    else:
        pending = [known for known, row in rows.checkpoints.items() if row["status"] == "PENDING"]
        kept = not any(known <= event.checkpoint_id for known in pending)
        kept = kept and event.checkpoint_id <= max(rows.run["last_checkpoint_id"], rows.run["aborted_through"])
    if not kept:
        world.oracle.violate("I17", f"a person sent {event}, was answered, and it is forgotten")
