"""Where do the pages lie, as a browser asks for them? Below the path that Airflow itself is mounted at."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

from airflow.configuration import conf  # airflow.sdk has it too, but not in 3.1

PREFIX = "/iterations"
DAG_RUN = "/dags/{dag_id}/runs/{dag_run_id}"
GROUP = DAG_RUN + "/{group}"  # of a DAG that has an iteration in a task group
TAB = "iteration"
_PARTS = 2  # of a key behind the DAG: the DAG run, and a task group
_NO_PARTS = frozenset(("", ".", ".."))  # which a browser would not send as they are


def site_path(base_url: str | None = None) -> str:
    """Return the path that Airflow is mounted at, by its configuration; empty where that is the server's root."""
    return urlsplit(base_url or conf.get("api", "base_url", fallback="")).path.rstrip("/")


def page_path(page: str, base_url: str | None = None) -> str:
    """Return a page's path, from the server's root."""
    return f"{site_path(base_url)}{PREFIX}/{page}"


def tab_path(dag_id: str, dag_run_id: str) -> str:
    """Return where Airflow shows the tab of a DAG run."""
    return f"{site_path()}/{dag_run_page(dag_id, dag_run_id)}/plugin/{TAB}"


def dag_run_page(dag_id: str, dag_run_id: str) -> str:
    """Return the page of a DAG run: its own iteration, or those of its task groups."""
    return f"dags/{quote(dag_id)}/runs/{quote(dag_run_id, safe='')}"


def page_of_dag_run(run_key: str) -> str:
    """Return the page of the DAG run that a task group's run belongs to; empty for any other run."""
    dag_id, *parts = run_key.split("/")
    return dag_run_page(dag_id, parts[0]) if len(parts) == _PARTS else ""


def run_page(run_id: str, run_key: str) -> str:
    """Return a run's page: below its DAG run, if it has one, and its task group; empty where no address can say it."""
    dag_id, *parts = run_key.split("/")
    if not parts:
        return f"runs/{quote(run_id)}"
    if len(parts) > _PARTS or not _NO_PARTS.isdisjoint((dag_id, *parts)):
        return ""
    return "/".join([dag_run_page(dag_id, parts[0]), *(quote(group) for group in parts[1:])])
