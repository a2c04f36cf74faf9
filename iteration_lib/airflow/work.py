"""What do the three kinds of task do when they run?

Airflow is told nothing that the store does not say: before a task starts anything, and again before it succeeds, it
asks where the run is.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, cast

from airflow.sdk import TaskInstanceState

from iteration_lib.airflow.chain import Action, Progress, decide_action, first_epoch_of
from iteration_lib.airflow.connect import find_connect_url, find_ui_address
from iteration_lib.airflow.driver_process import DriverProcess
from iteration_lib.airflow.failure import without_retry_of_mistakes
from iteration_lib.airflow.hook import IterationStoreHook, find_state_uri
from iteration_lib.airflow.interface import AirflowFailException, AirflowSkipException
from iteration_lib.airflow.origin import begin_run
from iteration_lib.airflow.parameter import MAX_EPOCHS
from iteration_lib.airflow.spark_page import SparkPage
from iteration_lib.airflow.stall import StallWatch
from iteration_lib.airflow.submission import GRACE_SECONDS, TaskIdentity, make_submission
from iteration_lib.airflow.task_state import find_task_state
from iteration_lib.config import Settings, read_settings
from iteration_lib.engine import Engine, EngineKind, WarmEngine
from iteration_lib.errors import ExecutionLostError, IterationError, ParameterError, RunStoppedError, UsageError
from iteration_lib.interrupt import end_in_order
from iteration_lib.launch import Drive, Request, check_restorable, drive_run, is_cut_short
from iteration_lib.process import this_holder
from iteration_lib.protocol.state import Holder
from iteration_lib.protocol.status import RunStatus
from iteration_lib.store.opening import find_run, open_store
from iteration_lib.store.record import RunRecord
from iteration_lib.store.seam import StoreWithHistory

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import RuntimeTaskInstanceProtocol
    from pydantic import JsonValue

    from iteration_lib.airflow.operators import EpochsOperator, FinishRunOperator, IterationOperator, OpenRunOperator

_LOCAL = Engine(kind=EngineKind.LOCAL)

_logger = logging.getLogger(__name__)


def open_run(
    operator: OpenRunOperator, *, params: Mapping[str, object], task_instance: RuntimeTaskInstanceProtocol
) -> dict[str, object]:
    """Create or find the run; raises AirflowFailException for what the user has to change."""
    with without_retry_of_mistakes():
        max_epochs = _max_epochs_of(params, operator.longest)
        with _store_of(operator, state_uri=find_state_uri(operator.state_uri)) as (store, settings):
            run = begin_run(
                store,
                settings,
                Request(reference=operator.reference, run_key=operator.run_key, params=params),
                start_from=operator.start_from,
                start_data=operator.start_data,
                max_epochs=max_epochs,
                task_instance=task_instance,
            )
    _logger.info("event=run_opened run_id=%s last_durable_epoch=%s", run.run_id, run.last_durable_epoch)
    return {"run_id": run.run_id, "run_key": run.run_key}


def finish_run(operator: FinishRunOperator, *, task_instance: RuntimeTaskInstanceProtocol) -> dict[str, JsonValue]:
    """Publish the outputs and return what identifies them; repeating the call publishes nothing twice."""
    _check_opened(operator, task_instance)
    with without_retry_of_mistakes(), _store_of(operator) as (store, settings):
        run = find_run(store, operator.run_key)
        if run.status is RunStatus.STOPPED:
            raise RunStoppedError(run.run_id)
        if run.terminated_by is None:
            raise UsageError(
                f"run {run.run_id} is {run.status.value} with {run.epochs} durable epochs: it has not terminated, so "
                "there is nothing to publish; clear the first epoch task that did not run its epochs"
            )
        identity = TaskIdentity.of(task_instance)
        drive = Drive(
            holder=this_holder(identity.describe()),
            open_runner=_LOCAL.open_runner,  # there is nothing left to compute
            parallelism=_LOCAL.default_parallelism,
        )
        run = drive_run(store, settings, run, drive)
    if operator.connect_conn_id is not None:
        _end_session(operator.connect_conn_id, run)
    return {
        "run_id": run.run_id,
        "run_key": run.run_key,
        "checkpoint_id": run.last_checkpoint_id,
        "epoch": run.last_durable_epoch,
        "terminated_by": run.terminated_by.value if run.terminated_by is not None else None,
        "state_digest": run.state_digest,
        "outputs": dict(run.outputs or {}),
    }


def _check_opened(operator: FinishRunOperator, task_instance: RuntimeTaskInstanceProtocol) -> None:
    """Raise what ends `finish` as the task that opens the run has ended, unless that has opened it."""
    opening = operator.opening_task_id
    state = find_task_state(opening, task_instance=task_instance)
    if state == TaskInstanceState.SKIPPED:
        raise AirflowSkipException(f"the task {opening} was skipped, so there is nothing to publish")
    if state in (TaskInstanceState.FAILED, TaskInstanceState.UPSTREAM_FAILED):
        raise AirflowFailException(f"the task {opening} has not opened the run, it is {state}: clear it")


def _end_session(conn_id: str, run: RunRecord) -> None:
    """End what its Spark Connect server keeps for a run; a server that is away keeps it until it finds it idle."""
    try:
        WarmEngine(server=find_connect_url(conn_id)).release(run)
    except IterationError as error:
        _logger.warning("event=session_left run_id=%s error=%s", run.run_id, error)


class RunningEpochs:
    """One try of one epochs task, from `run()` to its end or to `kill()`."""

    def __init__(self, operator: EpochsOperator, *, task_instance: RuntimeTaskInstanceProtocol) -> None:
        self._operator = operator
        self._identity = TaskIdentity.of(task_instance)
        self.page = SparkPage(task_instance)
        self._driver: DriverProcess | None = None

    def run(self) -> Action:
        """Drive the epochs unless they are durable; raises when the store does not say so afterwards."""
        with without_retry_of_mistakes(), _store_of(self._operator) as (store, settings):
            run = find_run(store, self._operator.run_key)
            action = self._action(store, run)
            is_left = action is not Action.SKIP and is_cut_short(store, run, self._holder)  # were listeners left out?
            if action is Action.DRIVE or is_left:
                with suppress(RunStoppedError):  # the store says whether these epochs were durable by then
                    self._drive(store, settings, run, is_here=action is not Action.DRIVE)
                run = find_run(store, run.run_id)
                action = self._action(store, run)
                if action is Action.DRIVE:
                    raise ExecutionLostError("the driver has ended, but not all epochs of this task are durable")
                action = Action.STOP if action is Action.SKIP else action  # it drove the end that others had left
            _logger.info(
                "event=epochs_done run_id=%s action=%s last_durable_epoch=%s terminated_by=%s",
                run.run_id,
                action.value,
                run.last_durable_epoch,
                run.terminated_by.value if run.terminated_by is not None else None,
            )
        return action

    def kill(self) -> None:
        """End the driver, or interrupt the epochs that this process runs itself."""
        if self._driver is not None:
            self._driver.on_kill()
        else:
            end_in_order()

    @property
    def _holder(self) -> Holder:
        return this_holder(self._identity.describe())

    def _action(self, store: StoreWithHistory, run: RunRecord) -> Action:
        operator = self._operator
        return decide_action(Progress.of(store, run), first_epoch=operator.first_epoch, end_epoch=operator.end_epoch)

    def _drive(self, store: StoreWithHistory, settings: Settings, run: RunRecord, *, is_here: bool) -> None:
        run_begins_at = first_epoch_of(store, run)
        engine = _LOCAL if is_here else self._engine_here()
        if isinstance(engine, WarmEngine):
            self.page.lead_to_server(find_ui_address(self._operator.conn_id))
        if engine is not None:
            drive = Drive(
                holder=self._holder,
                open_runner=engine.open_runner,
                parallelism=engine.default_parallelism,
                until_epoch=run_begins_at + self._operator.until_epoch,
                publish=False,
            )
            drive_run(store, settings, run, drive)
            return
        check_restorable(store, run)
        submission = make_submission(
            self._operator,
            run,
            identity=self._identity,
            store_url=settings.store_url,
            run_begins_at=run_begins_at,
        )
        self._driver = DriverProcess(submission, when_started=self.page.lead_to_application)
        try:
            self._driver.run()
        except UsageError as error:  # a driver that found the run stopped has nothing but its exit code to say so
            if find_run(store, run.run_id).status is RunStatus.STOPPED:
                raise RunStoppedError(run.run_id) from error
            raise

    def _engine_here(self) -> Engine | WarmEngine | None:
        """Return on what this process runs operators; None where an application is submitted that does."""
        if self._operator.runner == "connect":
            return WarmEngine(server=find_connect_url(self._operator.conn_id))
        return _LOCAL if self._operator.runner == "local" else None


@contextmanager
def watch_for_stall(operator: EpochsOperator, context: Context) -> Iterator[None]:
    """Look beside the epochs whether they go on, where the operator is to tell somebody when they do not."""
    alert = operator.stall_alert
    if alert is None:
        yield
        return
    with without_retry_of_mistakes():
        opened = IterationStoreHook(operator.store_conn_id).get_conn()
    with (
        closing(opened) as store,
        StallWatch(
            read_epoch=lambda: find_run(store, operator.run_key).last_durable_epoch,
            alert=lambda reason: alert.callback(cast("Context", {**context, "reason": reason})),
            stalls_after_seconds=alert.interval.total_seconds(),
        ),
    ):
        yield


@contextmanager
def _store_of(
    operator: IterationOperator, *, state_uri: str | None = None
) -> Iterator[tuple[StoreWithHistory, Settings]]:
    url = IterationStoreHook(operator.store_conn_id).get_url()
    settings = read_settings(os.environ, store_url=url, state_uri=state_uri, termination_grace_seconds=GRACE_SECONDS)
    with open_store(settings) as store:
        yield store, settings


def _max_epochs_of(params: Mapping[str, object], longest: int | None) -> int:
    """Return how many epochs the run may have; Airflow checks it at the trigger, unless it was told not to look."""
    text = str(params.get(MAX_EPOCHS))
    if not text.isdecimal():
        raise ParameterError(f"{MAX_EPOCHS} is {text}; give a whole number", name=MAX_EPOCHS)
    if longest is not None and int(text) > longest:
        raise ParameterError(
            f"{MAX_EPOCHS} is {text}, but this DAG has tasks for {longest} epochs; trigger it with fewer, or raise "
            "max_epochs or epochs_per_task in the DAG file",
            name=MAX_EPOCHS,
        )
    return int(text)
