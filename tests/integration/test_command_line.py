"""What does the command `iteration` answer? In processes of its own, on a real store, without Spark."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iteration_lib.errors import OperatorFailedError
from iteration_lib.store.postgres import PostgresStore
from tests.command_line import COMMAND, PROJECT, Answer, CommandLine
from tests.failover.driven import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.postgres

COUNTED = "tests.iterations.counted:counted"
BROKEN = "tests.iterations.broken"
EPOCHS = 3


@pytest.fixture
def shell(store_url: str, tmp_path: Path) -> CommandLine:
    return CommandLine(store_url=store_url, folder=tmp_path)


@pytest.fixture(scope="module")
def finished(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[CommandLine, Answer]:
    """A finished run with the key `finished [/x]`, and what `iteration run` answered."""
    shell = CommandLine(store_url=store_url, folder=tmp_path_factory.mktemp("finished"))
    return shell, shell.run(COUNTED, RUN_KEY, *counted(shell))


RUN_KEY = "finished [/x] [bold]"  # what a careless printer takes for markup


def counted(shell: CommandLine, **params: object) -> list[str]:
    """Return the parameters of the counted iteration."""
    given = {"log": shell.folder / "bodies.log", "max_epochs": EPOCHS, **params}
    return [text for name, value in given.items() for text in ("--param", f"{name}={value}")]


def one_line(answer: Answer) -> str:
    """Return the one line with which a command was refused: exit code 2, no answer, no trace."""
    assert (2, "") == (answer.code, answer.out), answer.err
    lines = answer.err.splitlines()
    assert 1 == len(lines), answer.err
    assert lines[0].startswith("error: ")
    return lines[0].removeprefix("error: ")


# Bad input: one clear line that names the thing, and nothing is written


@pytest.mark.parametrize(
    ("reference", "options", "said"),
    [
        ("no_such_module:km", (), "'no_such_module:km': there is no module 'no_such_module' on the Python path"),
        (f"{BROKEN}.deeper:km", (), f"'{BROKEN}.deeper:km': there is no module"),
        (f"{BROKEN}:nobody", (), f"'{BROKEN}:nobody': module '{BROKEN}' has no 'nobody'; its iterations are: needy,"),
        (f"{BROKEN}:not_an_iteration", (), "'not_an_iteration' is a int, not an Iteration"),
        (BROKEN, (), f"'{BROKEN}': write it as module:object"),
        (f"{BROKEN}:stray", (), "operator 'the-stray': names an input 'nothing_there' that is not there"),
        (f"{BROKEN}:cycle", (), "takes part in a cycle: "),
        (f"{BROKEN}:twice", (), "operator 'moved': two operators have this id"),
        (f"{BROKEN}:lonely", (), "iteration 'lonely': has no variable"),
        (f"{BROKEN}:needy", (), "parameter 'input' is missing; give --param input=..."),
        (f"{BROKEN}:needy", ("--param", "inptu=x"), "unknown parameter 'inptu'; there are: input"),
        (f"{BROKEN}:reading", ("--param", "max_epochs=many"), "parameter 'max_epochs' is 'many', which is no int"),
        (
            f"{BROKEN}:reading",
            ("--param", "max_epochs=0"),
            "parameter 'max_epochs' is 0; it is a whole number from 1 to",
        ),
        (f"{BROKEN}:reading", ("--param", "input=a", "--param", "input=b"), "parameter 'input' is given twice"),
        (f"{BROKEN}:reading", ("--param", "broken"), "--param 'broken' has no value; write it as NAME=VALUE"),
        (f"{BROKEN}:reading", ("--state", "/proc/nowhere"), "state location '/proc/nowhere' cannot be written"),
        (f"{BROKEN}:reading", ("--state", "bogus://here"), "state location 'bogus://here' cannot be opened"),
        (f"{BROKEN}:reading", ("--store", "sqlite:///x"), "cannot connect to the store at sqlite:///x ("),
        (COUNTED, ("--checkpoint-every", "0"), "every_epochs=0): give a whole number from 1 to"),
        (COUNTED, ("--alignment-timeout", "-1"), "alignment_timeout_seconds=-1.0): give a number of seconds"),
        (COUNTED, ("--termination-grace", "-1"), "a termination grace period of -1.0 is no time"),
    ],
)
def test_bad_input_is_refused_in_one_line_and_writes_nothing(
    shell: CommandLine, store: PostgresStore, reference: str, options: tuple[str, ...], said: str
) -> None:
    answer = shell.run(reference, "refused", *options)

    assert said in one_line(answer)
    assert store.find_run("refused") is None
    assert not shell.state.exists() or [] == list(shell.state.iterdir())


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("run", "a:b", "--runner", "abacus"), "'abacus' is not one of 'spark', 'local'"),
        (("run", "a:b", "--parallelism", "0"), "--parallelism"),
        (("run", "a:b", "--max-buckets", "none"), "--max-buckets"),
        (("run",), "MODULE:OBJECT"),
        (("run", "a:b", "--surprise"), "--surprise"),
        (("dance",), "dance"),
        (("lst",), "Did you mean 'list'?"),
        (("show",), "RUN"),
        (("abort", "a"), "CHECKPOINT"),
        (("abort", "a", "0"), "CHECKPOINT"),
        (("explain", "a", "-1"), "-1"),
        (("checkpoint", "a", "--wait", "soon"), "--wait"),
    ],
)
def test_bad_option_is_refused_by_its_name(shell: CommandLine, arguments: tuple[str, ...], named: str) -> None:
    answer = shell.call(*arguments)

    assert (2, "") == (answer.code, answer.out)
    assert named in answer.err


@pytest.mark.parametrize("arguments", [("--help",), ("db", "--help")], ids=lambda arguments: arguments[0])
def test_help_says_what_each_command_is_for_in_a_whole_sentence(shell: CommandLine, arguments: tuple[str, ...]) -> None:
    """A sentence that is too long for its line would be cut, and end with three dots."""
    answer = shell.call(*arguments, COLUMNS="80")

    commands = answer.out.partition("Commands:\n")[2].splitlines()
    assert commands
    assert [] == [command for command in commands if not re.fullmatch(r"  [a-z]+ +[A-Z][^.]*\.", command)]


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "nobody"),
        ("checkpoints", "nobody"),
        ("plan", "nobody"),
        ("explain", "nobody"),
        ("verify", "nobody"),
        ("checkpoint", "nobody"),
        ("abort", "nobody", "1"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_run_that_is_not_there_is_named(shell: CommandLine, arguments: tuple[str, ...]) -> None:
    assert "no run has the id or the key 'nobody'; `iteration list` shows what there is" == one_line(
        shell.call(*arguments)
    )


@pytest.mark.parametrize("arguments", [("run", f"{BROKEN}:reading"), ("list",), ("show", "x"), ("db", "upgrade")])
def test_store_that_is_down_is_named_without_its_password(shell: CommandLine, arguments: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    url = f"postgresql://somebody:secret@127.0.0.1:{port}/km"

    said = one_line(shell.call(*arguments, ITERATION_STORE_URL=url))

    assert re.match(
        rf"cannot connect to the store at postgresql(\+psycopg2)?://somebody:\*\*\*@127.0.0.1:{port}/km", said
    )
    assert said.endswith("; start it, or name another with --store or ITERATION_STORE_URL")


def test_store_without_tables_is_refused_until_it_is_upgraded(shell: CommandLine, empty_store: str) -> None:
    refused = shell.call("list", "--store", empty_store)
    assert "the store holds no iteration tables; run `iteration db upgrade`" == one_line(refused)

    upgraded = shell.call("db", "upgrade", "--store", empty_store, "--json")
    again = shell.call("db", "upgrade", "--store", empty_store, "--json")
    in_words = shell.call("db", "upgrade", "--store", empty_store)

    assert (["0001_initial"], []) == (upgraded.json["applied"][:1], again.json["applied"])
    assert (0, "the store's schema is up to date\n", "") == (in_words.code, in_words.out, in_words.err)
    assert [] == shell.call("list", "--store", empty_store, "--json").json


def test_bad_crash_point_is_refused(shell: CommandLine) -> None:
    assert "ITERATION_CRASH_POINT='lunch' names no crash point" in one_line(
        shell.run(f"{BROKEN}:reading", "refused", ITERATION_CRASH_POINT="lunch")
    )


# Bad input that shows while operators run: the same one line, and the run goes on once it is mended

OTHER_SCHEMA = (
    "operator 'next_weights' feeds back (other: double), but its variable 'weights' is (value: double); return the "
    "same columns with the same types"
)
NAN_METRIC = (
    "operator 'reported' reported the metric 'loss' as nan; a metric is a finite number, so check the input for NaN "
    "and the operator for overflow"
)


@pytest.mark.parametrize(
    ("name", "said", "epochs"),
    [
        ("other_schema", OTHER_SCHEMA, 0),
        ("nan_metric", NAN_METRIC, 1),
    ],
)
def test_bad_result_is_refused_in_one_line_and_keeps_the_durable_epochs(
    shell: CommandLine, store: PostgresStore, name: str, said: str, epochs: int
) -> None:
    key = f"bad-{name}"

    assert said == one_line(shell.run(f"{BROKEN}:{name}", key))

    found = store.find_run(key)
    assert ("FAILED", said, epochs) == ((found.status.value, found.failure, found.epochs) if found else None)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda _: None, "input {} is not there; check the path"),
        (lambda path: path.mkdir(), "input {} "),
        (lambda path: write_points(path, rows=0), "{} holds no rows"),
        (lambda path: path.write_text("no parquet"), "input {} "),
        (lambda path: pq.write_table(pa.table({"y": [1.0]}), path), "input {} "),
    ],
    ids=["missing", "an empty folder", "no rows", "no parquet", "without the column"],
)
def test_bad_input_path_is_named_and_writes_nothing(
    shell: CommandLine, store: PostgresStore, make: Any, said: str
) -> None:
    path = shell.folder / "points.parquet"
    make(path)

    assert said.format(path) in one_line(shell.run(f"{BROKEN}:reading", "refused", "--param", f"input={path}"))

    assert store.find_run("refused") is None
    assert [] == list(shell.state.iterdir())


def test_input_that_changed_is_named_and_the_run_goes_on_once_it_is_put_back(shell: CommandLine) -> None:
    path, other = shell.folder / "points.parquet", shell.folder / "other.parquet"
    options = ("--param", f"input={path}")
    write_points(path, rows=3)
    killed = shell.run(f"{BROKEN}:reading", "moving", *options, ITERATION_CRASH_POINT="epoch_written@1:kill")
    assert -signal.SIGKILL == killed.code
    path.rename(other)
    write_points(path, rows=4)

    refused = one_line(shell.run(f"{BROKEN}:reading", "moving", *options))
    other.replace(path)
    resumed = shell.run(f"{BROKEN}:reading", "moving", *options)

    assert str(path) in refused
    assert (0, "FINISHED", 3) == (resumed.code, resumed.json["status"], resumed.json["epochs"])


def write_points(path: Path, *, rows: int) -> None:
    pq.write_table(pa.table({"x": pa.array([1.0] * rows, pa.float64())}), path)


def test_operator_that_raises_is_named_with_its_cause_and_the_run_goes_on_once_it_is_mended(
    shell: CommandLine, store: PostgresStore
) -> None:
    """Whatever its words are: some that no database keeps do not hide the error."""
    mended, key = shell.folder / "mended", "raising"
    options = ("--param", f"log={mended}")

    answer = shell.run(f"{BROKEN}:raising", key, *options)

    assert (OperatorFailedError.exit_code, "") == (answer.code, answer.out)
    assert 1 == len(answer.err.splitlines()), answer.err
    assert answer.err.startswith("error: operator 'raised' failed in epoch 1: ValueError: a NUL")
    found = store.find_run(key)
    assert found is not None
    assert ("FAILED", 1) == (found.status.value, found.epochs)
    failure = "operator 'raised' failed in epoch 1: ValueError: a NUL \\0, a lone surrogate \\ud800 and [/markup]"
    assert failure in str(found.failure)
    for shown in (shell.call("show", key), shell.call("list")):
        assert (0, "") == (shown.code, shown.err)
    mended.touch()
    assert "FINISHED" == shell.run(f"{BROKEN}:raising", key, *options).json["status"]


def test_operator_that_raises_is_shown_with_its_line_where_the_log_is_asked_for(shell: CommandLine) -> None:
    options = ("--param", f"log={shell.folder / 'never'}")

    told = shell.call("run", f"{BROKEN}:raising", "--runner", "local", *options, ITERATION_LOG_LEVEL="info")
    refused = shell.call("list", ITERATION_LOG_LEVEL="loud")

    assert re.search(r'broken\.py", line \d+, in raised\n', told.err), told.err
    assert "error: operator 'raised' failed in epoch 1" in told.err
    assert (2, "error: ITERATION_LOG_LEVEL is 'loud'; give DEBUG, INFO, WARNING or ERROR\n") == (
        refused.code,
        refused.err,
    )


# What the commands answer


def test_run_answers_with_its_result(finished: tuple[CommandLine, Answer]) -> None:
    shell, answer = finished

    assert (0, "") == (answer.code, answer.err)
    result = answer.json
    assert {
        "run_id": result["run_id"],
        "run_key": RUN_KEY,
        "status": "FINISHED",
        "epochs": EPOCHS,
        "terminated_by": "max_epochs",
        "outputs": result["outputs"],
        "state_digest": result["state_digest"],
    } == result
    assert re.fullmatch("[0-9a-f]{64}", result["state_digest"])
    assert ["centres"] == list(result["outputs"])
    published = Path(result["outputs"]["centres"])
    assert published.is_relative_to(shell.state / result["run_id"])
    assert 5 == sum(pq.read_table(file).num_rows for file in published.iterdir())


def test_run_without_json_answers_in_lines(finished: tuple[CommandLine, Answer]) -> None:
    shell, answer = finished

    arguments = ("run", COUNTED, "--run-key", RUN_KEY, "--runner", "local", *counted(shell))
    printed = shell.call(*arguments)

    assert (0, f"run {RUN_KEY} is finished; nothing to run\n") == (printed.code, printed.err)
    lines = dict(line.split("  ", 1) for line in printed.out.splitlines())
    assert {name.replace("_", " ") for name in answer.json} == {name.strip() for name in lines}
    assert answer.json["state_digest"] == lines["state digest"].strip()


def test_finished_run_says_so_and_runs_nothing(finished: tuple[CommandLine, Answer]) -> None:
    shell, answer = finished
    bodies = (shell.folder / "bodies.log").read_text()

    again = shell.run(COUNTED, RUN_KEY, *counted(shell))

    assert (0, f"run {RUN_KEY} is finished; nothing to run\n") == (again.code, again.err)
    assert answer.json == again.json
    assert bodies == (shell.folder / "bodies.log").read_text()
    assert 1 == len(shell.call("show", RUN_KEY, "--json").json["attempts"])


def test_show_answers_with_everything_there_is(finished: tuple[CommandLine, Answer]) -> None:
    shell, answer = finished

    shown = shell.call("show", RUN_KEY, "--json").json

    assert ["run", "attempts", "epochs", "operators", "checkpoints", "stops"] == list(shown)
    assert answer.json == {name: shown["run"][name] for name in answer.json}
    assert ({"k": None}.keys() & shown["run"].keys(), COUNTED) == (set(), shown["run"]["reference"])
    assert [(0, "DURABLE", 1), (1, "DURABLE", 1), (2, "DURABLE", 1)] == [
        (epoch["epoch"], epoch["status"], epoch["attempt"]) for epoch in shown["epochs"]
    ]
    for epoch in shown["epochs"]:
        assert {"centres": 5} == epoch["records"]
        assert ["shift"] == list(epoch["metrics"])
        assert epoch["seconds"] > 0
    assert [("moved", 2, "FINISHED"), ("scaled", 0, "FINISHED"), ("sums", 2, "FINISHED")] == sorted(
        (operator["operator_id"], operator["epoch"], operator["status"]) for operator in shown["operators"]
    )
    assert [(1, 0, "SUBSUMED"), (2, 1, "SUBSUMED"), (3, 2, "COMPLETED")] == [
        (known["checkpoint_id"], known["epoch"], known["status"]) for known in shown["checkpoints"]
    ]
    assert [(1, "FINISHED", None)] == [(a["attempt"], a["outcome"], a["reason"]) for a in shown["attempts"]]


def test_show_finds_a_run_by_its_id(finished: tuple[CommandLine, Answer]) -> None:
    shell, answer = finished

    by_id = shell.call("show", answer.json["run_id"], "--json")

    assert by_id.json == shell.call("show", RUN_KEY, "--json").json


def test_checkpoints_answers_with_those_of_the_run(finished: tuple[CommandLine, Answer]) -> None:
    shell, _ = finished

    listed = shell.call("checkpoints", RUN_KEY, "--json").json

    assert shell.call("show", RUN_KEY, "--json").json["checkpoints"] == listed
    assert [("PERIODIC", True), ("PERIODIC", True), ("FINAL", True)] == [
        (known["kind"], (shell.state / answer_id(finished) / known["manifest"]).is_file()) for known in listed
    ]


def answer_id(finished: tuple[CommandLine, Answer]) -> str:
    return str(finished[1].json["run_id"])


def test_list_answers_with_the_newest_first(finished: tuple[CommandLine, Answer], shell: CommandLine) -> None:
    newer = shell.run(COUNTED, "newer", *counted(shell, max_epochs=1)).json

    listed = [run["run_key"] for run in shell.call("list", "--json").json]

    assert listed.index("newer") < listed.index(RUN_KEY)
    assert newer["run_id"] in [run["run_id"] for run in shell.call("list", "--json").json]


@pytest.mark.parametrize("arguments", [("list",), ("show", RUN_KEY), ("checkpoints", RUN_KEY)])
def test_tables_show_names_as_they_are(finished: tuple[CommandLine, Answer], arguments: tuple[str, ...]) -> None:
    """A name may look like the printer's markup."""
    shell, _ = finished

    printed = shell.call(*arguments)

    assert (0, "") == (printed.code, printed.err)
    assert RUN_KEY in printed.out


