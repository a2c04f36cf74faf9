"""What may a person do to a run, from a process of their own, in one call? At any time:

abort checkpoints, ask for one, discard those that nobody needs, pin one or release it, stop the run or drain it, resume
it, delete it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import (
    CheckpointNotFoundError,
    IterationError,
    LeaseHeldError,
    RunDeletedError,
    RunFinishedError,
    RunNotStoppedError,
    RunStoppedError,
    StopRefusedError,
)
from iteration_lib.protocol.event import (
    CheckpointAborted,
    CheckpointPinned,
    CheckpointReleased,
    CheckpointRequested,
    OpenEvent,
    RunDeleted,
    RunResumed,
    StopRequested,
)
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.state import AttemptId
from iteration_lib.protocol.status import CheckpointStatus, StopKind
from tests.simulation.change import live_attempts, of_status
from tests.simulation.stop_rows import is_asked_otherwise
from tests.simulation.swarm import draw_retention

if TYPE_CHECKING:
    from tests.simulation.run import SimulatedRun


_THERE = 0.8  # how often a person who pins a checkpoint looks first which are there
_EARLY, _EARLY_AT_REST = 0.3, 0.1  # how often a person aborts what comes next: while another one is pending, or none
_REPEATS = 0.3  # how often a person's answer is lost, and the same is sent again
_RELEASES = 0.4  # how often a person lets go what one has pinned
_PROVES = 0.5  # how often a person can prove that whoever drives the run is gone


def abort_checkpoint(run: SimulatedRun, coordinator: Coordinator) -> str:
    """Abort everything up to a checkpoint: one that is pending, as a rule, or the one that comes next."""
    random, last = run.world.random, run.rows.run["last_checkpoint_id"]
    is_pending = bool(of_status(run.rows.checkpoints, "PENDING"))
    is_early = last == 0 or random.random() < (_EARLY if is_pending else _EARLY_AT_REST)
    checkpoint_id = last + 1 if is_early else last
    return _send(run, coordinator, CheckpointAborted(checkpoint_id=checkpoint_id, aborted_by="ann"))


def request_checkpoint(run: SimulatedRun, coordinator: Coordinator) -> str:
    """Ask for a checkpoint by hand."""
    number = f"{run.world.runs.index(run):04d}{len(run.rows.requests):08d}"
    event = CheckpointRequested(request_id=f"00000000-0000-4000-8001-{number}", requested_by="ann")
    if run.world.random.random() < _REPEATS:
        _send(run, coordinator, event)
    return _send(run, coordinator, event)


def discard_by_hand(run: SimulatedRun, coordinator: Coordinator, policy: CheckpointPolicy | None = None) -> str:
    """Discard what another policy than any attempt's does not keep."""
    policy = policy or draw_retention(run.world.random)
    discarded = coordinator.discard(run.run_id, policy)
    run.oracle.observe(None, keeping=policy)
    return f"a person discards {discarded} of {run.name}"


def pin_or_release(run: SimulatedRun, coordinator: Coordinator) -> str:
    """Pin any checkpoint that there ever was, as a rule one that is there, or release one that is pinned, or is not."""
    random, pins, known = run.world.random, list(run.rows.checkpoint_pins), list(run.rows.checkpoints)
    if not known:
        return f"a person finds no checkpoint of {run.name} to pin"
    if random.random() < _RELEASES:
        return _send(run, coordinator, CheckpointReleased(checkpoint_id=random.choice(pins or known)))
    there = [row["checkpoint_id"] for row in of_status(run.rows.checkpoints, "COMPLETED", "SUBSUMED")]
    checkpoint_id = random.choice(there if there and random.random() < _THERE else known)
    what = f"a person pins checkpoint {checkpoint_id} of {run.name}"
    try:
        coordinator.pin(run.run_id, checkpoint_id, pinned_by="ann")
    except CheckpointNotFoundError:
        run.oracle.nothing_changed("a person's pin of what is not there")
        if checkpoint_id in there:
            run.oracle.violate("I18", f"{what}, and it is not found")
        run.world.counters["pin by hand refused"] += 1
        return f"{what}, and it is not there"
    status = CheckpointStatus(run.rows.checkpoints[checkpoint_id]["status"])
    event = CheckpointPinned(checkpoint_id=checkpoint_id, status=status, pinned_by="ann")
    run.oracle.observe(None, said=event)
    _check_answered(run, event)
    return what


