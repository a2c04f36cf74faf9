"""When is an epoch aligned, and does the run terminate after it?

The alignment of an epoch all of whose heads have reported is *held* while as many checkpoints are pending as the policy
allows; whatever ends one of them releases it in the same step (as Flink ML's head delivers events
that come after the coordinator's notice behind its snapshot).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from iteration_lib.errors import ProtocolViolationError
from iteration_lib.protocol.command import AlignEpoch, Command, OpenEpoch, RecordReports
from iteration_lib.protocol.event import EpochOpened, SubtasksAligned
from iteration_lib.protocol.state import CRITERIA, Decision, EpochState, Reports, RunState
from iteration_lib.protocol.status import EpochStatus, RunStatus, StopKind, TerminatedBy


def open_epoch(state: RunState, event: EpochOpened) -> tuple[RunState, tuple[Command, ...]]:
    """Open the next epoch (I3), unless the run terminates (I9) or is to stop (I20); repeating it is harmless."""
    heads = expect_all(event.heads)
    known = state.epoch_state(event.epoch)
    if known is not None and [(h.name, h.expected) for h in known.heads] == [(h.name, h.expected) for h in heads]:
        return state, ()
    if 0 <= event.epoch <= state.last_durable_epoch:
        return state, ()
    if event.if_ready and not _is_ready(state):
        return state, ()
    if state.status is not RunStatus.RUNNING or is_terminating(state):
        raise ProtocolViolationError(f"epoch {event.epoch} cannot open: the run terminates (I9)")
    if event.epoch != state.last_epoch + 1:
        raise ProtocolViolationError(f"epoch {event.epoch} cannot open: the last one is {state.last_epoch} (I3)")
    if state.epochs and state.epochs[-1].status is EpochStatus.OPEN:
        raise ProtocolViolationError(f"epoch {event.epoch} cannot open: epoch {state.last_epoch} is open (I3)")
    if state.epochs and state.asked_to is StopKind.STOP:
        raise ProtocolViolationError(f"epoch {event.epoch} cannot open: the run is asked to stop (I20)")
    if has_failed(state):
        raise ProtocolViolationError(f"epoch {event.epoch} cannot open: too many checkpoints have failed (I13)")
    if not heads or any(head.expected < 1 for head in heads):
        raise ProtocolViolationError(f"epoch {event.epoch} needs heads with at least one subtask each")
    opened = EpochState(epoch=event.epoch, status=EpochStatus.OPEN, heads=heads)
    return replace(state, epochs=(*state.epochs, opened)), (OpenEpoch(epoch=event.epoch, heads=heads),)


def align_subtasks(state: RunState, event: SubtasksAligned) -> tuple[RunState, tuple[Command, ...]]:
    """Fold a batch of reports into its epoch; the one that completes it aligns the epoch, unless that is held (I4)."""
    epoch = state.epoch_state(event.epoch)
    if epoch is None:
        if 0 <= event.epoch <= state.last_durable_epoch:
            return state, ()
        raise ProtocolViolationError(f"epoch {event.epoch} is not open; the last one is {state.last_epoch} (I4)")
    heads = fold(epoch.heads, event.reports, what=f"epoch {event.epoch}")
    if heads == epoch.heads:
        return state, ()
    state = _with_epoch(state, replace(epoch, heads=heads))
    if any(head.reported != head.expected for head in heads):
        return state, (RecordReports(epoch=epoch.epoch, heads=heads),)
    measured = RecordReports(epoch=epoch.epoch, heads=heads, metrics=dict(event.metrics), seconds=event.seconds)
    state, released = release_alignment(state)
    return state, (measured, *released)


def release_alignment(state: RunState) -> tuple[RunState, tuple[Command, ...]]:
    """Align the last epoch and decide (I5), if it is held and a checkpoint may begin after it (I14).

    What an attempt that has ended left held waits to be voided: nobody would go on after it.
    """
    epoch = state.epochs[-1] if state.epochs else None
    if state.attempt is None or epoch is None or not epoch.is_held:
        return state, ()
    if len(state.pending) >= state.policy.max_pending:
        return state, ()
    is_drained = state.asked_to is StopKind.DRAIN
    decision = decide_termination(epoch.epoch, epoch.heads, max_epochs=state.max_epochs, is_drained=is_drained)
    aligned = replace(epoch, status=EpochStatus.ALIGNED, decision=decision)
    return _with_epoch(state, aligned), (AlignEpoch(epoch=epoch.epoch, decision=decision),)


def decide_termination(
    epoch: int, heads: tuple[Reports, ...], *, max_epochs: int | None, is_drained: bool = False
) -> Decision:
    """Decide after an aligned epoch: no records at all, no criteria records, or the last epoch allowed (FLIP-176).

    Else it is the last one where a person asked the run to drain.
    """
    records = {head.name: head.total for head in heads}
    terminated_by = None
    if sum(records.values()) == 0:
        terminated_by = TerminatedBy.EMPTY_FEEDBACK
    elif records.get(CRITERIA) == 0:
        terminated_by = TerminatedBy.CRITERIA
    elif max_epochs is not None and epoch + 1 >= max_epochs:
        terminated_by = TerminatedBy.MAX_EPOCHS
    elif is_drained:
        terminated_by = TerminatedBy.DRAINED
    return Decision(records=records, terminated_by=terminated_by)


def is_terminating(state: RunState) -> bool:
    """Tell whether the last aligned epoch decided that the run terminates."""
    return any(epoch.decision is not None and epoch.decision.terminated_by is not None for epoch in state.epochs)


def has_failed(state: RunState) -> bool:
    """Tell whether more checkpoints have failed in a row than the live attempt puts up with."""
    return state.checkpoint_failures > state.policy.tolerable_failures


def _is_ready(state: RunState) -> bool:
    is_open = bool(state.epochs) and state.epochs[-1].status is EpochStatus.OPEN
    is_over = is_terminating(state) or has_failed(state) or state.asked_to is StopKind.STOP
    return state.status is RunStatus.RUNNING and not (is_open or is_over)


def _with_epoch(state: RunState, changed: EpochState) -> RunState:
    epochs = tuple(changed if known.epoch == changed.epoch else known for known in state.epochs)
    return replace(state, epochs=epochs)


def expect_all(parallelism: Mapping[str, int]) -> tuple[Reports, ...]:
    """Return empty reports for every name, sorted, so that equal inputs give equal states."""
    return tuple(Reports(name=name, values=(None,) * count) for name, count in sorted(parallelism.items()))


def fold(known: tuple[Reports, ...], batch: Mapping[str, Mapping[int, int]], *, what: str) -> tuple[Reports, ...]:
    """Add a batch of reports; raises ProtocolViolationError for one that is unknown, negative or contradicts (I4)."""
    by_name = {reports.name: reports for reports in known}
    for name, values in batch.items():
        if name not in by_name:
            raise ProtocolViolationError(f"{what} has no {name!r}; there are: {', '.join(by_name)} (I4)")
        by_name[name] = _fold_one(by_name[name], values, what=what)
    return tuple(by_name[reports.name] for reports in known)


def _fold_one(known: Reports, values: Mapping[int, int], *, what: str) -> Reports:
    merged = list(known.values)
    for subtask_index, value in values.items():
        if not 0 <= subtask_index < len(merged) or value < 0:
            raise ProtocolViolationError(
                f"{what}: {known.name!r} has {len(merged)} subtasks and counts from 0, not "
                f"{value} from subtask {subtask_index} (I4)"
            )
        if merged[subtask_index] not in (None, value):
            raise ProtocolViolationError(
                f"{what}: subtask {subtask_index} of {known.name!r} reported {merged[subtask_index]} before, "
                f"now {value} (I4)"
            )
        merged[subtask_index] = value
    return Reports(name=known.name, values=tuple(merged))
