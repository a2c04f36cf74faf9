"""Which epochs does a driver take for those that get a checkpoint, before they align?"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from iteration_lib.clock import SystemClock
from iteration_lib.driver.boundary import Boundary
from iteration_lib.driver.context import RunContext
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.state import CheckpointState
from iteration_lib.protocol.status import CheckpointKind, CheckpointStatus

PAUSE_SECONDS = 60.0


class ClockBeside(SystemClock):
    """Says what the store's clock said at an instant, and so much more."""

    def __init__(self, instant: datetime, seconds: float) -> None:
        self._now = instant + timedelta(seconds=seconds)

    def now(self) -> datetime:
        """See Clock."""
        return self._now


@pytest.mark.parametrize(
    ("seconds", "is_expected"), [(-1.0, False), (0.0, False), (PAUSE_SECONDS - 1, False), (PAUSE_SECONDS, True)]
)
def test_driver_whose_clock_is_behind_the_stores_still_expects_the_pause(
    context: RunContext,
    seconds: float,
    is_expected: bool,  # noqa: FBT001 - a case
) -> None:
    """Else its executors would write tails of epochs that get no checkpoint."""
    boundary, opened = Boundary(context), context.attempt.opened
    assert opened.attempt is not None
    completed_at = SystemClock().now()
    boundary.state = replace(
        opened,
        attempt=replace(opened.attempt, policy=CheckpointPolicy(min_pause_seconds=PAUSE_SECONDS)),
        completed=CheckpointState(
            checkpoint_id=1,
            epoch=0,
            kind=CheckpointKind.PERIODIC,
            status=CheckpointStatus.COMPLETED,
            participants=(),
            manifest_sha256="ab" * 32,
            completed_at=completed_at,
        ),
        last_durable_epoch=0,
    )
    boundary._context = replace(context, clock=ClockBeside(completed_at, seconds))

    assert is_expected is boundary.expects_checkpoint(1)
