"""Does a wait end with what a signal's handler raises, and may it be begun again?"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from iteration_lib.interrupt import ToldToEnd, end_in_order
from iteration_lib.runner.latch import Latch

DEADLINE_SECONDS = 30


@pytest.fixture
def heard() -> Iterator[None]:
    """Raise ToldToEnd at SIGTERM."""
    before = signal.signal(signal.SIGTERM, end_in_order)
    yield
    signal.signal(signal.SIGTERM, before)


def test_open_latch_keeps_nobody_waiting() -> None:
    latch = Latch()
    latch.open()
    latch.open()

    assert [True, True, True] == [latch.wait(), latch.wait(), latch.wait(DEADLINE_SECONDS)]


def test_wait_that_has_an_end_says_whether_it_was_opened() -> None:
    latch = Latch()

    closed = latch.wait(0.001)
    latch.open()

    assert (False, True) == (closed, latch.wait(0.001))


def test_wait_goes_on_for_as_long_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iteration_lib.runner.latch._HEAR_SIGNALS_SECONDS", 0.001)
    latch, opened = Latch(), list[str]()

    def open_late() -> None:
        opened.append("opened")
        latch.open()

    opener = threading.Timer(0.1, open_late)
    opener.start()
    latch.wait()

    assert ["opened"] == opened


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("receiver", ["whoever waits", "another thread"])
def test_wait_that_a_signal_ended_can_be_begun_again_and_waits(receiver: str) -> None:
    """A thread's `join` would take the thread for one that has ended."""
    latch, has_begun, begins_again, opened = Latch(), threading.Event(), threading.Event(), list[str]()

    def send() -> None:
        assert has_begun.wait(DEADLINE_SECONDS)
        main = threading.main_thread().ident or 0
        signal.pthread_kill(main if receiver == "whoever waits" else threading.get_ident(), signal.SIGTERM)
        assert begins_again.wait(DEADLINE_SECONDS)
        opened.append("opened")
        latch.open()

    def begin() -> None:
        has_begun.set()
        latch.wait()

    sender = threading.Thread(target=send)
    sender.start()
    with pytest.raises(ToldToEnd):
        begin()
    before = list(opened)
    begins_again.set()
    latch.wait()
    after = list(opened)
    sender.join(DEADLINE_SECONDS)

    assert ([], ["opened"]) == (before, after)
