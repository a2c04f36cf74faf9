"""What runs beside the epochs: a checkpoint's asynchronous part, as a job, and timers. A simulation has its own.

A job is a daemon thread: one that hangs, because a file system does, must keep neither the run nor the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager
from typing import Protocol

from iteration_lib.protocol import RunState

# The run's state as it was committed by the job's last event.
Job = Future[RunState]


class Background(Protocol):
    """Runs jobs beside the one who asks."""

    def start(self, name: str, work: Callable[[], RunState]) -> Job:
        """Start a job; what it raises is in its future."""
        ...

    def wait(self, jobs: Sequence[Job], *, timeout_seconds: float) -> None:
        """Return when one of the jobs has ended, or after the timeout."""
        ...

    def after(self, delay_seconds: float, work: Callable[[], None]) -> Callable[[], None]:
        """Do some work once that much time has passed, unless what is returned is called before."""
        ...

    def lock(self) -> AbstractContextManager[object]:
        """Return what one at a time may enter, of jobs and of whoever starts them."""
        ...


class Threads:
    """Runs each job in a thread."""

    def start(self, name: str, work: Callable[[], RunState]) -> Job:
        """Start a job; see Background."""
        job: Job = Future()

        def run() -> None:
            try:
                job.set_result(work())
            except BaseException as err:  # noqa: BLE001 - it is raised again where the job is waited for
                job.set_exception(err)

        threading.Thread(target=run, name=name, daemon=True).start()
        return job

    def wait(self, jobs: Sequence[Job], *, timeout_seconds: float) -> None:
        """Return when a job has ended; see Background."""
        wait(jobs, timeout=timeout_seconds, return_when=FIRST_COMPLETED)

    def after(self, delay_seconds: float, work: Callable[[], None]) -> Callable[[], None]:
        """Do some work later; see Background."""
        timer = threading.Timer(delay_seconds, work)
        timer.daemon = True
        timer.start()
        return timer.cancel

    def lock(self) -> AbstractContextManager[object]:
        """Return a lock; see Background."""
        return threading.Lock()
