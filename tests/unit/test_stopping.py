"""Who drives a run, as somebody sees it whose clock is not the store's?"""

from __future__ import annotations

import pytest

from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import IterationError
from iteration_lib.protocol import Event
from iteration_lib.stopping import is_driven, wait_for_stop
from iteration_lib.store.memory import MemoryStore
from iteration_lib.store.opening import find_run
from tests.protocol_script import FIRST, LEASE_SECONDS, claim, drains
from tests.store_script import added
from tests.told_history import ToldClock

CENTURY_SECONDS = 3.2e9
IN_PROGRESS = (claim(), FIRST.opens(0))
HELD = (*IN_PROGRESS, FIRST.reports(0), FIRST.triggers(0), FIRST.opens(1), FIRST.reports(1))


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


@pytest.mark.parametrize(
    ("events", "late_seconds", "where"),
    [
        (IN_PROGRESS, 0.0, "epoch 0 is in progress, driven by "),
        (IN_PROGRESS, LEASE_SECONDS, "epoch 0 is in progress, and nobody drives it"),
        (HELD, 0.0, "epoch 1 waits for checkpoint 1, driven by "),
        ((*HELD, FIRST.ends()), 0.0, "epoch 1 is in progress, and nobody drives it"),
    ],
    ids=["in progress", "its lease is over", "held", "held, and left"],
)
def test_who_waits_for_a_run_to_drain_is_told_where_it_is(
    events: tuple[Event, ...], late_seconds: float, where: str
) -> None:
    clock = ToldClock()
    store = MemoryStore(clock)
    run_id = added(store)
    Coordinator(store).apply(run_id, *events, drains())
    clock.seconds += late_seconds
    run, (asked,) = find_run(store, run_id), store.list_stops(run_id)
    told: list[str] = []

    with pytest.raises(IterationError, match="has not come to its end"):
        wait_for_stop(store, run, asked, timeout_seconds=0.0, tell=told.append)

    assert [where] == [said[: len(where)] for said in told]
