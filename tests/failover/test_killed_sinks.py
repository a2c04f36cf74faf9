"""What do readers of sinks see when the process that publishes is killed with SIGKILL? Processes of their own.

The tables lie in the store's own database; a reader polls all the while.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.failover.driven import PATIENCE_SECONDS
from tests.sink_reader import TABLES, WHOLE, Reader, clear, tables

pytestmark = pytest.mark.postgres
pytest.importorskip("adbc_driver_postgresql", reason="adbc-driver-postgresql is not installed")

REFERENCE = "tests.iterations.publishing:publishing"
PLACES = {
    "with something prepared": ("sink_prepared@1",),
    "when it is stored": ("checkpoint_completed@1",),
    "when some is committed": ("sink_committed@1",),
    "while what was void is aborted": ("sink_prepared@1", "sink_aborted"),
    "with something of the end prepared, and then committed": ("sink_prepared@3", "sink_committed@3"),
}


@pytest.mark.parametrize("places", PLACES.values(), ids=PLACES)
def test_run_whose_process_is_killed_publishes_what_an_undisturbed_one_does(
    store_url: str, tmp_path: Path, places: tuple[str, ...]
) -> None:
    kill_and_finish(store_url, tmp_path, places)


@pytest.mark.spark
def test_run_on_spark_whose_process_is_killed_publishes_what_an_undisturbed_one_does(
    store_url: str, tmp_path: Path
) -> None:
    """Spark's tasks have written the files."""
    kill_and_finish(
        store_url, tmp_path, ("sink_prepared@1", "sink_committed@2"), "--runner", "spark", "--master", "local[2]"
    )


def kill_and_finish(store_url: str, tmp_path: Path, places: tuple[str, ...], *more: str) -> None:
    """Kill a run at each of these places, then let it go on to its end."""
    clear(store_url)
    shell = CommandLine(store_url=store_url, folder=tmp_path)
    uri = tmp_path / "published"
    params = {"desk": tmp_path, "uri": uri, "table": "losses"}
    options = [*more, *(f"--param={name}={value}" for name, value in params.items())]

    with Reader(uri=str(uri), url=store_url) as reader:
        for place in places:
            killed = shell.start(REFERENCE, tmp_path.name, *options, ITERATION_CRASH_POINT=f"{place}:kill")
            _, said = killed.communicate(timeout=PATIENCE_SECONDS)
            assert -signal.SIGKILL == killed.returncode, said
        answer = shell.run(REFERENCE, tmp_path.name, *options)

    assert "FINISHED" == answer.json["status"]
    assert WHOLE == reader.see()
    assert TABLES == tables(store_url)
