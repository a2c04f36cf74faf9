"""What does a DAG file of ours take to parse, beyond what Airflow itself takes?

Each parse has a fresh process, in rounds that alternate between the files and two ways:

    python      the file is run, as by `python dags/kmeans_digits.py`
    processor   Airflow's DagBag takes it up, where everything is imported that Airflow's DAG processor imports

The process parses a bare file first, one DAG of one BaseOperator, which is what Airflow itself takes; then another
file, by the same means, which is what that takes beyond it: "bare, again" is the same once more, the others are ours.
Where a file of dags/ uses `@task`, what Airflow imports for that is in it. The difference is told by the clock and by
the CPU; other work on the machine disturbs the clock more, and the least of all rounds less than their median.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
WANTED_SECONDS = 0.3
BARE = 'from airflow.sdk import DAG, BaseOperator\nwith DAG("bare") as dag:\n    BaseOperator(task_id="nothing")\n'
OURS = (
    'from iteration_lib.airflow import iteration_dag\ndag = iteration_dag("my_team.kmeans:kmeans", max_epochs=100{})\n'
)
WRITTEN = {
    "bare, again": BARE,
    "100 tasks": OURS.format(""),
    "100 tasks, watch": OURS.format(', run_epochs="watch"'),
}
WAYS = {
    "python": "import runpy\nparse = runpy.run_path\n",
    "processor": "import airflow.dag_processing.processor\nfrom airflow.dag_processing.dagbag import DagBag\n"
    "def parse(path):\n    bag = DagBag(path)\n    assert len(bag.dags) == 1, bag.import_errors\n",
}
PROGRAM = """
import json, sys, time
times = [(time.perf_counter(), time.process_time())]
{way}
for path in sys.argv[1:]:
    parse(path)
    times.append((time.perf_counter(), time.process_time()))
print(json.dumps(times))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What the bare file took in a process, Airflow's import with it, and then ours."""

    bare_seconds: float
    seconds: float
    cpu_seconds: float


def main() -> None:
    """Parse every file in every round, and print what it takes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    folder = Path(tempfile.mkdtemp(prefix="parse-time-"))
    (folder / "bare.py").write_text(BARE)
    files = write_files(folder)
    found: dict[tuple[str, str], list[Taken]] = defaultdict(list)
    for number in range(rounds + 1):
        for way in WAYS:
            for name, file in files.items():
                taken = parse(folder, file, way=way)
                if number:  # the first round warms the disk's cache, and writes bytecode
                    found[way, name].append(taken)
    print_times(found)


def write_files(folder: Path) -> dict[str, Path]:
    """Return DAG files by name: those of dags/, and some that are written here."""
    for name, text in WRITTEN.items():
        (folder / f"{name}.py").write_text(text)
    written = {name: folder / f"{name}.py" for name in WRITTEN}
    return {**written, **{f"dags/{file.name}": file for file in sorted((ROOT / "dags").glob("*.py"))}}


def parse(folder: Path, file: Path, *, way: str) -> Taken:
    """Parse the bare file and one of ours, in a process of their own."""
    environment = {**os.environ, "AIRFLOW_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROGRAM.format(way=WAYS[way]), str(folder / "bare.py"), str(file)]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if said.returncode:
        raise SystemExit(said.stderr)
    began, bare, ours = json.loads(said.stdout.splitlines()[-1])
    return Taken(bare_seconds=bare[0] - began[0], seconds=ours[0] - bare[0], cpu_seconds=ours[1] - bare[1])


def print_times(found: dict[tuple[str, str], list[Taken]]) -> None:
    """Print what Airflow itself takes, and each of our files beyond it."""
    print("| way | file | Airflow itself, s | the file beyond it, s | CPU s | wanted |\n|---|---|---|---|---|---|")
    for (way, name), parsed in found.items():
        bare, clock, cpu = (
            _show([getattr(taken, what) for taken in parsed]) for what in ("bare_seconds", "seconds", "cpu_seconds")
        )
        print(f"| {way} | {name} | {bare} | {clock} | {cpu} | {WANTED_SECONDS} |")
    print("\nmedians, and in brackets the least of all rounds")


def _show(times: Sequence[float]) -> str:
    return f"{statistics.median(times):.2f} ({min(times):.2f})"


if __name__ == "__main__":
    main()
