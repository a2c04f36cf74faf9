"""A script is killed anywhere in its loop, and started again: the result is the same to the bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from iteration_lib.protocol.status import EpochStatus, RunStatus
from iteration_lib.store.postgres import PostgresStore
from tests.failover.driven import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.postgres

PROJECT = Path(__file__).resolve().parents[2]
LAST = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Where the script `walking` is started, and what is seen of it."""

    store: PostgresStore
    store_url: str
    folder: Path

    def start(self, key: str, *arguments: str, every: int = 1, crash_point: str = "") -> subprocess.Popen[str]:
        """Start the script."""
        environment = {
            **os.environ,
            "ITERATION_STORE_URL": self.store_url,
            "ITERATION_STATE_URI": str(self.folder / "state"),
            "ITERATION_CRASH_POINT": crash_point,
            "PYTHONPATH": str(PROJECT),
        }
        return subprocess.Popen(
            [sys.executable, str(PROJECT / "tests/loops/walking.py"), key, str(self.log), str(every), *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, key: str, *, every: int = 1, crash_point: str = "") -> tuple[int, str]:
        """Run the script to its end, and return how it ended and what it printed."""
        process = self.start(key, every=every, crash_point=crash_point)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode in (0, -signal.SIGKILL), err
        return process.returncode, out

    @property
    def log(self) -> Path:
        """Where bodies leave a line."""
        return self.folder / "log"

    def bodies(self) -> list[str]:
        """Return what ran since this was last asked."""
        lines = self.log.read_text().split() if self.log.exists() else []
        self.log.write_text("")
        return lines


@pytest.fixture
def desk(store: PostgresStore, store_url: str, tmp_path: Path) -> Desk:
    return Desk(store=store, store_url=store_url, folder=tmp_path)


@pytest.fixture(scope="module")
def undisturbed(store: PostgresStore, store_url: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return what the script prints when nobody disturbs it."""
    desk = Desk(store=store, store_url=store_url, folder=tmp_path_factory.mktemp("undisturbed"))
    code, out = desk.run("undisturbed")
    assert (0, ["start", *map(str, range(LAST + 1))]) == (code, desk.bodies())
    return out


@pytest.mark.parametrize(
    ("crash_point", "every", "ran", "again"),
    [
        ("attempt_opened", 1, [], ["start", "0", "1", "2", "3", "4", "5", "6"]),
        ("epoch_opened@0", 1, ["start"], ["start", "0", "1", "2", "3", "4", "5", "6"]),
        ("epoch_written@4", 3, ["start", "0", "1", "2", "3", "4"], ["3", "4", "5", "6"]),
        ("epoch_aligned@4", 3, ["start", "0", "1", "2", "3", "4"], ["3", "4", "5", "6"]),
        ("manifest_written@2", 3, ["start", "0", "1", "2"], ["start", "0", "1", "2", "3", "4", "5", "6"]),
        ("checkpoint_completed@2", 3, ["start", "0", "1", "2"], ["3", "4", "5", "6"]),
        ("outputs_written@6", 3, ["start", "0", "1", "2", "3", "4", "5", "6"], ["6"]),
        ("checkpoint_completed@6", 1, ["start", "0", "1", "2", "3", "4", "5", "6"], []),
        ("pointer_written", 1, ["start", "0", "1", "2", "3", "4", "5", "6"], []),
        ("run_finished", 1, ["start", "0", "1", "2", "3", "4", "5", "6"], []),
    ],
)
def test_killed_script_goes_on_after_its_last_durable_epoch_with_the_same_result(
    desk: Desk, undisturbed: str, crash_point: str, every: int, ran: list[str], again: list[str]
) -> None:
    """An epoch that is written beside the next one may lie one body behind."""
    key = f"killed-{crash_point}-{every}"

    killed = desk.run(key, every=every, crash_point=crash_point)
    before = desk.bodies()
    resumed = desk.run(key, every=every)

    assert ((-signal.SIGKILL, ""), (0, undisturbed)) == (killed, resumed)
    assert ran == before[: len(ran)]
    assert len(before) <= len(ran) + 1
    assert again == desk.bodies()
    run = desk.store.find_run(key)
    assert run is not None
    assert (RunStatus.FINISHED, LAST + 1) == (run.status, run.epochs)


def test_script_that_is_told_to_end_releases_its_run_and_goes_on_later(desk: Desk, undisturbed: str) -> None:
    """SIGTERM inside the body of epoch 3: nobody waits for a lease, and what is durable stays."""
    latch = desk.folder / "latch"
    process = desk.start("told", str(latch))
    wait_until(lambda: "3" in desk.log.read_text().split() if desk.log.exists() else False, "epoch 3")

    process.terminate()
    assert 143 == process.wait(30)

    process.communicate()
    run = desk.store.find_run("told")
    assert run is not None
    (attempt,) = desk.store.list_attempts(run.run_id)
    assert ("RELEASED", "interrupted") == (attempt.outcome and attempt.outcome.value, attempt.reason)
    desk.bodies()
    assert (0, undisturbed) == desk.run("told")
    assert ["3", "4", "5", "6"] == desk.bodies()
    voided = [epoch.epoch for epoch in desk.store.list_epochs(run.run_id) if epoch.status is EpochStatus.VOIDED]
    assert [3] == voided
