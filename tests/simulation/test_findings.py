"""What did the simulation find that has no test elsewhere? Each once more, step by step."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from random import Random

import pytest

from iteration_lib import fallback
from iteration_lib.coordinator import Coordinator
from iteration_lib.driver.attempt import Claim, open_attempt
from iteration_lib.errors import OutcomeUnknownError, SupersededError
from iteration_lib.protocol import Event
from iteration_lib.protocol.event import OutputsPublished, RunDeleted
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.store.memory import MemoryStore
from tests.protocol_script import FIRST, HOLDER, aborts, asks, attempt_id, claim, play, started
from tests.simulation.attempt import SimulatedAttempt
from tests.simulation.claims import Right
from tests.simulation.fallback_rows import FallbackOracle
from tests.simulation.fiber import Call, Fate
from tests.simulation.oracle import Oracle
from tests.simulation.ports import SimulatedClock, SimulatedHeartbeat
from tests.simulation.programs import Program, programs
from tests.simulation.schedule import run_schedule
from tests.simulation.swarm import Pace, undisturbed
from tests.simulation.world import RUN_ID, World, new_run

PROGRAM = programs()[0]


def test_attempt_that_finished_the_run_unheard_does_not_take_itself_for_superseded() -> None:
    """Its heartbeat sees that the attempt has ended: by its own last word, whose answer it never got."""
    world, attempt = _alone(PROGRAM)

    _go_on_until_published(attempt, answer=Fate.LOST, beats=True)

    assert ("FINISHED", OutcomeUnknownError) == (world.first.rows.run["status"], type(attempt.error))
    assert world.violation is None


def test_attempt_that_finished_the_run_unheard_hears_it_when_it_asks_again() -> None:
    """Seed 168: what it repeats are the notices of the listeners too, and those were refused as a stranger's."""
    world, attempt = _alone(PROGRAM)

    _go_on_until_published(attempt, answer=Fate.LOST, beats=False)
    while attempt.is_active:
        attempt.main.switch(Fate.GO)

    assert ("FINISHED", None) == (world.first.rows.run["status"], attempt.error)
    assert world.violation is None


def test_attempt_that_only_looks_sees_that_it_is_superseded() -> None:
    """Seed 247: while it waited for its checkpoint it took the next attempt's run for its own, and that for failed."""
    store = MemoryStore(SimulatedClock())
    store.add_run(new_run(PROGRAM))

    with pytest.raises(SupersededError, match="token 2 is in force"):
        _look_after_a_takeover(store, Coordinator(store), Claim(attempt_id=attempt_id(1), holder=HOLDER))


@pytest.mark.parametrize("is_open", [True, False])
def test_trigger_that_is_repeated_begins_nothing_that_nobody_writes(is_open: bool) -> None:  # noqa: FBT001 - a case
    """Seed 77: the checkpoint was aborted before it began, and what was said again began the next one."""
    triggered = replace(FIRST.triggers(0), last_checkpoint_id=0)
    batch: tuple[Event, ...] = (FIRST.reports(0), triggered, *([FIRST.opens(1)] if is_open else []))
    state = play(started(FIRST.opens(0)), aborts(1), *batch)

    assert state == play(state, *batch)
    assert (1, ()) == (state.last_checkpoint_id, state.pending)


def test_trigger_that_was_not_due_is_not_due_later() -> None:
    """Nor is one that comes again when a person has asked for a checkpoint: the next epoch answers that."""
    batch: tuple[Event, ...] = (FIRST.reports(0), FIRST.triggers(0), FIRST.opens(1))
    state = play(started(FIRST.opens(0), every_epochs=2), *batch, asks())

    assert state == play(state, *batch)


def test_trigger_that_an_attempt_that_has_failed_repeats_begins_nothing_that_nobody_writes() -> None:
    """Seed 278038: a person asked for a checkpoint, and what was said again began it in an attempt that was to end."""
    batch: tuple[Event, ...] = (
        FIRST.lets_expire(1),
        FIRST.reports(1),
        replace(FIRST.triggers(1), last_checkpoint_id=1),
        FIRST.opens_if_ready(2),
    )
    state = started(FIRST.opens(0), FIRST.reports(0), asks(1), FIRST.triggers(0), every_epochs=3, max_pending=2)
    state = play(state, FIRST.opens(1), *batch, asks(2))

    assert state == play(state, *batch)
    assert (1, ()) == (state.last_checkpoint_id, state.pending)


@pytest.mark.parametrize("is_deleted", [True, False])
def test_attempt_that_fails_when_its_run_is_another_s_says_so(is_deleted: bool) -> None:  # noqa: FBT001 - a case
    """Seed 981: its run was deleted, its checkpoint discarded, and it called that a bug."""
    store = MemoryStore(SimulatedClock())
    store.add_run(new_run(PROGRAM))
    other = RunDeleted(deleted_by="ann", gone_attempt_id=attempt_id(1)) if is_deleted else claim(2, takeover=True)

    with pytest.raises(SupersededError) as raised:
        _fail_after(store, other)

    assert ["ValueError('a file is missing')"] == [repr(raised.value.__cause__)]


