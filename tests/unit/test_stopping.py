"""Who drives a run, as somebody sees it whose clock is not the store's?"""

from __future__ import annotations

import pytest

from iteration_lib.coordinator import Coordinator
from iteration_lib.launch import find_run
from iteration_lib.stopping import is_driven
from iteration_lib.store.memory import MemoryStore
from tests.protocol_script import FIRST, LEASE_SECONDS, claim
from tests.store_script import added
from tests.told_history import ToldClock

CENTURY_SECONDS = 3.2e9


@pytest.mark.parametrize("ahead_seconds", [-CENTURY_SECONDS, 0.0, CENTURY_SECONDS])
def test_run_is_driven_for_as_long_as_a_lease_holds_by_the_stores_clock(ahead_seconds: float) -> None:
    clock = ToldClock()
    clock.seconds = ahead_seconds
    store = MemoryStore(clock)
    run_id = added(store)
    run = find_run(store, run_id)
    before = is_driven(store, run)
    Coordinator(store).apply(run_id, claim())

    clock.seconds += LEASE_SECONDS - 1
    within = is_driven(store, run)
    clock.seconds += 1
    behind = is_driven(store, run)
    store.renew_lease(run_id, FIRST.attempt_id, fencing_token=FIRST.token, lease_ttl_seconds=LEASE_SECONDS)

    assert (False, True, False, True) == (before, within, behind, is_driven(store, run))


def test_run_whose_attempt_has_ended_is_not_driven() -> None:
    store = MemoryStore(ToldClock())
    run_id = added(store)
    Coordinator(store).apply(run_id, claim(), FIRST.ends())

    assert not is_driven(store, find_run(store, run_id))
