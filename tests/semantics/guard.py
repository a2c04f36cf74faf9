"""What does it mean that a test guards a row of docs/semantics.md? It fails when the row is broken.

A Guard names the row, the test, and a patch of the package that breaks the row: a slip that somebody could make.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[2]
_COPIED = ("iteration_lib", "sql", "tests", "plugins", "dags", "script", "docs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """`slip` says what breaks; `test` is a file below tests/ and a test in it; `old` is in `file` exactly once."""

    row: str
    slip: str
    test: str
    file: str
    old: str
    new: str

    @property
    def test_file(self) -> Path:
        """The file that holds the test."""
        return ROOT / "tests" / self.test.partition("::")[0]

    @property
    def test_name(self) -> str:
        """The name of the test's function, without the class or the parameters."""
        return self.test.rpartition("::")[2].partition("[")[0]

    def patched(self) -> str:
        """Return the broken file."""
        return (ROOT / self.file).read_text().replace(self.old, self.new)


def is_caught(guard: Guard) -> tuple[bool, str]:
    """Run a guard's test on a broken copy of the project; tell whether it fails, and what it said.

    Where a fixture does not survive the break, pytest reports an error and no failure: the test never ran.
    """
    with tempfile.TemporaryDirectory(prefix="broken-") as folder:
        copy = Path(folder)
        for name in _COPIED:
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md"):
            shutil.copy2(ROOT / name, copy / name)
        (copy / guard.file).write_text(guard.patched())
        report = copy / "report.xml"
        options = ["-q", "-x", "-p", "no:cacheprovider", f"--junitxml={report}"]
        command = [sys.executable, "-m", "pytest", *options, f"tests/{guard.test}"]
        environment = {**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        ended = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
        failed = report.exists() and ET.parse(report).find(".//failure") is not None  # noqa: S314 - pytest's own
    return failed, ended.stdout[-2_000:] + ended.stderr[-500:]
