"""The tab of a run on real Airflow: who sees it, what it shows, and that it is there once."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import httpx
import pytest

from tests.failover.driven import PATIENCE_SECONDS
from tests.fixture.airflow import BASE_PATH, AirflowSite, DagRun

pytestmark = [pytest.mark.airflow, pytest.mark.postgres]
MISCHIEF = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def ended(airflow: AirflowSite, tmp_path_factory: pytest.TempPathFactory) -> DagRun:
    """A run whose parameter would be a script if it were not escaped."""
    trace = tmp_path_factory.mktemp("trace") / MISCHIEF.replace("/", "")
    trace.mkdir()
    return airflow.run("counting", trace=str(trace), until=1)


def test_plugin_is_loaded_once_and_without_errors(airflow: AirflowSite) -> None:
    found = airflow.api.call("GET", "plugins")["plugins"]
    errors = airflow.api.call("GET", "plugins/importErrors")

    assert ["iteration"] == [plugin["name"] for plugin in found if plugin["external_views"]]
    assert 0 == errors["total_entries"]


def test_pages_are_offered_in_the_navigation_and_on_the_dag_runs_page_below_the_servers_path(
    airflow: AirflowSite,
) -> None:
    found = airflow.api.call("GET", "plugins")["plugins"]
    views = next(plugin["external_views"] for plugin in found if plugin["name"] == "iteration")

    assert {
        "dag_run": f"{BASE_PATH}/iterations/dags/{{DAG_ID}}/runs/{{RUN_ID}}",
        "nav": f"{BASE_PATH}/iterations/runs",
    } == {view["destination"]: view["href"] for view in views}


@pytest.mark.parametrize("user", ["admin", "viewer"])
def test_tab_shows_the_run_to_those_who_may_see_the_dag(airflow: AirflowSite, ended: DagRun, user: str) -> None:
    answer = _get(airflow, f"dags/{ended.dag_id}/runs/{ended.dag_run_id}", user=user)

    run = airflow.store.find_run(ended.run_key)
    assert run is not None
    assert httpx.codes.OK == answer.status_code
    for text in (run.run_id, "FINISHED", "2 durable epochs", "its criteria were met", run.state_digest, "epochs.e001"):
        assert str(text) in answer.text
    for drawn in ('<progress value="2"', '<table class="grid">', "its run"):
        assert drawn in answer.text


def test_dag_run_with_task_groups_lists_them_and_each_has_a_page_and_actions(
    airflow: AirflowSite, tmp_path: Path
) -> None:
    ended = airflow.run("counting_in_two_groups", trace=str(tmp_path), until=1)
    here = f"dags/{ended.dag_id}/runs/{ended.dag_run_id}"

    tab = _get(airflow, here, user="viewer")
    pages = {group: _get(airflow, f"{here}/{group}", user="user") for group in ("coarse", "fine")}
    saved = _post(airflow, f"{here}/coarse/savepoint", user="user")
    link = airflow.links(ended.dag_id, ended.dag_run_id, "fine.epochs.e000")["Epoch"]

    assert httpx.codes.OK == tab.status_code
    assert ["coarse", "fine"] == re.findall(r'data-group="([\w-]+)"', tab.text)
    for group, page in pages.items():
        run = airflow.store.find_run(f"{ended.run_key}/{group}")
        assert run is not None
        assert (httpx.codes.OK, True) == (page.status_code, run.run_id in page.text)
        assert f"/iterations/{here}/{group}/savepoint" in unquote(page.text)
        assert "Start from here" not in page.text
    assert (httpx.codes.OK, True) == (saved.status_code, "is saved in" in saved.text)
    assert str(link).endswith("/plugin/iteration#fine/epoch-0")


def test_names_that_a_user_chose_are_escaped(airflow: AirflowSite, ended: DagRun) -> None:
    answer = _get(airflow, f"dags/{ended.dag_id}/runs/{ended.dag_run_id}")

    assert "<script>" not in answer.text
    assert "&lt;script&gt;alert" in answer.text
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


@pytest.mark.parametrize(("token", "status"), [(None, 401), ("not-a-token", 403)])
def test_tab_is_closed_to_those_who_are_not_logged_in(
    airflow: AirflowSite, ended: DagRun, token: str | None, status: int
) -> None:
    headers = {"Authorization": f"Bearer {token}"} if token else {}

    answer = httpx.get(f"{airflow.processes.url}/iterations/dags/counting/runs/{ended.dag_run_id}", headers=headers)

    assert status == answer.status_code
    assert ended.run_key not in answer.text


@pytest.mark.parametrize("path", ["dags/counting/runs/none", "dags/no_such_dag/runs/none", "dags/~/runs/none"])
def test_run_that_is_not_there_gets_a_page_that_says_so(airflow: AirflowSite, path: str) -> None:
    answer = _get(airflow, path)

    assert httpx.codes.NOT_FOUND == answer.status_code
    assert "Nothing to show" in answer.text


@pytest.mark.parametrize("path", ["runs?name=%00", "runs?dag_id=%00", "dags/counting/runs/%00", "dags/%00/runs/1"])
def test_name_that_no_database_holds_is_nobodys(airflow: AirflowSite, path: str) -> None:
    assert httpx.codes.NOT_FOUND == _get(airflow, path).status_code


@pytest.mark.parametrize("checkpoint_id", ["0", "-1", "999", "9" * 20])
def test_checkpoint_that_was_never_there_is_refused(airflow: AirflowSite, ended: DagRun, checkpoint_id: str) -> None:
    there = f"dags/{ended.dag_id}/runs/{ended.dag_run_id}/checkpoints/{checkpoint_id}"

    form = _get(airflow, f"{there}/start")
    answers = [_post(airflow, f"{there}/{what}", user="user") for what in ("savepoint", "pin", "release")]

    assert httpx.codes.NOT_FOUND == form.status_code
    assert [httpx.codes.NOT_FOUND] * 3 == [answer.status_code for answer in answers]
    for answer in answers:
        assert "<h1>This was not done</h1>" in answer.text
        assert f"has no checkpoint {checkpoint_id}; its checkpoints are 1 to" in answer.text


@pytest.mark.parametrize("path", ["docs", "openapi.json", "redoc", ""])
def test_nothing_else_is_served(airflow: AirflowSite, path: str) -> None:
    assert httpx.codes.NOT_FOUND == _get(airflow, path).status_code


def _post(airflow: AirflowSite, path: str, *, user: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {airflow.processes.api(user).token}"}
    return httpx.post(f"{airflow.processes.url}/iterations/{path}", headers=headers, timeout=PATIENCE_SECONDS)


def _get(airflow: AirflowSite, path: str, *, user: str = "admin") -> httpx.Response:
    headers = {"Authorization": f"Bearer {airflow.processes.api(user).token}"}
    return httpx.get(f"{airflow.processes.url}/iterations/{path}", headers=headers)
