"""What do `iteration stop` and `iteration resume` answer? In processes of their own."""

from __future__ import annotations

import getpass
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from iteration_lib.store.opening import find_run
from iteration_lib.store.postgres import PostgresStore
from tests.command_line import COMMAND, PROJECT, Answer, CommandLine
from tests.failover.driven import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.postgres

COUNTED = "tests.iterations.counted:counted"
EPOCHS = 4
ME = f"{getpass.getuser()}@{socket.gethostname()}"


@pytest.fixture
def shell(store_url: str, tmp_path: Path) -> CommandLine:
    return CommandLine(store_url=store_url, folder=tmp_path)


def params(shell: CommandLine, **others: object) -> list[str]:
    given = {"log": shell.folder / "bodies.log", "max_epochs": EPOCHS, **others}
    return [text for name, value in given.items() for text in ("--param", f"{name}={value}")]


@contextmanager
def held_in_epoch_1(shell: CommandLine, key: str) -> Iterator[subprocess.Popen[str]]:
    """Drive a run whose epoch 1 does not go on before the block ends."""
    latch = shell.folder / "latch"
    latch.touch()
    driver = shell.start(COUNTED, key, *params(shell, latch=latch, hold_epoch=1), "--checkpoint-every", "100")
    try:
        wait_until(lambda: Path(f"{latch}.reached").exists(), "the operator to be held")
        yield driver
        latch.unlink(missing_ok=True)
        driver.wait(timeout=PATIENCE_SECONDS)
    finally:
        driver.kill()


def stopping(shell: CommandLine, key: str, *options: str) -> subprocess.Popen[str]:
    """Start `iteration stop`, and return once its request is in the store."""
    waiting = started(shell, "stop", key, *options)
    wait_until(lambda: shell.call("show", key, "--json").json["stops"] != [], "the request")
    return waiting


