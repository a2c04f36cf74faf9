"""Does the README tell the truth? Its program runs as it is printed, and it fits on a page or two."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import iteration_lib
from iteration_lib.library.datasets import write_digits

PROJECT = Path(__file__).parents[2]
README = (PROJECT / "README.md").read_text()


def test_the_readmes_program_runs_and_its_model_is_the_mean(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader who pastes the program and the command gets the mean of the points."""
    program = next(block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "Iteration(" in block)
    package = tmp_path / "my_team"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "mean.py").write_text(program)
    points = write_digits(tmp_path / "points.parquet")
    monkeypatch.setenv("ITERATION_STORE_URL", store_url)
    monkeypatch.setenv("ITERATION_STATE_URI", str(tmp_path / "state"))
    command = "run my_team.mean:mean --param input=points.parquet --run-key first"
    assert f"iteration {command}" in README

    subprocess.run(
        [
            *(sys.executable, "-c", "from iteration_lib.cli import main; main()"),
            *command.replace("points.parquet", str(points)).split(),
            *("--runner", "local"),
        ],
        cwd=tmp_path,
        check=True,
    )

    found = iteration_lib.load("first")["centre"]
    features = pq.read_table(points)["features"].combine_chunks().flatten().to_numpy().reshape(-1, 64)
    assert features.mean(axis=0) == pytest.approx(found["x"][0].as_py(), abs=1e-8)


def test_the_readme_is_no_longer_than_150_lines() -> None:
    """A newcomer reads all of it."""
    assert len(README.splitlines()) <= 150
