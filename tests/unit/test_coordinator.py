"""Does the coordinator send events again when the connection is lost, and give up in the end?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from iteration_lib.clock import SystemClock
from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import CheckpointNotFoundError, OutcomeUnknownError, SupersededError
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.state import RunId
from iteration_lib.store.memory import MemoryStore, MemoryTransaction
from iteration_lib.store.memory_rows import MemoryRun
from tests.protocol_script import FIRST, claim
from tests.store_script import added, history


class LossyStore(MemoryStore):
    """Loses the connection as often as it is told to: at once, or after the commit."""

    def __init__(self, *losses: str) -> None:
        super().__init__(SystemClock())
        self.losses = list(losses)

    @contextmanager
    def transaction(self, run_id: RunId) -> Iterator[MemoryTransaction]:
        loss = self.losses.pop(0) if self.losses else None
        if loss == "at once":
            raise OutcomeUnknownError("connection reset")
        with super().transaction(run_id) as transaction:
            yield transaction
        if loss == "after the commit":
            raise OutcomeUnknownError("connection reset")


class RestorableStore(MemoryStore):
    """Can be put back to what it was."""

    def backup(self, run_id: RunId) -> MemoryRun:
        """Return a run's rows."""
        return self._runs[run_id].copy()

    def restore(self, run_id: RunId, rows: MemoryRun) -> None:
        """Put a run's rows back."""
        self._runs[run_id] = rows


@pytest.mark.parametrize("loss", ["at once", "after the commit"])
def test_events_are_sent_again_and_happen_once_when_the_connection_is_lost(loss: str) -> None:
    undisturbed, lossy, slept = LossyStore(), LossyStore(loss, loss, loss), list[float]()
    for store in (undisturbed, lossy):
        run_id = added(store)
        coordinator = Coordinator(store, sleep=slept.append)
        coordinator.apply(run_id, claim(), *FIRST.passes(0, 1))

    assert [0.1, 0.2, 0.5] == slept
    assert history(undisturbed, undisturbed.list_runs()[0].run_id)["epochs"] == history(lossy, run_id)["epochs"]


def test_coordinator_gives_up_when_the_store_stays_away() -> None:
    store, slept = LossyStore(), list[float]()
    run_id = added(store)
    store.losses = ["at once"] * 100

    with pytest.raises(OutcomeUnknownError):
        Coordinator(store, sleep=slept.append).apply(run_id, claim())

    assert 8 == 100 - len(store.losses)
    assert sorted(slept) == slept
    assert 7 == len(slept)


def test_state_that_was_kept_does_not_hold_in_a_store_that_was_restored() -> None:
    """Its revision is the same again, under another attempt."""
    store = RestorableStore(SystemClock())
    run_id, coordinator = added(store), Coordinator(store)
    empty = store.backup(run_id)
    coordinator.apply(run_id, claim(1))
    store.restore(run_id, empty)
    Coordinator(store).apply(run_id, claim(2))
    before = history(store, run_id)

    with pytest.raises(SupersededError):
        coordinator.apply(run_id, FIRST.opens(0))

    assert before == history(store, run_id)


@pytest.mark.parametrize(
    ("checkpoint_id", "said"),
    [
        (1, "checkpoint 1 of run {} has no files, or none any more; choose another one"),
        (3, "checkpoint 3 of run {} has no files, or none any more; choose another one"),
        (4, "run {} has no checkpoint 4; its checkpoints are 1 to 3"),
        (2**63, f"run {{}} has no checkpoint {2**63}; its checkpoints are 1 to 3"),
    ],
    ids=["discarded", "pending", "never there", "more than a database can hold"],
)
def test_checkpoint_that_nobody_can_keep_is_not_pinned_and_said_to_be_so(checkpoint_id: int, said: str) -> None:
    store = MemoryStore(SystemClock())
    run_id, coordinator = added(store), Coordinator(store)
    coordinator.apply(run_id, claim(), *FIRST.passes(0, 1), *FIRST.passes(1, 2), FIRST.opens(2))
    coordinator.apply(run_id, FIRST.reports(2), FIRST.triggers(2))
    coordinator.discard(run_id, CheckpointPolicy(retain_last=1))
    before = history(store, run_id)

    with pytest.raises(CheckpointNotFoundError) as refused:
        coordinator.pin(run_id, checkpoint_id, pinned_by="ann")

    assert f"{said.format(run_id)} (see: iteration checkpoints {run_id})" == str(refused.value)
    assert before == history(store, run_id)
