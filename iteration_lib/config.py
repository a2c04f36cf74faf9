"""Where are the store and the state? Flags first, then the environment, then this machine's own folders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs

from iteration_lib.crash_point import CrashPlan, crash_plan

STORE_URL_VARIABLE = "ITERATION_STORE_URL"
STATE_URI_VARIABLE = "ITERATION_STATE_URI"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`store_url` None means the embedded store of this machine."""

    store_url: str | None
    state_uri: str
    crash_plan: CrashPlan = field(default_factory=CrashPlan)


def read_settings(
    environment: Mapping[str, str], *, store_url: str | None = None, state_uri: str | None = None
) -> Settings:
    """Return the settings; what is given wins over the environment. Raises UsageError for a bad test setting."""
    return Settings(
        store_url=store_url or environment.get(STORE_URL_VARIABLE) or None,
        state_uri=state_uri or environment.get(STATE_URI_VARIABLE) or str(user_folder() / "state"),
        crash_plan=crash_plan(environment),
    )


def user_folder() -> Path:
    """Return the folder for this user's data."""
    return Path(platformdirs.user_data_path("iteration"))
