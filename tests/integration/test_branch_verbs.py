"""What do the verbs answer that start runs from checkpoints, and let things go? In processes of their own."""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from iteration_lib.store.postgres import PostgresStore
from tests.command_line import COMMAND, CommandLine
from tests.failover.driven import PATIENCE_SECONDS

pytestmark = pytest.mark.postgres

COUNTED = "tests.iterations.counted:counted"


@pytest.fixture(scope="module")
def shell(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """A shell with the finished run "night", of four epochs, and a branch of its checkpoint 2, "morning", not begun."""
    shell = CommandLine(store_url=store_url, folder=tmp_path_factory.mktemp("branches"))
    assert 0 == shell.run(COUNTED, "night", *params(shell)).code
    assert 0 == shell.call("branch", "night@2", "--run-key", "morning", "--json").code
    return shell


def params(shell: CommandLine, **others: object) -> list[str]:
    given = {"log": shell.folder / "bodies.log", "max_epochs": 4, **others}
    return [text for name, value in given.items() for text in ("--param", f"{name}={value}")]


def files(shell: CommandLine, run_key: str) -> list[Path]:
    run_id = shell.call("show", run_key, "--json").json["run"]["run_id"]
    return [path for path in (shell.state / run_id).rglob("*") if path.is_file()]


def test_branch_says_where_it_starts_and_how_to_drive_it(shell: CommandLine) -> None:
    answer, printed = (
        shell.call("branch", "night", "--epoch", "0", "--run-key", "noon", "--param", "seed=9", *form)
        for form in (["--json"], [])
    )

    assert 0 == answer.code, answer.err
    night = shell.call("show", "night", "--json").json["run"]["run_id"]
    assert {
        "run_key": "noon",
        "reference": COUNTED,
        "epoch": 1,
        "from": f"{night}@1",
        "from_epoch": 0,
        "mode": "no-claim",
        "pins_it": True,
        "released_at": None,
    }.items() <= answer.json.items()
    assert 9 == answer.json["params"]["seed"]
    assert f"drive it with: iteration run {COUNTED} --run-key noon --param log={shell.folder}" in printed.out
    assert "--param seed=9" in printed.out


def test_command_that_drives_a_branch_is_of_the_same_store_and_one_word_is_one(shell: CommandLine) -> None:
    """The store of the environment would begin another run under the key."""
    branched = shell.call("branch", "night@1", "--run-key", "at noon", "--store", shell.store_url)
    stopped = shell.call("stop", "at noon")

    assert "drive it with: iteration run tests.iterations.counted:counted --run-key 'at noon' --param " in branched.out
    assert branched.out.endswith(", with the same --store\n")
    assert "`iteration resume 'at noon'` lets it go on" in stopped.out


def test_branch_is_driven_by_run_with_its_own_parameters(shell: CommandLine) -> None:
    assert 0 == shell.call("branch", "night@3", "--run-key", "driven").code

    answer = shell.run(COUNTED, "driven", *params(shell))

    assert (0, "FINISHED", 4) == (answer.code, answer.json["status"], answer.json["epochs"]), answer.err
    assert shell.call("show", "night", "--json").json["run"]["state_digest"] == answer.json["state_digest"]


def test_checkpoints_say_which_are_safe_to_delete_and_who_pins_the_others(shell: CommandLine) -> None:
    morning = shell.call("show", "morning", "--json").json["run"]["run_id"]

    listed = {row["checkpoint_id"]: row for row in shell.call("checkpoints", "night", "--json").json}

    assert (True, []) == (listed[3]["safe_to_delete"], listed[3]["pinned_by"])
    assert (False, [morning]) == (listed[2]["safe_to_delete"], listed[2]["pinned_by"])
    assert "morning" in shell.call("checkpoints", "night").out
    assert (False, []) == (listed[4]["safe_to_delete"], listed[4]["pinned_by"])


def test_checkpoint_that_a_person_pins_outlives_its_run_until_it_is_released(shell: CommandLine) -> None:
    assert 0 == shell.run(COUNTED, "kept", *params(shell)).code
    run_id = shell.call("show", "kept", "--json").json["run"]["run_id"]

    pinned = shell.call("pin", "kept", "1")
    listed = shell.call("checkpoints", "kept", "--json").json[0]
    deleted = shell.call("delete", "kept", "--yes")
    assert 0 == shell.call("gc", run_id).code
    kept = shell.call("verify", run_id)
    released = shell.call("release", run_id, "1")
    assert 0 == shell.call("gc", run_id).code

    assert (0, "checkpoint 1 of run kept is kept until somebody releases it\n") == (pinned.code, pinned.out)
    assert (False, []) == (listed["safe_to_delete"], listed["pinned_by"])
    assert listed["pinned_by_person"]
    assert "but not those of checkpoint 1, which is pinned" in deleted.out
    assert 0 == kept.code, kept.out
    assert (0, "checkpoint 1 of run kept is released\n") == (released.code, released.out)
    assert not (shell.state / run_id).exists()


def test_checkpoint_that_somebody_keeps_already_is_said_to_be_his(shell: CommandLine) -> None:
    """There is one pin, which anybody releases: who asks second must not take it for his own."""
    assert 0 == shell.run(COUNTED, "shared", *params(shell)).code
    shell.call("pin", "shared", "1", LOGNAME="ann")

    again, other, told = (
        shell.call("pin", "shared", "1", *form, LOGNAME=name)
        for name, form in (("ann", ()), ("bob", ()), ("bob", ("--json",)))
    )

    ann = told.json["pinned_by_person"]
    said = "checkpoint 1 of run shared is kept{} until somebody releases it\n"
    assert ann.startswith("ann@")
    assert (0, said.format("")) == (again.code, again.out)
    assert (0, said.format(f" by {ann} already,")) == (other.code, other.out)
    assert 0 == told.code


@pytest.mark.parametrize("verb", ["pin", "release"])
@pytest.mark.parametrize("checkpoint_id", [9, 2**63])
def test_checkpoint_that_never_was_is_neither_pinned_nor_released(
    shell: CommandLine, verb: str, checkpoint_id: int
) -> None:
    answer = shell.call(verb, "night", str(checkpoint_id))

    assert 2 == answer.code
    assert f"has no checkpoint {checkpoint_id}; its checkpoints are 1 to 4" in answer.err


def test_checkpoint_that_has_been_let_go_is_said_to_be_so_and_not_pinned(shell: CommandLine) -> None:
    assert 0 == shell.run(COUNTED, "brief", *params(shell), "--retain-last", "1").code

    answer = shell.call("pin", "brief", "1")

    run_id = shell.call("show", "brief", "--json").json["run"]["run_id"]
    said = f"checkpoint 1 of run {run_id} has no files, or none any more; choose another one"
    assert (2, f"error: {said} (see: iteration checkpoints {run_id})\n") == (answer.code, answer.err)


def test_run_keeps_the_best_checkpoint_by_the_metric_and_in_the_direction_that_it_is_told(shell: CommandLine) -> None:
    """The centres move less in every epoch: most in the first one."""
    options = ["--retain-last", "1", "--retain-best", "1", "--retain-metric", "shift", "--retain-mode", "max"]

    ran = shell.run(COUNTED, "widest", *params(shell), *options)

    assert 0 == ran.code, ran.err
    status = {row["checkpoint_id"]: row["status"] for row in shell.call("checkpoints", "widest", "--json").json}
    assert {1: "SUBSUMED", 2: "DISCARDED", 3: "DISCARDED", 4: "COMPLETED"} == status


def test_lineage_shows_branches_below_what_they_started_from(shell: CommandLine) -> None:
    rows, printed = shell.call("lineage", "morning", "--json").json, shell.call("lineage", "night")

    assert [("night", 0)] == [(row["run_key"], row["depth"]) for row in rows[:1]]
    assert ("morning", 1) in [(row["run_key"], row["depth"]) for row in rows]
    assert "  morning" in printed.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("night@9", "--run-key", "x"), "run 'night' has no such checkpoint; it has: 1 (epoch 0), 2 (epoch 1)"),
        (("night@4", "--run-key", "x"), "it is of epoch 3, and max_epochs is 4: no epoch is left"),
        (("night@2", "--run-key", "x", "--param", "seed"), "--param 'seed' has no value"),
        (("night@2", "--run-key", "x", "--param", "sed=1"), "sed"),
        (("night@2", "--run-key", "night"), "it did not start from this checkpoint"),
        (("nobody", "--run-key", "x"), "no run has the id or the key 'nobody'"),
        (("nobody", "--epoch", "1", "--run-key", "x"), "no run has the id or the key 'nobody'"),
        (("night@2", "--epoch", "1", "--run-key", "x"), "'night@2' names a checkpoint already"),
        (("night@2", "--run-key", "x", "--new-data", "--keep-data"), "give one of them, or neither"),
    ],
)
def test_branch_that_cannot_be_is_refused_in_words(shell: CommandLine, arguments: tuple[str, ...], said: str) -> None:
    answer = shell.call("branch", *arguments)

    assert 2 == answer.code
    assert said in answer.err
    assert "Traceback" not in answer.err


