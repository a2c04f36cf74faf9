"""Does a heartbeat go on while it should, and tell once when another attempt has taken the run?"""

from __future__ import annotations

import threading

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
