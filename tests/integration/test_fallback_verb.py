"""What does `iteration run --allow-fallback` do? In processes of their own."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.command_line import CommandLine

pytestmark = pytest.mark.postgres

COUNTED = "tests.iterations.counted:counted"
EPOCHS = 4


@pytest.fixture
def shell(store_url: str, tmp_path: Path) -> CommandLine:
    return CommandLine(store_url=store_url, folder=tmp_path)


def params(shell: CommandLine) -> list[str]:
    return ["--param", f"log={shell.folder / 'bodies.log'}", "--param", f"max_epochs={EPOCHS}"]


def test_run_with_a_broken_checkpoint_goes_on_from_an_older_one_only_where_it_is_let(shell: CommandLine) -> None:
    killed = shell.run(COUNTED, "torn", *params(shell), ITERATION_CRASH_POINT="manifest_written@2:kill")
    assert -signal.SIGKILL == killed.code
    newest = shell.call("checkpoints", "torn", "--json").json[1]
    run_id = shell.call("show", "torn", "--json").json["run"]["run_id"]
    (shell.state / run_id / newest["manifest"]).unlink()

    refused = shell.run(COUNTED, "torn", *params(shell))
    let = shell.run(COUNTED, "torn", *params(shell), "--allow-fallback")

    assert (1, True) == (refused.code, f"{newest['manifest']} is missing" in refused.err)
    assert "with --allow-fallback it goes on from an older checkpoint\n" in refused.err
    assert (0, "FINISHED", EPOCHS) == (let.code, let.json["status"], let.json["epochs"]), let.err
    assert "fell back to checkpoint 1 of epoch 0" in shell.call("explain", "torn").out


def test_run_with_a_file_that_no_older_checkpoint_brings_back_is_not_told_of_them(shell: CommandLine) -> None:
    """Every checkpoint names what an operator finished for good, and is bad with it."""
    killed = shell.run(COUNTED, "lost", *params(shell), ITERATION_CRASH_POINT="manifest_written@2:kill")
    assert -signal.SIGKILL == killed.code
    finished = next(shell.state.glob("*/*/finished/scaled/*"))
    finished.unlink()

    refused = shell.run(COUNTED, "lost", *params(shell))

    assert (1, f"error: state file {finished} is missing; restore the file, nothing was changed\n") == (
        refused.code,
        refused.err,
    )


@pytest.mark.parametrize(
    ("key", "lost", "content", "said"),
    [
        ("no-manifest", "checkpoint-000002.json", None, "is missing"),
        ("no-file", "epoch-000001/*/*", None, "is missing"),
        ("cut", "epoch-000001/*/*", b"", "has another size"),
    ],
    ids=["manifest", "state file", "half a state file"],
)
def test_gc_discards_no_checkpoint_that_a_run_may_fall_back_to(
    shell: CommandLine, key: str, lost: str, content: bytes | None, said: str
) -> None:
    """Though the policy of its last attempt keeps the newest alone."""
    shell.run(COUNTED, key, *params(shell), ITERATION_CRASH_POINT="manifest_written@2:kill")
    shell.run(COUNTED, key, *params(shell), "--retain-last", "1", ITERATION_CRASH_POINT="attempt_opened:kill")
    run_id = shell.call("show", key, "--json").json["run"]["run_id"]
    newest = max((shell.state / run_id).glob(f"*/{lost}"))
    newest.unlink()
    if content is not None:
        newest.write_bytes(content)

    asked = [shell.call("gc", key, "--json", *option) for option in (["--dry-run"], [])]
    let = shell.run(COUNTED, key, *params(shell), "--allow-fallback")

    assert [1, 1] == [answer.code for answer in asked]
    assert [True, True] == [f"{newest} {said}" in answer.json[0]["problem"] for answer in asked]
    assert (0, "FINISHED") == (let.code, let.json["status"]), let.err
