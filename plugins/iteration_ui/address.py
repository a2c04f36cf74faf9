"""Where do the pages lie, as a browser asks for them? Below the path that Airflow itself is mounted at."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

from airflow.configuration import conf  # airflow.sdk has it too, but not in 3.1

PREFIX = "/iterations"
TAB = "iteration"


def site_path(base_url: str | None = None) -> str:
    """Return the path that Airflow is mounted at, by its configuration; empty where that is the server's root."""
    return urlsplit(base_url or conf.get("api", "base_url", fallback="")).path.rstrip("/")


def page_path(page: str, base_url: str | None = None) -> str:
    """Return a page's path, from the server's root."""
    return f"{site_path(base_url)}{PREFIX}/{page}"


def tab_path(dag_id: str, dag_run_id: str) -> str:
    """Return where Airflow shows the tab of a DAG run."""
    return f"{site_path()}/dags/{quote(dag_id)}/runs/{quote(dag_run_id, safe='')}/plugin/{TAB}"


def run_page(run_id: str, run_key: str) -> str:
    """Return a run's page: below its DAG, if it has one."""
    dag_id, separator, dag_run_id = run_key.partition("/")
    return f"dags/{quote(dag_id)}/runs/{quote(dag_run_id, safe='')}" if separator else f"runs/{quote(run_id)}"
