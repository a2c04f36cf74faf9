"""How Airflow finds the plugin, and what its routes demand."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow import plugins_manager
from airflow.sdk._shared.plugins_manager import plugins_manager as shared
from fastapi import Request
from fastapi.routing import APIRoute

from iteration_lib.airflow.task_group import RUN_KEY
from iteration_lib.errors import (
    CheckpointNotFoundError,
    IterationError,
    OutcomeUnknownError,
    RunFinishedError,
    RunLockedError,
    StatementCancelledError,
    StoreUnavailableError,
    StoreUnusableError,
)
from iteration_ui import IterationPlugin, guard
from iteration_ui.address import page_path
from iteration_ui.answer import answer_error, answer_page
from iteration_ui.app import make_app
from iteration_ui.late_app import LateApp
from iteration_ui.link import EpochLink
from iteration_ui.lookup import NothingToShowError

pytestmark = pytest.mark.airflow
LOGGED, AGAIN = "; the API server&#39;s log has the details.", "This page asks again."
STORE = "postgresql://somebody:***@db.internal/iteration"
PLUGINS = Path(__file__).parents[3] / "plugins"


@pytest.mark.parametrize(
    ("base_url", "address"),
    [
        ("", "/iterations/runs"),
        ("http://localhost:8080", "/iterations/runs"),
        ("https://example.org/team/airflow/", "/team/airflow/iterations/runs"),
    ],
)
def test_page_lies_below_the_path_that_airflow_is_mounted_at(base_url: str | None, address: str) -> None:
    assert address == page_path("runs", base_url)


def test_installed_plugin_is_not_registered_by_the_plugins_folder_again() -> None:
    assert ([], {}) == shared._load_plugins_from_plugin_directory(str(PLUGINS))


def test_plugins_folder_alone_registers_the_plugin_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", _no_entry_points)

    plugins, errors = shared._load_plugins_from_plugin_directory(str(PLUGINS))

    assert ([IterationPlugin], {}) == ([type(plugin) for plugin in plugins], errors)


def test_plugin_is_valid_and_mounts_what_is_made_later() -> None:
    assert plugins_manager.AirflowPlugin in IterationPlugin.__mro__
    assert ["/iterations"] == [app["url_prefix"] for app in IterationPlugin.fastapi_apps]
    assert all(isinstance(app["app"], LateApp) for app in IterationPlugin.fastapi_apps)


@pytest.mark.parametrize("route", make_app().routes, ids=lambda route: route.name)
def test_every_route_carries_one_of_our_guards_and_what_acts_comes_from_our_own_pages(route: APIRoute) -> None:
    found = {dependency.call for dependency in route.dependant.dependencies}

    assert 1 == len(found & {guard.read, guard.change, guard.trigger, guard.read_store})
    assert ({"GET"} != route.methods) == (guard.same_origin in found)


@pytest.mark.parametrize(
    ("error", "method", "heading", "status"),
    [
        (NothingToShowError("none"), "GET", "Nothing to show", 404),
        (CheckpointNotFoundError("1", 9, last=3), "GET", "Nothing to show", 404),
        (OutcomeUnknownError("cut"), "GET", "This cannot be shown now", 503),
        (CheckpointNotFoundError("1", 9, last=3), "POST", "This was not done", 404),
        (RunFinishedError("1"), "POST", "This was not done", 409),
        (RunLockedError("held"), "POST", "This was not done", 503),
        (OutcomeUnknownError("cut"), "POST", "Nobody can tell whether this was done", 503),
    ],
)
def test_page_of_a_problem_says_what_has_become_of_what_was_asked_for_and_leads_back_from_an_action(
    error: IterationError, method: str, heading: str, status: int
) -> None:
    named = {"dag_id": "k", "dag_run_id": "m", "group": "train", "checkpoint_id": "9"}
    request = Request({"type": "http", "method": method, "path_params": named})

    answer = answer_error(request, error)

    text = bytes(answer.body).decode()
    assert (status, True) == (answer.status_code, f"<h1>{heading}</h1>" in text)
    assert (method == "POST") == ('/iterations/dags/k/runs/m/train">Back to the run</a>' in text)


def test_page_of_a_problem_is_loaded_anew_once_there_is_no_problem_and_other_pages_are_not() -> None:
    """Only a document that is loaded runs scripts, and those of the page that was asked for are not here."""
    request = Request({"type": "http", "method": "GET", "path_params": {}})

    problem = bytes(answer_error(request, NothingToShowError("none yet")).body).decode()
    other = bytes(answer_page("done.html", said="x", back="", title="t", refresh=3).body).decode()

    assert (True, True) == ("setTimeout(refresh" in problem, "setTimeout(refresh" in other)
    assert (True, False) == ("if (answer.ok) return location.reload();" in problem, "location.reload" in other)


@pytest.mark.parametrize(
    ("error", "method", "said"),
    [
        (StoreUnavailableError(STORE, "it refused"), "GET", f"The store does not answer{LOGGED} {AGAIN}"),
        (OutcomeUnknownError(f"{STORE}: cut"), "GET", f"The store does not answer{LOGGED} {AGAIN}"),
        (StatementCancelledError(STORE), "GET", f"The store took too long to answer{LOGGED} {AGAIN}"),
        (StoreUnusableError(STORE, "refuses"), "GET", f"The store cannot be used{LOGGED} {AGAIN}"),
        (StoreUnavailableError(STORE, "it refused"), "POST", f"The store does not answer{LOGGED}"),
        (OutcomeUnknownError(f"{STORE}: cut"), "POST", f"The store does not answer{LOGGED}"),
        (RunLockedError(f"{STORE}: held"), "POST", f"Somebody else is writing to the run{LOGGED}"),
    ],
)
def test_viewer_is_not_told_where_the_store_lies_and_the_log_is(
    error: IterationError, method: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever may see a DAG need not be one who may see Airflow's connections."""
    request = Request({"type": "http", "method": method, "path_params": {"dag_id": "k", "dag_run_id": "m"}})

    text = bytes(answer_error(request, error).body).decode()

    assert (True, False) == (f"<p>{said}</p>" in text, "db.internal" in text)
    assert [f"event=page_refused run_key='k/m' error={error}"] == caplog.messages


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "same-site", "origin": "https://host"}, False),
        ({"sec-fetch-site": "cross-site", "authorization": "Bearer t"}, False),
        ({"sec-fetch-site": "none"}, False),
        ({"origin": "http://host:8080"}, True),
        ({"origin": "https://behind.example.org"}, True),
        ({"origin": "https://evil.example.org", "authorization": "Bearer t"}, False),
        ({"origin": "null"}, False),
        ({"authorization": "Bearer t"}, True),
        ({}, False),
    ],
)
def test_request_of_another_site_is_told_from_our_own(headers: dict[str, str], *, expected: bool) -> None:
    base_url = "https://behind.example.org/airflow"

    assert expected == guard.is_same_origin({"host": "host:8080", **headers}, base_url=base_url)