def test_dry_run_says_what_would_go_and_nothing_goes(store_url: str, tmp_path: Path) -> None:
    shell = CommandLine(store_url=store_url, folder=tmp_path)
    killed = shell.run(COUNTED, "dusk", *params(shell), ITERATION_CRASH_POINT="manifest_written@2:kill")
    resumed = shell.run(COUNTED, "dusk", *params(shell), "--retain-last", "1")
    assert (-signal.SIGKILL, 0) == (killed.code, resumed.code), resumed.err
    before = files(shell, "dusk")

    dry = shell.call("gc", "dusk", "--dry-run", "--json").json[0]
    after_dry = files(shell, "dusk")
    wet = shell.call("gc", "dusk", "--json").json[0]

    assert before == after_dry
    assert dry["garbage"]
    assert {**dry, "garbage": None} == {**wet, "garbage": None}
    assert len(before) - len(wet["garbage"]) == len(files(shell, "dusk")) == wet["kept_files"]
    assert [] == shell.call("gc", "dusk", "--json").json[0]["garbage"]
    assert 0 == shell.call("verify", "dusk").code


def test_run_is_deleted_only_with_a_word_and_its_key_is_free_then(shell: CommandLine) -> None:
    assert 0 == shell.run(COUNTED, "doomed", *params(shell)).code
    run_id = shell.call("show", "doomed", "--json").json["run"]["run_id"]

    asked, told = shell.call("delete", "doomed"), shell.call("delete", "doomed", "--yes")
    collected = shell.call("gc", run_id, "--json").json[0]

    assert (2, 0) == (asked.code, told.code)
    assert "give --yes to do it" in asked.err
    assert ("DELETED", [1, 2, 3, 4], 0, None) == tuple(
        collected[name] for name in ("status", "discarded", "kept_files", "problem")
    )
    assert [] == [path for path in (shell.state / run_id).rglob("*") if path.is_file()]
    assert "doomed" not in shell.call("list").out
    assert run_id in shell.call("list", "--all", "--json").out
    assert 0 == shell.run(COUNTED, "doomed", *params(shell)).code


