"""A driver that is killed inside epoch 5: the next one goes on there, and the model is the same to the bit.

Killing a driver is three cases: its JVM, its Python, both. What was left must end by itself.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.failover.driven import Bench, Driver, is_over, wait_until
from tests.size import IS_NIGHTLY

VICTIMS = [("jvm",), *([("python",), ("jvm", "python")] if IS_NIGHTLY else [])]


@pytest.fixture(scope="module")
def undisturbed(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the state digest of the run that nobody disturbs, which is the plain-Python runner's."""
    bench = Bench(store_url=store_url, folder=tmp_path_factory.mktemp("undisturbed"), runner="local")
    answer = bench.finish("undisturbed")
    assert (answer["status"], answer["epochs"], answer["terminated_by"]) == ("FINISHED", 8, "max_epochs")
    expected = Counter({"scaled None": 1} | {f"{name} {epoch}": 1 for name in ("sums", "moved") for epoch in range(8)})
    assert bench.bodies() == expected
    return str(answer["state_digest"])


def hold_in_epoch_5(bench: Bench, run_key: str, **environment: str) -> Driver:
    """Start a driver and return when it is inside epoch 5."""
    bench.latch.touch()
    driver = bench.start(run_key, **environment)
    wait_until(lambda: bench.reached.exists() or is_over(driver.process), "epoch 5")
    assert bench.reached.exists(), driver.errors()
    return driver


def check_resumed(bench: Bench, run_key: str, digest: str, *, captured: tuple[str, ...] = ()) -> None:
    """Resume the run and hold it against the undisturbed one; what was captured inside epoch 5 does not run again."""
    before = bench.bodies()
    assert before["scaled None"] == 1
    assert [before[f"moved {epoch}"] for epoch in range(6)] == [1] * 6

    answer = bench.finish(run_key)

    assert (answer["state_digest"], answer["epochs"]) == (digest, 8)
    after = Counter({f"{name} {epoch}": 1 for name in ("sums", "moved") for epoch in range(5, 8)})
    assert bench.bodies() == after - Counter(
        captured
    )  # no durable epoch, and not the operator that is finished for good


@pytest.mark.parametrize("victims", VICTIMS, ids="+".join)
def test_a_killed_driver_ends_whole_and_the_run_resumes_to_the_same_bits(
    store_url: str, tmp_path: Path, undisturbed: str, victims: tuple[str, ...]
) -> None:
    """Neither half of a driver outlives the other, and durable epochs are not run again."""
    bench = Bench(store_url=store_url, folder=tmp_path)
    run_key = f"killed-{'-'.join(victims)}"
    driver = hold_in_epoch_5(bench, run_key)
    jvm = driver.jvm()

    for victim in victims:
        (jvm if victim == "jvm" else driver.process).kill()

    assert driver.wait(30) != 0
    wait_until(lambda: is_over(jvm), "the JVM's end", timeout_seconds=30)
    bench.latch.unlink()
    check_resumed(bench, run_key, undisturbed)


def test_a_driver_that_is_told_to_end_releases_the_run(store_url: str, tmp_path: Path, undisturbed: str) -> None:
    """SIGTERM ends the attempt in order, and keeps what has finished in the open epoch; nobody waits for its lease."""
    bench = Bench(store_url=store_url, folder=tmp_path)
    driver = hold_in_epoch_5(bench, "told-to-end")
    driver.process.terminate()
    assert driver.wait(30) == 143
    assert [attempt["outcome"] for attempt in bench.show("told-to-end")["attempts"]] == ["RELEASED"]
    bench.latch.unlink()
    check_resumed(bench, "told-to-end", undisturbed, captured=("sums 5",))


def test_a_stopped_driver_that_wakes_up_after_a_newer_one_cannot_commit(
    store_url: str, tmp_path: Path, undisturbed: str
) -> None:
    """It says that it was superseded, exits non-zero, and nothing that counts names a file of it."""
    bench = Bench(store_url=store_url, folder=tmp_path)
    older = hold_in_epoch_5(bench, "two-attempts")
    older.send(signal.SIGSTOP)
    bench.latch.unlink()

    newer = bench.finish("two-attempts", "--takeover")
    older.send(signal.SIGCONT)

    assert newer["state_digest"] == undisturbed
    assert older.wait(60) == 3
    assert "superseded" in older.errors()
    shown = bench.show("two-attempts")
    assert [attempt["outcome"] for attempt in shown["attempts"]] == ["SUPERSEDED", "FINISHED"]
    durable = [(epoch["epoch"], epoch["attempt"]) for epoch in shown["epochs"] if epoch["status"] == "DURABLE"]
    assert durable == [(epoch, 1) for epoch in range(5)] + [(epoch, 2) for epoch in range(5, 8)]
    folder = tmp_path / "state" / shown["run"]["run_id"]
    for checkpoint in shown["checkpoints"]:
        if checkpoint["attempt"] == 2:
            manifest = json.loads((folder / checkpoint["manifest"]).read_text())
            streams = [*manifest["variables"].values(), *manifest["outputs"].values()]
            named = [file["path"] for stream in streams for file in stream["files"]]
            assert [path for path in named if "000001-" in path] == []
