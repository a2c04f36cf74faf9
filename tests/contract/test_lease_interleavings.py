"""Does whoever decides by a lease agree with those who renew it at the same time?

Renewing waits for no run's lock, so that a long transaction takes no lease away. Who claims a run, stops it or deletes
it decides by the lease that he reads: until he has committed nobody may renew one that he found over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta

import psycopg2
import pytest

from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import LeaseHeldError
from iteration_lib.protocol import Event, RunState
from iteration_lib.protocol.event import Committable
from iteration_lib.protocol.state import RunId
from iteration_lib.protocol.status import RunStatus, StopKind
from iteration_lib.store.postgres import PostgresStore
from tests.contract.meeting import Stage, answer_of, meet, open_stage, until
from tests.protocol_script import Sender, claim, deletes, prepared, stops
from tests.sink_reader import dsn
from tests.store_script import DEFINITION, a_run, added, new_family, read_state, timeless_state

pytestmark = pytest.mark.postgres

DECIDES: dict[str, Callable[[int], Event]] = {
    "claims": lambda family: claim(2, family=family),
    "stops": lambda family: stops(family=family),
    "deletes": lambda family: deletes(family=family),
}
LEASE_SECONDS = 3600.0
CHANGES = "UPDATE attempts SET definition_changes = '{none}' WHERE run_id = %s"


@pytest.fixture(scope="module")
def stage(store_url: str) -> Iterator[Stage]:
    with open_stage(store_url) as opened:
        yield opened


@pytest.fixture
def driven(stage: Stage) -> tuple[RunId, Sender]:
    """Return a run whose driver's lease has run out, and the driver."""
    driver = Sender(1, 1, new_family())
    run_id = added(stage.stores[0])
    apply(stage, 0, run_id, claim(family=driver.family, lease_ttl_seconds=0.0))
    return run_id, driver


@pytest.mark.parametrize("way", ["having decided", "before the commit"])
@pytest.mark.parametrize("name", DECIDES)
def test_lease_that_was_found_over_is_not_renewed_any_more(
    stage: Stage, driven: tuple[RunId, Sender], name: str, way: str
) -> None:
    run_id, driver = driven
    decides = DECIDES[name](driver.family)

    decided, is_renewed = meet(
        stage,
        lambda: apply(stage, 0, run_id, decides),
        lambda: renew(stage.stores[1], run_id, driver),
        way=way,
        must_wait=True,
    )

    assert isinstance(decided, RunState)
    assert not is_renewed


@pytest.mark.parametrize("name", DECIDES)
def test_lease_that_is_being_renewed_is_waited_for(
    stage: Stage, store_url: str, driven: tuple[RunId, Sender], name: str
) -> None:
    """A driver whose lease holds is neither superseded nor deleted, and stops after its epoch."""
    run_id, driver = driven
    decides = DECIDES[name](driver.family)

    with closing(psycopg2.connect(dsn(store_url))) as renewing, renewing.cursor() as cursor:
        cursor.execute(
            "UPDATE attempts SET lease_expires_at = clock_timestamp() + interval '1 hour' WHERE run_id = %s", [run_id]
        )
        deciding = stage.threads[0].submit(lambda: answer_of(lambda: apply(stage, 0, run_id, decides)))
        until(lambda: deciding.done() or stage.is_anybody_waiting(), deciding)
        renewing.commit()

    decided = deciding.result()
    if name == "stops":
        assert isinstance(decided, RunState)
        assert (RunStatus.RUNNING, StopKind.STOP) == (decided.status, decided.asked_to)
    else:
        assert decided is LeaseHeldError


@pytest.mark.parametrize(
    "changes",
    ["SELECT FROM attempts WHERE run_id = %s FOR UPDATE", CHANGES],
    ids=["decides and changes nothing", "changes the row"],
)
def test_lease_that_was_waited_for_lasts_from_then_on(
    stage: Stage, store_url: str, driven: tuple[RunId, Sender], changes: str
) -> None:
    run_id, driver = driven

    is_renewed, ended = renew_behind(stage, store_url, changes, lambda: renew(stage.stores[0], run_id, driver), run_id)

    assert is_renewed
    live = read_state(stage.stores[0], run_id).attempt
    assert live is not None
    assert ended + timedelta(seconds=LEASE_SECONDS) <= live.lease_expires_at


@pytest.fixture
def strict_store(stage: Stage, store_url: str) -> Iterator[PostgresStore]:
    """Return a store whose database would have every transaction be serializable."""
    with stage.onlooker.cursor() as cursor:
        cursor.execute("SELECT quote_ident(current_database())")
        name = cursor.fetchone()[0]
        cursor.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
        with closing(PostgresStore(store_url)) as opened:
            yield opened
        cursor.execute(f"ALTER DATABASE {name} RESET default_transaction_isolation")