def test_run_without_a_key_gets_a_new_one_each_time(shell: CommandLine) -> None:
    keys = [
        shell.call("run", COUNTED, "--runner", "local", "--json", *counted(shell, max_epochs=1)).json["run_key"]
        for _ in range(2)
    ]

    assert 2 == len(set(keys))
    assert all(re.fullmatch("counted-[0-9a-f]{8}", key) for key in keys)


def test_state_and_store_come_from_flags_before_the_environment(shell: CommandLine, store_url: str) -> None:
    elsewhere = shell.folder / "elsewhere"

    result = shell.run(
        COUNTED,
        "flags",
        *counted(shell, max_epochs=1),
        *("--state", str(elsewhere), "--store", store_url),
        ITERATION_STORE_URL="postgresql://nobody@127.0.0.1:1/nowhere",
        ITERATION_STATE_URI="/proc/nowhere",
    ).json

    assert Path(result["outputs"]["centres"]).is_relative_to(elsewhere / result["run_id"])


# The same key again


def test_other_parameters_under_the_same_key_are_refused_with_the_difference(
    finished: tuple[CommandLine, Answer], store: PostgresStore
) -> None:
    shell, _ = finished
    before = store.find_run(RUN_KEY)

    answer = shell.run(COUNTED, RUN_KEY, *counted(shell, max_epochs=9, seed=4))

    assert (2, "") == (answer.code, answer.out)
    assert [
        f"error: run key {RUN_KEY!r} belongs to a run that differs:",
        "  - parameter 'max_epochs' was 3, now 9",
        "  - parameter 'seed' was 3, now 4",
        "Use another run key, or the same parameters and code to resume that run.",
    ] == answer.err.splitlines()
    assert before == store.find_run(RUN_KEY)


