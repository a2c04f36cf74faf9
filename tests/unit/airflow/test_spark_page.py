"""Which tasks have a link to Spark's own pages, and where it leads while they run and afterwards."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Literal

import pytest
from airflow.serialization.serialized_objects import DagSerialization

from iteration_lib.airflow import iteration_dag
from iteration_lib.airflow.connect import find_ui_address
from iteration_lib.airflow.spark_page import SparkPage, clean_address

pytestmark = pytest.mark.airflow
HISTORY_VARIABLE = "AIRFLOW__ITERATION__SPARK_HISTORY_URL"


class Told:
    """Stands in for Airflow's task instance: keeps what the task tells Airflow."""

    def __init__(self) -> None:
        self.xcoms: dict[str, str] = {}

    def xcom_push(self, key: str, value: str) -> None:
        self.xcoms[key] = value


@pytest.mark.parametrize(
    ("run_epochs", "runner", "linked"),
    [
        ("submit", "spark", ["epochs.e000"]),
        ("connect", "spark", ["epochs.e000"]),
        ("watch", "spark", ["drive", "epochs.e000"]),  # the latter drives where it takes the place of the first
        ("submit", "local", []),
        ("watch", "local", []),
    ],
)
def test_airflow_shows_the_link_on_tasks_that_may_run_epochs_on_spark_and_on_no_others(
    run_epochs: Literal["submit", "connect", "watch"], runner: Literal["spark", "local"], linked: list[str]
) -> None:
    dag = iteration_dag("my_team.mean:mean", max_epochs=1, run_epochs=run_epochs, runner=runner)

    shown = DagSerialization.from_dict(DagSerialization.to_dict(dag))

    assert linked == sorted(task.task_id for task in shown.tasks if "Spark UI" in task.extra_links)


def test_link_leads_to_the_application_while_it_runs_and_nowhere_afterwards() -> None:
    told = Told()
    page = SparkPage(told)

    page.lead_to_application("app-1", "http://driver.example:4040")

    assert {"spark_ui": "http://driver.example:4040"} == told.xcoms
    assert "" == page.address_afterwards


@pytest.mark.parametrize("server", ["http://history.example:18080", "http://ann:secret@history.example:18080/"])
def test_link_leads_to_the_history_server_afterwards_where_airflow_is_told_of_one(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HISTORY_VARIABLE, server)
    page = SparkPage(Told())

    page.lead_to_application("app-1", "http://driver.example:4040")

    assert "http://history.example:18080/history/app-1/jobs/" == page.address_afterwards


def test_application_without_pages_gets_no_link_while_it_runs() -> None:
    told = Told()

    SparkPage(told).lead_to_application("app-1", "None")

    assert {} == told.xcoms


def test_link_leads_to_the_page_of_a_connect_server_while_the_task_runs_and_afterwards() -> None:
    told = Told()
    page = SparkPage(told)

    page.lead_to_server("https://spark.example/ui")

    assert {"spark_ui": "https://spark.example/ui"} == told.xcoms
    assert "https://spark.example/ui" == page.address_afterwards


@pytest.mark.parametrize(
    ("extra", "address"), [('{"ui_url": "http://spark.example:4040"}', "http://spark.example:4040"), ("{}", "")]
)
def test_page_of_a_connect_server_is_what_its_connection_says(
    extra: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "AIRFLOW_CONN_WARM", f'{{"conn_type": "spark_connect", "host": "spark.example", "extra": {extra}}}'
    )

    assert address == find_ui_address("warm")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("http://ann:secret@driver.example:4040/jobs?id=1", "http://driver.example:4040/jobs?id=1"),
        ("http://[::1]:4040", "http://[::1]:4040"),
        ("javascript:alert(1)", ""),
        ("javascript://driver.example/%0aalert(1)", ""),
        ("http:///nowhere", ""),
        ("None", ""),
        ("", ""),
    ],
)
def test_address_is_one_of_the_web_without_anybodys_password(text: str, address: str) -> None:
    assert address == clean_address(text)


def test_link_that_airflow_does_not_take_fails_no_epoch(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(**_told: Any) -> None:
        raise ConnectionError("no answer")

    SparkPage(SimpleNamespace(xcom_push=refuse)).lead_to_server("http://spark.example:4040")

    assert ["event=spark_link_lost error=no answer"] == caplog.messages