def test_lease_that_was_waited_for_is_renewed_whatever_the_databases_default(
    stage: Stage, store_url: str, driven: tuple[RunId, Sender], strict_store: PostgresStore
) -> None:
    run_id, driver = driven

    is_renewed, _ = renew_behind(stage, store_url, CHANGES, lambda: renew(strict_store, run_id, driver), run_id)

    assert is_renewed


@pytest.fixture
def counted(stage: Stage) -> tuple[RunId, Sender]:
    """Return a run with a sink whose first checkpoint failed, of which its attempt keeps the count, and its driver."""
    driver = Sender(1, 1, new_family())
    run = a_run(definition={**DEFINITION, "sinks": {"rows": True}})
    failed = (driver.opens(0), driver.reports(0), driver.triggers(0), driver.declines(1), driver.triggers(0))
    assert stage.stores[0].add_run(run)
    state = Coordinator(stage.stores[0]).apply(run.run_id, claim(family=driver.family, tolerable_failures=1), *failed)
    assert 1 == state.checkpoint_failures
    return run.run_id, driver


def test_lease_is_renewed_while_rows_go_into_the_stores_own_database(
    stage: Stage, counted: tuple[RunId, Sender]
) -> None:
    run_id, driver = counted
    store = stage.stores[0]
    renewed: list[bool] = []

    def publish(_rows: Committable, _cursor: object) -> None:
        renewed.append(stage.threads[1].submit(renew, stage.stores[1], run_id, driver).result(10))

    after = Coordinator(store).apply(run_id, completes(driver), publish=publish)

    stored = read_state(store, run_id)
    assert ([True], 0) == (renewed, stored.checkpoint_failures)
    assert timeless_state(after) == timeless_state(stored)


@pytest.mark.parametrize("asked_to_stop", [False, True], ids=["is not asked to stop", "is asked to stop"])
@pytest.mark.parametrize("how", ["released", "failed"])
def test_attempt_may_end_with_the_rows_that_go_into_the_stores_own_database(
    stage: Stage, counted: tuple[RunId, Sender], how: str, *, asked_to_stop: bool
) -> None:
    """What it counts is written while it is live, and what becomes of its run once it is not (I12)."""
    run_id, driver = counted
    store, coordinator = stage.stores[0], Coordinator(stage.stores[0])
    if asked_to_stop:
        coordinator.apply(run_id, stops(family=driver.family))
    published: list[Committable] = []

    end = driver.fails() if how == "failed" else driver.ends()
    after = coordinator.apply(run_id, completes(driver), end, publish=lambda rows, _cursor: published.append(rows))

    stored = read_state(store, run_id)
    (ended,) = store.list_attempts(run_id)
    status = RunStatus.FAILED if how == "failed" else RunStatus.STOPPED if asked_to_stop else RunStatus.RUNNING
    assert (1, 0) == (len(published), ended.checkpoint_failures)
    assert (status, None) == (stored.status, stored.attempt)
    assert timeless_state(after) == timeless_state(stored)


def completes(driver: Sender) -> Event:
    """Complete the second checkpoint, with rows in the store's own database."""
    return driver.completes(2, committables=(prepared(0, "rows", in_store=True),))


def apply(stage: Stage, place: int, run_id: RunId, event: Event) -> RunState:
    """Send an event by a coordinator that knows nothing of the run."""
    return Coordinator(stage.stores[place]).apply(run_id, event)


def renew(store: PostgresStore, run_id: RunId, driver: Sender) -> bool:
    return store.renew_lease(run_id, driver.attempt_id, fencing_token=driver.token, lease_ttl_seconds=LEASE_SECONDS)


def renew_behind(
    stage: Stage, store_url: str, changes: str, renews: Callable[[], bool], run_id: RunId
) -> tuple[bool, datetime]:
    """Renew a lease while somebody is at its attempt; return what that answered, and when it was waited for no more."""
    with closing(psycopg2.connect(dsn(store_url))) as other, other.cursor() as cursor:
        cursor.execute(changes, [run_id])
        renewing = stage.threads[0].submit(renews)
        until(lambda: renewing.done() or stage.is_anybody_waiting(), renewing)
        assert not renewing.done()
        ended = now(stage)
        other.commit()
    return renewing.result(), ended


def now(stage: Stage) -> datetime:
    with stage.onlooker.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        found: datetime = cursor.fetchone()[0]
    return found