def started(shell: CommandLine, *command: str) -> subprocess.Popen[str]:
    """Start a command."""
    return subprocess.Popen(
        [*COMMAND, *command],
        cwd=PROJECT,
        env=shell.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer_of(waiting: subprocess.Popen[str]) -> Answer:
    out, err = waiting.communicate(timeout=PATIENCE_SECONDS)
    return Answer(waiting.returncode, out, err)


def stopped(shell: CommandLine, key: str) -> None:
    """Leave a run that is stopped after epoch 1."""
    latch = shell.folder / "latch"
    with held_in_epoch_1(shell, key):
        waiting = stopping(shell, key)
        latch.unlink()
        assert 0 == answer_of(waiting).code


def test_stop_waits_for_the_epoch_in_progress_and_its_savepoint_holds_it(shell: CommandLine) -> None:
    with held_in_epoch_1(shell, "night") as driver:
        waiting = stopping(shell, "night", "--savepoint", "--to", str(shell.folder / "kept"))
        asked = shell.call("list", "--json").json
        (shell.folder / "latch").unlink()
        answer = answer_of(waiting)
        out, err = driver.communicate(timeout=PATIENCE_SECONDS)

    assert (0, "run night is stopped, after epoch 1; `iteration resume night` lets it go on\n") == (
        answer.code,
        answer.out.partition("checkpoint id")[0],
    )
    assert f"waiting for run night: epoch 1 is in progress, driven by process {driver.pid} on " in answer.err
    assert ["STOP"] == [run["asked_to"] for run in asked if run["run_key"] == "night"]
    assert (0, "STOPPED") == (driver.returncode, Answer(0, out, err).json["status"])
    assert "run night is stopped; `iteration resume night`, then the same command, goes on" in err
    assert 0 == shell.call("branch", str(shell.folder / "kept"), "--run-key", "kept").code
    assert 2 == shell.call("show", "kept", "--json").json["run"]["epochs"]


def test_stopped_run_is_refused_until_it_is_resumed_and_then_finishes(shell: CommandLine) -> None:
    stopped(shell, "paused")
    latch = ["--param", f"latch={shell.folder / 'latch'}", "--param", "hold_epoch=1"]

    refused = shell.run(COUNTED, "paused", *params(shell), *latch)
    planned = shell.call("plan", "paused")
    again = shell.call("stop", "paused")
    resumed = shell.call("resume", "paused")
    twice = shell.call("resume", "paused")
    finished = shell.run(COUNTED, "paused", *params(shell), *latch)

    run_id = finished.json["run_id"]
    sentence = f"error: run {run_id} is stopped; `iteration resume {run_id}` lets it go on\n"
    assert [(2, sentence), (2, sentence)] == [(known.code, known.err) for known in (refused, planned)]
    assert (0, f"run paused was stopped already, after epoch 1, as {ME} had asked\n") == (again.code, again.out)
    assert resumed.out.startswith(
        f"run paused may go on with epoch 2; drive it with: iteration run {COUNTED} --run-key paused --param "
    )
    assert (2, True) == (twice.code, twice.err.startswith(f"error: run {run_id} is RUNNING, not STOPPED"))
    assert (0, "FINISHED", EPOCHS) == (finished.code, finished.json["status"], finished.json["epochs"])
    (stop,) = shell.call("show", "paused", "--json").json["stops"]
    assert ("STOP", ME, ME) == (stop["kind"], stop["requested_by"], stop["resumed_by"])


def test_drained_run_finishes_with_the_epoch_in_progress(shell: CommandLine) -> None:
    with held_in_epoch_1(shell, "drained"):
        waiting = stopping(shell, "drained", "--drain", "--savepoint", "--json")
        (shell.folder / "latch").unlink()
        answer = answer_of(waiting)

    assert (0, "FINISHED", 2, "drained", "DRAIN") == (
        answer.code,
        *(answer.json[name] for name in ("status", "epochs", "terminated_by", "asked_to")),
    )
    assert "run drained is finished, after epoch 1" == answer.json["said"]
    assert Path(answer.json["savepoint"]).is_dir()


def test_drain_of_a_run_that_nobody_drives_says_when_it_comes(shell: CommandLine) -> None:
    shell.run(COUNTED, "later", *params(shell), ITERATION_CRASH_POINT="attempt_opened:kill")
    shell.call("stop", "later")
    shell.call("resume", "later")

    asked = shell.call("stop", "later", "--drain")
    driven = shell.run(COUNTED, "later", *params(shell))

    said = "run later is to drain, and nobody drives it: the next epoch that somebody runs is its last\n"
    assert (0, said) == (asked.code, asked.out)
    assert ("FINISHED", 1, "drained") == tuple(driven.json[name] for name in ("status", "epochs", "terminated_by"))


@pytest.mark.parametrize("drain", [(), ("--drain",)], ids=["stop", "drain"])
def test_run_that_terminates_is_not_said_to_be_finished(shell: CommandLine, drain: tuple[str, ...]) -> None:
    key = f"ending{len(drain)}"
    shell.run(COUNTED, key, *params(shell), ITERATION_CRASH_POINT=f"checkpoint_completed@{EPOCHS - 1}:kill")

    answer = shell.call("stop", key, *drain)

    said = "terminates: no epoch of it comes any more, and nothing is left to stop; whoever drives it publishes"
    assert (1, True) == (answer.code, said in answer.err)


def test_drain_of_a_run_whose_driver_was_killed_waits_for_nobody(shell: CommandLine) -> None:
    shell.run(COUNTED, "dead", *params(shell), ITERATION_CRASH_POINT="epoch_written@1:kill")

    answer = shell.call("stop", "dead", "--drain")

    said = "run dead is to drain, and nobody drives it: the next epoch that somebody runs is its last\n"
    assert (0, said, "") == (answer.code, answer.out, answer.err)


def test_run_whose_driver_was_killed_is_stopped_at_once_where_it_is_durable(shell: CommandLine) -> None:
    killed = shell.run(COUNTED, "killed", *params(shell), ITERATION_CRASH_POINT="epoch_written@2:kill")
    assert -signal.SIGKILL == killed.code

    answer = shell.call("stop", "killed", "--json", "--savepoint")

    assert (0, "STOPPED") == (answer.code, answer.json["status"]), answer.err
    assert answer.json["epochs"] in (1, 2)  # the checkpoint of epoch 1 was being written
    assert answer.json["epochs"] == answer.json["checkpoint_id"]


def test_stop_that_waits_for_a_driver_that_is_killed_stops_the_run_itself(shell: CommandLine) -> None:
    with held_in_epoch_1(shell, "lost") as driver:
        waiting = stopping(shell, "lost")
        driver.kill()
        answer = answer_of(waiting)

    assert (0, "run lost is stopped, before its first epoch was durable; `iteration resume lost` lets it go on\n") == (
        answer.code,
        answer.out,
    )


def test_savepoint_that_waits_for_a_driver_that_is_killed_is_of_the_newest_checkpoint(shell: CommandLine) -> None:
    given = params(shell, latch=shell.folder / "latch", hold_epoch=1)
    shell.run(COUNTED, "saved", *given, ITERATION_CRASH_POINT="checkpoint_completed@0:kill")
    with held_in_epoch_1(shell, "saved") as driver, closing(PostgresStore(shell.store_url)) as store:
        run = find_run(store, "saved")
        waiting = started(shell, "savepoint", "saved", "--json")
        wait_until(lambda: store.list_requests(run.run_id) != (), "the request")
        driver.kill()
        answer = answer_of(waiting)

    assert (0, 0) == (answer.code, answer.json["epoch"])


def test_checkpoint_that_waits_ends_where_the_run_is_stopped(shell: CommandLine) -> None:
    shell.run(COUNTED, "idle", *params(shell), ITERATION_CRASH_POINT="attempt_opened:kill")
    waiting = started(shell, "checkpoint", "idle", "--wait", "60")
    said = waiting.stdout.readline() if waiting.stdout is not None else ""
    shell.call("stop", "idle")

    answer = answer_of(waiting)

    assert "the next epoch of idle that aligns gets a checkpoint, once somebody drives the run\n" == said
    run_id = shell.call("show", "idle", "--json").json["run"]["run_id"]
    sentence = "error: run idle is STOPPED without the checkpoint that was asked for, see: iteration show "
    assert (1, f"{sentence}{run_id}\n") == (answer.code, answer.err)


def test_stop_that_takes_too_long_or_is_interrupted_leaves_its_request(shell: CommandLine) -> None:
    with held_in_epoch_1(shell, "slow") as driver:
        late = shell.call("stop", "slow", "--timeout", "0.3")
        waiting = stopping(shell, "slow")
        wait_until(lambda: shell.call("show", "slow", "--json").json["run"]["asked_to"] == "STOP", "the request")
        waiting_for = waiting.stderr.readline() if waiting.stderr is not None else ""
        waiting.send_signal(signal.SIGINT)
        interrupted = answer_of(waiting)
        requests = shell.call("show", "slow", "--json").json["stops"]
        (shell.folder / "latch").unlink()
        driver.communicate(timeout=PATIENCE_SECONDS)

    assert (1, True) == (late.code, "has not come to its end after 0.3 s: epoch 1 is in progress" in late.err)
    assert "the request stays, and the same command waits again" in late.err
    assert waiting_for.startswith("waiting for run slow: epoch 1 is in progress")
    assert (130, "the request stays; the same command waits again\n") == (interrupted.code, interrupted.err)
    assert 1 == len(requests)
    assert "STOPPED" == shell.call("show", "slow", "--json").json["run"]["status"]


def test_run_that_is_over_cannot_be_stopped(shell: CommandLine) -> None:
    assert 0 == shell.run(COUNTED, "over", *params(shell)).code
    finished = shell.call("stop", "over")
    assert 0 == shell.call("delete", "over", "--yes").code

    deleted = shell.call("stop", shell.call("list", "--all", "--json").json[0]["run_id"])

    assert (1, True) == (finished.code, "is finished" in finished.err)
    assert (2, True) == (deleted.code, "was deleted" in deleted.err)


def test_stopped_run_keeps_its_checkpoint_and_may_be_branched_and_deleted(shell: CommandLine) -> None:
    stopped(shell, "whole")

    collected = shell.call("gc", "whole", "--json").json
    branched = shell.call("branch", "whole", "--run-key", "onwards", "--param", "hold_epoch=9")
    driven = shell.run(COUNTED, "onwards", *params(shell, latch=shell.folder / "latch", hold_epoch=9))
    deleted = shell.call("delete", "whole", "--yes")

    assert [(0, [])] == [(row["files"], row["discarded"]) for row in collected]
    assert (0, 0, "FINISHED") == (branched.code, driven.code, driven.json["status"]), driven.err
    assert 0 == deleted.code, deleted.err
