"""How does an epochs task wait for the task that drives its epochs, without a process of its own?

In Airflow's triggerer. The store is asked every second, on one connection; Airflow, whether the driving task is over,
by its own trigger for that. In a chain at most one task of a DAG run waits here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

from airflow.providers.standard.triggers.external_task import WorkflowTrigger
from airflow.triggers.base import BaseTrigger, TaskSuccessEvent, TriggerEvent

from iteration_lib.airflow.chain import Action
from iteration_lib.airflow.following import look_up_action
from iteration_lib.airflow.hook import IterationStoreHook
from iteration_lib.airflow.task_state import OVER

_STORE_SECONDS = 1.0
_AIRFLOW_SECONDS = 10.0  # each look writes a line into the waiting task's log


class EpochsTrigger(BaseTrigger):
    """Ends its task as a success when the task's epochs are durable; for anything else the task itself looks again.

    So it does in any case where it `ends_itself`: Airflow calls a task's success callbacks, and tells of its assets,
    in the task's process alone.
    """

    def __init__(  # noqa: PLR0913  (what travels through Airflow's database, by keyword)
        self,
        *,
        run_key: str,
        store_conn_id: str | None,
        first_epoch: int,
        end_epoch: int,
        dag_id: str,
        dag_run_id: str,
        driving_task_id: str,
        ends_itself: bool,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's
        self.run_key = run_key
        self.store_conn_id = store_conn_id
        self.first_epoch = first_epoch
        self.end_epoch = end_epoch
        self.dag_id = dag_id
        self.dag_run_id = dag_run_id
        self.driving_task_id = driving_task_id
        self.ends_itself = ends_itself

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what makes the same trigger elsewhere; the store's address is not among it."""
        names = ("run_key", "store_conn_id", "first_epoch", "end_epoch", "dag_id", "dag_run_id", "driving_task_id")
        return f"{__name__}.{type(self).__name__}", {name: getattr(self, name) for name in (*names, "ends_itself")}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait until the store calls for something, or the driving task is over."""
        durable = asyncio.ensure_future(self._wait_for_store())
        over = asyncio.ensure_future(self._wait_for_driving_task())
        try:
            done, _ = await asyncio.wait({durable, over}, return_when=asyncio.FIRST_COMPLETED)
            actions = {task.result() for task in done}
        finally:
            durable.cancel()
            over.cancel()
        is_success = Action.PASS in actions and not self.ends_itself
        yield TaskSuccessEvent() if is_success else TriggerEvent(None)  # type: ignore[no-untyped-call]  # Airflow's

    async def _wait_for_store(self) -> Action:
        # Threads: both the connection's look-up and the database driver block.
        with closing(await asyncio.to_thread(IterationStoreHook(self.store_conn_id).get_conn)) as store:
            while True:
                action = await asyncio.to_thread(
                    look_up_action, store, self.run_key, first_epoch=self.first_epoch, end_epoch=self.end_epoch
                )
                if action is not Action.DRIVE:
                    return action
                await asyncio.sleep(_STORE_SECONDS)

    async def _wait_for_driving_task(self) -> None:
        trigger = WorkflowTrigger(
            external_dag_id=self.dag_id,
            run_ids=[self.dag_run_id],
            external_task_ids=[self.driving_task_id],
            allowed_states=OVER,
            poke_interval=_AIRFLOW_SECONDS,
        )
        async for _ in trigger.run():
            return
