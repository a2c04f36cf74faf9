"""What does the store take for a run's latest request to stop, once its server's clock was set back?"""

from __future__ import annotations

import pytest
from sqlalchemy import text

from iteration_lib.coordinator import Coordinator
from iteration_lib.store.postgres import PostgresStore, open_engine
from tests.protocol_script import resumes, stops
from tests.store_script import added, new_family, read_state

pytestmark = pytest.mark.postgres


def set_back_an_hour(store_url: str) -> None:
    """Have what is stored come from an hour ahead: nobody else's clock is touched."""
    engine = open_engine(store_url)
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        connection.execute(text("UPDATE stops SET resumed_at = resumed_at + interval '1 hour'"))
    engine.dispose()


def test_the_stop_that_was_resumed_last_is_the_latest_whatever_the_clock_says(
    store: PostgresStore, store_url: str
) -> None:
    run_id, coordinator, family = added(store), Coordinator(store), new_family()
    coordinator.apply(run_id, stops(1, family=family))
    coordinator.apply(run_id, resumes(1, family))
    set_back_an_hour(store_url)
    second = stops(2, family=family)
    coordinator.apply(run_id, second)

    coordinator.apply(run_id, resumes(2, family))

    latest = read_state(store, run_id).stop
    assert latest is not None
    assert (second.stop_id, True) == (latest.stop_id, latest.is_resumed)
    assert latest == Coordinator(store).apply(run_id, resumes(2, family)).stop  # as where its answer was lost
