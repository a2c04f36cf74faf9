"""How does a person stop a run, and resume it, from another process? By a request in the store, and by waiting.

The driver hears of the request at the boundary of its epoch. Should it die before that, whoever waits asks again, and
the run is stopped at once: so a run that nobody drives does not keep anybody waiting.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import IterationError, RunDeletedError, RunNotStoppedError
from iteration_lib.process import is_gone
from iteration_lib.protocol.event import RunResumed, StopRequested
from iteration_lib.protocol.state import AttemptId
from iteration_lib.protocol.status import CheckpointStatus, EpochStatus, RunStatus, StopKind
from iteration_lib.store.record import AttemptRecord, RunRecord, StopRecord
from iteration_lib.store.seam import History, StoreWithHistory

_POLL_SECONDS = 0.2


def gone_attempt(store: History, run: RunRecord) -> AttemptId | None:
    """Return the live attempt, where its process is proved to be gone."""
    live = live_attempt(store, run)
    return live.attempt_id if live is not None and is_gone(live.holder) else None


def live_attempt(store: History, run: RunRecord) -> AttemptRecord | None:
    """Return the attempt that has not ended; its process may be gone."""
    return next((known for known in store.list_attempts(run.run_id) if known.ended_at is None), None)


def is_driven(store: History, run: RunRecord) -> bool:
    """Whether an attempt has not ended whose lease holds, and whose process is not proved to be gone."""
    live = live_attempt(store, run)
    return live is not None and not live.is_lease_over and not is_gone(live.holder)


def request_stop(store: StoreWithHistory, run: RunRecord, *, kind: StopKind, by: str) -> StopRecord:
    """Ask a run to stop or to drain, and return the request that is in force: it may be somebody's earlier one.

    Raises RunFinishedError, RunDeletedError, RunStoppedError (of a drain) or StopRefusedError.
    """
    _ask(store, run, stop_id=str(uuid.uuid4()), kind=kind, by=by)
    return _in_force(store, run)


def wait_for_stop(
    store: StoreWithHistory,
    run: RunRecord,
    asked: StopRecord,
    *,
    timeout_seconds: float | None,
    tell: Callable[[str], None],
) -> RunRecord:
    """Wait until a run has stopped or come to its end, telling what it waits for, and return it as it is then.

    Raises IterationError when it FAILED meanwhile or takes too long, and RunDeletedError.
    """
    deadline = time.monotonic() + timeout_seconds if timeout_seconds is not None else None
    told = ""
    while True:
        found = _reload(store, run)
        if _has_ended(store, found, asked):
            return found
        where = _where(store, found)
        if where != told:
            tell(where)
            told = where
        if deadline is not None and time.monotonic() >= deadline:
            raise IterationError(
                f"run {run.run_key} has not come to its end after {timeout_seconds:g} s: {where}; the request stays, "
                "and the same command waits again"
            )
        _ask_again(store, found, asked)
        time.sleep(_POLL_SECONDS)


def resume_run(store: StoreWithHistory, run: RunRecord, *, by: str) -> RunRecord:
    """Let a STOPPED run go on; raises RunNotStoppedError for any other."""
    if run.status is not RunStatus.STOPPED:
        raise RunNotStoppedError(run.run_id, run.status.value)
    stop_id = _in_force(store, run).stop_id
    Coordinator(store).apply(run.run_id, RunResumed(stop_id=stop_id, resumed_by=by))
    return _reload(store, run)


def _ask(store: StoreWithHistory, run: RunRecord, *, stop_id: str, kind: StopKind, by: str) -> None:
    gone = gone_attempt(store, run)
    event = StopRequested(stop_id=stop_id, kind=kind, requested_by=by, gone_attempt_id=gone)
    Coordinator(store).apply(run.run_id, event)


def _ask_again(store: StoreWithHistory, run: RunRecord, asked: StopRecord) -> None:
    """Ask again where nobody seems to hear it: the store knows whether the attempt is really dead."""
    if not is_driven(store, run):
        _ask(store, run, stop_id=asked.stop_id, kind=asked.kind, by=asked.requested_by)


def _in_force(store: History, run: RunRecord) -> StopRecord:
    in_force = [stop for stop in store.list_stops(run.run_id) if stop.is_in_force]
    if not in_force:  # somebody has resumed it since
        raise RunNotStoppedError(run.run_id, run.status.value)
    return in_force[-1]


def _reload(store: History, run: RunRecord) -> RunRecord:
    return store.find_run(run.run_id) or run


def _has_ended(store: History, run: RunRecord, asked: StopRecord) -> bool:
    if run.status is RunStatus.DELETED:
        raise RunDeletedError(run.run_id)
    if run.status is RunStatus.FAILED:
        raise IterationError(
            f"run {run.run_key} has FAILED first: {run.failure}; the request stays: whoever drives it next runs the "
            "epoch in progress at most"
        )
    answered = [stop.stop_id for stop in store.list_stops(run.run_id) if stop.stopped_at is not None]
    return run.status in (RunStatus.STOPPED, RunStatus.FINISHED) or asked.stop_id in answered


def _where(store: History, run: RunRecord) -> str:
    """Say what a run that does not stop yet is waited for."""
    live = live_attempt(store, run) if is_driven(store, run) else None
    who = f"driven by {live.holder.describe()}" if live is not None else "and nobody drives it"
    if run.terminated_by is not None:
        return f"it terminates, and its outputs are to be published, {who}"
    epochs = store.list_epochs(run.run_id, run.last_durable_epoch + 1)
    last = next((known for known in reversed(epochs) if known.status is not EpochStatus.VOIDED), None)
    if last is None:
        return f"epoch {run.last_durable_epoch} is durable, {who}"
    is_open = last.status is EpochStatus.OPEN
    if is_open and last.held_at is None:
        return f"epoch {last.epoch} is in progress, {who}"
    pending = [c for c in store.list_checkpoints(run.run_id) if c.status is CheckpointStatus.PENDING]
    if not pending:  # also where an attempt left an epoch that was held
        return f"epoch {last.epoch} is {'in progress' if is_open else 'aligned'}, {who}"
    ids = ", ".join(str(known.checkpoint_id) for known in pending)
    return f"epoch {last.epoch} waits for checkpoint {ids}, {who}"
