"""What does an epochs task hand to spark-submit, and what does it tell Airflow of the application? On a real store.

A script stands in for Spark's: it writes down how it was called, and says what a driver says.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk._shared.secrets_masker import redact

from iteration_lib.airflow import open_lineage
from iteration_lib.airflow.operators import EpochsOperator
from iteration_lib.airflow.spark_page import SparkLink
from iteration_lib.errors import ExecutionLostError
from iteration_lib.store.postgres import PostgresStore
from tests.driven_here import Here
from tests.iterations.told import told

pytestmark = [pytest.mark.airflow, pytest.mark.postgres]
DRIVER_SAYS = "INFO iteration_lib.engine event=spark_started application_id=local-1 ui=http://driver.example:4040"
KEY = "Bearer hidden-word"
Context = dict[str, Any]
Properties = dict[str, str]


@pytest.fixture
def here(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    submit = tmp_path / "spark" / "bin" / "spark-submit"
    submit.parent.mkdir(parents=True)
    submit.write_text(f'#!/bin/sh\nfor word; do echo "$word"; done > {tmp_path}/called\necho "{DRIVER_SAYS}"\n')
    submit.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[1]"}')
    monkeypatch.setenv("ITERATION_STORE_URL", store_url)
    with closing(PostgresStore(store_url)) as store:
        yield Here.begin(store, tmp_path, told)


@pytest.fixture
def lineage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a stand-in where the OpenLineage provider's own functions would be, if it were installed."""

    def name_parent(properties: Properties, context: Context) -> Properties:
        return {**properties, "spark.openlineage.parentRunId": f"run of {context['ti'].task_id}"}

    def name_transport(properties: Properties, context: Context) -> Properties:
        return {**properties, "spark.openlineage.transport.auth.apiKey": KEY}

    monkeypatch.setattr(open_lineage, "inject_parent_job_information_into_spark_properties", name_parent)
    monkeypatch.setattr(open_lineage, "inject_transport_information_into_spark_properties", name_transport)


def submitted(here: Here, tmp_path: Path, **options: Any) -> tuple[EpochsOperator, dict[str, str], set[str]]:
    """Run an epochs task until its driver has ended; return it, its XComs, and OpenLineage's properties of Spark."""
    xcoms: dict[str, str] = {}
    task_instance = SimpleNamespace(dag_id="dag", run_id="one", task_id="e000", map_index=-1, try_number=1)
    task_instance.xcom_push = lambda key, value: xcoms.update({key: value})
    task = EpochsOperator(
        task_id="e000",
        reference=here.run.reference,
        run_key=here.run.run_key,
        first_epoch=0,
        end_epoch=1,
        **options,
    )
    with pytest.raises(ExecutionLostError, match="not all epochs of this task are durable"):
        task.execute({"ti": task_instance})
    called = (tmp_path / "called").read_text().splitlines()
    return task, xcoms, {word for word in called if "openlineage" in word}


def test_task_tells_airflow_where_its_application_shows_itself_and_where_afterwards(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__ITERATION__SPARK_HISTORY_URL", "http://history.example:18080")

    task, xcoms, _ = submitted(here, tmp_path)

    link = SparkLink().get_link(task, ti_key=SimpleNamespace())
    assert {SparkLink().xcom_key: "http://driver.example:4040"} == xcoms
    assert "http://history.example:18080/history/local-1/jobs/" == link


@pytest.mark.usefixtures("lineage")
@pytest.mark.parametrize(
    ("options", "properties"),
    [
        ({}, set()),
        ({"openlineage_inject_parent_job_info": True}, {"spark.openlineage.parentRunId=run of e000"}),
        ({"openlineage_inject_transport_info": True}, {f"spark.openlineage.transport.auth.apiKey={KEY}"}),
    ],
)
def test_application_is_handed_the_lineage_that_was_asked_for_and_no_more(
    here: Here, tmp_path: Path, options: dict[str, bool], properties: set[str]
) -> None:
    _, _, handed = submitted(here, tmp_path, **options)

    assert properties == handed


@pytest.mark.usefixtures("lineage")
def test_key_of_the_lineage_is_in_no_log(here: Here, tmp_path: Path) -> None:
    submitted(here, tmp_path, openlineage_inject_transport_info=True)

    assert "said ***" == redact(f"said {KEY}")


def test_application_is_submitted_as_ever_where_airflow_has_no_openlineage(here: Here, tmp_path: Path) -> None:
    asked = {"openlineage_inject_parent_job_info": True, "openlineage_inject_transport_info": True}

    _, _, handed = submitted(here, tmp_path, spark_conf={"spark.ui.enabled": "true"}, **asked)

    assert set() == handed
    assert "spark.ui.enabled=true" in (tmp_path / "called").read_text().splitlines()
