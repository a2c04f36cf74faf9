"""Does a script become durable in at most 20 changed lines? The three of docs/loop.md, killed and resumed."""

from __future__ import annotations

import difflib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from iteration_lib.runner.java import find_java_home
from tests.size import nightly

PROJECT = Path(__file__).resolve().parents[2]
SCRIPTS = PROJECT / "docs" / "loop"
PAGE = (PROJECT / "docs" / "loop.md").read_text()
NAMES = ("partial_fit", "mini_batches", "distances")
MOST_LINES = 20


def difference(name: str) -> list[str]:
    """Return what differs between a script before and after, as the page shows it."""
    before, after = ((SCRIPTS / f"{name}_{when}.py").read_text().splitlines() for when in ("before", "after"))
    return list(difflib.unified_diff(before, after, lineterm="", n=2))[2:]


@pytest.mark.parametrize("name", NAMES)
def test_at_most_20_lines_differ_and_the_page_shows_them(name: str) -> None:
    """Lines that are only moved to the right count, too, both as they were and as they are."""
    lines = difference(name)

    assert 1 <= sum(line[0] in "+-" for line in lines) <= MOST_LINES
    assert f"```diff\n{chr(10).join(lines)}\n```" in PAGE


def test_every_script_is_on_the_page() -> None:
    assert {f"{name}_{when}.py" for name in NAMES for when in ("before", "after")} == {
        path.name for path in SCRIPTS.glob("*.py")
    }


@pytest.mark.postgres
def test_pages_first_loop_runs_as_it_is_printed(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ITERATION_STORE_URL", store_url)
    monkeypatch.setenv("ITERATION_STATE_URI", str(tmp_path / "state"))
    printed = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]

    exec(printed, {"first_centres": np.array([0.0, 8.0]), "better": lambda centres: centres / 10 + 1})  # noqa: S102

    assert "[1.1111111  1.11111118]\n" == capsys.readouterr().out


@pytest.mark.postgres
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "crash_point", "first"),
    [
        ("partial_fit", "epoch_written@5", 5),
        pytest.param("mini_batches", "epoch_opened@9", 9, marks=nightly("on Spark")),
        pytest.param("distances", "epoch_aligned@3", 3, marks=nightly("on Spark")),
    ],
)
def test_script_that_is_killed_and_started_again_prints_what_the_script_before_printed(
    store_url: str, tmp_path: Path, name: str, crash_point: str, first: int
) -> None:
    """The checkpoint of the epoch before may not have been written when the process dies, for it goes on beside."""
    before = start(name, "before", store_url, tmp_path)
    killed = start(name, "after", store_url, tmp_path, ITERATION_CRASH_POINT=crash_point)
    expected, (code, _) = ended(before), ended(killed)
    resumed = ended(start(name, "after", store_url, tmp_path))

    assert (-signal.SIGKILL, 0) == (code, expected[0])
    assert (0, expected[1][-1]) == (resumed[0], resumed[1][-1])
    assert expected[1][-len(resumed[1]) :] == resumed[1]
    assert resumed[1][0].split(":")[0] in (f"epoch {first}", f"epoch {first - 1}")


def start(name: str, when: str, store_url: str, folder: Path, **environment: str) -> subprocess.Popen[str]:
    """Start a script."""
    return subprocess.Popen(
        [sys.executable, str(SCRIPTS / f"{name}_{when}.py")],
        env={
            **os.environ,
            "ITERATION_STORE_URL": store_url,
            "ITERATION_STATE_URI": str(folder / "state"),
            "PYTHONPATH": str(PROJECT),
            "JAVA_HOME": str(find_java_home()),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false pyspark-shell",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONUNBUFFERED": "1",
            **environment,
        },
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=(folder / f"{name}-{when}.err").open("ab"),
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """Wait for a script's end; return how it ended and the lines that it printed."""
    out, _ = process.communicate(timeout=280)
    return process.returncode, out.splitlines()
