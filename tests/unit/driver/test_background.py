"""Does a job run beside whoever started it, and does nobody have to wait for one that hangs?"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from iteration_lib.driver.background import Threads
from iteration_lib.protocol import RunState
from iteration_lib.protocol.state import RunId

DEADLINE_SECONDS = 10.0
STATE = RunState(run_id=RunId("00000000-0000-4000-8000-0000000000aa"))


def hang_until(go_on: threading.Event) -> Callable[[], RunState]:
    """Return work that hangs until it is let go."""

    def work() -> RunState:
        go_on.wait(DEADLINE_SECONDS)
        return STATE

    return work


def test_job_runs_beside_the_one_who_starts_it_and_keeps_its_result() -> None:
    go_on = threading.Event()

    def work() -> RunState:
        assert go_on.wait(DEADLINE_SECONDS)
        return STATE

    job = Threads().start("job", work)
    was_done = job.done()
    go_on.set()

    assert not was_done
    assert STATE == job.result(DEADLINE_SECONDS)


@pytest.mark.parametrize("error", [ValueError("a bug"), SystemExit(1)], ids=["an error", "an exit"])
def test_whatever_a_job_raises_is_raised_where_it_is_looked_at(error: BaseException) -> None:
    def work() -> RunState:
        raise error

    job = Threads().start("job", work)

    with pytest.raises(type(error)):
        job.result(DEADLINE_SECONDS)


def test_waiting_ends_with_the_first_job_that_ends() -> None:
    threads, never = Threads(), threading.Event()
    hanging = threads.start("hanging", hang_until(never))
    quick = threads.start("quick", lambda: STATE)

    threads.wait([hanging, quick], timeout_seconds=DEADLINE_SECONDS)
    done = quick.done(), hanging.done()
    never.set()

    assert (True, False) == done


def test_waiting_ends_after_the_timeout_though_a_job_hangs() -> None:
    threads, never = Threads(), threading.Event()
    hanging = threads.start("hanging", hang_until(never))

    threads.wait([hanging], timeout_seconds=0.01)
    is_done = hanging.done()
    never.set()

    assert not is_done


def test_job_that_hangs_does_not_keep_the_process() -> None:
    never = threading.Event()
    Threads().start("hanging", hang_until(never))

    found = next(thread for thread in threading.enumerate() if thread.name == "hanging")
    is_daemon = found.daemon
    never.set()

    assert is_daemon
