"""Does docs/first-dag.md lead to a trained model? Its programs and its commands, on a real Airflow."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import iteration_lib
from iteration_lib.airflow.hook import IterationStoreHook
from iteration_lib.library.datasets import write_digits
from tests.fixture.airflow import AirflowSite
from tests.printed import FIRST_DAG, commands

pytestmark = [pytest.mark.airflow, pytest.mark.postgres]

INPUT = "s3://bucket/points.parquet"
KEY = "mean/manual__2026-11-22T10:00:00+00:00"


def test_pages_commands_and_its_dag_train_the_model_that_the_page_reads(
    airflow: AirflowSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = write_digits(tmp_path / "points.parquet")
    monkeypatch.setenv("ITERATION_STORE_URL", airflow.store.url)

    for command in commands(FIRST_DAG, "airflow"):
        run(airflow, command.replace(INPUT, str(points)))
    [started] = airflow.api.call("GET", "dags/mean/dagRuns")["dag_runs"]
    ended = airflow.wait("mean", started["dag_run_id"])
    shown = [run(airflow, command.replace(KEY, ended.run_key)) for command in commands(FIRST_DAG, "iteration")]

    found = iteration_lib.load(ended.run_key)["centre"]
    features = pq.read_table(points)["features"].combine_chunks().flatten().to_numpy().reshape(-1, 64)
    assert ("success", ["open_run", "epochs.e000", "epochs.e020", "finish"]) == (ended.state, list(ended.tasks))
    assert IterationStoreHook.conn_type == airflow.api.call("GET", "connections/iteration_store")["conn_type"]
    assert features.mean(axis=0) == pytest.approx(found["x"][0].as_py(), abs=1e-8)
    assert [True, True] == [ended.run_key in said for said in shown]
    assert f'iteration_lib.load("{KEY}")["centre"]' in FIRST_DAG.read_text()


def run(airflow: AirflowSite, command: str) -> str:
    """Run a command of the page beside Airflow's processes, from their environment."""
    program, *arguments = shlex.split(command)
    module = {"airflow": ["-m", "airflow"], "iteration": ["-c", "from iteration_lib.cli import main; main()"]}
    environment = {**airflow.processes.environment, "ITERATION_STORE_URL": airflow.store.url, "COLUMNS": "200"}
    said = subprocess.run(
        [sys.executable, *module[program], *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
    return said.stdout
