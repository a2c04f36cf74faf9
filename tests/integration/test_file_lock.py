"""Locks between processes, on real files."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from pathlib import Path

from iteration_lib.store.file_lock import FileLock

_HOLDER = """
import sys
from pathlib import Path
from iteration_lib.store.file_lock import FileLock
lock = FileLock(Path(sys.argv[1]))
lock.acquire_shared()
print("held", flush=True)
sys.stdin.read()
"""


def test_shared_holder_in_other_process_keeps_lock_from_becoming_exclusive_until_killed(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "users")
    command = [sys.executable, "-c", _HOLDER, str(tmp_path / "users")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert "held\n" == holder.stdout.readline()

        refused = lock.try_exclusive()
        holder.kill()
        holder.wait()

    assert not refused
    assert lock.try_exclusive()
    lock.release()


def test_refused_holder_still_shares_the_lock(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path / "users"), FileLock(tmp_path / "users")
    first.acquire_shared()
    second.acquire_shared()

    assert not first.try_exclusive()
    assert not second.try_exclusive()

    first.release()
    assert second.try_exclusive()
    second.release()


def test_waiter_takes_the_new_file_when_the_last_holder_removed_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "turn"
    holder, waiter = FileLock(path), FileLock(path)
    holder.acquire_exclusive()
    thread = threading.Thread(target=waiter.acquire_exclusive)
    thread.start()
    _until_somebody_waits_for(path)

    path.unlink()
    holder.release()
    thread.join()

    assert not _is_free(path)
    waiter.release()
    assert _is_free(path)


def _until_somebody_waits_for(path: Path) -> None:
    """Wait until the kernel lists a blocked request (marked `->`) for the file."""
    deadline = time.monotonic() + 30
    waiting = re.compile(rf"-> FLOCK .*:{path.stat().st_ino} ")
    while not waiting.search(Path("/proc/locks").read_text()):
        assert time.monotonic() < deadline


def _is_free(path: Path) -> bool:
    """Ask without waiting, from another process."""
    code = "import fcntl, sys; fcntl.flock(open(sys.argv[1], 'a'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    return subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, check=False).returncode == 0
