"""script/demo's program: it shows a trained model, and ends every process that it started, also when it is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from iteration_lib.airflow.standalone.marked import find_marked
from iteration_lib.store.embedded import EmbeddedPostgres
from tests.failover.driven import PATIENCE_SECONDS
from tests.fixture.airflow import ROOT, wait_for
from tests.size import nightly

pytestmark = [pytest.mark.airflow, pytest.mark.postgres, pytest.mark.spark]


def test_demo_ends_with_the_result_where_to_look_and_no_process(tmp_path: Path) -> None:
    demo = _start(tmp_path, "--exit")

    said = demo.communicate(timeout=2 * PATIENCE_SECONDS)[0]

    assert 0 == demo.returncode, said
    for fact in ("FINISHED", "criteria", "inertia", "/plugin/iteration", "password", "outputs/model"):
        assert fact in said
    assert [] == _left(tmp_path)
    _remove(tmp_path)


@nightly("another demo; on every change one comes to its own end")
def test_demo_that_is_stopped_while_spark_runs_leaves_no_process(tmp_path: Path) -> None:
    demo = _start(tmp_path)
    mark = wait_for(lambda: _mark(tmp_path), what="the start of Airflow")
    wait_for(lambda: _java_of(mark), what="Spark's JVM")

    demo.send_signal(signal.SIGINT)
    said = demo.communicate(timeout=PATIENCE_SECONDS)[0]

    assert 130 == demo.returncode, said
    assert [] == _left(tmp_path)
    _remove(tmp_path)


def _start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, ROOT / "script" / "demo.py", "--data", folder, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "AIRFLOW_HOME": ""},
    )


def _mark(folder: Path) -> str | None:
    path = folder / "airflow" / "mark"
    return path.read_text() if path.exists() else None


def _java_of(mark: str) -> list[int] | None:
    return [pid for pid in find_marked(mark) if _name(pid) == "java"] or None


def _name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.NoSuchProcess:
        return ""


def _left(folder: Path) -> list[str]:
    """Return what of the demo still runs: Airflow's descendants, and whatever has the folder in its command."""
    mark = _mark(folder) or ""
    real = {str(folder), str((folder / "store" / "server").resolve())}
    return [
        f"{process.pid} {process.info['name']}"
        for process in psutil.process_iter(["name", "cmdline"])
        if process.pid in find_marked(mark) or any(path in " ".join(process.info["cmdline"] or ()) for path in real)
    ]


def _remove(folder: Path) -> None:
    EmbeddedPostgres(folder / "store").destroy()
