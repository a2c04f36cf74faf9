"""Where a task finds its Spark Connect server."""

from __future__ import annotations

import pytest
from airflow.sdk._shared.secrets_masker import redact

from iteration_lib.airflow.connect import find_connect_url
from iteration_lib.errors import ConnectionNotFoundError

pytestmark = pytest.mark.airflow


def test_address_is_that_of_the_connection_with_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = '{"conn_type": "spark_connect", "host": "spark.example.org", "port": 15002, "password": "word"}'
    monkeypatch.setenv("AIRFLOW_CONN_WARM", connection)

    assert "sc://spark.example.org:15002/;token=word" == find_connect_url("warm")


def test_token_is_masked_in_the_tasks_log_as_the_address_spells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow itself masks the password of a connection as it was given."""
    connection = '{"conn_type": "spark_connect", "host": "spark.example.org", "password": "some=long word"}'
    monkeypatch.setenv("AIRFLOW_CONN_WARM", connection)

    url = find_connect_url("warm")

    assert "sc://spark.example.org/;token=some%3Dlong%20word" == url
    assert "sc://spark.example.org/;token=***" == redact(url)


def test_missing_connection_is_named() -> None:
    with pytest.raises(ConnectionNotFoundError, match=r"no connection 'warm', .*; add it \(type spark_connect, "):
        find_connect_url("warm")
