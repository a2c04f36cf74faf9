"""What if a call arrives twice, or late? Events of any attempt, also of one that is gone, are applied again.

What was committed before changes nothing; what was not may still come true while its attempt is in force, and never
afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import (
    IterationError,
    LeaseHeldError,
    ProtocolViolationError,
    RunDeletedError,
    RunFinishedError,
    RunStoppedError,
    SupersededError,
)
from iteration_lib.protocol.event import AttemptOpened, SubtasksAligned
from tests.simulation.change import live_attempts
from tests.simulation.ports import FORGOTTEN

if TYPE_CHECKING:
    from tests.simulation.attempt import SimulatedAttempt
    from tests.simulation.ports import Said
    from tests.simulation.world import World

_RECENT = 6


def echo(world: World, attempt: SimulatedAttempt, coordinator: Coordinator) -> str:
    """Apply something that this attempt said again; return what, and what became of it."""
    oracle = attempt.run.oracle
    heard = attempt.said if world.random.random() < 0.5 else attempt.said[-_RECENT:]
    said = world.random.choice(heard)
    what = "+".join(type(event).__name__ for event in said.events)
    was_live = _is_live(attempt)
    try:
        coordinator.apply(attempt.run.run_id, *said.events)
    except IterationError as err:
        oracle.nothing_changed("a refused echo", attempt)
        _refused(world, attempt, said, err, was_live=was_live)
        return f"{what}: {type(err).__name__}"
    return f"{what}: {_answered(world, attempt, said, was_live=was_live)}"


def _refused(world: World, attempt: SimulatedAttempt, said: Said, err: IterationError, *, was_live: bool) -> None:
    oracle = attempt.run.oracle
    claims = isinstance(said.events[0], AttemptOpened)
    if isinstance(err, SupersededError):
        world.counters[f"echo of an {'old claim' if claims else 'attempt not in force'} refused"] += 1
        if was_live:
            oracle.violate("echo", f"attempt {attempt.number} is in force, and an echo of it was refused: {err}")
    elif isinstance(err, RunFinishedError) and claims and oracle.rows.run["status"] == "FINISHED":
        world.counters["echo of a claim refused by a finished run"] += 1
    elif isinstance(err, RunStoppedError) and claims and oracle.rows.run["status"] == "STOPPED":
        world.counters["echo of a claim refused by a stopped run"] += 1
    elif isinstance(err, RunDeletedError) and claims and oracle.rows.run["status"] == "DELETED":
        world.counters["echo of a claim refused by a deleted run"] += 1
    elif isinstance(err, LeaseHeldError) and claims:
        oracle.claim_was_held(attempt)
    elif isinstance(err, ProtocolViolationError) and FORGOTTEN in attempt.hurt:
        world.counters["echo of what goes by a forgotten commit refused"] += 1
    else:
        oracle.violate("echo", f"an echo of attempt {attempt.number} was refused with {err!r}")


def _answered(world: World, attempt: SimulatedAttempt, said: Said, *, was_live: bool) -> str:
    oracle = attempt.run.oracle
    before = oracle.revision
    oracle.observe(attempt)
    changed = oracle.revision != before
    if changed and oracle.rows.stops and isinstance(said.events[0], AttemptOpened):
        world.counters["echo of a claim heard by a run that was to stop"] += 1
        return "committed"  # it may stop the run as a person asks, and opens nothing then that anybody remembers
    if changed and said.committed and not said.was_held:
        oracle.violate("echo", f"an echo of attempt {attempt.number} changed rows a second time")
    if changed and not was_live and not _is_live(attempt):
        oracle.violate("echo", f"attempt {attempt.number} is not in force, and an echo of it changed rows")
    if changed:
        said.note_commit(oracle.rows)
        world.counters["delayed call committed"] += 1
        return "committed"
    world.counters["echo answered without a change"] += 1
    if isinstance(said.events[0], SubtasksAligned):
        world.counters["duplicate report answered without a change"] += 1
    return "no change"


def _is_live(attempt: SimulatedAttempt) -> bool:
    return any(live["attempt_id"] == attempt.attempt_id for live in live_attempts(attempt.run.rows))
