"""How do tests call the command `iteration`? As a person does: in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.failover.driven import PATIENCE_SECONDS

PROJECT = Path(__file__).resolve().parents[1]
COMMAND = (sys.executable, "-c", "from iteration_lib.cli import main; main()")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, read as JSON."""
        return json.loads(self.out)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """A shell with a store and a folder for state."""

    store_url: str
    folder: Path
    cwd: Path = PROJECT

    @property
    def state(self) -> Path:
        """Where state files go."""
        return self.folder / "state"

    def environment(self, **changes: str) -> dict[str, str]:
        """Return the environment of a command."""
        return {
            **os.environ,
            "ITERATION_STORE_URL": self.store_url,
            "ITERATION_STATE_URI": str(self.state),
            "PYTHONPATH": str(PROJECT),
            "COLUMNS": "200",
            **changes,
        }

    def call(self, *arguments: str, **environment: str) -> Answer:
        """Run `iteration ARGUMENTS` to its end."""
        ended = subprocess.run(
            [*COMMAND, *arguments],
            cwd=self.cwd,
            env=self.environment(**environment),
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )
        return Answer(ended.returncode, ended.stdout, ended.stderr)

    def run(self, reference: str, run_key: str, *options: str, **environment: str) -> Answer:
        """Run an iteration without Spark, and print JSON."""
        return self.call(*_run(reference, run_key), *options, **environment)

    def start(self, reference: str, run_key: str, *options: str, **environment: str) -> subprocess.Popen[str]:
        """Start what `run` runs, and return at once."""
        return subprocess.Popen(
            [*COMMAND, *_run(reference, run_key), *options],
            cwd=self.cwd,
            env=self.environment(**environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def _run(reference: str, run_key: str) -> tuple[str, ...]:
    return "run", reference, "--run-key", run_key, "--runner", "local", "--parallelism", "2", "--json"
