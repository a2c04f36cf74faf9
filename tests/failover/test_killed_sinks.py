"""What do readers of sinks see when the process that publishes is killed with SIGKILL? Processes of their own.

The tables lie in the store's own database, or in another one; a reader polls all the while.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from iteration_lib.sinks import published
from tests.command_line import CommandLine
from tests.failover.driven import PATIENCE_SECONDS
from tests.mortal_parquet_sink import DEADLY
from tests.sink_reader import TABLES, WHOLE, Reader, clear, tables
from tests.size import nightly

pytestmark = pytest.mark.postgres
pytest.importorskip("adbc_driver_postgresql", reason="adbc-driver-postgresql is not installed")

REFERENCE = "tests.iterations.publishing:publishing"
PLACES = {
    "with something prepared": ("sink_prepared@1",),
    "with all prepared": ("manifest_written@1",),
    "when it is stored": ("checkpoint_completed@1",),
    "when some is committed": ("sink_committed@1",),
    "while what was void is aborted": ("sink_prepared@1", "sink_aborted"),
    "with something of the end prepared, and then committed": ("sink_prepared@3", "sink_committed@3"),
}


@pytest.mark.parametrize("places", PLACES.values(), ids=PLACES)
def test_run_whose_process_is_killed_publishes_what_an_undisturbed_one_does(
    store_url: str, tmp_path: Path, places: tuple[str, ...]
) -> None:
    kill_and_finish(store_url, tmp_path, at_points(*places))


def test_table_in_another_database_gets_what_a_killed_process_may_have_committed_once(
    store_url: str, empty_store: str, tmp_path: Path
) -> None:
    """The second process dies when the losses are committed, and the store does not know it yet."""
    deaths = at_points("manifest_written@1", "sink_committed@1")

    kill_and_finish(store_url, tmp_path, deaths, url=empty_store)


def test_files_that_a_killed_process_was_writing_are_never_shown_and_go(store_url: str, tmp_path: Path) -> None:
    """It dies with a torn file, with one of two files, and with a pointer that has not got its name: that one stays."""
    torn_pointer = "_published/*/.0000000001-rows.json.*.tmp"
    patterns = ("_data/*/0000000001-rows-*/.part-*.tmp", "_data/*/0000000001-rows-*/part-*.parquet", torn_pointer)

    kill_and_finish(store_url, tmp_path, [{DEADLY: pattern} for pattern in patterns])

    uri = tmp_path / "published"
    shown = [Path(file) for one in published(str(uri)) for file in one.files]
    pointers = [*uri.glob("_published/*/*.json")]
    (torn,) = uri.glob(torn_pointer)
    assert sorted([*shown, *pointers, torn]) == sorted(path for path in uri.rglob("*") if path.is_file())


@pytest.mark.spark
@nightly("on Spark; a process in plain Python is killed on every change")
def test_run_on_spark_whose_process_is_killed_publishes_what_an_undisturbed_one_does(
    store_url: str, tmp_path: Path
) -> None:
    """Spark's tasks have written the files."""
    deaths = at_points("sink_prepared@1", "sink_committed@2")

    kill_and_finish(store_url, tmp_path, deaths, "--runner", "spark", "--master", "local[2]")


def at_points(*places: str) -> list[dict[str, str]]:
    """Return what a process is told that is to die at a crash point."""
    return [{"ITERATION_CRASH_POINT": f"{place}:kill"} for place in places]


def kill_and_finish(
    store_url: str, folder: Path, deaths: Sequence[Mapping[str, str]], *more: str, url: str = ""
) -> None:
    """Let a process die as each of these environments says, then let the run go on to its end."""
    clear(store_url)
    shell = CommandLine(store_url=store_url, folder=folder)
    uri = folder / "published"
    params = {"desk": folder, "uri": uri, "table": "losses", "url": url}
    options = [*more, *(f"--param={name}={value}" for name, value in params.items())]

    with Reader(uri=str(uri), url=url or store_url) as reader:
        for death in deaths:
            killed = shell.start(REFERENCE, folder.name, *options, **death)
            _, said = killed.communicate(timeout=PATIENCE_SECONDS)
            assert -signal.SIGKILL == killed.returncode, said
        answer = shell.run(REFERENCE, folder.name, *options)

    assert "FINISHED" == answer.json["status"]
    assert WHOLE == reader.see()
    assert TABLES == tables(url or store_url)
