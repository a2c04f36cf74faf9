"""Which process is this, is that one still there, and what when one that we depend on is gone?

A driver lives only as long as its JVM and, under Airflow, its task process. A killed task leaves its Spark application
behind with init as its parent, and nobody would ever end it: so the driver watches, and ends itself and its JVM.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Collection, Mapping

import psutil

from iteration_lib.protocol.state import Holder

_logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
_GRACE_SECONDS = 10.0
LOST_EXIT_CODE = 4


def this_holder(task: str | None = None) -> Holder:
    """Describe this process as the holder of an attempt; `task` names its Airflow task instance."""
    process = psutil.Process()
    return Holder(host=socket.gethostname(), pid=process.pid, process_started=_started(process), task=task)


def is_gone(holder: Holder) -> bool:
    """Tell whether a holder's process is proved to be gone; one on another machine never is."""
    if holder.host != socket.gethostname():
        return False
    try:
        process = psutil.Process(holder.pid)
        return _started(process) != holder.process_started or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False


def _started(process: psutil.Process) -> str:
    return f"{process.create_time():.2f}"


class Watchdog:
    """Ends this process when one of `watched` (a name to its pid) is gone.

    `on_lost` is told first and may end things in order; after a grace period this process ends all the same, and with
    it those of `owned` (pids) that are still there.
    """

    def __init__(self, watched: Mapping[str, int], *, owned: Collection[int], on_lost: Callable[[str], None]) -> None:
        """Remember who is watched; a process that is gone already counts as lost."""
        self._watched = {name: _process(pid) for name, pid in watched.items()}
        self._owned = [_process(pid) for pid in owned]
        self._on_lost = on_lost
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        """Start watching."""
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; repeatable."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(_POLL_SECONDS):
            lost = next((name for name, process in self._watched.items() if not _is_there(process)), None)
            if lost is not None and not self._stopped.is_set():
                self._end(lost)
                return

    def _end(self, lost: str) -> None:
        _logger.error("event=process_lost what=%s", lost)
        self._on_lost(lost)
        if self._stopped.wait(_GRACE_SECONDS):
            return
        for process in self._owned:
            _end_process(process)
        os._exit(LOST_EXIT_CODE)


def _end_process(process: psutil.Process | None) -> None:
    if process is not None:
        try:
            process.kill()
        except psutil.Error:
            _logger.info("event=process_not_killed pid=%s", process.pid)


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def _is_there(process: psutil.Process | None) -> bool:
    try:
        return process is not None and process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
