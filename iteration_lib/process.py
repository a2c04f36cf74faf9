"""Which process is this, is that one still there, and what when one that we depend on is gone?

A driver lives only as long as its JVM and, under Airflow, its task process. A killed task leaves its Spark application
behind with init as its parent, and nobody would ever end it: so the driver watches, and ends itself and its JVM.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import psutil

from iteration_lib.protocol.state import Holder

_logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
_GRACE_SECONDS = 10.0
LOST_EXIT_CODE = 4


def this_holder(task: str | None = None) -> Holder:
    """Describe this process as the holder of an attempt; `task` names its Airflow task instance."""
    pid = os.getpid()
    return Holder(host=socket.gethostname(), pid=pid, process_started=_identity(pid) or "unknown", task=task)


def is_gone(holder: Holder) -> bool:
    """Tell whether a holder's process is proved to be gone.

    Nothing is proved of a process of another machine, of another boot of this one, or of another pid namespace.
    """
    here = _identity(os.getpid())
    if holder.host != socket.gethostname() or here is None:
        return False
    place, _, _ = holder.process_started.rpartition("/")
    if not place or place != here.rpartition("/")[0]:
        return False
    return _identity(holder.pid) != holder.process_started or not _is_there(_process(holder.pid))


def _identity(pid: int) -> str | None:
    """Return boot, pid namespace and start of a process, by the kernel's own count, which no clock can shift."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = Path("/proc/self/ns/pid").readlink()
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    started = status.rpartition(b")")[2].split()[19].decode("ascii")  # field 22, counted behind the command's name
    return f"{boot}/{namespace}/{started}"


class Watchdog:
    """Ends this process when one that is watched is gone.

    `when_lost` is told first and may end things in order; unless `stop` says within a grace period that they have
    ended, this process ends all the same, and with it the owned ones that are still there.
    """

    def __init__(self) -> None:
        """Watch nobody yet."""
        self._watched: dict[str, psutil.Process | None] = {}
        self._owned: list[psutil.Process | None] = []
        self._when_lost: Callable[[str], None] = lambda _what: None
        self._closing = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def watch(self, name: str, pid: int, *, is_owned: bool = False) -> None:
        """Watch a process too; one that is gone already counts as lost."""
        process = _process(pid)
        self._watched = {**self._watched, name: process}
        if is_owned:
            self._owned.append(process)

    def when_lost(self, call: Callable[[str], None]) -> None:
        """Have `call` called with the name of who is lost."""
        self._when_lost = call

    def start(self) -> None:
        """Start watching."""
        self._thread.start()

    def expect_ends(self) -> None:
        """From now on who ends is no loss: what is watched is being closed."""
        self._closing.set()

    def stop(self) -> None:
        """Stop watching: everything has ended in order; repeatable."""
        self._closing.set()
        self._stopped.set()

    def _run(self) -> None:
        while not self._closing.wait(_POLL_SECONDS):
            lost = next((name for name, process in self._watched.items() if not _is_there(process)), None)
            if lost is not None and not self._closing.is_set():
                self._end(lost)
                return

    def _end(self, lost: str) -> None:
        _logger.error("event=process_lost what=%s", lost)
        # In a thread of its own: telling a JVM that hangs may hang as well.
        threading.Thread(target=self._when_lost, args=(lost,), name="when-lost", daemon=True).start()
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