def delete_run(run: SimulatedRun, coordinator: Coordinator) -> str:
    """Delete a run; who drives it is proved to be gone, or not."""
    live = live_attempts(run.rows)
    gone = AttemptId(live[0]["attempt_id"]) if live and run.world.random.random() < _PROVES else None
    event = RunDeleted(deleted_by="ann", gone_attempt_id=gone)
    what = f"a person deletes {run.name}"
    try:
        coordinator.apply(run.run_id, event)
    except LeaseHeldError:
        run.oracle.deletion_was_held(event)
        return f"{what}, and it is held"
    run.oracle.observe(None, said=event)
    if run.status != "DELETED":
        run.oracle.violate("errors", f"{what}, was answered, and it is {run.status}")
    return what


def stop_run(run: SimulatedRun, coordinator: Coordinator, kind: StopKind) -> str:
    """Ask a run to stop or to drain: anew, as a rule, or once more, because nothing came of it yet."""
    live = live_attempts(run.rows)
    gone = AttemptId(live[0]["attempt_id"]) if live and run.world.random.random() < _PROVES else None
    known = list(run.rows.stops)
    number = f"{run.world.runs.index(run):04d}{len(known):08d}"
    is_new = not known or run.world.random.random() > _REPEATS
    stop_id = f"00000000-0000-4000-8002-{number}" if is_new else known[-1]
    kind = kind if is_new else StopKind(run.rows.stops[stop_id]["kind"])
    event = StopRequested(stop_id=stop_id, kind=kind, requested_by="ann", gone_attempt_id=gone)
    return _send(run, coordinator, event)


def resume_run(run: SimulatedRun, coordinator: Coordinator) -> str:
    """Let a run go on that was stopped, or try to."""
    stop_id = next(reversed(run.rows.stops), "00000000-0000-4000-8002-999999999999")
    return _send(run, coordinator, RunResumed(stop_id=stop_id, resumed_by="ann"))


def _send(run: SimulatedRun, coordinator: Coordinator, event: OpenEvent) -> str:
    what = f"a person sends {event} to {run.name}"
    try:
        coordinator.apply(run.run_id, event)
    except IterationError as err:
        run.oracle.nothing_changed("a person's refused event")
        is_late = isinstance(err, RunFinishedError) and run.rows.run["terminated_by"] is not None
        is_late = is_late or (isinstance(err, RunDeletedError) and run.status == "DELETED")
        is_late = is_late or (isinstance(err, RunStoppedError) and run.status == "STOPPED")
        is_late = is_late or (isinstance(err, RunNotStoppedError) and run.status != "STOPPED")
        is_other = isinstance(event, StopRequested) and is_asked_otherwise(run.rows, event.kind.value)
        is_late = is_late or (isinstance(err, StopRefusedError) and (is_other or run.status == "FAILED"))
        is_kept = isinstance(event, CheckpointRequested) and event.request_id in run.rows.requests
        if is_kept or not is_late:
            run.oracle.violate("errors", f"{what}, and is refused with {err!r}")
        run.world.counters["a person comes too late"] += 1
        run.world.counters["a person cannot stop a run and drain it"] += is_other and isinstance(err, StopRefusedError)
        return f"{what}: {type(err).__name__}"
    run.oracle.observe(None, said=event)
    _check_answered(run, event)
    return what


def _check_answered(run: SimulatedRun, event: OpenEvent) -> None:
    """See that a person's word is kept, whether or not it changed anything just now."""
    rows, kept = run.rows, False
    if isinstance(event, CheckpointRequested):
        kept = event.request_id in rows.requests
    elif isinstance(event, CheckpointAborted):
        pending = [known for known, row in rows.checkpoints.items() if row["status"] == "PENDING"]
        kept = not any(known <= event.checkpoint_id for known in pending)
        kept = kept and event.checkpoint_id <= max(rows.run["last_checkpoint_id"], rows.run["aborted_through"])
    elif isinstance(event, StopRequested):
        kept = event.stop_id in rows.stops or any(
            (row["resumed_at"], row["kind"]) == (None, event.kind.value) for row in rows.stops.values()
        )
    elif isinstance(event, CheckpointPinned | CheckpointReleased):
        kept = (event.checkpoint_id in rows.checkpoint_pins) is isinstance(event, CheckpointPinned)
    elif isinstance(event, RunResumed):
        kept = rows.stops[event.stop_id]["resumed_at"] is not None
    if not kept:
        run.oracle.violate("I17", f"a person sent {event}, was answered, and it is forgotten")
