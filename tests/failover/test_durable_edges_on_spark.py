"""A whole iteration on Spark, killed at some points and resumed with other numbers of subtasks: always the same bits.

Two variables, an operator that finishes for good, criteria, carried state, data that comes once. Nothing whose marker
was ever committed runs again, counted by a file that the operators append to: with any alignment timeout what has
finished for good, and with a timeout of 0 all that had finished in any epoch.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from iteration_lib.marker import finished_for_good
from iteration_lib.protocol.status import RunStatus
from iteration_lib.store.postgres import PostgresStore
from iteration_lib.store.record import PartRecord, RunRecord
from tests.failover.driven import PROJECT, Driver, is_over, wait_until
from tests.size import IS_NIGHTLY

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

BUCKETS = 6
EPOCHS = 4
POINTS = ("operator_finished", "epoch_written@1", "epoch_aligned@2", "manifest_written@1")
TIMEOUTS = ("none", "0")
SUBTASKS = {"same": "3,2", "more": "5,4", "fewer": "2,1"}
COUNTED = {"normal-equations", "agreed", "fitted", "pulled", "settling", "unsettled"}  # their bodies append to the file


FOR_GOOD = {f"normal-equations None {bucket}" for bucket in range(BUCKETS)}


def calls_in(epoch: int) -> set[str]:
    """Return all calls of an epoch."""
    on_buckets = {f"{name} {epoch} {bucket}" for name in ("fitted", "pulled", "settling") for bucket in range(BUCKETS)}
    return on_buckets | {f"{name} {epoch} None" for name in ("agreed", "unsettled")}


def chosen() -> list[tuple[str, str, str]]:
    """Return what is tried: all at night, else a kill inside an epoch."""
    if IS_NIGHTLY:
        return list(itertools.product(POINTS, TIMEOUTS, SUBTASKS))
    return [("epoch_written@1", "0", "fewer")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one test's run lives, and how its driver is started."""

    store: PostgresStore
    store_url: str
    folder: Path

    def start(self, run_key: str, *options: str, subtasks: str = "same", **environment: str) -> Driver:
        """Start `iteration run` in a session of its own."""
        command = [sys.executable, "-c", "from iteration_lib.cli import main; main()", "run"]
        command += ["tests.iterations.stateful:stateful", "--json", "--run-key", run_key]
        command += ["--param", f"log={self.folder}", "--param", f"max_epochs={EPOCHS}"]
        command += ["--max-buckets", str(BUCKETS), "--parallelism", "2", *options]
        if "--runner" not in options:
            command += ["--master", "local[2]"]
        environ = {
            **os.environ,
            "ITERATION_STORE_URL": self.store_url,
            "ITERATION_STATE_URI": str(self.folder / "state"),
            "STATEFUL_SUBTASKS": SUBTASKS[subtasks],
            **environment,
        }
        output = self.folder / f"{run_key}-{time.monotonic_ns()}"
        with output.with_suffix(".out").open("wb") as out, output.with_suffix(".err").open("wb") as err:
            process = psutil.Popen(command, cwd=PROJECT, env=environ, stdout=out, stderr=err, start_new_session=True)
        return Driver(process, output)

    def finish(self, run_key: str, *options: str, subtasks: str = "same") -> str:
        """Run to the end, and return the digest."""
        driver = self.start(run_key, *options, subtasks=subtasks)
        assert driver.wait() == 0, driver.errors()
        return str(driver.answer()["state_digest"])

    def calls(self) -> Counter[str]:
        """Count the calls of operators, as `operator epoch bucket`, since the last time."""
        found = self.calls_so_far()
        (self.folder / "calls").write_text("")
        return found

    def calls_so_far(self) -> Counter[str]:
        """Count them, and go on counting."""
        path = self.folder / "calls"
        return Counter(path.read_text().splitlines() if path.exists() else [])

    def run(self, run_key: str) -> RunRecord:
        """Return the run's row."""
        found = self.store.find_run(run_key)
        assert found is not None
        return found

    def marked(self, run_key: str) -> set[str]:
        """Return the calls that must not happen again, by every marker that was ever committed."""
        run = self.run(run_key)
        operators, parts = self.store.list_operators(run.run_id), self.store.list_parts(run.run_id)
        finished = {f"{name} None {bucket}" for name in finished_for_good(operators) for bucket in range(BUCKETS)}
        return finished | {call for part in parts if part.operator_id in COUNTED for call in calls_of(part)}