def test_other_iteration_or_buckets_under_the_same_key_are_refused(finished: tuple[CommandLine, Answer]) -> None:
    shell, _ = finished

    iteration = shell.run(f"{BROKEN}:raising", RUN_KEY)
    buckets = shell.run(COUNTED, RUN_KEY, *counted(shell), "--max-buckets", "7")

    assert (2, 2) == (iteration.code, buckets.code)
    assert f"  - iteration was {COUNTED}, now {BROKEN}:raising\n" in iteration.err
    assert "  - max_buckets was 16, now 7\n" in buckets.err


def test_other_code_under_the_same_key_is_refused_until_it_is_put_back(store_url: str, tmp_path: Path) -> None:
    shell = CommandLine(store_url=store_url, folder=tmp_path, cwd=tmp_path)
    module, reference = tmp_path / "my_counted.py", "my_counted:counted"
    source = (PROJECT / "tests/iterations/counted.py").read_text()
    module.write_text(source)
    killed = shell.run(reference, "code", *counted(shell), ITERATION_CRASH_POINT="epoch_written@1:kill")
    assert -signal.SIGKILL == killed.code

    module.write_text(source.replace("count > 0", "count > 1"))
    refused = shell.run(reference, "code", *counted(shell))
    module.write_text(source.replace("    after = ", "    # none has moved\n    after = "))
    resumed = shell.run(reference, "code", *counted(shell))

    assert 2 == refused.code
    assert ["  - operator 'moved': its code changed; put it back, start another run, or branch this one"] == [
        line for line in refused.err.splitlines() if " - " in line
    ]
    assert (0, EPOCHS) == (resumed.code, resumed.json["epochs"]), resumed.err


