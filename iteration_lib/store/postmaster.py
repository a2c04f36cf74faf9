"""Which server process serves a data folder, and is it alive?

`postmaster.pid` alone does not say: after a kill -9 or a reboot its number may belong to nobody, to a zombie that
nothing reaps (common in containers) or to another program, and Postgres then refuses to start or starts only after an
argument. Here a postmaster is a live process whose command line names the data folder, and a leftover backend is one
whose title carries the cluster's name. Callers hold the folder's lock, so no second starter is at work meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path

_POLL_SECONDS = 0.02
_PORT_LINE = 3  # of postmaster.pid, counted from 0
_ADDRESS_LINE = 5


def find_postmaster(data: Path) -> int | None:
    """Return the process id of the server that serves the data folder, if there is one."""
    pid = _noted_pid(data)
    if pid is not None and is_alive(pid, data):
        return pid
    return None


def clear_stale_note(data: Path, socket: Path, *, cluster: str, deadline: float) -> bool:
    """Remove the pid files of a server that is gone, once its last backend has ended; False when some did not in time.

    Postgres removes stale ones by itself where the number is free, and refuses to start where it is not. A backend
    that outlives its server notices within moments and ends; until then it may still write into the data folder.
    """
    while any(_leftovers(data, cluster)):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    for note in (data / "postmaster.pid", *socket.glob(".s.PGSQL.*")):
        note.unlink(missing_ok=True)
    return True


def noted_port(data: Path) -> int | None:
    """Return the port that the server notes (it also names the socket)."""
    lines = _note(data)
    return int(lines[_PORT_LINE]) if len(lines) > _PORT_LINE and lines[_PORT_LINE].isdigit() else None


def is_on_tcp(data: Path) -> bool:
    """Tell whether the server notes an address that it listens on."""
    lines = _note(data)
    return len(lines) > _ADDRESS_LINE and bool(lines[_ADDRESS_LINE].strip())


def is_alive(pid: int, data: Path) -> bool:
    """Tell whether the process is a server on the data folder; a zombie is not, it has no command line left."""
    arguments = _command_line(pid).split(b"\0")
    return arguments[0].endswith(b"/postgres") and os.fsencode(data) in arguments


def is_gone(pid: int) -> bool:
    """Tell whether the process has ended, reaped or not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in {"Z", "X"}


def shut_down(data: Path, *, seconds: float, flush: bool = True) -> bool:
    """End the server that serves the data folder by a fast shutdown; False when it did not end in time.

    Clients are cut off, their open transactions rolled back, and everything committed is flushed. Without `flush` it is
    an immediate shutdown: for data that nobody wants any more.
    """
    pid = _noted_pid(data)
    if pid is None:
        return True
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if not is_alive(pid, data):  # asked after the handle is held, so that no other process gets the signal
            return True
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGINT if flush else signal.SIGQUIT)
        ended = select.poll()
        ended.register(handle, select.POLLIN)
        return bool(ended.poll(seconds * 1000))
    finally:
        os.close(handle)


def _note(data: Path) -> list[str]:
    try:
        return (data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return []


def _noted_pid(data: Path) -> int | None:
    lines = _note(data)
    return int(lines[0]) if lines and lines[0].isdigit() else None


def _leftovers(data: Path, cluster: str) -> Iterator[int]:
    """Yield the processes that work on the data folder: titled `postgres: <cluster>: ...`, or not titled yet."""
    title = f"postgres: {cluster}: ".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            pid = int(entry.name)
            if _command_line(pid).startswith(title) or is_alive(pid, data):
                yield pid


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
