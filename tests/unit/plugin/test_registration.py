"""How Airflow finds the plugin, and what its routes demand."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest
from airflow import plugins_manager
from airflow.sdk._shared.plugins_manager import plugins_manager as shared
from fastapi.routing import APIRoute

from iteration_ui import IterationPlugin, tab_address
from iteration_ui.late_app import LateApp
from iteration_ui.routes import router

pytestmark = pytest.mark.airflow
PLUGINS = Path(__file__).parents[3] / "plugins"


@pytest.mark.parametrize(
    ("base_url", "address"),
    [
        (None, "/iterations/dags/{DAG_ID}/runs/{RUN_ID}"),
        ("http://localhost:8080", "/iterations/dags/{DAG_ID}/runs/{RUN_ID}"),
        ("https://example.org/team/airflow/", "/team/airflow/iterations/dags/{DAG_ID}/runs/{RUN_ID}"),
    ],
)
def test_tab_lies_below_the_path_that_airflow_is_mounted_at(base_url: str | None, address: str) -> None:
    assert address == tab_address(base_url)


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


@pytest.mark.parametrize("route", router.routes)
def test_every_route_carries_airflows_authorisation(route: APIRoute) -> None:
    guards = [guard.call.__qualname__ for guard in route.dependant.dependencies if guard.call is not None]

    assert ["requires_access_dag.<locals>.inner"] == guards


def _no_entry_points(**_selected: str) -> EntryPoints:
    def nothing() -> Iterator[EntryPoint]:
        return iter(())

    return EntryPoints(nothing())