def test_savepoint_of_a_finished_run_starts_a_branch_wherever_it_lies(shell: CommandLine, tmp_path: Path) -> None:
    """Also when the run is gone, files and row."""
    assert 0 == shell.run(COUNTED, "kept", *params(shell)).code
    digest = shell.call("show", "kept", "--json").json["run"]["state_digest"]

    saved = shell.call("savepoint", "kept", "--checkpoint", "2", "--to", str(tmp_path / "saved"), "--json")
    again = shell.call("savepoint", "kept", "--checkpoint", "2", "--to", str(tmp_path / "saved"))
    other = shell.call("savepoint", "kept", "--to", str(tmp_path / "saved"))
    assert 0 == shell.call("delete", "kept", "--yes").code
    assert 0 == shell.call("gc").code
    (tmp_path / "saved").rename(tmp_path / "moved")
    branched = shell.call("branch", str(tmp_path / "moved"), "--run-key", "kept")
    ended = shell.run(COUNTED, "kept", *params(shell))

    assert (0, 0, 2, 0, 0) == (saved.code, again.code, other.code, branched.code, ended.code), ended.err
    assert (2, 1, str(tmp_path / "saved")) == tuple(saved.json[n] for n in ("checkpoint_id", "epoch", "savepoint"))
    assert "holds another savepoint already" in other.err
    assert digest == ended.json["state_digest"]


def test_savepoint_of_a_run_that_is_driven_is_of_the_next_epoch_that_aligns(store_url: str, tmp_path: Path) -> None:
    """Though its pace would have given it none before the end."""
    shell, latch = CommandLine(store_url=store_url, folder=tmp_path), tmp_path / "latch"
    process = shell.start(
        COUNTED,
        "saved-now",
        *params(shell, max_epochs=8),
        "--checkpoint-every",
        "8",
        ITERATION_CRASH_POINT="epoch_written@2:hold",
        ITERATION_CRASH_LATCH=str(latch),
    )
    try:
        while not latch.exists():
            assert None is process.poll()
        asking = subprocess.Popen(
            [*COMMAND, "savepoint", "saved-now", "--json"],
            cwd=shell.cwd,
            env=shell.environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        with closing(PostgresStore(store_url)) as store:
            run = store.find_run("saved-now")
            assert run is not None
            while not store.list_requests(run.run_id):
                assert None is asking.poll()
    finally:
        latch.unlink(missing_ok=True)
        process.communicate(timeout=PATIENCE_SECONDS)
    printed, _ = asking.communicate(timeout=PATIENCE_SECONDS)

    assert (0, 0) == (process.returncode, asking.returncode)
    saved = json.loads(printed)
    assert (1, 2) == (saved["checkpoint_id"], saved["epoch"])
    assert 0 == shell.call("branch", saved["savepoint"], "--run-key", "from-saved-now").code


def test_run_that_is_driven_is_not_deleted(store_url: str, tmp_path: Path) -> None:
    shell = CommandLine(store_url=store_url, folder=tmp_path)
    latch = tmp_path / "latch"
    process = shell.start(
        COUNTED,
        "driven-now",
        *params(shell),
        ITERATION_CRASH_POINT="epoch_written@1:hold",
        ITERATION_CRASH_LATCH=str(latch),
    )
    try:
        while not latch.exists():
            assert None is process.poll()

        answer = shell.call("delete", "driven-now", "--yes")

        assert 3 == answer.code
        assert "is being driven by" in answer.err
    finally:
        latch.unlink(missing_ok=True)
        process.communicate(timeout=PATIENCE_SECONDS)
    assert 0 == process.returncode
