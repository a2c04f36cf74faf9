"""What would the next attempt of a run do? `iteration plan` says it, in a process of its own.

It imports the iteration, and Airflow's API server never imports what DAG authors write: that process has the DAGs'
folder on its path, and none of Airflow's own settings and secrets in its environment. The server refuses what it would
write to the store, whatever the login may do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from iteration_lib.config import STORE_URL_VARIABLE
from iteration_lib.errors import IterationError
from iteration_lib.store.reader import read_only

_COMMAND = "from iteration_lib.cli import main; main()"
_TIMEOUT_SECONDS = 60
_LINES = 5  # of what a process said that failed


class DryRunError(IterationError):
    """The run cannot be planned on this machine."""

    def __init__(self, run_id: str, problem: str) -> None:
        super().__init__(f"{problem}\nWhere the iteration's code and its state are at hand: iteration plan {run_id}")


def plan_of(
    run_id: str, *, store_url: str, dags_folder: str, environ: Mapping[str, str] = os.environ
) -> dict[str, Any]:  # Any: the command's JSON, which a template shows
    """Return what `iteration plan --json` says; raises DryRunError when it says nothing."""
    try:
        ended = subprocess.run(  # noqa: S603  (our own command, and a run's id from the store)
            [sys.executable, "-c", _COMMAND, "plan", run_id, "--json"],
            env=environment_of(environ, store_url=store_url, dags_folder=dags_folder),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DryRunError(run_id, f"It took longer than {_TIMEOUT_SECONDS} s.") from error
    try:
        return dict(json.loads(ended.stdout))
    except ValueError as error:
        raise DryRunError(run_id, "\n".join(ended.stderr.strip().splitlines()[-_LINES:])) from error


def environment_of(environ: Mapping[str, str], *, store_url: str, dags_folder: str) -> dict[str, str]:
    """Return the environment without what is Airflow's own, and with the DAGs' folder behind all that is importable."""
    kept = {name: value for name, value in environ.items() if not name.startswith("AIRFLOW_")}
    path = os.pathsep.join([*(entry for entry in sys.path if entry), dags_folder])
    return {**kept, "PYTHONPATH": path, STORE_URL_VARIABLE: read_only(store_url)}