def calls_of(part: PartRecord) -> set[str]:
    """Return the calls whose results a part holds."""
    epoch = None if part.epoch < 0 else part.epoch
    buckets = range(part.first_bucket, part.end_bucket) if part.total > 1 else [None]
    return {f"{part.operator_id} {epoch} {bucket}" for bucket in buckets}


@pytest.fixture(scope="module")
def undisturbed(store: PostgresStore, store_url: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the digest of the run that nobody disturbs, which is the plain-Python runner's."""
    place = Place(store=store, store_url=store_url, folder=tmp_path_factory.mktemp("undisturbed"))
    digest = place.finish("edges-undisturbed", "--runner", "local")
    assert set(place.calls().values()) == {1}
    return digest


@pytest.fixture
def place(store: PostgresStore, store_url: str, tmp_path: Path) -> Place:
    """Return where this test's run lives."""
    return Place(store=store, store_url=store_url, folder=tmp_path)


@pytest.mark.parametrize(("point", "timeout", "subtasks"), chosen())
def test_run_that_is_killed_gives_the_same_bits_with_any_number_of_subtasks(
    place: Place, undisturbed: str, point: str, timeout: str, subtasks: str
) -> None:
    run_key = f"edges-{point}-{timeout}-{subtasks}"
    option = () if timeout == "none" else ("--alignment-timeout", timeout)
    killed = place.start(run_key, *option, ITERATION_CRASH_POINT=point)
    assert killed.wait() == -9, killed.errors()
    before, marked = place.calls(), place.marked(run_key)
    durable = place.run(run_key).epochs
    has_edges = timeout == "0" and point != "operator_finished"  # before which no epoch was open
    assert set(before.values()) == {1}
    assert marked == FOR_GOOD.union(*(map(calls_in, range(durable + 1)) if has_edges else ()))
    assert marked <= set(before)

    digest = place.finish(run_key, *option, subtasks=subtasks)

    assert digest == undisturbed
    again = place.calls()
    assert marked & set(again) == set()
    assert [] == [call for call in again if (epoch := call.split()[1]) != "None" and int(epoch) < durable]
    assert place.run(run_key).status is RunStatus.FINISHED


@pytest.mark.parametrize("subtasks", SUBTASKS if IS_NIGHTLY else ["fewer"])
def test_driver_killed_inside_an_epoch_leaves_the_rest_alone_to_any_number_of_subtasks(
    place: Place, undisturbed: str, subtasks: str
) -> None:
    """The last of three subtasks is killed at its last bucket, the others have finished."""
    held, run_key = place.folder / "hold fitted 1 5", f"edges-inside-{subtasks}"
    held.touch()
    finished = FOR_GOOD | calls_in(0) | {"agreed 1 None"} | {f"fitted 1 {bucket}" for bucket in range(4)}
    killed = place.start(run_key, "--alignment-timeout", "0")
    try:
        wait_until(lambda: is_over(killed.process) or "fitted 1 5" in place.calls_so_far(), "the last bucket")
        wait_until(lambda: is_over(killed.process) or place.marked(run_key) == finished, "two of three subtasks")
        assert not is_over(killed.process), killed.errors()
        jvm = killed.jvm()
        killed.process.kill()
        assert killed.wait() == -9
        wait_until(lambda: is_over(jvm), "the JVM's end")
    finally:
        held.unlink()
    before, marked = place.calls(), place.marked(run_key)
    assert marked == finished
    assert before == Counter(finished | {"fitted 1 4", "fitted 1 5"})

    digest = place.finish(run_key, "--alignment-timeout", "0", subtasks=subtasks)

    assert digest == undisturbed
    assert place.calls() == Counter(set().union(*map(calls_in, range(1, EPOCHS))) - marked)
