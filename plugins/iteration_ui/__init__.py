"""Registers with Airflow the page of all iterations' runs, and the tab of one on the page of its DAG run.

Airflow imports plugins in every process, each task's included: what the pages need is imported by the first request.
"""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from iteration_ui.address import PREFIX, TAB, page_path
from iteration_ui.late_app import LateApp
from iteration_ui.link import EpochLink


class IterationPlugin(AirflowPlugin):
    """The plugin; what it shows is in `routes`."""

    name = "iteration"
    fastapi_apps: list[Any] = [{"app": LateApp(), "url_prefix": PREFIX, "name": "Iterations"}]  # noqa: RUF012
    operator_extra_links: list[Any] = [EpochLink()]  # noqa: RUF012
    external_views: list[Any] = [  # noqa: RUF012  (Airflow declares all three as lists)
        {
            "name": "Iteration",
            "href": page_path("dags/{DAG_ID}/runs/{RUN_ID}"),
            "destination": "dag_run",
            "url_route": TAB,
        },
        {
            "name": "Iterations",
            "href": page_path("runs"),
            "destination": "nav",
            "category": "browse",
            "url_route": "iterations",
        },
    ]
