"""Is an epoch durable when the driver tells its observer so?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from iteration_lib.store.record import RunRecord

if TYPE_CHECKING:
    from tests.simulation.attempt import SimulatedAttempt
    from tests.simulation.oracle import Oracle


class DurableOracle:
    """See driver.context.Observer."""

    def __init__(self, oracle: Oracle, attempt: SimulatedAttempt) -> None:
        self._oracle = oracle
        self._attempt = attempt

    def run_restored(self, run: RunRecord, *, next_epoch: int) -> None:
        """Do nothing."""

    def epoch_durable(self, epoch: int, *, metrics: Mapping[str, float], seconds: float) -> None:  # noqa: ARG002
        """Check it."""
        self._oracle.epoch_was_called_durable(self._attempt, epoch)
