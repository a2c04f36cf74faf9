"""Where a task finds its Spark Connect server."""

from __future__ import annotations

import pytest

from iteration_lib.airflow.connect import find_connect_url
from iteration_lib.errors import ConnectionNotFoundError

pytestmark = pytest.mark.airflow


def test_address_is_that_of_the_connection_with_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = '{"conn_type": "spark_connect", "host": "spark.example.org", "port": 15002, "password": "word"}'
    monkeypatch.setenv("AIRFLOW_CONN_WARM", connection)

    assert "sc://spark.example.org:15002/;token=word" == find_connect_url("warm")


def test_missing_connection_is_named() -> None:
    with pytest.raises(ConnectionNotFoundError, match=r"no connection 'warm', .*; add it \(type spark_connect, "):
        find_connect_url("warm")
