"""Is a holder's process gone? Only what the kernel proves counts. And when was this one told to end?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from iteration_lib.clock import SystemClock
from iteration_lib.interrupt import ToldToEnd, end_in_order
from iteration_lib.process import is_gone, this_holder

HERE = this_holder()


def test_process_that_runs_is_not_gone() -> None:
    assert not is_gone(HERE)


def test_process_that_has_ended_is_gone() -> None:
    ended = psutil.Popen(["true"])
    ended.wait()

    assert is_gone(replace(HERE, pid=ended.pid))


def test_process_that_has_ended_but_that_nobody_has_waited_for_is_gone() -> None:
    """Common in containers, where nothing reaps it."""
    zombie = psutil.Popen(["true"])
    while zombie.status() != psutil.STATUS_ZOMBIE:
        assert zombie.returncode is None

    assert is_gone(replace(HERE, pid=zombie.pid, process_started=identity_of(zombie.pid)))
    zombie.wait()


def test_process_that_is_told_to_end_knows_when_that_was() -> None:
    before = SystemClock().monotonic_seconds()

    with pytest.raises(ToldToEnd) as told:
        end_in_order()

    assert 143 == told.value.code
    assert before <= told.value.told_seconds <= SystemClock().monotonic_seconds()


def identity_of(pid: int) -> str:
    place, _, _ = HERE.process_started.rpartition("/")
    started = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19].decode()
    return f"{place}/{started}"


def test_later_process_with_the_same_pid_is_another() -> None:
    place, _, started = HERE.process_started.rpartition("/")

    assert is_gone(replace(HERE, process_started=f"{place}/{int(started) - 1}"))


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(0, id="another boot"),
        pytest.param(1, id="another pid namespace"),
    ],
)
def test_nothing_is_proved_of_a_process_of(part: int) -> None:
    parts = HERE.process_started.split("/")
    parts[part] = "another"

    assert not is_gone(replace(HERE, process_started="/".join(parts), pid=2**22))


def test_nothing_is_proved_of_a_process_of_another_machine() -> None:
    assert not is_gone(replace(HERE, host="another", pid=2**22))
