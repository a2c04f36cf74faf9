"""Where are the store and the state, and how long does this process have to end? Flags first, then the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs

from iteration_lib.crash_point import CrashPlan, crash_plan
from iteration_lib.errors import UsageError

STORE_URL_VARIABLE = "ITERATION_STORE_URL"
STATE_URI_VARIABLE = "ITERATION_STATE_URI"
TERMINATION_GRACE_VARIABLE = "ITERATION_TERMINATION_GRACE_SECONDS"

DEFAULT_TERMINATION_GRACE_SECONDS = 3.0  # what a task's driver has under Airflow, which is the shortest known
_LONGEST_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`store_url` None means the embedded store of this machine.

    `termination_grace_seconds` is how long this process has from SIGTERM until whoever sent it sends SIGKILL.
    """

    store_url: str | None
    state_uri: str
    termination_grace_seconds: float = DEFAULT_TERMINATION_GRACE_SECONDS
    crash_plan: CrashPlan = field(default_factory=CrashPlan)


def read_settings(
    environment: Mapping[str, str],
    *,
    store_url: str | None = None,
    state_uri: str | None = None,
    termination_grace_seconds: float | None = None,
) -> Settings:
    """Return the settings; what is given wins over the environment.

    Raises UsageError for a grace period that is none, or for a bad test setting.
    """
    grace: object = termination_grace_seconds
    if grace is None:
        grace = environment.get(TERMINATION_GRACE_VARIABLE) or DEFAULT_TERMINATION_GRACE_SECONDS
    return Settings(
        store_url=store_url or environment.get(STORE_URL_VARIABLE) or None,
        state_uri=state_uri or environment.get(STATE_URI_VARIABLE) or str(user_folder() / "state"),
        termination_grace_seconds=_grace_seconds(grace),
        crash_plan=crash_plan(environment),
    )


def _grace_seconds(given: object) -> float:
    try:
        seconds = float(str(given))
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _LONGEST_SECONDS:
        raise UsageError(
            f"a termination grace period of {given!r} is no time that a process has to end; give "
            f"--termination-grace or {TERMINATION_GRACE_VARIABLE} a number of seconds from 0 to {_LONGEST_SECONDS:.0f}"
        )
    return seconds


def user_folder() -> Path:
    """Return the folder for this user's data."""
    return Path(platformdirs.user_data_path("iteration"))
