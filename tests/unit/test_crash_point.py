"""Where could a crash matter, and what does the test setting make of it?"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from iteration_lib.crash_point import CrashPlan, CrashPoint, crash_plan
from iteration_lib.errors import UsageError
from tests.failover.driven import wait_until

_DEADLINE_SECONDS = 30


@pytest.mark.parametrize("environment", [{}, {"ITERATION_CRASH_POINT": ""}, {"ITERATION_CRASH_LATCH": "latch"}])
def test_nothing_happens_without_the_setting(environment: Mapping[str, str]) -> None:
    plan = crash_plan(environment)

    assert CrashPlan() == plan
    for point in CrashPoint:
        plan.reach(point)
        plan.reach(point, 3)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("epoch_written", CrashPlan(point=CrashPoint.EPOCH_WRITTEN)),
        ("epoch_written:kill", CrashPlan(point=CrashPoint.EPOCH_WRITTEN)),
        ("epoch_written@0:kill", CrashPlan(point=CrashPoint.EPOCH_WRITTEN, epoch=0)),
        ("run_finished@12", CrashPlan(point=CrashPoint.RUN_FINISHED, epoch=12)),
        ("data_pinned:hold", CrashPlan(point=CrashPoint.DATA_PINNED, action="hold", latch=Path("/latch"))),
    ],
)
def test_setting_names_the_point_the_epoch_and_the_action(setting: str, expected: CrashPlan) -> None:
    latch = {"ITERATION_CRASH_LATCH": "/latch"} if "hold" in setting else {}

    assert expected == crash_plan({"ITERATION_CRASH_POINT": setting, **latch})


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("lunch", "names no crash point; there are: attempt_opened, sink_aborted, "),
        ("@3:kill", "names no crash point"),
        ("epoch_written@last", "names no crash point"),
        ("epoch_written:explode", "the action is kill, or hold with ITERATION_CRASH_LATCH"),
        ("epoch_written:hold", "the action is kill, or hold with ITERATION_CRASH_LATCH"),
    ],
)
def test_setting_that_means_nothing_is_refused(setting: str, said: str) -> None:
    """A test whose crash never comes would pass."""
    with pytest.raises(UsageError) as caught:
        crash_plan({"ITERATION_CRASH_POINT": setting})

    assert str(caught.value).startswith(f"ITERATION_CRASH_POINT={setting!r}")
    assert said in str(caught.value)


def test_plan_lets_other_points_and_other_epochs_pass(tmp_path: Path) -> None:
    plan = CrashPlan(point=CrashPoint.EPOCH_WRITTEN, epoch=2, action="hold", latch=tmp_path / "latch")

    plan.reach(CrashPoint.EPOCH_ALIGNED, 2)
    plan.reach(CrashPoint.EPOCH_WRITTEN, 1)
    plan.reach(CrashPoint.EPOCH_WRITTEN)

    assert not (tmp_path / "latch").exists()


@pytest.mark.parametrize("epoch", [None, 2])
def test_hold_waits_until_the_latch_is_removed_and_then_never_again(tmp_path: Path, epoch: int | None) -> None:
    latch, passed = tmp_path / "latch", threading.Event()
    plan = CrashPlan(point=CrashPoint.EPOCH_WRITTEN, epoch=epoch, action="hold", latch=latch)

    def drive() -> None:
        for number in range(1, 5):
            plan.reach(CrashPoint.EPOCH_WRITTEN, number)
            if number == 2:
                passed.set()

    driving = threading.Thread(target=drive, daemon=True)
    driving.start()
    wait_until(latch.exists, "the point to be reached")
    assert not passed.is_set()
    latch.unlink()
    driving.join(_DEADLINE_SECONDS)

    assert not driving.is_alive()
    assert not latch.exists()
