"""Does the simulation notice a mutant? It is tried on a patched copy of the package, in a process of its own.

`python -m tests.simulation.mutants.trial` tries all that are written by hand and prints how many schedules each one
needed; with --short those that run on every change; with a part of a name, those.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import iteration_lib
from tests.simulation.mutants.catalogue import MUTANTS
from tests.simulation.mutants.mutant import Mutant

SCHEDULES = 20_000
_ROOT = Path(__file__).parents[3]
_PACKAGE = Path(iteration_lib.__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What became of a mutant; `violation` is None for one that was not noticed."""

    mutant: Mutant
    schedules: int
    seconds: float
    violation: str | None
    problem: str = ""  # why it could not be tried

    def line(self) -> str:
        """Return it in words."""
        became = (
            self.problem
            or self.violation
            or (f"equivalent: {self.mutant.equivalent}" if self.mutant.equivalent else "SURVIVED")
        )
        return f"{self.schedules:6d} schedules, {self.seconds:5.1f} s  {self.mutant.name}: {became}"


def try_mutants(mutants: Sequence[Mutant], *, schedules: int = SCHEDULES, workers: int = 1) -> Iterator[Trial]:
    """Try mutants, side by side; in the order in which they are given."""
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(lambda mutant: try_mutant(mutant, schedules=schedules), mutants)


def try_mutant(mutant: Mutant, *, schedules: int = SCHEDULES) -> Trial:
    """Explore a mutant until it is noticed, or until the schedules are used up."""
    began = time.monotonic()
    try:
        with mutated(mutant) as folder:
            found = _explore(folder, schedules=schedules, is_evolving=mutant.is_evolving)
    except _NotTriedError as err:
        return Trial(mutant=mutant, schedules=0, seconds=time.monotonic() - began, violation=None, problem=str(err))
    seconds = time.monotonic() - began
    first = min(found["violations"], key=int, default=None)
    if first is None:
        return Trial(mutant=mutant, schedules=found["schedules"], seconds=seconds, violation=None)
    violation = found["violations"][first]
    problem = "; ".join(f"{name} is not there: {violation}" for name in mutant.misnamed(violation))
    return Trial(
        mutant=mutant,
        schedules=int(first) + 1,
        seconds=seconds,
        violation=violation if not problem else None,
        problem=problem,
    )


class _NotTriedError(Exception):
    """A mutant could not be tried, for the reason given."""


@contextmanager
def mutated(mutant: Mutant) -> Iterator[Path]:
    """Copy the package, as the mutant has it, to a folder, and give that."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        package = Path(folder) / "iteration_lib"
        shutil.copytree(_PACKAGE, package, copy_function=shutil.copy2)
        for file, old, new in mutant.patches:
            patched = package / file
            source = patched.read_text()
            if source.count(old) != 1:
                raise _NotTriedError(f"{old!r} is in {file} {source.count(old)} times, not once")
            patched.unlink()  # a new file: the copied compiled form must not pass for its own
            patched.write_text(source.replace(old, new))
        yield Path(folder)


def simulate(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a module of tests.simulation on the package in this folder."""
    return subprocess.run(
        [sys.executable, "-P", "-m", *command],
        env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{_ROOT}"},
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )


def _explore(folder: Path, *, schedules: int, is_evolving: bool) -> dict[str, Any]:  # Any: what explore prints
    """Return what the simulation finds of the package in this folder."""
    evolving = ["--evolving"] if is_evolving else []
    ended = simulate(folder, "tests.simulation.explore", "--count", str(schedules), "--json", *evolving)
    try:
        return dict(json.loads(ended.stdout))
    except ValueError as err:
        raise _NotTriedError(f"exit code {ended.returncode}: {ended.stderr[-500:]}") from err


def main(arguments: list[str]) -> int:
    """Try mutants from the command line; exit code 1 if one survives that is not equivalent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?", default="")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--schedules", type=int, default=SCHEDULES)
    parser.add_argument("--workers", type=int, default=1)
    asked = parser.parse_args(arguments)
    chosen = [m for m in MUTANTS if asked.name in m.name and (m.in_short or not asked.short)]
    survived = 0
    for trial in try_mutants(chosen, schedules=asked.schedules, workers=asked.workers):
        survived += trial.violation is None and trial.mutant.equivalent is None
        print(trial.line(), flush=True)  # noqa: T201 - a program's output
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
