"""What did the simulation find that has no test elsewhere? Each once more, step by step."""

from __future__ import annotations

from random import Random

from iteration_lib.errors import OutcomeUnknownError
from iteration_lib.protocol.event import OutputsPublished
from tests.simulation.attempt import SimulatedAttempt
from tests.simulation.claims import Right
from tests.simulation.fiber import Call, Fate
from tests.simulation.programs import programs
from tests.simulation.swarm import undisturbed
from tests.simulation.world import World


def test_attempt_that_finished_the_run_unheard_does_not_take_itself_for_superseded() -> None:
    """Its heartbeat sees that the attempt has ended: by its own last word, whose answer it never got."""
    world = World(Random(0), undisturbed(), programs()[0])  # noqa: S311 - no secret
    attempt = SimulatedAttempt(world, 1, Right.NONE)

    while attempt.is_active:
        call, _ = attempt.main.waiting_for
        publishes = bool(attempt.said) and isinstance(attempt.said[-1].events[0], OutputsPublished)
        if publishes and call is Call.WAIT and attempt.next_beat_at is not None:
            attempt.begin_beat()
            while attempt.beat is not None:
                attempt.beat.switch(Fate.GO)
        attempt.main.switch(Fate.LOST if publishes and call is Call.COMMITTED else Fate.GO)

    assert ("FINISHED", OutcomeUnknownError) == (world.oracle.rows.run["status"], type(attempt.error))
    assert world.oracle.violation is None
