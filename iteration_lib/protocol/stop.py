"""How does a person stop a run, and let it go on? Flink's stop-with-savepoint, carried over to epochs.

A request is a row, and whoever drives the run hears of it where it commits next: at the boundary of the epoch in
progress. To *stop*: that epoch gets a checkpoint, no other one opens, and letting the run go makes it STOPPED. Where
nobody drives the run it is STOPPED at once, at its last durable epoch. To *drain*: that epoch terminates the run by
rule, and it ends as any other (I5). A request is in force until a person resumes the run; an attempt that crashes or
fails in between leaves it to the next one (I20).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from iteration_lib.errors import RunNotStoppedError, StopRefusedError
from iteration_lib.protocol.abort import check_goes_on
from iteration_lib.protocol.command import Command, RecordStop, ResumeRun, StopRun
from iteration_lib.protocol.event import RunResumed, StopRequested
from iteration_lib.protocol.state import RunState, StopState
from iteration_lib.protocol.status import RunStatus, StopKind, check_transition
from iteration_lib.protocol.undriven import driven_by, end_gone_attempt, void_rest


def request_stop(state: RunState, event: StopRequested, now: datetime) -> tuple[RunState, tuple[Command, ...]]:
    """Ask a run to stop or to drain, and stop it at once where nobody drives it; repeating it is harmless.

    Of two requests the first one counts. Raises RunFinishedError, RunDeletedError, RunStoppedError or StopRefusedError.
    """
    is_known = state.stop is not None and state.stop.stop_id == event.stop_id
    is_answered = state.status is not RunStatus.RUNNING or (state.asked_to is None)
    is_stopped = state.status is RunStatus.STOPPED and event.kind is StopKind.STOP
    if is_stopped or (is_known and is_answered):
        return state, ()
    _check_stoppable(state, event.kind)
    commands: list[Command] = []
    if state.asked_to is None:
        state = replace(state, stop=StopState(stop_id=event.stop_id, kind=event.kind))
        commands.append(RecordStop(stop_id=event.stop_id, kind=event.kind, requested_by=event.requested_by))
    if may_stop(state) and driven_by(state, now, gone_attempt_id=event.gone_attempt_id) is None:
        state, ended = end_gone_attempt(state, "its run was stopped", by=event.requested_by)
        state, stopped = stop_now(state)
        commands += [*ended, *stopped]
    return state, tuple(commands)


def resume_run(state: RunState, event: RunResumed) -> tuple[RunState, tuple[Command, ...]]:
    """Let a STOPPED run go on; repeating it is harmless. Raises RunNotStoppedError for any other run."""
    stop = state.stop
    is_meant = stop is not None and stop.stop_id == event.stop_id
    if stop is not None and is_meant and stop.is_resumed:
        return state, ()
    if stop is None or not is_meant or state.status is not RunStatus.STOPPED:
        raise RunNotStoppedError(state.run_id, state.status.value)
    resumed = replace(state, status=RunStatus.RUNNING, stop=replace(stop, is_resumed=True))
    return resumed, (ResumeRun(stop_id=event.stop_id, resumed_by=event.resumed_by),)


def may_stop(state: RunState) -> bool:
    """Tell whether a run is asked to stop, and nothing but its attempt keeps it from that: it has not terminated."""
    goes_on = state.status in (RunStatus.RUNNING, RunStatus.FAILED) and state.terminated_by is None
    return goes_on and state.asked_to is StopKind.STOP


def stop_now(state: RunState) -> tuple[RunState, tuple[Command, ...]]:
    """Make a run STOPPED that nobody drives, at its last durable epoch."""
    check_transition(state.status, RunStatus.STOPPED)
    state, voided = void_rest(state)
    stops = (StopRun(stop_id=state.stop.stop_id),) if state.stop is not None else ()
    return replace(state, status=RunStatus.STOPPED), (*voided, *stops)


def _check_stoppable(state: RunState, kind: StopKind) -> None:
    check_goes_on(state)
    if state.status is RunStatus.FAILED:
        raise StopRefusedError(
            state.run_id, "it has FAILED, and nobody drives it", "go on with it first, or delete it (iteration delete)"
        )
    if state.asked_to not in (None, kind):
        asked, wanted = ("stop", "drain") if kind is StopKind.DRAIN else ("drain", "stop")
        raise StopRefusedError(
            state.run_id, f"it is asked to {asked} already, and cannot {wanted} as well", "wait for that"
        )
