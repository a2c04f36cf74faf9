"""What does an epochs task do with a run that it finds? Called as Airflow calls it, on a real store."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from iteration_lib.airflow.chain import Action
from iteration_lib.airflow.operators import EpochsOperator
from iteration_lib.airflow.work import RunningEpochs
from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import LeaseHeldError, OperatorFailedError
from iteration_lib.process import this_holder
from iteration_lib.protocol.status import RunStatus
from iteration_lib.store.postgres import PostgresStore
from tests.driven_here import Here
from tests.iterations.told import told
from tests.protocol_script import claim

pytestmark = [pytest.mark.airflow, pytest.mark.postgres]


@pytest.fixture
def here(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    monkeypatch.setenv("ITERATION_STORE_URL", store_url)
    with closing(PostgresStore(store_url)) as store:
        yield Here.begin(store, tmp_path, told)


def task(here: Here, *, runner: str = "local", dag_run_id: str = "one") -> RunningEpochs:
    """Return a try of the task that owns epoch 0."""
    operator = EpochsOperator(
        task_id="e000",
        reference=here.run.reference,
        run_key=here.run.run_key,
        first_epoch=0,
        end_epoch=1,
        runner=runner,
    )
    identity = SimpleNamespace(dag_id="dag", run_id=dag_run_id, task_id="e000", map_index=-1, try_number=1)
    return RunningEpochs(operator, task_instance=identity)


def test_retry_calls_the_listener_that_failed_on_the_tasks_last_epoch_and_starts_no_spark(here: Here) -> None:
    here.order("fail", "heard 0")
    with pytest.raises(OperatorFailedError):
        task(here).run()
    failed = here.found
    here.clear("fail")

    action = task(here, runner="spark").run()

    assert (RunStatus.FAILED, 1) == (failed.status, failed.epochs)
    assert (Action.PASS, RunStatus.RUNNING) == (action, here.found.status)
    assert [0] == [notice.epoch for notice in here.store.list_notices(here.run.run_id, "heard")]


def test_task_takes_the_run_from_another_task_of_its_dag_run_and_from_nobody_else(here: Here) -> None:
    """The holder is alive, as far as can be proved: this very process. Airflow runs a DAG run's tasks one at a time."""
    claimed = dataclasses.replace(claim(), holder=this_holder("dag/one/e000/1"))
    Coordinator(here.store).apply(here.run.run_id, claimed)

    with pytest.raises(LeaseHeldError):
        task(here, dag_run_id="other").run()
    action = task(here, dag_run_id="one").run()

    assert (Action.PASS, 1) == (action, here.found.epochs)
