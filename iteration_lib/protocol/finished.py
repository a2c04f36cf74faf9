"""What is done once and for all: operators that finished for good, pinned data, listeners, published outputs?"""

from __future__ import annotations

from dataclasses import replace

from iteration_lib.errors import InputError, ProtocolViolationError
from iteration_lib.protocol.command import (
    Command,
    EndAttempt,
    FinishOperator,
    PinData,
    PublishOutputs,
    RecordNotice,
    ReplaceDefinition,
)
from iteration_lib.protocol.committable import sinks_of
from iteration_lib.protocol.edge import void_edges
from iteration_lib.protocol.event import (
    DataPinned,
    DefinitionChanged,
    ListenerNotified,
    OperatorFinished,
    OutputsPublished,
)
from iteration_lib.protocol.state import NO_EPOCH, RunState
from iteration_lib.protocol.status import AttemptOutcome, RunStatus, check_transition


def finish_operator(state: RunState, event: OperatorFinished) -> tuple[RunState, tuple[Command, ...]]:
    """Mark an operator as finished for good, once (I11); the first marker stays."""
    if event.operator_id in state.finished_operators:
        return state, ()
    edges = tuple(e for e in state.edges if (e.epoch, e.operator_id) != (NO_EPOCH, event.operator_id))
    return (
        replace(state, finished_operators=state.finished_operators | {event.operator_id}, edges=edges),
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


def change_definition(state: RunState, event: DefinitionChanged) -> tuple[RunState, tuple[Command, ...]]:
    """Replace the run's operators, once, before the attempt has opened an epoch; repeating it is harmless.

    What was durable inside an epoch is computed anew, but for the edges that are kept; operators that are dropped lose
    their markers and parts.
    """
    live = state.attempt
    known = live.definition_changes if live is not None else None
    if known == event.changes:
        return state, ()
    if live is None or known is not None or state.epochs or state.status is not RunStatus.RUNNING:
        raise ProtocolViolationError("the operators of a run change only once, before an attempt's first epoch")
    dropped = frozenset(event.dropped)
    state, voided = void_edges(state, keeping=frozenset(event.kept) - dropped)
    edges = tuple(edge for edge in state.edges if edge.operator_id not in dropped)
    return (
        replace(
            state,
            attempt=replace(live, definition_changes=event.changes),
            finished_operators=state.finished_operators - dropped,
            edges=edges,
            sinks=sinks_of(event.definition),
        ),
        (ReplaceDefinition(definition=event.definition, changes=event.changes, dropped=event.dropped), *voided),
    )


def notify_listener(state: RunState, event: ListenerNotified) -> tuple[RunState, tuple[Command, ...]]:
    """Record that a listener has heard of a durable epoch: of each one once, and in order (I16)."""
    known = state.notified.get(event.listener_id, state.origin_epoch)
    if event.epoch <= known:
        return state, ()
    if event.epoch > state.last_durable_epoch:
        raise ProtocolViolationError(f"listener {event.listener_id!r}: epoch {event.epoch} is not durable (I16)")
    if event.is_final and (state.status is not RunStatus.TERMINATING or event.epoch != state.last_durable_epoch):
        raise ProtocolViolationError(f"listener {event.listener_id!r}: the run did not end with {event.epoch} (I16)")
    if not event.is_final and event.epoch != known + 1:
        raise ProtocolViolationError(f"listener {event.listener_id!r}: epoch {known + 1} comes first (I16)")
    notice = RecordNotice(
        listener_id=event.listener_id, epoch=event.epoch, effect=event.effect, is_final=event.is_final
    )
    return (
        replace(state, notified={**state.notified, event.listener_id: event.epoch}),
        (notice,),
    )


def publish_outputs(state: RunState, event: OutputsPublished) -> tuple[RunState, tuple[Command, ...]]:
    """End the attempt and finish the run (I10)."""
    if state.status is not RunStatus.TERMINATING or state.pending or state.epochs:
        raise ProtocolViolationError(f"outputs of a run that is {state.status.value} cannot be published (I10)")
    if state.uncommitted:
        raise ProtocolViolationError(f"a run cannot finish: {sorted(state.uncommitted)} is not committed (I19)")
    check_transition(state.status, RunStatus.FINISHED)
    return (
        replace(
            state,
            status=RunStatus.FINISHED,
            attempt=None,
            ended_attempt_id=event.attempt_id,
            checkpoint_failures=0,
        ),
        (
            EndAttempt(fencing_token=event.fencing_token, outcome=AttemptOutcome.FINISHED, reason=None),
            PublishOutputs(outputs=event.outputs, state_digest=event.state_digest),
        ),
    )