# Interruptions


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"])
def test_interrupted_run_ends_its_attempt_and_goes_on_at_once(
    shell: CommandLine, store: PostgresStore, how: signal.Signals, code: int
) -> None:
    key, latch = f"interrupted-{how}", shell.folder / "latch"
    options = counted(shell, latch=latch, hold_epoch=1)
    latch.touch()
    process = subprocess.Popen(
        [*COMMAND, "run", COUNTED, "--run-key", key, "--runner", "local", *options],
        cwd=PROJECT,
        env=shell.environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: Path(f"{latch}.reached").exists(), "the operator to be held")

    process.send_signal(how)
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    latch.unlink()
    resumed = shell.run(COUNTED, key, *options)

    assert code == process.returncode, errors
    assert "run the same command again to resume" in errors
    assert "Traceback" not in errors
    assert (0, EPOCHS) == (resumed.code, resumed.json["epochs"])
    attempts = store.list_attempts(resumed.json["run_id"])
    assert [("RELEASED", "interrupted"), ("FINISHED", None)] == [
        (attempt.outcome.value if attempt.outcome else None, attempt.reason) for attempt in attempts
    ]


# A terminal


def test_run_on_a_terminal_shows_a_bar_over_the_epochs(shell: CommandLine) -> None:
    """Also for a name that looks like the printer's markup."""
    key = "bar [/x]"
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "run", COUNTED, "--run-key", key, "--runner", "local", "--json", *counted(shell)],
        cwd=PROJECT,
        env=shell.environment(TERM="xterm", COLUMNS="120"),
        stdout=subprocess.PIPE,
        stderr=follower,
        text=True,
    )
    os.close(follower)
    shown = read_all(leader)
    out, _ = process.communicate(timeout=PATIENCE_SECONDS)

    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert (0, EPOCHS) == (process.returncode, json.loads(out)["epochs"])
    assert key in plain
    assert f"{EPOCHS}/{EPOCHS}" in plain
    assert "shift=" in plain


