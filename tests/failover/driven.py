"""A driver in a process of its own, as a person starts it, that a test can hold, kill and follow."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

PROJECT = Path(__file__).resolve().parents[2]
REFERENCE = "tests.iterations.counted:counted"
PATIENCE_SECONDS = 240.0  # with a machine that is slow and busy; what is promised is said where it is tested
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where one test's runs live: a store, a folder for state, a log that bodies append to, a latch."""

    store_url: str
    folder: Path
    runner: str = "spark"

    @property
    def log(self) -> Path:
        """The file that operators append to."""
        return self.folder / "bodies.log"

    @property
    def latch(self) -> Path:
        """The file that holds `moved` while it exists."""
        return self.folder / "latch"

    @property
    def reached(self) -> Path:
        """The file that says that `moved` is held."""
        return self.folder / "latch.reached"

    def start(self, run_key: str, *options: str, hold_epoch: int = 5, **environment: str) -> Driver:
        """Start `iteration run` in a session of its own."""
        command = [sys.executable, "-c", "from iteration_lib.cli import main; main()", "run", REFERENCE, "--json"]
        command += ["--run-key", run_key, "--runner", self.runner, "--parallelism", "2", *options]
        for name, value in {"log": self.log, "latch": self.latch, "hold_epoch": hold_epoch}.items():
            command += ["--param", f"{name}={value}"]
        if self.runner == "spark":
            command += ["--master", "local[2]"]
        environ = {
            **os.environ,
            "ITERATION_STORE_URL": self.store_url,
            "ITERATION_STATE_URI": str(self.folder / "state"),
            **environment,
        }
        output = self.folder / f"{run_key}-{time.monotonic_ns()}"
        with output.with_suffix(".out").open("wb") as out, output.with_suffix(".err").open("wb") as err:
            process = psutil.Popen(command, cwd=PROJECT, env=environ, stdout=out, stderr=err, start_new_session=True)
        return Driver(process, output)

    def finish(self, run_key: str, *options: str) -> dict[str, Any]:
        """Run to the end and return the answer; fails with the driver's errors."""
        driver = self.start(run_key, *options)
        code = driver.wait()
        assert code == 0, driver.errors()
        return driver.answer()

    def show(self, run_key: str) -> dict[str, Any]:
        """Return `iteration show --json`."""
        command = [sys.executable, "-c", "from iteration_lib.cli import main; main()", "show", run_key, "--json"]
        environ = {**os.environ, "ITERATION_STORE_URL": self.store_url}
        shown = subprocess.run(command, cwd=PROJECT, env=environ, capture_output=True, check=True)
        found: dict[str, Any] = json.loads(shown.stdout)
        return found

    def bodies(self) -> Counter[str]:
        """Count how often each `operator epoch` ran, since the last call."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.write_text("")
        return Counter(lines)


class Driver:
    """A started driver."""

    def __init__(self, process: Any, output: Path) -> None:  # Any: psutil.Popen is not annotated
        """Follow `process`."""
        self.process = process
        self._output = output

    def wait(self, timeout_seconds: float = PATIENCE_SECONDS) -> int:
        """Wait for the end; a driver that does not end is killed, and the test fails."""
        try:
            return int(self.process.wait(timeout_seconds))
        except psutil.TimeoutExpired:
            self.kill_all()
            raise AssertionError(f"the driver did not end in {timeout_seconds} s:\n{self.errors()}") from None

    def jvm(self) -> psutil.Process:
        """Return the driver's JVM."""
        return next(child for child in self.process.children(recursive=True) if child.name() == "java")

    def answer(self) -> dict[str, Any]:
        """Return what it printed."""
        found: dict[str, Any] = json.loads(self._output.with_suffix(".out").read_text())
        return found

    def errors(self) -> str:
        """Return what it wrote to standard error."""
        return self._output.with_suffix(".err").read_text()

    def send(self, signal_number: signal.Signals) -> None:
        """Signal the whole session: the driver, its JVM, its workers."""
        os.killpg(self.process.pid, signal_number)

    def kill_all(self) -> None:
        """End whatever is left of it."""
        for process in [*self.process.children(recursive=True), self.process]:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue


def wait_until(condition: Callable[[], object], what: str, *, timeout_seconds: float = PATIENCE_SECONDS) -> None:
    """Poll a condition until it holds; fails with `what` when it does not in time."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_seconds} s for {what}"
        time.sleep(_POLL_SECONDS)


def is_over(process: psutil.Process) -> bool:
    """Tell whether a process has ended."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
