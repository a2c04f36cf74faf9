"""Which listeners have to hear of an epoch, and how is it made sure that each hears of it once?

A listener is called after an epoch is durable, and what it returns is committed together with the marker that says so:
that effect happens once. Where an attempt ends between the call and the commit, the next one calls again; what the
listener does elsewhere is made repeatable by its `effect_id`, which is the same then.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from iteration_lib.crash_point import CrashPoint
from iteration_lib.driver.blame import in_epoch
from iteration_lib.driver.keepable import as_json
from iteration_lib.errors import OperatorFailedError, OperatorResultError, say
from iteration_lib.interrupt import RAISED_BY_USERS, ToldToEnd
from iteration_lib.model.listener import Listener, ListenerEvent
from iteration_lib.protocol.event import ListenerNotified
from iteration_lib.protocol.state import NO_EPOCH

if TYPE_CHECKING:
    from iteration_lib.driver.context import RunContext
    from iteration_lib.protocol import RunState
    from iteration_lib.store.record import EpochRecord


class Listeners:
    """The listeners of one attempt's run."""

    def __init__(self, context: RunContext) -> None:
        """Call the listeners of the iteration, if it has any."""
        self._context = context
        listeners = context.graph.listeners
        self._of_epochs = [found for found in listeners if found.event is ListenerEvent.EPOCH_DURABLE]
        self._of_the_end = [found for found in listeners if found.event is ListenerEvent.TERMINATED]

    def notify_durable(self, state: RunState) -> RunState:
        """Have every listener hear of the durable epochs that it has not heard of, in order."""
        for listener in self._of_epochs:
            heard = state.notified.get(listener.listener_id, NO_EPOCH)
            if heard >= state.last_durable_epoch:
                continue
            for epoch in self._durable_epochs(heard + 1):
                state = self._notify(listener, epoch.epoch, _facts(epoch))
        return state

    def notify_terminated(self, state: RunState) -> list[ListenerNotified]:
        """Call the listeners of the end that were not; return what marks them, to be committed with the end itself."""
        by = state.terminated_by.value if state.terminated_by is not None else None
        with in_epoch(state.last_durable_epoch, [listener.listener_id for listener in self._of_the_end]):
            return [
                self._call(listener, state.last_durable_epoch, {"terminated_by": by}, is_final=True)
                for listener in self._of_the_end
                if listener.listener_id not in state.notified
            ]

    def _durable_epochs(self, first_epoch: int) -> list[EpochRecord]:
        found = self._context.store.list_epochs(self._context.run.run_id, first_epoch)
        return [epoch for epoch in found if epoch.durable_at is not None]

    def _notify(self, listener: Listener, epoch: int, facts: Mapping[str, object]) -> RunState:
        with in_epoch(epoch, [listener.listener_id]):
            notified = self._call(listener, epoch, facts, is_final=False)
        state = self._context.attempt.apply(notified)
        self._context.crash_plan.reach(CrashPoint.LISTENER_NOTIFIED, epoch)
        return state

    def _call(self, listener: Listener, epoch: int, facts: Mapping[str, object], *, is_final: bool) -> ListenerNotified:
        known = {
            "epoch": epoch,
            "params": self._context.params,
            "effect_id": effect_id(self._context.run.run_id, listener.listener_id, epoch),
            **facts,
        }
        try:
            effect = listener.function(**{name: known[name] for name in listener.injected})
        except ToldToEnd:
            raise
        except RAISED_BY_USERS as err:  # the border to the user's code: whatever it raises
            raise OperatorFailedError(operator_id=listener.listener_id, epoch=epoch, cause=say(err)) from err
        self._context.crash_plan.reach(CrashPoint.LISTENER_CALLED, epoch)
        return ListenerNotified(
            **self._context.attempt.guard,
            listener_id=listener.listener_id,
            epoch=epoch,
            is_final=is_final,
            effect=_checked(listener, effect),
        )


def effect_id(run_id: str, listener_id: str, epoch: int) -> str:
    """Return a UUID that is the same whenever a listener is called for the same epoch of a run."""
    return str(uuid.uuid5(uuid.UUID(run_id), f"{listener_id}/{epoch}"))


def _facts(epoch: EpochRecord) -> dict[str, object]:
    records = {head: sum(count or 0 for count in counts) for head, counts in epoch.records.items()}
    return {"metrics": dict(epoch.metrics), "records": records}


def _checked(listener: Listener, effect: object) -> Mapping[str, object] | None:
    """Return what a listener returned, if a database can keep it; raises OperatorResultError."""
    if effect is None:
        return None
    if not isinstance(effect, Mapping):
        problem = f"returned a {type(effect).__name__}; return a mapping of plain values, or nothing"
        raise OperatorResultError(operator_id=listener.listener_id, problem=problem)
    try:
        return cast("Mapping[str, object]", as_json(dict(effect)))
    except (TypeError, ValueError, RecursionError) as err:
        problem = f"returned what cannot be kept ({err}); return a mapping of plain values, or nothing"
        raise OperatorResultError(operator_id=listener.listener_id, problem=problem) from err
