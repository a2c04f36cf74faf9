"""When is somebody told that a run makes no progress?"""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pytest

from iteration_lib.airflow.stall import StallWatch
from iteration_lib.errors import StoreUnavailableError

DEADLINE_SECONDS = 30


class Hand:
    """A clock in the hand, and the run that is looked at."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.epoch = 3
        self.told: list[str] = []
        self.is_away = False
        self.watch = StallWatch(read_epoch=self.read, alert=self.told.append, stalls_after_seconds=60, clock=self)

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic_seconds(self) -> float:
        return self.seconds

    def read(self) -> int:
        if self.is_away:
            raise StoreUnavailableError("x", "refused")
        return self.epoch

    def look_after(self, seconds: float, *, epoch: int | None = None) -> list[str]:
        """Let time pass and look; return what has been told by then."""
        self.seconds += seconds
        self.epoch = self.epoch if epoch is None else epoch
        self.watch.look()
        return self.told


STALLED = "no epoch has become durable for 60 s; the last one is 3"


def test_run_stalls_when_no_epoch_has_become_durable_since_the_task_began() -> None:
    hand = Hand()

    assert [] == hand.look_after(59)
    assert [STALLED] == hand.look_after(1)


def test_epoch_that_becomes_durable_counts_from_then() -> None:
    hand = Hand()
    hand.look_after(30)

    assert [] == hand.look_after(29, epoch=4)
    assert [] == hand.look_after(59)
    assert ["no epoch has become durable for 60 s; the last one is 4"] == hand.look_after(1)


def test_stall_is_told_once_until_the_run_has_gone_on() -> None:
    hand = Hand()
    hand.look_after(60)

    assert [STALLED] == hand.look_after(60)
    assert [STALLED] == hand.look_after(1, epoch=4)
    assert [STALLED, "no epoch has become durable for 60 s; the last one is 4"] == hand.look_after(60)


def test_store_that_is_away_says_nothing_of_the_run() -> None:
    hand = Hand()
    hand.is_away = True

    assert [] == hand.look_after(600)


def test_alert_that_fails_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: str) -> None:
        raise RuntimeError("no such channel")

    watch = StallWatch(read_epoch=lambda: 0, alert=fail, stalls_after_seconds=0)

    watch.look()

    assert "no such channel" in caplog.text


def test_watch_looks_by_itself_inside_its_block_and_no_more_behind_it() -> None:
    told = threading.Event()

    with StallWatch(read_epoch=lambda: 0, alert=lambda _: told.set(), stalls_after_seconds=0.05):
        is_told = told.wait(DEADLINE_SECONDS)

    assert (True, []) == (is_told, [thread for thread in threading.enumerate() if thread.name == "stall"])
