"""Do flags come first, then the environment, then this machine's own folders and the shortest grace period?"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from iteration_lib.config import Settings, read_settings, user_folder
from iteration_lib.crash_point import CrashPlan, CrashPoint
from iteration_lib.errors import UsageError

ENVIRONMENT = {"ITERATION_STORE_URL": "postgresql://env/km", "ITERATION_STATE_URI": "/env"}


def test_flags_come_before_the_environment() -> None:
    assert Settings(store_url="postgresql://flag/km", state_uri="/flag") == read_settings(
        ENVIRONMENT, store_url="postgresql://flag/km", state_uri="/flag"
    )


def test_each_flag_comes_before_its_own_variable_alone() -> None:
    assert Settings(store_url="postgresql://env/km", state_uri="/flag") == read_settings(ENVIRONMENT, state_uri="/flag")
    assert Settings(store_url="postgresql://flag/km", state_uri="/env") == read_settings(
        ENVIRONMENT, store_url="postgresql://flag/km"
    )


@pytest.mark.parametrize("environment", [{}, {"ITERATION_STORE_URL": "", "ITERATION_STATE_URI": ""}])
def test_default_is_the_embedded_store_and_a_folder_of_the_user(environment: Mapping[str, str]) -> None:
    assert Settings(store_url=None, state_uri=str(user_folder() / "state")) == read_settings(environment)


@pytest.mark.parametrize(
    ("flag", "variable", "seconds"),
    [(None, None, 3.0), (None, "", 3.0), (None, "30", 30.0), (120.0, "30", 120.0), (0.0, "30", 0.0)],
)
def test_grace_period_is_the_flag_then_the_variable_then_what_airflow_gives(
    flag: float | None, variable: str | None, seconds: float
) -> None:
    environment = {} if variable is None else {"ITERATION_TERMINATION_GRACE_SECONDS": variable}

    assert seconds == read_settings(environment, termination_grace_seconds=flag).termination_grace_seconds


@pytest.mark.parametrize("given", ["soon", "-1", "nan", "inf", "86401"])
def test_grace_period_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(UsageError, match=r"ITERATION_TERMINATION_GRACE_SECONDS a number of seconds from 0 to 86400"):
        read_settings({"ITERATION_TERMINATION_GRACE_SECONDS": given})


def test_crash_point_is_read_with_the_settings() -> None:
    settings = read_settings({**ENVIRONMENT, "ITERATION_CRASH_POINT": "epoch_aligned@3"})

    assert CrashPlan(point=CrashPoint.EPOCH_ALIGNED, epoch=3) == settings.crash_plan
    with pytest.raises(UsageError):
        read_settings({"ITERATION_CRASH_POINT": "lunch"})
