"""What do the verbs answer that explain a run, or act on its checkpoints? In processes of their own."""

from __future__ import annotations

import getpass
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

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


@pytest.fixture(scope="module")
def finished(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """A shell with a finished run, FINISHED."""
    shell = CommandLine(store_url=store_url, folder=tmp_path_factory.mktemp("finished"))
    assert 0 == shell.run(COUNTED, FINISHED, *counted(shell)).code
    return shell


FINISHED = "verbs [/x] [bold]"  # what a careless printer takes for markup


@pytest.fixture(scope="module")
def killed(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """A shell with a run, KILLED, that was killed inside epoch 2."""
    shell = CommandLine(store_url=store_url, folder=tmp_path_factory.mktemp("killed"))
    kill_inside_epoch_2(shell, KILLED)
    return shell


KILLED = "killed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """A run that was killed inside epoch 2, planned, and then driven to its end; and which bodies ran in the end."""

    shell: CommandLine
    run_key: str
    planned: Answer
    bodies: list[str]


@pytest.fixture(scope="module")
def resumed(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Resumed:
    """Kill, plan, resume."""
    shell, key = CommandLine(store_url=store_url, folder=tmp_path_factory.mktemp("resumed")), "resumed"
    kill_inside_epoch_2(shell, key)
    assert {"sums 2", "moved 1"} <= set(bodies(shell))
    planned = shell.call("plan", key, "--json")
    answer = shell.run(COUNTED, key, *counted(shell), "--alignment-timeout", "0")
    assert 0 == answer.code, answer.err
    return Resumed(shell=shell, run_key=key, planned=planned, bodies=bodies(shell))


def counted(shell: CommandLine, **params: object) -> list[str]:
    """Return the parameters of the counted iteration."""
    given = {"log": shell.folder / "bodies.log", "max_epochs": EPOCHS, **params}
    return [text for name, value in given.items() for text in ("--param", f"{name}={value}")]


def kill_inside_epoch_2(shell: CommandLine, key: str) -> None:
    """Run until epoch 1 is durable, and then until some buckets of `sums` are durable inside epoch 2, and no more."""
    for options, point in (((), "checkpoint_completed@1"), (("--alignment-timeout", "0"), "edge_marked@2")):
        killed = shell.run(COUNTED, key, *counted(shell), *options, ITERATION_CRASH_POINT=f"{point}:kill")
        assert -signal.SIGKILL == killed.code, killed.err


def bodies(shell: CommandLine) -> list[str]:
    """Return which bodies ran since the last call."""
    log = shell.folder / "bodies.log"
    lines = log.read_text().splitlines()
    log.write_text("")
    return lines


@contextmanager
def running(shell: CommandLine, key: str, *options: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run an iteration beside the test; it has ended well afterwards."""
    process = subprocess.Popen(
        [*COMMAND, "run", COUNTED, "--run-key", key, "--runner", "local", "--parallelism", "2", *options],
        cwd=PROJECT,
        env=shell.environment(**environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert 0 == process.returncode, errors
    finally:
        process.kill()
        process.communicate()


# plan


def test_plan_says_what_the_next_attempt_does(resumed: Resumed) -> None:
    planned = resumed.planned

    assert (0, "") == (planned.code, planned.err)
    assert ("run epoch 2", 2, []) == tuple(planned.json[name] for name in ("next", "epoch", "refusals"))
    assert [
        ("scaled", "SKIPPED", []),
        ("centres", "RESTORED", []),
        ("sums", "CONTINUED", [[8, 16]]),
        ("moved", "RUN", [[0, 1]]),
    ] == [(step["operator_id"], step["action"], step["running"]) for step in planned.json["operators"]]
    assert [{"operator_id": "sums", "buckets": [[8, 16]]}] == planned.json["frontier"]
    assert (2, 1) == (planned.json["checkpoint"]["checkpoint_id"], planned.json["checkpoint"]["epoch"])
    assert [("points", None)] == [(pin["name"], pin["problem"]) for pin in planned.json["pins"]]


def test_next_attempt_does_what_was_planned(resumed: Resumed) -> None:
    """Bucket 0 of `sums`, which notes that it runs, was durable."""
    assert ["moved 2", "sums 3", "moved 3"] == resumed.bodies


def test_plan_takes_no_lease_and_writes_nothing(killed: CommandLine, store: PostgresStore) -> None:
    run = store.find_run(KILLED)
    assert run is not None
    before = (run, store.list_attempts(run.run_id), store.list_epochs(run.run_id), store.list_parts(run.run_id))
    files = sorted(killed.state.rglob("*"))

    printed = killed.call("plan", KILLED)

    assert (0, "") == (printed.code, printed.err)
    assert "which is gone: the next attempt takes the run over" in printed.out
    assert "buckets 0 to 7 of 16 are durable" in printed.out
    after = store.find_run(KILLED)
    assert before == (after, *(read(run.run_id) for read in (store.list_attempts, store.list_epochs, store.list_parts)))
    assert files == sorted(killed.state.rglob("*"))


def test_plan_that_would_be_refused_says_why_and_exits_as_the_attempt_would(store_url: str, tmp_path: Path) -> None:
    shell = CommandLine(store_url=store_url, folder=tmp_path, cwd=tmp_path)
    module = tmp_path / "my_planned.py"
    source = (PROJECT / "tests/iterations/counted.py").read_text()
    module.write_text(source)
    reference = "my_planned:counted"
    assert 0 != shell.run(reference, "refused-plan", *counted(shell), ITERATION_CRASH_POINT="epoch_written@1:kill").code
    module.write_text(source.replace("count > 0", "count > 1"))

    planned, refused = shell.call("plan", "refused-plan"), shell.run(reference, "refused-plan", *counted(shell))

    assert (2, 2) == (planned.code, refused.code)
    assert planned.err.startswith("error: operator 'moved': its code changed")
    assert planned.err.removeprefix("error: ").strip() in refused.err
    assert "the iteration has changed" in planned.out


def test_plan_of_a_finished_run_has_nothing_left(finished: CommandLine) -> None:
    planned, printed = finished.call("plan", FINISHED, "--json"), finished.call("plan", FINISHED)

    assert (0, "nothing: the run is finished", [], None) == (
        planned.code,
        *(planned.json[name] for name in ("next", "operators", "checkpoint")),
    )
    assert (0, "") == (printed.code, printed.err)
    assert FINISHED in printed.out


# show, explain


def test_show_tells_how_far_the_operators_of_the_open_epoch_are_durable(killed: CommandLine) -> None:
    shown = killed.call("show", KILLED, "--json").json

    assert [("scaled", 0, "FINISHED"), ("sums", 2, "PARTIALLY_FINISHED"), ("moved", 2, "RUNNING")] == [
        (operator["operator_id"], operator["epoch"], operator["status"]) for operator in shown["operators"]
    ]


def test_explain_says_who_decided_what_was_skipped_and_why_the_run_stopped(resumed: Resumed) -> None:
    shell = resumed.shell

    answer, printed = shell.call("explain", resumed.run_key, "--json").json, shell.call("explain", resumed.run_key)

    assert ("FINISHED", [1, 2, 3]) == (answer["status"], [attempt["attempt"] for attempt in answer["attempts"]])
    assert f"because it is the last of max_epochs={EPOCHS} (from centres=5)" in answer["because"][0]
    _, voided, durable = (epoch for epoch in answer["epochs"] if epoch["epoch"] == 2)
    assert ("VOIDED", 2, "DURABLE", 3) == (voided["status"], voided["attempt"], durable["status"], durable["attempt"])
    assert [{"operator_id": "sums", "buckets": [[0, 8]], "of": 16, "attempts": [2]}] == durable["skipped"]
    assert [] == [line for block in answer["epochs"] for line in block["because"] if line not in printed.out]
    assert (0, "") == (printed.code, printed.err)


def test_explain_of_one_epoch_leaves_out_the_others(finished: CommandLine) -> None:
    answer, refused = finished.call("explain", FINISHED, "1", "--json"), finished.call("explain", FINISHED, "9")

    assert [1] == [epoch["epoch"] for epoch in answer.json["epochs"]]
    assert (2, "") == (refused.code, refused.out)
    assert f"error: run '{FINISHED}' has no epoch 9; its epochs are 0 to 3\n" == refused.err


# verify


def test_verify_answers_with_what_it_has_checked(finished: CommandLine) -> None:
    verified, printed = finished.call("verify", FINISHED, "--json"), finished.call("verify", FINISHED)

    assert (0, "", []) == (verified.code, verified.err, verified.json["bad"])
    assert verified.json["files"] == sum(row["files"] for row in verified.json["checked"])
    assert {"checkpoint 1", "checkpoint 4", "operator 'scaled'", "data stream 'points'", "outputs"} <= {
        row["what"] for row in verified.json["checked"]
    }
    assert (0, "") == (printed.code, printed.err)
    assert FINISHED in printed.out


def test_verify_names_every_bad_file_and_fails(shell: CommandLine) -> None:
    run_id = shell.run(COUNTED, "spoilt", *counted(shell)).json["run_id"]
    folder = shell.state / run_id
    missing = next(folder.glob("*/epoch-000001/moved/*"))
    missing.unlink()
    spoilt = min(folder.glob("*/finished/scaled/*"))
    spoilt.write_bytes(spoilt.read_bytes()[::-1])

    verified = shell.call("verify", "spoilt", "--json")
    only = shell.call("verify", "spoilt", "--checkpoint", "2")

    assert (1, 1) == (verified.code, only.code)
    named = {str(path.relative_to(folder)) for path in (missing, spoilt)}
    assert named == {bad["path"] for bad in verified.json["bad"]}
    needed = "`iteration plan spoilt` says whether the next attempt needs it"
    way_out = f"Put back what is bad (paths are below {folder}); {needed}."
    assert (3, way_out) == (len(verified.err.splitlines()), verified.err.splitlines()[-1])
    assert (3, way_out) == (len(only.err.splitlines()), only.err.splitlines()[-1])
    assert (str(folder), {False}) == (verified.json["folder"], {bad["unreadable"] for bad in verified.json["bad"]})
    assert f"error: checkpoint 2: {missing.relative_to(folder)} is missing" in verified.err.splitlines()


def test_verify_refuses_a_checkpoint_that_is_not_there(finished: CommandLine) -> None:
    refused = finished.call("verify", FINISHED, "--checkpoint", "9")

    assert (2, "") == (refused.code, refused.out)
    assert "has no checkpoint 9; its checkpoints are 1 to 4" in refused.err


# abort, checkpoint


def test_abort_releases_a_run_whose_checkpoint_hangs(shell: CommandLine, store: PostgresStore) -> None:
    """From another process, whose own commit aligns the epoch that waits; the driver is told of it by the store."""
    key, latch = "hanging", shell.folder / "latch"
    environment = {"ITERATION_CRASH_POINT": "manifest_written@1:hold", "ITERATION_CRASH_LATCH": str(latch)}
    with running(shell, key, *counted(shell), **environment):
        wait_until(lambda: _is_held(store, key), "epoch 2 to be held")

        aborted = shell.call("abort", key, "2", "--json")
        assert 2 <= _last_aligned(store, key)  # here, while the checkpoint hangs: a run that waits on would never end
        latch.unlink()

    again = shell.call("abort", key, "2")
    assert (0, [2], "ABORTED") == (aborted.code, aborted.json["aborted"], aborted.json["status"])
    assert (0, "checkpoint 2 was ABORTED already\n", "") == (again.code, again.out, again.err)
    explained = shell.call("explain", key, "2", "--json").json["epochs"][0]
    assert [2] == explained["held_by"]
    assert any("released when checkpoint 2 was aborted" in line for line in explained["because"])
    listed = {known["checkpoint_id"]: known for known in shell.call("checkpoints", key, "--json").json}
    assert ("ABORTED", "ABORTED_BY_USER", f"aborted by {ME}") == tuple(
        listed[2][name] for name in ("status", "failure", "reason")
    )
    assert f"aborted by {ME}" in shell.call("checkpoints", key).out.replace("\n", "")


def test_abort_of_the_next_checkpoint_lets_it_be_skipped(shell: CommandLine) -> None:
    key, latch = "skipping", shell.folder / "latch"
    latch.touch()
    with running(shell, key, *counted(shell, latch=latch, hold_epoch=1)):
        wait_until(lambda: Path(f"{latch}.reached").exists(), "the operator to be held")
        wait_until(lambda: _completed(shell, key) == [1], "checkpoint 1 to complete")

        skipped, far = shell.call("abort", key, "2"), shell.call("abort", key, "3")
        listed = shell.call("checkpoints", key)
        latch.unlink()

    assert (0, "checkpoint 2 will be skipped when its turn comes\n", "") == (skipped.code, skipped.out, skipped.err)
    assert (2, "") == (far.code, far.out)
    assert "has no checkpoint 3; its checkpoints are 1 to 1" in far.err
    assert listed.out.endswith("\n\naborted beforehand\n  checkpoint 2\n")
    known = shell.call("checkpoints", key, "--json").json
    assert ("ABORTED", "aborted before it began") == (known[1]["status"], known[1]["reason"])


def _completed(shell: CommandLine, key: str) -> list[int]:
    listed = shell.call("checkpoints", key, "--json").json
    return [known["checkpoint_id"] for known in listed if known["status"] == "COMPLETED"]


def test_checkpoint_is_taken_by_hand_whatever_the_pace(shell: CommandLine) -> None:
    key, latch = "by-hand", shell.folder / "latch"
    latch.touch()
    options = (*counted(shell, latch=latch, hold_epoch=1), "--checkpoint-every", "100")
    with running(shell, key, *options):
        wait_until(lambda: Path(f"{latch}.reached").exists(), "the operator to be held")
        waiting = subprocess.Popen(
            [*COMMAND, "checkpoint", key, "--wait", "60", "--json"],
            cwd=PROJECT,
            env=shell.environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        asked = shell.call("checkpoint", key)
        wait_until(lambda: len(_requests(shell, key)) == 2, "both requests")
        latch.unlink()
        out, _ = waiting.communicate(timeout=PATIENCE_SECONDS)

    assert (0, f"the next epoch of {key} that aligns gets a checkpoint\n", "") == (asked.code, asked.out, asked.err)
    answer = Answer(waiting.returncode, out, "")
    assert (0, 1, "MANUAL", 1) == (
        answer.code,
        *(answer.json["checkpoint"][name] for name in ("checkpoint_id", "kind", "epoch")),
    )
    assert answer.json["checkpoint"]["status"] in ("COMPLETED", "SUBSUMED")
    kinds = [(known["kind"], known["epoch"]) for known in shell.call("checkpoints", key, "--json").json]
    assert [("MANUAL", 1), ("FINAL", EPOCHS - 1)] == kinds
    asked_for = shell.call("explain", key, "1", "--json").json["checkpoints"][0]["because"]
    assert 2 == len([line for line in asked_for if line.startswith(f"asked for by {ME} ")])


def _requests(shell: CommandLine, key: str) -> tuple[object, ...]:
    opened = PostgresStore(shell.store_url)
    try:
        run = opened.find_run(key)
        return opened.list_requests(run.run_id) if run is not None else ()
    finally:
        opened.close()


def test_checkpoint_that_does_not_come_in_time_is_an_error_that_says_so(killed: CommandLine) -> None:
    late = killed.call("checkpoint", KILLED, "--wait", "0.3")

    assert 1 == late.code
    assert f"the next epoch of {KILLED} that aligns gets a checkpoint, once somebody drives the run\n" == late.out
    assert late.err.startswith(
        "error: the checkpoint that was asked for is not completed after 0.3 s (none has begun since)"
    )
    assert f"\nasked for\n  by {ME}, 20" in killed.call("checkpoints", KILLED).out


def test_finished_run_takes_no_checkpoint_any_more(finished: CommandLine) -> None:
    asked, aborted, done = (
        finished.call("checkpoint", FINISHED),
        finished.call("abort", FINISHED, "5"),
        finished.call("abort", FINISHED, "2"),
    )

    assert [(1, ""), (1, "")] == [(known.code, known.out) for known in (asked, aborted)]
    assert "is finished" in asked.err
    assert (0, "checkpoint 2 was SUBSUMED already\n") == (done.code, done.out)


def _is_held(store: PostgresStore, key: str) -> bool:
    run = store.find_run(key)
    return run is not None and any(
        known.epoch == 2 and known.held_at is not None and known.aligned_at is None
        for known in store.list_epochs(run.run_id)
    )


def _last_aligned(store: PostgresStore, key: str) -> int:
    run = store.find_run(key)
    known = store.list_epochs(run.run_id) if run is not None else ()
    return max((epoch.epoch for epoch in known if epoch.aligned_at is not None), default=-1)
