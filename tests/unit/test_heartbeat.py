"""Does a heartbeat go on while it should, and tell once when another attempt has taken the run?"""

from __future__ import annotations

import threading

import pytest

from iteration_lib.errors import OutcomeUnknownError
from iteration_lib.heartbeat import Heartbeat

_DEADLINE_SECONDS = 30


def test_heartbeat_goes_on_while_the_lease_is_renewed() -> None:
    heartbeat = Heartbeat(renew=lambda: True, interval_seconds=10)

    assert (True, False) == (heartbeat.beat(), heartbeat.is_superseded)


def test_heartbeat_concludes_nothing_while_the_store_is_away() -> None:
    def lose() -> bool:
        raise OutcomeUnknownError("connection reset")

    heartbeat = Heartbeat(renew=lose, interval_seconds=10)

    assert (True, False) == (heartbeat.beat(), heartbeat.is_superseded)


def test_heartbeat_that_is_refused_tells_and_ends() -> None:
    called: list[str] = []
    heartbeat = Heartbeat(renew=lambda: False, interval_seconds=10)
    heartbeat.when_superseded(lambda: called.append("cancel"))

    assert (False, True) == (heartbeat.beat(), heartbeat.is_superseded)
    assert ["cancel"] == called


def test_who_asks_after_the_run_was_taken_is_called_at_once() -> None:
    called: list[str] = []
    heartbeat = Heartbeat(renew=lambda: False, interval_seconds=10)
    heartbeat.beat()

    heartbeat.when_superseded(lambda: called.append("cancel"))

    assert ["cancel"] == called


def test_heartbeat_that_was_stopped_takes_its_own_end_for_no_takeover() -> None:
    heartbeat = Heartbeat(renew=lambda: False, interval_seconds=10)
    with heartbeat:
        pass

    assert (True, False) == (heartbeat.beat(), heartbeat.is_superseded)


def test_thread_beats_until_it_is_refused() -> None:
    answers = iter([True, True, False])
    refused = threading.Event()
    heartbeat = Heartbeat(renew=lambda: next(answers), interval_seconds=0.001)
    heartbeat.when_superseded(refused.set)

    with heartbeat:
        assert refused.wait(_DEADLINE_SECONDS)

    assert ([], True) == (list(answers), heartbeat.is_superseded)


def test_interrupt_while_the_thread_starts_leaves_none_that_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would renew the lease of an attempt that has ended, for as long as the process lives."""
    begin = threading.Thread.start

    def be_interrupted(thread: threading.Thread) -> None:
        begin(thread)
        raise KeyboardInterrupt

    heartbeat = Heartbeat(renew=lambda: True, interval_seconds=0.001)
    monkeypatch.setattr(threading.Thread, "start", be_interrupted)

    with pytest.raises(KeyboardInterrupt), heartbeat:
        pass

    heartbeat._thread.join(_DEADLINE_SECONDS)
    assert not heartbeat._thread.is_alive()


def test_beat_that_hangs_keeps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it calls may wait for a Spark that does not answer."""
    monkeypatch.setattr("iteration_lib.heartbeat._JOIN_SECONDS", 0.01)
    begun, answered = threading.Event(), threading.Event()

    def hang() -> bool:
        begun.set()
        return answered.wait(_DEADLINE_SECONDS)

    with Heartbeat(renew=hang, interval_seconds=0.001) as heartbeat:
        begun.wait(_DEADLINE_SECONDS)

    assert heartbeat._thread.is_alive()
    answered.set()
