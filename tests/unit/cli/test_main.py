"""Is a command's module imported when it is asked for, and is that module the project's own?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import PROJECT

# As the script does that pip makes: the current folder is not on the path.
SCRIPT = (sys.executable, "-P", "-c", "from iteration_lib.cli import main; main()")


@pytest.mark.parametrize("library", ["numbers", "rich", "sqlalchemy", "iteration_lib"])
def test_file_of_the_current_folder_does_not_pass_for_a_library(tmp_path: Path, library: str) -> None:
    (tmp_path / f"{library}.py").write_text("raise SystemExit('mine')\n")

    answer = subprocess.run(
        [*SCRIPT, "list", "--help"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, "") == (answer.returncode, answer.stderr)
    assert "List the runs" in answer.stdout


@pytest.mark.parametrize("module", ["show", "checkpoint", "pin", "db"])
def test_command_that_asks_only_the_store_brings_no_heavy_library_along(module: str) -> None:
    heavy = ("pyarrow", "numpy", "pyspark", "airflow", "fsspec")
    asked = f"import sys, iteration_lib.cli.{module}; print([name for name in {heavy} if name in sys.modules])"

    answer = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)

    assert "[]\n" == answer.stdout
