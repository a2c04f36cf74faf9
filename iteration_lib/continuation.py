"""May a run go on with the iteration as the user's file has it now? Asked before anything is submitted.

Operators are matched by id. What differs is allowed or refused by the rules of model.evolution; what is marked as
finished has to be legal for the operators as they are now, by the rules of protocol.legality. A listener of the end
is refused that has heard of epochs: it is marked as having heard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from iteration_lib.driver.attempt import Guard
from iteration_lib.driver.restore import read_origin_manifest
from iteration_lib.driver.topology import topology_of
from iteration_lib.errors import IllegalRestoreError, RunMismatchError, StateCorruptedError
from iteration_lib.marker import (
    begun_with,
    kept_in_force,
    markers_of,
    parts_in_force,
    read_under_one_definition,
    there_since,
)
from iteration_lib.model.definition import declared_as, describe
from iteration_lib.model.evolution import Evolution, check_evolution, evolution_of, find_unfit_edges
from iteration_lib.model.graph import Graph
from iteration_lib.model.listener import ListenerEvent
from iteration_lib.protocol.event import DefinitionChanged
from iteration_lib.protocol.legality import Markers, check_restore
from iteration_lib.protocol.state import NO_EPOCH, EdgeState
from iteration_lib.protocol.status import RunStatus
from iteration_lib.savepoint import finished_in_force
from iteration_lib.state.saved import SavedStream
from iteration_lib.store.record import BranchRecord, OperatorRecord, PartRecord, RunRecord
from iteration_lib.store.seam import History


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """A run and the iteration that it would go on with.

    `markers` is what the store says; `kept` what an attempt with this iteration begins with: what the open epoch had
    left is void where it was computed by, or from, what is another operator now, and operators that are gone lose what
    they finished for good. `unfit` are the operators whose edges in the open epoch are void, and why. `stateful` are
    the operators whose state the checkpoint holds from which the run goes on. `kept_from_origin` are those, gone or
    moved, whose outputs a branch has yet to take over; `pinned` are the data streams, also those that are gone, that
    have read something. `misheard` are the listeners of the end that have heard of epochs, when they were listeners of
    these.
    """

    run: RunRecord
    graph: Graph
    evolution: Evolution
    markers: Markers
    unfit: Mapping[str, str] = field(default_factory=dict)
    stateful: frozenset[str] = frozenset()
    kept_from_origin: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    misheard: tuple[str, ...] = ()

    @property
    def has_changed(self) -> bool:
        """Whether the iteration differs from the one that the run was started with."""
        return bool(self.evolution.sentences)

    @property
    def kept(self) -> Markers:
        """The markers that an attempt begins with."""
        if not self.has_changed:
            return self.markers
        return replace(
            self.markers,
            finished=self.markers.finished.difference(self.evolution.removed),
            edges=tuple(edge for edge in self.markers.edges if self.why_void(edge) is None),
        )

    def why_void(self, edge: EdgeState) -> str | None:
        """Say why the attempt cannot go on with an edge, None if it can."""
        if self._declared(edge.operator_id) in self.evolution.removed:
            return "no operator has this id now"
        return self.unfit.get(edge.operator_id) if edge.epoch != NO_EPOCH else None

    def change(self, guard: Guard) -> DefinitionChanged:
        """Return what an attempt says that goes on with the operators as they are now."""
        return DefinitionChanged(
            **guard,
            definition=describe(self.graph),
            changes=self.evolution.sentences,
            dropped=self.evolution.removed,
            kept=tuple(edge.operator_id for edge in self.kept.edges if edge.epoch != NO_EPOCH),
        )

    def refusals(self, *, allow_dropped_state: bool) -> tuple[str, ...]:
        """Return why the run may not go on with other operators or listeners, a sentence each; none if it may."""
        begun = [edge.operator_id for edge in self.markers.edges if edge.epoch == NO_EPOCH]
        captured = [self._declared(edge.operator_id) for edge in self.markers.edges]
        refused = check_evolution(
            self.evolution,
            finished=self.markers.finished.union(begun, self.kept_from_origin),
            stateful=self.stateful,
            captured=captured,
            pinned=self.pinned,
            allow_dropped_state=allow_dropped_state,
        )
        misheard = (
            f"listener {listener_id!r} hears of the end now, and has heard of epochs: it would not be told; give it "
            "another listener_id"
            for listener_id in self.misheard
        )
        return (*refused, *misheard)

    def _declared(self, operator_id: str) -> str:
        """Return the operator that a user declared: one that carries state has hidden parts, each with an edge."""
        is_declared = operator_id in self.evolution.before.operators
        return operator_id if is_declared else operator_id.rpartition(".")[0]

    def offences(self) -> tuple[str, ...]:
        """Return which operators are marked as finished and cannot be, a sentence each; none if all is legal."""
        topology = topology_of(self.graph, max_buckets=self.run.max_buckets)
        return tuple(
            f"{offence.describe()}; {self._way_out(offence.operator_id)}"
            for offence in check_restore(topology, self.kept)
        )

    def _way_out(self, operator_id: str) -> str:
        """Say what to do about a marker that cannot be."""
        if operator_id in self.kept.finished:
            return "put the operators back as they were, or start another run"
        return "put the operators back as they were, or begin without what is durable inside the epoch (--ignore-edges)"


def read_continuation(store: History, run: RunRecord, graph: Graph, *, ignore_edges: bool = False) -> Continuation:
    """Return how a run would go on with a graph; with `ignore_edges` without what is durable inside the open epoch.

    Raises StateCorruptedError for a branch with other operators whose origin's manifest has to be read and cannot be.
    """
    return read_under_one_definition(store, run, lambda known: _read(store, known, graph, ignore_edges=ignore_edges))


def _read(store: History, run: RunRecord, graph: Graph, *, ignore_edges: bool) -> Continuation:
    epochs = store.list_epochs(run.run_id, run.last_durable_epoch + 1)
    parts = () if ignore_edges else store.list_live_parts(run.run_id)
    operators = store.list_operators(run.run_id)
    markers = markers_of(run, operators, parts, epochs)
    evolution = evolution_of(run.definition, graph)
    branch = store.find_branch(run.run_id)
    try:
        kept_from_origin = _kept_from_origin(store, evolution, operators, branch)
    except StateCorruptedError:
        now = store.find_branch(run.run_id)
        if now is not None and now.holds_origin:
            raise
        # it has gone on, taken over what it keeps, and let its origin's checkpoint go
        return _read(store, store.find_run(run.run_id) or run, graph, ignore_edges=ignore_edges)
    return Continuation(
        run=run,
        graph=graph,
        evolution=evolution,
        markers=markers,
        unfit=_unfit(run, evolution, graph, parts_in_force(run, operators, parts)),
        stateful=_stateful(store, run, operators, branch).intersection(evolution.before.stateful),
        kept_from_origin=kept_from_origin,
        pinned=tuple(pin.name for pin in store.list_pins(run.run_id)),
        misheard=_misheard(store, run, graph),
    )


def _unfit(run: RunRecord, evolution: Evolution, graph: Graph, parts: Sequence[PartRecord]) -> dict[str, str]:
    if not evolution.sentences:
        return {}
    used_up = {part.operator_id for part in parts if SavedStream.from_json(part.output).is_used_up}
    return find_unfit_edges(evolution, graph, has_values=run.last_durable_epoch != NO_EPOCH, used_up=used_up)


def _stateful(
    store: History, run: RunRecord, operators: Sequence[OperatorRecord], branch: BranchRecord | None
) -> frozenset[str]:
    """Return the operators that were there already when the checkpoint was taken from which a run goes on."""
    completed = store.find_completed(run.run_id)
    if completed is not None:
        return there_since(operators, completed.fencing_token)
    if branch is None:
        return frozenset()
    return frozenset(declared_as(run.definition, operator_id) for operator_id in begun_with(operators, branch))


def _kept_from_origin(
    store: History, evolution: Evolution, operators: Sequence[OperatorRecord], branch: BranchRecord | None
) -> tuple[str, ...]:
    """Return which operators that are gone or moved have finished in what a branch has yet to take over."""
    if branch is None or not branch.holds_origin:
        return ()
    others = kept_in_force(operators, branch).intersection((*evolution.removed, *evolution.moved))
    finishing = sorted(known for known in others if _finishes(evolution, known))
    if not finishing:
        return ()
    finished = finished_in_force(store, branch.origin_run_id, read_origin_manifest(branch))
    return tuple(known for known in finishing if known in finished)


def _finishes(evolution: Evolution, operator_id: str) -> bool:
    operator = evolution.before.operators.get(operator_id)
    return operator is not None and operator.finishes


def _misheard(store: History, run: RunRecord, graph: Graph) -> tuple[str, ...]:
    """Return which listeners of the end have heard of anything before it.

    The end is heard of in the very step that finishes the run, which may have happened since the run was read.
    """
    of_the_end = (found.listener_id for found in graph.listeners if found.event is ListenerEvent.TERMINATED)
    heard = tuple(listener_id for listener_id in of_the_end if store.list_notices(run.run_id, listener_id))
    now = store.find_run(run.run_id) if heard else run
    return heard if now is not None and now.status is not RunStatus.FINISHED else ()


def check_continuation(continuation: Continuation, *, allow_dropped_state: bool) -> None:
    """Raise RunMismatchError or IllegalRestoreError, with the names of all operators that stand in the way."""
    refusals = continuation.refusals(allow_dropped_state=allow_dropped_state)
    if refusals:
        raise RunMismatchError(continuation.run.run_key, refusals)
    offences = continuation.offences()
    if offences:
        raise IllegalRestoreError(continuation.run.run_key, offences)