def read_all(terminal: int) -> str:
    found = b""
    while True:
        try:
            chunk = os.read(terminal, 65_536)
        except OSError:  # the other side is closed
            break
        if not chunk:
            break
        found += chunk
    os.close(terminal)
    return found.decode()


def test_answer_as_json_is_alone_on_standard_output_whatever_the_iteration_prints(shell: CommandLine) -> None:
    """Else no program could read it, the run's page in Airflow among them."""
    given = ["--param", f"log={shell.folder / 'bodies.log'}", "--param", "max_epochs=1"]
    module = shell.folder / "talkative.py"
    module.write_text("from tests.iterations.counted import counted\n\nprint('imported')\n")
    shown = {"PYTHONPATH": f"{PROJECT}{os.pathsep}{shell.folder}"}

    ran = shell.run("talkative:counted", "talkative", *given, **shown)
    planned = shell.call("run", "talkative:counted", "--run-key", "aloud", "--runner", "local", *given, **shown)

    assert ("FINISHED", True) == (ran.json["status"], "imported" in ran.err)
    assert planned.out.startswith("imported\n")


def test_command_is_called_in_a_folder_that_is_gone(shell: CommandLine) -> None:
    gone = shell.folder / "gone"
    gone.mkdir()

    ended = subprocess.run(
        ["/bin/sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", *COMMAND, "list"],
        cwd=gone,
        env=shell.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )

    assert (0, "") == (ended.returncode, ended.stderr)


def test_answer_that_finds_no_room_is_an_error_in_one_line(shell: CommandLine) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [*COMMAND, "list", "--json"],
            cwd=PROJECT,
            env=shell.environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )

    assert (1, True) == (ended.returncode, ended.stderr.startswith("error: [Errno 28] No space left on device"))
    assert "Traceback" not in ended.stderr
