"""Does a whole run work on an object store, its state and what it publishes, whatever the store can do? On S3."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from iteration_lib.protocol.status import RunStatus
from iteration_lib.sinks import published
from iteration_lib.state.location import StateLocation
from iteration_lib.store.postgres import PostgresStore
from tests.command_line import CommandLine
from tests.driven_here import KILL, Here, Killed
from tests.fixture.object_store import Wsgi, object_store, without_conditions, write_once
from tests.iterations.publishing import publishing
from tests.sink_reader import WHOLE, Reader, clear
from tests.size import nightly

pytestmark = pytest.mark.postgres
pytest.importorskip("adbc_driver_postgresql", reason="adbc-driver-postgresql is not installed")


def as_it_is(server: Wsgi) -> Wsgi:
    """The server, which knows conditional puts."""
    return server


PLACES = {
    "with something prepared": ("sink_prepared@1",),
    "when it is stored": ("checkpoint_completed@1",),
    "with something of the end prepared, and then committed": ("sink_prepared@3", "sink_committed@3"),
    "when it has ended": ("pointer_written",),
}
IN_THE_MIDDLE = ("manifest_written@1", "sink_aborted", "sink_committed@2")
ON_EVERY_CHANGE = {  # of each kind of store, the death that is not left to the night
    as_it_is: "with something prepared",
    without_conditions: "when it is stored",
    write_once: "when it has ended",
}
CASES = [
    *(
        pytest.param(
            kind,
            places,
            id=f"{kind.__name__}-{when}",
            marks=[] if when == chosen else nightly("another death on every kind of store"),
        )
        for kind, chosen in ON_EVERY_CHANGE.items()
        for when, places in PLACES.items()
    ),
    pytest.param(as_it_is, IN_THE_MIDDLE, id="while what was void is aborted, and when some is committed"),
]


@pytest.mark.parametrize(("kind", "places"), CASES)
def test_run_on_an_object_store_is_killed_and_publishes_what_an_undisturbed_one_does(
    store: PostgresStore, tmp_path: Path, kind: Callable[[Wsgi], Wsgi], places: tuple[str, ...]
) -> None:
    clear(store.url)
    with object_store(kind) as address:
        params = {"uri": f"{address}/published", "table": "losses"}
        here = Here.begin(store, tmp_path, publishing, state_uri=f"{address}/state", **params)
        with Reader(uri=params["uri"], url=store.url) as reader:
            for place in places:
                assert isinstance(here.drive_and_fail(script={place: KILL}), Killed)
            run = here.drive()

        assert RunStatus.FINISHED is run.status
        assert WHOLE == reader.see()


def test_run_on_an_object_store_whose_process_is_killed_publishes_what_an_undisturbed_one_does(
    store: PostgresStore, tmp_path: Path, s3: str
) -> None:
    """By SIGKILL: with all prepared, and with some committed."""
    clear(store.url)
    shell = CommandLine(store_url=store.url, folder=tmp_path)
    params = {"desk": str(tmp_path), "uri": f"{s3}/published", "table": "losses"}
    command = (
        "tests.iterations.publishing:publishing",
        tmp_path.name,
        *(f"--param={n}={v}" for n, v in params.items()),
    )
    environment = {"FSSPEC_S3": json.dumps(fsspec.config.conf["s3"]), "ITERATION_STATE_URI": f"{s3}/state"}

    reader = Reader(uri=params["uri"], url=store.url)  # to poll would keep the server busy, which is in this process
    for place in ("manifest_written@1", "sink_committed@2"):
        killed = shell.run(*command, **environment, ITERATION_CRASH_POINT=f"{place}:kill")
        reader.look()
        assert -signal.SIGKILL == killed.code, killed.err
    answer = shell.run(*command, **environment)

    assert "FINISHED" == answer.json["status"]
    assert ([], WHOLE) == (reader.torn, reader.see())
    assert shown_files(params["uri"]) == data_files(params["uri"])


def shown_files(uri: str) -> list[str]:
    return sorted(file.path for one in published(uri) for file in one.publication.files)


def data_files(uri: str) -> list[str]:
    return list(StateLocation(uri).list_files("_data"))