@pytest.mark.parametrize("base_url", ["", "/airflow"])
@pytest.mark.parametrize("origin", ["null", "", "file://"])
def test_origin_that_names_no_host_is_another_site_where_airflow_does_not_know_its_own(
    base_url: str, origin: str
) -> None:
    assert not guard.is_same_origin({"host": "host:8080", "origin": origin}, base_url=base_url)
    assert guard.is_same_origin({"host": "host:8080", "origin": "http://host:8080"}, base_url=base_url)


@pytest.mark.parametrize(
    ("run_key", "task_id", "fragment"),
    [
        (RUN_KEY, "epochs.e007", "#epoch-7"),
        (RUN_KEY, "e000", "#epoch-0"),
        (RUN_KEY, "drive", ""),
        (f"{RUN_KEY}/training", "outer.training.epochs.e0120", "#training/epoch-120"),
        (f"{RUN_KEY}/training", "training.drive", "#training"),
    ],
)
def test_epoch_task_links_to_its_group_and_first_epoch_in_the_tab(run_key: str, task_id: str, fragment: str) -> None:
    key = SimpleNamespace(dag_id="kmeans", run_id="manual__2026-03-01T00:00:00+00:00", task_id=task_id)

    link = EpochLink().get_link(SimpleNamespace(run_key=run_key), ti_key=key)

    assert f"/dags/kmeans/runs/manual__2026-03-01T00%3A00%3A00%2B00%3A00/plugin/iteration{fragment}" == link


@pytest.mark.parametrize("run_key", ["kmeans/{{ ds }}", f"{RUN_KEY}-again", "{{ run_id }}"])
def test_epoch_task_whose_run_no_tab_shows_links_nowhere(run_key: str) -> None:
    key = SimpleNamespace(dag_id="kmeans", run_id="manual__1", task_id="epochs.e007")

    assert "" == EpochLink().get_link(SimpleNamespace(run_key=run_key), ti_key=key)


def _no_entry_points(**_selected: str) -> EntryPoints:
    def nothing() -> Iterator[EntryPoint]:
        return iter(())

    return EntryPoints(nothing())
