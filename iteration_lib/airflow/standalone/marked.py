"""Which processes descend from a start of ours, even when their parents are gone, and how do they all end?

Airflow's processes start others in sessions of their own (supervisors, log servers, Spark's JVM, Python workers), and
an orphan no longer names its ancestor. What every descendant keeps is its environment: each is started with a mark in
MARK, and is found by it under /proc.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

MARK = "ITERATION_STANDALONE_MARK"
_POLL_SECONDS = 0.1
_KILL_SECONDS = 10


def mark_environment(environment: Mapping[str, str], mark: str) -> dict[str, str]:
    """Return the environment with the mark in it.

    SPT_NOENV keeps setproctitle, by which Airflow names its processes, from writing the title over the mark.
    """
    return {**environment, MARK: mark, "SPT_NOENV": "1"}


def find_marked(mark: str, *, proc: Path = Path("/proc")) -> tuple[int, ...]:
    """Return the live processes that carry the mark, this one excepted; another user's are never ours."""
    return tuple(sorted(_find_marked(f"{MARK}={mark}".encode(), proc)))


def end_marked(mark: str, *, grace_seconds: float) -> tuple[int, ...]:
    """Ask every marked process to end and kill those that have not within the grace.

    Returns those that would not end even so (they wait for a device); repeating the call is harmless.
    """
    grace = time.monotonic() + grace_seconds
    end = grace + _KILL_SECONDS
    asked: set[int] = set()
    while (pids := _find_twice(mark)) and time.monotonic() < end:
        is_late = time.monotonic() > grace
        for pid in pids:
            if is_late or pid not in asked:
                _send(pid, signal.SIGKILL if is_late else signal.SIGTERM)
                asked.add(pid)
        time.sleep(_POLL_SECONDS)
    return pids


def _find_twice(mark: str) -> tuple[int, ...]:
    """Find the marked processes, and where there seem to be none look again.

    One that forks or is replaced by another program while the table is read shows no environment for that moment.
    """
    if pids := find_marked(mark):
        return pids
    time.sleep(_POLL_SECONDS)
    return find_marked(mark)


def _send(pid: int, signal_number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal_number)


def _find_marked(wanted: bytes, proc: Path) -> Iterator[int]:
    for folder in proc.iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:  # it has ended, or belongs to somebody else
            continue
        if wanted in environment.split(b"\0"):
            yield int(folder.name)