def test_scratch_that_cannot_be_removed_ends_no_attempt() -> None:
    """Seed 611: an epoch was computed and aligned, and lost for a file that nobody needed any more."""
    scratching = [p for p in programs() if any("scratch" in known.injected for known in p.graph.operators)]
    world, attempt = _alone(scratching[0])

    while attempt.is_active:
        fiber = next(iter(attempt.jobs), attempt.main)
        fiber.switch(Fate.FAIL if fiber.waiting_for[0] is Call.REMOVE else Fate.GO)

    assert ("FINISHED", None) == (world.first.rows.run["status"], attempt.error)
    assert any("/fresh/" in path for path in world.first.disk.files)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(257955, id="told to end when the store had failed it, while it waited for its heartbeat"),
        pytest.param(918315, id="told to end when the store had failed it, while it waited for what was pending"),
        pytest.param(306913, id="a copy of the origin that could not be read was written over, half of it"),
        pytest.param(120617, id="killed between two looks, and no longer waiting"),
        pytest.param(68483, id="damaged pointer, written over by half of it, put back by who healed the disk"),
        pytest.param(700809, id="told to end once it had repeated what the server had lost, before it looked"),
        pytest.param(358714, id="report that an echo brought first, held, and brought again when it no longer was"),
        pytest.param(926869, id="second copy of a lost commit that a drain made another one"),
    ],
)
def test_seed_of_a_million_that_found_something_is_clean(seed: int) -> None:
    """All but the third and the last were about the simulation alone, and the last takes a copy that it alone sends."""
    assert run_schedule(seed).violation is None


def test_nothing_is_asked_of_an_attempt_that_heard_from_a_checkpoint_that_the_store_was_lost() -> None:
    """Seed 918315 once more, where no call of the driver's own lost it: a finding about the oracle alone."""
    counting = next(program for program in programs() if program.name == "counted-6")
    world, attempt = _alone(counting, Pace(policy=CheckpointPolicy(max_pending=2)))
    while len(attempt.jobs) < 2 or attempt.main.waiting_for[0] is not Call.AWAIT:
        attempt.main.switch(Fate.GO)
    lost, left = attempt.jobs

    while lost in attempt.jobs:
        attempt.fail("store")
        lost.switch(Fate.LOST if lost.waiting_for[0] is Call.TRANSACTION else Fate.GO)
    attempt.main.switch(Fate.GO)  # hears of it, and waits for the other
    assert (True, [left]) == (attempt.is_active, attempt.jobs)
    attempt.preempt(grace_calls=0)
    while attempt.is_active:
        world.clock.pass_seconds(1.0)
        attempt.main.switch(Fate.GO)

    assert world.violation is None


def test_fallback_that_was_refused_was_so_rightly_though_what_forbade_it_is_gone_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seed 108302: a finding about the oracle alone, which looked at the pins when the attempt had ended."""
    ended = Oracle.attempt_ended

    def release_all_and_end(oracle: Oracle, attempt: SimulatedAttempt) -> None:
        with monkeypatch.context() as released:
            released.setattr(FallbackOracle, "had_by", lambda *_: [])
            ended(oracle, attempt)

    monkeypatch.setattr(Oracle, "attempt_ended", release_all_and_end)

    schedules = (run_schedule(seed) for seed in range(1000))
    refused = list(islice((each for each in schedules if each.counters["fallback refused"]), 2))
    assert [None, None] == [outcome.violation for outcome in refused]


def test_refusal_to_fall_back_that_a_later_pin_would_excuse_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finding about the oracle alone, which judged at the attempt's end what no transaction had refused."""
    ended = Oracle.attempt_ended

    def pin_all_and_end(oracle: Oracle, attempt: SimulatedAttempt) -> None:
        with monkeypatch.context() as pinned:
            pinned.setattr(FallbackOracle, "had_by", lambda *_: ["a pin"])
            ended(oracle, attempt)

    monkeypatch.setattr(fallback, "newest_verified", lambda *_: None)
    monkeypatch.setattr(Oracle, "attempt_ended", pin_all_and_end)

    assert any("I21" in str(run_schedule(seed).violation) for seed in range(1000))


def _fail_after(store: MemoryStore, other: Event) -> None:
    mine, coordinator = Claim(attempt_id=attempt_id(1), holder=HOLDER), Coordinator(store)
    with open_attempt(store, coordinator, RUN_ID, mine, heartbeat_class=SimulatedHeartbeat):
        coordinator.apply(RUN_ID, other)
        raise ValueError("a file is missing")


def _look_after_a_takeover(store: MemoryStore, coordinator: Coordinator, mine: Claim) -> None:
    with open_attempt(store, coordinator, RUN_ID, mine, heartbeat_class=SimulatedHeartbeat) as attempt:
        assert 1 == attempt.look().fencing_token
        coordinator.apply(RUN_ID, claim(2, takeover=True))
        attempt.look()


def _alone(program: Program, pace: Pace | None = None) -> tuple[World, SimulatedAttempt]:
    world = World(Random(0), undisturbed(), program)  # noqa: S311 - no secret
    return world, SimulatedAttempt(world.first, 1, Right.NONE, pace=pace)


def _go_on_until_published(attempt: SimulatedAttempt, *, answer: Fate, beats: bool) -> None:
    """Let an attempt go on until it has published; that, and all that it repeats of it, gets this answer if it beats.

    Where it does not beat, only the first answer is this one.
    """
    while attempt.is_active:
        fiber = next(iter(attempt.jobs), attempt.main)
        call, _ = fiber.waiting_for
        publishes = bool(attempt.said) and isinstance(attempt.said[-1].events[-1], OutputsPublished)
        if publishes and call is Call.WAIT and beats and attempt.next_beat_at is not None:
            attempt.begin_beat()
            while attempt.beat is not None:
                attempt.beat.switch(Fate.GO)
        fiber.switch(answer if publishes and call is Call.COMMITTED else Fate.GO)
        if publishes and call is Call.COMMITTED and not beats:
            return
