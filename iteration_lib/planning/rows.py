"""What does the store say of a run at one instant? Its rows are read one by one; somebody may drive it meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from iteration_lib.continuation import Continuation, read_continuation
from iteration_lib.model.graph import Graph
from iteration_lib.model.listener import ListenerEvent
from iteration_lib.protocol.state import NO_EPOCH
from iteration_lib.protocol.status import EpochStatus, RunStatus, StopKind
from iteration_lib.state.location import StateLocation
from iteration_lib.stopping import live_attempt
from iteration_lib.store.record import (
    AttemptRecord,
    BranchRecord,
    CheckpointRecord,
    CommittableRecord,
    OperatorRecord,
    PartRecord,
    PinRecord,
    RunRecord,
    StopRecord,
)
from iteration_lib.store.seam import History


@dataclass(frozen=True, slots=True, kw_only=True)
class UnheardEpochs:
    """The durable epochs, the first to the last, of which a listener has not heard yet."""

    listener_id: str
    first_epoch: int
    last_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRows:
    """The rows that a plan is made of.

    `held` is the branch that the run is, as long as it begins with what it started from; `stop` is in force. `ignored`
    are live parts that a person wants to do without: they are not among `parts`.
    """

    run: RunRecord
    live: AttemptRecord | None
    stop: StopRecord | None
    continuation: Continuation
    operators: tuple[OperatorRecord, ...]
    parts: tuple[PartRecord, ...]
    ignored: tuple[PartRecord, ...]
    pins: tuple[PinRecord, ...]
    completed: CheckpointRecord | None
    held: BranchRecord | None
    commits: tuple[CommittableRecord, ...]
    unheard: tuple[UnheardEpochs, ...]
    is_in_progress: bool

    @property
    def location(self) -> StateLocation:
        """The run's own folder."""
        return StateLocation(self.run.state_uri).below(self.run.run_id)

    @property
    def restored_epoch(self) -> int:
        """The epoch of what an attempt begins with, or NO_EPOCH."""
        origin_epoch = self.held.epoch if self.held is not None else NO_EPOCH
        return self.completed.epoch if self.completed is not None else origin_epoch

    @property
    def is_to_stop(self) -> bool:
        """Whether the next attempt runs the epoch that was in progress at most (I20)."""
        goes_on = self.run.terminated_by is None and self.run.status is not RunStatus.STOPPED
        return goes_on and self.run.asked_to is StopKind.STOP

    @property
    def is_stopped_instead(self) -> bool:
        """Whether the next attempt is refused, because there is nothing left to do but to stop the run."""
        return self.is_to_stop and not self.is_in_progress and not self.commits

    @property
    def runs_epochs(self) -> bool:
        """Whether the next attempt runs any: one that is to stop commits what waits, or runs what was in progress."""
        is_stopping = self.is_to_stop and (bool(self.commits) or not self.is_in_progress)
        return self.run.terminated_by is None and not is_stopping


def read_rows(store: History, run: RunRecord, graph: Graph, *, ignore_edges: bool) -> PlanRows:
    """Read what a plan is made of; `is_still` tells whether the run went on meanwhile."""
    run_id = run.run_id
    branch, parts = store.find_branch(run_id), store.list_live_parts(run_id)
    return PlanRows(
        run=run,
        live=live_attempt(store, run),
        stop=next((stop for stop in store.list_stops(run_id) if stop.is_in_force), None),
        continuation=read_continuation(store, run, graph, ignore_edges=ignore_edges),
        operators=store.list_operators(run_id),
        parts=() if ignore_edges else parts,
        ignored=parts if ignore_edges else (),
        pins=store.list_pins(run_id),
        completed=store.find_completed(run_id),
        held=branch if branch is not None and branch.holds_origin else None,
        commits=store.list_uncommitted(run_id),
        unheard=tuple(_unheard(store, run, graph, behind=branch.epoch if branch is not None else NO_EPOCH)),
        is_in_progress=_is_in_progress(store, run),
    )


def is_still(store: History, rows: PlanRows) -> bool:
    """Tell whether a run is what it was when its rows were read: nothing at all was written, which its row counts."""
    now = store.find_run(rows.run.run_id)
    return now is not None and rows.run.revision == now.revision


def _unheard(store: History, run: RunRecord, graph: Graph, *, behind: int) -> Iterator[UnheardEpochs]:
    """Yield what listeners of a run that began behind an epoch have to hear."""
    for listener in graph.listeners:
        if listener.event is ListenerEvent.EPOCH_DURABLE:
            heard = (notice.epoch for notice in store.list_notices(run.run_id, listener.listener_id))
            last_heard = max(heard, default=behind)
            if last_heard < run.last_durable_epoch:
                yield UnheardEpochs(
                    listener_id=listener.listener_id, first_epoch=last_heard + 1, last_epoch=run.last_durable_epoch
                )


def _is_in_progress(store: History, run: RunRecord) -> bool:
    begun = (EpochStatus.OPEN, EpochStatus.ALIGNED)
    return any(known.status in begun for known in store.list_epochs(run.run_id, run.last_durable_epoch + 1))
