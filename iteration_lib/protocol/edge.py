"""Which operators inside an open epoch have left a durable edge, so that a retry starts behind it?

The unaligned checkpoint of an epoch is the last completed checkpoint plus these edges (FLIP-76, FLIP-147). A part is
accepted only behind a durable epoch, whose variables stay what they are, and only after the parts that it was computed
from: so whatever is marked can be kept, whoever computes the rest, and no operator is skipped whose inputs would be
computed anew (I15).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from iteration_lib.errors import ProtocolViolationError
from iteration_lib.protocol.command import Command, RecordParts, SwitchToUnaligned, VoidEdges, VoidParts
from iteration_lib.protocol.event import AlignmentTimedOut, FinishedPart, PartsFinished
from iteration_lib.protocol.state import NO_EPOCH, EdgeState, RunState
from iteration_lib.protocol.status import EpochStatus, OperatorStatus


def switch_to_unaligned(state: RunState, event: AlignmentTimedOut) -> tuple[RunState, tuple[Command, ...]]:
    """Switch an open epoch, once; one that has aligned meanwhile needs it no more."""
    epoch = state.epoch_state(event.epoch)
    if epoch is None:
        if 0 <= event.epoch <= state.last_durable_epoch:
            return state, ()
        raise ProtocolViolationError(f"epoch {event.epoch} is not open; the last one is {state.last_epoch}")
    if epoch.status is not EpochStatus.OPEN or epoch.unaligned_by is not None:
        return state, ()
    switched = replace(epoch, unaligned_by=event.by)
    epochs = tuple(switched if known is epoch else known for known in state.epochs)
    return replace(state, epochs=epochs), (SwitchToUnaligned(epoch=event.epoch, by=event.by),)


def finish_parts(state: RunState, event: PartsFinished) -> tuple[RunState, tuple[Command, ...]]:
    """Mark parts of durable edges, each once, behind a durable epoch (I15).

    Before that one is durable nothing is marked, nor in an epoch that has aligned without having switched.
    """
    if event.epoch != NO_EPOCH:
        epoch = state.epoch_state(event.epoch)
        if epoch is None and not 0 <= event.epoch <= state.last_durable_epoch:
            raise ProtocolViolationError(f"epoch {event.epoch} is not open; the last one is {state.last_epoch}")
        if epoch is not None and epoch.status is EpochStatus.OPEN and epoch.unaligned_by is None:
            raise ProtocolViolationError(f"epoch {event.epoch} is aligned: it has no durable edges (I15)")
        if epoch is None or epoch.unaligned_by is None or event.epoch > state.last_durable_epoch + 1:
            return state, ()
    marked = []
    for part in event.parts:
        if event.epoch == NO_EPOCH and part.operator_id in state.finished_operators:
            continue
        edge = _mark(state, event.epoch, part)
        if edge is not None:
            others = tuple(known for known in state.edges if known != state.edge(event.epoch, part.operator_id))
            state = replace(state, edges=tuple(sorted((*others, edge), key=lambda e: (e.epoch, e.operator_id))))
            marked.append(part)
    return state, ((RecordParts(epoch=event.epoch, parts=tuple(marked)),) if marked else ())


def ignore_edges(state: RunState) -> tuple[RunState, tuple[Command, ...]]:
    """Void every edge, and every part of an operator that has not finished for good, for a new attempt."""
    state, voided = void_edges(state)
    begun = tuple(edge.operator_id for edge in state.edges)
    return replace(state, edges=()), (*voided, *((VoidParts(operators=begun),) if begun else ()))


def void_edges(state: RunState, *, keeping: Collection[str] = ()) -> tuple[RunState, tuple[Command, ...]]:
    """Void the edges of the epoch that comes next, but those of some operators."""
    kept = tuple(edge for edge in state.edges if edge.epoch == NO_EPOCH or edge.operator_id in keeping)
    if kept == state.edges:
        return state, ()
    return replace(state, edges=kept), (VoidEdges(after=state.last_durable_epoch, keeping=tuple(sorted(keeping))),)


def _mark(state: RunState, epoch: int, part: FinishedPart) -> EdgeState | None:
    """Return an operator's edge with a part added, None if it was there."""
    what = f"buckets {part.first_bucket} to {part.end_bucket} of {part.operator_id!r} in epoch {epoch}"
    known = state.edge(epoch, part.operator_id)
    edge = known or EdgeState(epoch=epoch, operator_id=part.operator_id, total=part.total)
    if edge.total != part.total or not 0 <= part.first_bucket < part.end_bucket <= part.total:
        raise ProtocolViolationError(f"{what}: there are {edge.total} (I15)")
    if edge.covers(part.first_bucket, part.end_bucket):
        return None
    if any(first < part.end_bucket and part.first_bucket < end for first, end in edge.finished):
        raise ProtocolViolationError(f"{what} are finished in part: {edge.finished} (I15)")
    for source in (*part.after_narrow, *part.after_wide):
        if not _is_behind(state, epoch, source, part, is_wide=source in part.after_wide):
            raise ProtocolViolationError(f"{what} cannot be finished: {source!r} before it is not (I15)")
    return replace(edge, finished=merge_ranges((*edge.finished, (part.first_bucket, part.end_bucket))))


def _is_behind(state: RunState, epoch: int, source: str, part: FinishedPart, *, is_wide: bool) -> bool:
    """Tell whether what a part was computed from is durable: the same buckets of a narrow input, all of a wide one."""
    if source in state.finished_operators:
        return True
    edge = state.edge(epoch, source)
    if edge is None:
        return False
    if is_wide or edge.total != part.total:
        return edge.status is OperatorStatus.FINISHED
    return edge.covers(part.first_bucket, part.end_bucket)


def merge_ranges(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return disjoint ranges sorted, and as one where they touch."""
    merged: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if merged and merged[-1][1] == first:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((first, end))
    return tuple(merged)
