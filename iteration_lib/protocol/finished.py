"""What is done once and for all: operators that finished for good, pinned data, published outputs?"""

from __future__ import annotations

from dataclasses import replace

from iteration_lib.errors import InputError, ProtocolViolationError
from iteration_lib.protocol.command import Command, EndAttempt, FinishOperator, PinData, PublishOutputs
from iteration_lib.protocol.event import DataPinned, OperatorFinished, OutputsPublished
from iteration_lib.protocol.state import RunState
from iteration_lib.protocol.status import AttemptOutcome, RunStatus, check_transition


def finish_operator(state: RunState, event: OperatorFinished) -> tuple[RunState, tuple[Command, ...]]:
    """Mark an operator as finished for good, once (I11); the first marker stays."""
    if event.operator_id in state.finished_operators:
        return state, ()
    return (
        replace(state, finished_operators=state.finished_operators | {event.operator_id}),
        (FinishOperator(operator_id=event.operator_id, epoch=state.last_durable_epoch + 1, output=event.output),),
    )


def pin_data(state: RunState, event: DataPinned) -> tuple[RunState, tuple[Command, ...]]:
    """Record what a data stream reads, once; raises InputError when it would read something else now."""
    known = state.pins.get(event.name)
    if known == event.fingerprint:
        return state, ()
    if known is not None:
        raise InputError(
            f"data stream {event.name!r} is not what it was when the run started; restore its files, or start "
            "another run with another run key"
        )
    return (
        replace(state, pins={**state.pins, event.name: event.fingerprint}),
        (PinData(name=event.name, fingerprint=event.fingerprint, pin=event.pin),),
    )


def publish_outputs(state: RunState, event: OutputsPublished) -> tuple[RunState, tuple[Command, ...]]:
    """Finish the run (I10) and end its attempt."""
    if state.status is not RunStatus.TERMINATING or state.pending or state.epochs:
        raise ProtocolViolationError(f"outputs of a run that is {state.status.value} cannot be published (I10)")
    check_transition(state.status, RunStatus.FINISHED)
    return (
        replace(state, status=RunStatus.FINISHED, attempt=None, ended_attempt_id=event.attempt_id),
        (
            PublishOutputs(outputs=event.outputs, state_digest=event.state_digest),
            EndAttempt(fencing_token=event.fencing_token, outcome=AttemptOutcome.FINISHED, reason=None),
        ),
    )
