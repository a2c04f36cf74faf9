"""Does a whole run work on an object store, its state and what it publishes, whatever the store can do? On S3."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from iteration_lib.protocol.status import RunStatus
from iteration_lib.store.postgres import PostgresStore
from tests.driven_here import KILL, Here, Killed
from tests.fixture.object_store import Wsgi, object_store, without_conditions, write_once
from tests.iterations.publishing import publishing
from tests.sink_reader import WHOLE, Reader, clear

pytestmark = pytest.mark.postgres
pytest.importorskip("adbc_driver_postgresql", reason="adbc-driver-postgresql is not installed")


def as_it_is(server: Wsgi) -> Wsgi:
    """The server, which knows conditional puts."""
    return server


@pytest.fixture(scope="module")
def store(store_url: str) -> Iterator[PostgresStore]:
    with closing(PostgresStore(store_url)) as opened:
        yield opened


@pytest.mark.parametrize("kind", [as_it_is, without_conditions, write_once], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("place", ["sink_prepared@1", "checkpoint_completed@1", "sink_committed@3", "pointer_written"])
def test_run_on_an_object_store_is_killed_and_publishes_what_an_undisturbed_one_does(
    store: PostgresStore, tmp_path: Path, kind: Callable[[Wsgi], Wsgi], place: str
) -> None:
    clear(store.url)
    with object_store(kind) as address:
        params = {"uri": f"{address}/published", "table": "losses"}
        here = Here.begin(store, tmp_path, publishing, state_uri=f"{address}/state", **params)
        with Reader(uri=params["uri"], url=store.url) as reader:
            assert isinstance(here.drive_and_fail(script={place: KILL}), Killed)
            run = here.drive()

        assert RunStatus.FINISHED is run.status
        assert WHOLE == reader.see()
