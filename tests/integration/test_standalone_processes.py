"""How processes that descend from a start are found and ended, whatever became of their parents."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from iteration_lib.airflow.standalone.marked import end_marked, find_marked, mark_environment
from iteration_lib.airflow.standalone.processes import StandaloneAirflow, StandaloneError
from iteration_lib.airflow.standalone.settings import Settings
from tests.fixture.airflow import wait_for

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)
RETITLED = "import setproctitle, time; setproctitle.setproctitle('x' * 4000); print('up', flush=True); time.sleep(600)"


def test_orphan_in_a_session_of_its_own_is_found_and_ended(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    environment = mark_environment(os.environ, mark)
    subprocess.run(["sh", "-c", "setsid sleep 600 >/dev/null 2>&1 &"], env=environment, check=True)
    wait_for(lambda: find_marked(mark) or None, what="the orphan")

    assert () == end_marked(mark, grace_seconds=5)
    assert () == find_marked(mark)


def test_process_that_ignores_the_request_is_killed_after_the_grace() -> None:
    mark = uuid.uuid4().hex
    process = _start(STUBBORN, mark)

    assert () == end_marked(mark, grace_seconds=0.3)
    assert -9 == process.wait()


def test_process_that_changed_its_title_is_still_found() -> None:
    mark = uuid.uuid4().hex
    process = _start(RETITLED, mark)

    assert (process.pid,) == find_marked(mark)
    end_marked(mark, grace_seconds=5)
    process.wait()


def test_process_of_another_start_is_left_alone() -> None:
    mine, other = uuid.uuid4().hex, uuid.uuid4().hex
    process = _start("import time; print('up', flush=True); time.sleep(600)", other)

    assert () == end_marked(mine, grace_seconds=1)
    assert process.poll() is None
    end_marked(other, grace_seconds=5)
    process.wait()


def test_next_start_ends_what_a_killed_one_left_behind(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    process = _start("import time; print('up', flush=True); time.sleep(600)", mark)
    settings = Settings(
        home=tmp_path, dags=tmp_path, plugins=tmp_path, metadata_url="none://", metadata_async_url="none://"
    )
    (tmp_path / "mark").write_text(mark)

    with pytest.raises(StandaloneError, match="`airflow db migrate` ended with code"):
        StandaloneAirflow(settings).start()

    assert -15 == process.wait()


def _start(program: str, mark: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", program], env=mark_environment(os.environ, mark), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert b"up\n" == process.stdout.readline()
    return process
