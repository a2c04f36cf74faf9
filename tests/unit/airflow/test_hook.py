"""Which way leads to the store, and what an address looks like."""

from __future__ import annotations

import json

import pytest
from airflow.sdk import Connection

from iteration_lib.airflow.hook import IterationStoreHook, find_read_conn_id, find_state_uri, url_of_connection
from iteration_lib.airflow.provider import get_provider_info
from iteration_lib.airflow.standalone.settings import connection_of_url
from iteration_lib.errors import ConnectionNotFoundError, StoreUnavailableError, UsageError

pytestmark = pytest.mark.airflow
URL = "postgresql+psycopg2://some%40one:p%2Fw%3A%40rd@db.example.org:5433/iteration?sslmode=require"


@pytest.mark.parametrize(
    "url",
    [
        URL,
        "postgresql+psycopg2://iteration:secret@:5432/iteration?host=%2Frun%2Fpostgres",
        "postgresql+psycopg2://localhost/iteration",
    ],
)
def test_address_survives_the_way_through_an_airflow_connection(url: str) -> None:
    connection = Connection.from_json(connection_of_url(url), conn_id="iteration_store")

    assert url == url_of_connection(connection)


def test_connection_wins_over_the_environments_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_ITERATION_STORE", connection_of_url(URL))

    assert URL == IterationStoreHook().get_url({"ITERATION_STORE_URL": "postgresql://elsewhere/db"})


def test_address_in_the_environment_is_enough() -> None:
    assert "postgresql://elsewhere/db" == IterationStoreHook().get_url(
        {"ITERATION_STORE_URL": "postgresql://elsewhere/db"}
    )


def test_configured_connection_is_the_one_that_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__ITERATION__STORE_CONN_ID", "other_store")
    monkeypatch.setenv("AIRFLOW_CONN_OTHER_STORE", connection_of_url(URL))

    assert URL == IterationStoreHook().get_url({})


def test_connection_that_somebody_has_named_is_the_only_way_to_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a secrets backend that does not answer for a moment would turn a task to another store."""
    monkeypatch.setenv("AIRFLOW__ITERATION__STORE_CONN_ID", "other_store")

    with pytest.raises(ConnectionNotFoundError, match="no connection 'other_store'"):
        IterationStoreHook().get_url({"ITERATION_STORE_URL": "postgresql://elsewhere/db"})


def test_pages_read_by_the_stores_own_connection_unless_another_one_is_configured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = find_read_conn_id()

    monkeypatch.setenv("AIRFLOW__ITERATION__STORE_READ_CONN_ID", "read_only")

    assert (None, "read_only") == (before, find_read_conn_id())


@pytest.mark.parametrize(("named", "environ"), [(None, {}), ("mine", {"ITERATION_STORE_URL": "postgresql://h/d"})])
def test_nothing_leads_to_the_store_says_what_to_add(named: str | None, environ: dict[str, str]) -> None:
    with pytest.raises(ConnectionNotFoundError, match=f"no connection '{named or 'iteration_store'}', .*; add it"):
        IterationStoreHook(named).get_url(environ)


def test_error_of_a_store_that_is_down_holds_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "postgresql+psycopg2://user:hidden-word@localhost:1/iteration"
    monkeypatch.setenv("AIRFLOW_CONN_ITERATION_STORE", connection_of_url(url))

    with pytest.raises(StoreUnavailableError) as error:
        IterationStoreHook().get_conn()

    assert "hidden-word" not in str(error.value)
    assert (False, str(error.value)) == IterationStoreHook().test_connection()


def test_state_goes_where_the_dag_says_then_the_configuration_then_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environ = {"ITERATION_STATE_URI": "/environment"}

    assert "/environment" == find_state_uri(None, environ=environ)
    monkeypatch.setenv("AIRFLOW__ITERATION__STATE_URI", "/configured")
    assert "/configured" == find_state_uri(None, environ=environ)
    assert "/given" == find_state_uri("/given", environ=environ)


def test_state_that_goes_nowhere_says_what_to_set() -> None:
    with pytest.raises(UsageError, match=r"set `state_uri` in section \[iteration\]"):
        find_state_uri(None, environ={})


def test_provider_info_names_the_hook_that_airflow_imports_for_the_connection_type() -> None:
    info = json.loads(json.dumps(get_provider_info()))

    [connection] = info["connection-types"]
    hook = f"{IterationStoreHook.__module__}.{IterationStoreHook.__qualname__}"
    assert (IterationStoreHook.conn_type, hook) == (connection["connection-type"], connection["hook-class-name"])
