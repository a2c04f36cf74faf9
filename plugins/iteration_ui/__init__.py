"""Registers with Airflow the tab that shows an iteration's run on the page of its DAG run.

Airflow imports plugins in every process, each task's included: what the pages need is imported by the first request.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from airflow.configuration import conf  # airflow.sdk has it too, but not in 3.1
from airflow.plugins_manager import AirflowPlugin

from iteration_ui.late_app import LateApp

PREFIX = "/iterations"


def tab_address(base_url: str | None) -> str:
    """Return the tab's address as Airflow's UI resolves it: from the server's root, below the path it is mounted at."""
    return f"{urlsplit(base_url or '').path.rstrip('/')}{PREFIX}/dags/{{DAG_ID}}/runs/{{RUN_ID}}"


class IterationPlugin(AirflowPlugin):
    """The plugin; what it shows is in `routes`."""

    name = "iteration"
    fastapi_apps: list[Any] = [{"app": LateApp(), "url_prefix": PREFIX, "name": "Iterations"}]  # noqa: RUF012
    external_views: list[Any] = [  # noqa: RUF012  (Airflow declares both as lists)
        {
            "name": "Iteration",
            "href": tab_address(conf.get("api", "base_url", fallback="")),
            "destination": "dag_run",
            "url_route": "iteration",
        }
    ]
