"""How do tests tell what happened to a run? In batches of events, one transaction each, a second apart."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from iteration_lib.coordinator import Coordinator
from iteration_lib.explanation import RunHistory, read_history
from iteration_lib.protocol import Event
from iteration_lib.protocol.state import CheckpointState
from iteration_lib.protocol.status import CheckpointKind, CheckpointStatus
from iteration_lib.store.memory import MemoryStore
from tests.protocol_script import FIRST, SECOND, Sender, claim
from tests.store_script import added

NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


def older(checkpoint_id: int, epoch: int) -> CheckpointState:
    """Return a checkpoint that a run may fall back to."""
    return CheckpointState(
        checkpoint_id=checkpoint_id,
        epoch=epoch,
        kind=CheckpointKind.PERIODIC,
        status=CheckpointStatus.SUBSUMED,
        participants=(),
    )


# The third attempt takes over from one that left epoch 2 open; the fourth falls back behind epoch 0, and goes on.
FELL_BACK: tuple[tuple[Event, ...], ...] = (
    (claim(), *FIRST.passes(0, 1), *FIRST.passes(1, 2)),
    (claim(2, takeover=True), SECOND.opens(2)),
    (claim(3, takeover=True), *Sender(3, 3).passes(2, 3)),
    (claim(4, takeover=True), Sender(4, 4).falls_back(older(1, 0))),
    Sender(4, 4).passes(1, 4),
    Sender(4, 4).passes(2, 5),
)


class ToldClock:
    """A clock that stands still until somebody moves it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        """Return the instant."""
        return NOON + timedelta(seconds=self.seconds)

    def monotonic_seconds(self) -> float:
        """Return the seconds since noon."""
        return self.seconds


def told(*batches: tuple[Event, ...], max_epochs: int | None = None) -> RunHistory:
    """Return the history of a run to which this has happened: the first batch at noon."""
    clock = ToldClock()
    store = MemoryStore(clock)
    run_id = added(store, max_epochs=max_epochs)
    coordinator = Coordinator(store)
    for batch in batches:
        coordinator.apply(run_id, *batch)
        clock.seconds += 1
    run = store.find_run(run_id)
    assert run is not None
    return read_history(store, run)


def at(seconds: int) -> str:
    """Return how an instant after noon is shown."""
    return f"2026-01-02T12:00:{seconds:02d}.000+00:00"
