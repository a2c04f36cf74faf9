"""Do many schedules keep the invariants? `python -m tests.simulation.explore --count 20000 --workers 2` runs them.

Seeds are dealt in chunks. With several workers each chunk has a process of its own, whose end clears away what it used
up: collecting that takes a tenth of the time. The result does not depend on it. A violation prints its seed and how to
see it again.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from tests.simulation.schedule import run_schedule

Chunk = tuple[int, int, bool, bool]  # the first seed, the one behind the last, whether it stops, whether it evolves

_CHUNK = 100
_MEMORY_DISK = Path("/dev/shm")  # noqa: S108 - for files that live a moment; where it is missing, any other place will do


@dataclass(slots=True, kw_only=True)
class Exploration:
    """What came out of many schedules."""

    is_evolving: bool = False
    schedules: int = 0
    steps: int = 0
    seconds: float = 0.0
    counters: Counter[str] = field(default_factory=Counter)
    violations: dict[int, str] = field(default_factory=dict)

    def add(self, other: Exploration) -> None:
        """Take another part's result in."""
        self.schedules += other.schedules
        self.steps += other.steps
        self.counters += other.counters
        self.violations |= other.violations

    @property
    def speed(self) -> float:
        """Schedules per second."""
        return self.schedules / max(self.seconds, 0.001)

    def report(self) -> str:
        """Return it in words."""
        lines = [
            f"{self.schedules} schedules, {self.steps} steps, {self.seconds:.1f} s, {self.speed:.0f} schedules/s",
            f"{len(self.violations)} violations",
        ]
        lines += [f"{count:9d}  {name}" for name, count in sorted(self.counters.items())]
        for seed, violation in sorted(self.violations.items())[:10]:
            how = "--evolving " if self.is_evolving else ""
            lines += [f"seed {seed}: {violation}", f"    python -m tests.simulation.replay {how}{seed}"]
        return "\n".join(lines)


def explore(first: int, count: int, *, workers: int = 1, stops: bool = True, is_evolving: bool = False) -> Exploration:
    """Run the schedules of `count` seeds; with `stops`, only up to a violation."""
    found, began = Exploration(is_evolving=is_evolving), time.monotonic()
    starts = range(first, first + count, _CHUNK)
    chunks = [(start, min(start + _CHUNK, first + count), stops, is_evolving) for start in starts]
    with _mapped(chunks, workers=workers) as results:
        for part in results:
            found.add(part)
            if found.violations and stops:
                break
    found.seconds = time.monotonic() - began
    return found


@contextmanager
def _mapped(chunks: list[Chunk], *, workers: int) -> Iterator[Iterator[Exploration]]:
    """Give the chunks' results, in order; the processes are ended afterwards."""
    if workers == 1:
        yield map(_run_here, chunks)
        return
    pool = ThreadPoolExecutor(workers)
    try:
        yield pool.map(_run_apart, chunks)
    finally:
        pool.shutdown(cancel_futures=True)


def _run_here(chunk: Chunk) -> Exploration:
    gc.disable()  # between two chunks is often enough, and a seventh faster
    try:
        return _run_chunk(chunk)
    finally:
        gc.enable()
        gc.collect()


def _run_apart(chunk: Chunk) -> Exploration:
    """Run a chunk in a process of its own, a copy of one that is warm."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.simulation.warm"])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_chunk, args=(chunk, sender))
    process.start()
    sender.close()
    try:
        found: Exploration = receiver.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f"the process of seeds {chunk[0]} to {chunk[1] - 1} ended with {process.exitcode}") from None
    process.join()
    return found


def _send_chunk(chunk: Chunk, sender: Connection) -> None:
    os.nice(10)  # what runs beside it is mostly waited for; it takes what that leaves
    gc.disable()  # the process ends with the chunk
    sender.send(_run_chunk(chunk))


def _run_chunk(chunk: Chunk) -> Exploration:
    first, end, stops, is_evolving = chunk
    if _MEMORY_DISK.is_dir():
        tempfile.tempdir = str(_MEMORY_DISK)
    found = Exploration()
    for seed in range(first, end):
        outcome = run_schedule(seed, is_evolving=is_evolving)
        found.schedules += 1
        found.steps += outcome.steps
        found.counters += outcome.counters
        if outcome.violation is not None:
            found.violations[seed] = outcome.violation
            if stops:
                break
    return found


def main(arguments: list[str]) -> int:
    """Explore from the command line; exit code 1 after a violation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--go-on", action="store_true", help="do not stop at the first violation")
    parser.add_argument("--evolving", action="store_true", help="schedules in which the user's file changes")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    found = explore(asked.first, asked.count, workers=asked.workers, stops=not asked.go_on, is_evolving=asked.evolving)
    if asked.json:
        violations = {str(seed): text for seed, text in sorted(found.violations.items())}
        print(json.dumps({**_numbers(found), "counters": found.counters, "violations": violations}))  # noqa: T201
    else:
        print(found.report())  # noqa: T201 - a program's output
    return 1 if found.violations else 0


def _numbers(found: Exploration) -> dict[str, float]:
    return {"schedules": found.schedules, "steps": found.steps, "seconds": found.seconds}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
