"""What does it mean that a test guards a row of docs/semantics.md? It passes, and fails when the row is broken.

A Guard names the row, the test, and a patch of the package that breaks the row: a slip that somebody could make. Both
are seen in a copy of the project, which does not hold all of it: a test that fails there for want of something else
would seem to catch whatever it is shown.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.misnamed import misnamed

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


def guard(row: str, slip: str, test: str, file: str, old: str, new: str) -> Guard:
    """Return a guard, as the catalogue lists them."""
    return Guard(row=row, slip=slip, test=test, file=file, old=old, new=new)


def is_caught(broken: Guard) -> tuple[bool, str]:
    """Run a guard's test on a broken copy of the project; tell whether it fails, and what it said.

    Where a fixture does not survive the break, pytest reports an error and no failure: the test never ran. Nor does a
    test catch a break that names what is not there.
    """
    with copied() as copy:
        (copy / broken.file).write_text(broken.patched())
        found, said = run_in(copy, [broken.test], "-x")
    missing = misnamed(broken.old, broken.new, said)
    if missing:
        return False, f"{', '.join(missing)} is not there: {_end_of(said)}"
    return "failure" in found, _end_of(said)


def pass_unbroken(tests: Iterable[str]) -> tuple[bool, str]:
    """Run tests on a copy of the project in which nothing is broken, all in one process; tell whether each passes.

    One that is skipped does not: it would catch nothing.
    """
    with copied() as copy:
        found, said = run_in(copy, sorted(set(tests)))
    return {"passed"} == found, _end_of(said)


@contextmanager
def copied() -> Iterator[Path]:
    """Give a copy of the project, as far as tests need it."""
    with tempfile.TemporaryDirectory(prefix="broken-") as folder:
        copy = Path(folder)
        for name in _COPIED:
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md"):
            shutil.copy2(ROOT / name, copy / name)
        yield copy


def run_in(copy: Path, tests: Iterable[str], *options: str) -> tuple[set[str], str]:
    """Return what became of tests and of their cases, as pytest's report calls it, and what was said.

    They have the size that they have for a change: what is caught, is caught before a night.
    """
    report = copy / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *options]
    environment = {
        **os.environ,
        "ITERATION_TEST_SIZE": "pr",
        "PYTHONPATH": str(copy),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    paths = [f"tests/{test}" for test in tests]
    ended = subprocess.run([*command, *paths], cwd=copy, env=environment, capture_output=True, text=True, check=False)
    cases = ET.parse(report).findall(".//testcase") if report.exists() else []  # noqa: S314 - pytest's own
    outcomes = {"failure", "error", "skipped"}
    found = {part.tag for case in cases for part in case if part.tag in outcomes}
    if any(outcomes.isdisjoint(part.tag for part in case) for case in cases):
        found.add("passed")
    return found, ended.stderr[-500:] + ended.stdout


def _end_of(said: str) -> str:
    return said[-2_500:]
