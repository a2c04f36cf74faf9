"""What does an epochs task ask when another task drives its epochs?

Two things, in this order: Airflow, whether the driving task is over, and then the store, which by then knows all that
it did.
"""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING

from iteration_lib.airflow.chain import Action, Progress, decide_action
from iteration_lib.airflow.failure import without_retry_of_mistakes
from iteration_lib.airflow.hook import IterationStoreHook
from iteration_lib.airflow.interface import AirflowFailException
from iteration_lib.airflow.task_state import OVER, find_task_state
from iteration_lib.errors import RunNotFoundError
from iteration_lib.store.seam import History

if TYPE_CHECKING:
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

    from iteration_lib.airflow.operators import FollowEpochsOperator

_logger = logging.getLogger(__name__)


def is_driving_over(operator: FollowEpochsOperator, *, task_instance: RuntimeTaskInstanceProtocol) -> bool:
    """Tell whether the task that drives the run will do nothing more, unless somebody clears it."""
    return find_task_state(operator.driving_task_id, task_instance=task_instance) in OVER


def follow_epochs(operator: FollowEpochsOperator, *, task_instance: RuntimeTaskInstanceProtocol) -> Action:
    """Return what the store calls for; DRIVE means: wait, the driving task is at work.

    Raises AirflowFailException when that task is over and the epochs are not durable: nobody will make them so.
    """
    is_over = is_driving_over(operator, task_instance=task_instance)
    with without_retry_of_mistakes(), closing(IterationStoreHook(operator.store_conn_id).get_conn()) as store:
        action = look_up_action(store, operator.run_key, first_epoch=operator.first_epoch, end_epoch=operator.end_epoch)
    if action is Action.DRIVE and is_over:
        raise AirflowFailException(
            f"the task {operator.driving_task_id} is over, but epoch {operator.end_epoch - 1} is not durable; its log "
            "says why. Clear it together with this task, or this task alone: then this task drives the run to its end"
        )
    _logger.info("event=epochs_followed run_key=%s action=%s", operator.run_key, action.value)
    return action


def look_up_action(store: History, run_key: str, *, first_epoch: int, end_epoch: int) -> Action:
    """Return what the store calls for; raises RunNotFoundError."""
    run = store.find_run(run_key)
    if run is None:
        raise RunNotFoundError(run_key)
    return decide_action(Progress.of(store, run), first_epoch=first_epoch, end_epoch=end_epoch)
