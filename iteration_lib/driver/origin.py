"""How does a branch come by what it starts from? By copies in its own folder: it never reads the origin's files twice.

Until the branch has a completed checkpoint of its own, each of its attempts copies what it goes on with: the carried
streams into the attempt's folder, for this attempt alone; pinned data and the outputs of operators that finished for
good once, since their markers make them the branch's own. So its first checkpoint is a full one: it names no file of
another run, and the origin is pinned no longer than until that one is completed.
"""

from __future__ import annotations

import dataclasses
import logging

from iteration_lib.crash_point import CrashPoint
from iteration_lib.driver.context import RunContext
from iteration_lib.driver.restore import find_carried, name_in, read_origin_manifest
from iteration_lib.errors import ProtocolViolationError
from iteration_lib.marker import carried_from_origin, kept_in_force
from iteration_lib.protocol.event import DataPinned, OperatorFinished
from iteration_lib.savepoint import copy_pin, finished_in_force, pins_to_take_over
from iteration_lib.state.copies import ORIGIN, copy_stream
from iteration_lib.state.location import StateLocation
from iteration_lib.state.manifest import Manifest
from iteration_lib.state.saved import SavedStream
from iteration_lib.store.record import BranchRecord

_logger = logging.getLogger(__name__)


def keep_origin(context: RunContext) -> Manifest:
    """Copy what a branch starts from into its own folder, and return the origin's manifest as it names the copies.

    Raises StateCorruptedError that names a file of the origin, and then nothing was begun.
    """
    branch = context.store.find_branch(context.run.run_id)
    if branch is None:
        raise ProtocolViolationError(f"run {context.run.run_id} is no branch; this is a bug, please report it")
    operators = context.store.list_operators(context.run.run_id)
    manifest = carried_from_origin(operators, branch, read_origin_manifest(branch))
    keeper = _Keeper(
        context=context,
        branch=branch,
        kept=kept_in_force(operators, branch),
        folder=f"{context.attempt.folder}/{ORIGIN}",
    )
    keeper.keep_pins()
    keeper.keep_finished(manifest)
    context.crash_plan.reach(CrashPoint.ORIGIN_KEPT)
    _logger.info("event=origin_kept run_id=%s origin=%s", context.run.run_id, branch.uri)
    return keeper.carried(manifest)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Keeper:
    """What one attempt of a branch copies, and where to."""

    context: RunContext
    branch: BranchRecord
    kept: frozenset[str]
    folder: str

    def keep_pins(self) -> None:
        """Pin the data streams that the branch takes over as its origin had them."""
        pins = pins_to_take_over(self.context.store, self.branch)
        for operator in self.context.graph.data:
            if operator.operator_id not in pins:
                continue
            pin = copy_pin(
                self._source, pins[operator.operator_id], destination=self.context.location, folder=self.folder
            )
            self.context.attempt.apply(
                DataPinned(
                    **self.context.attempt.guard,
                    name=operator.operator_id,
                    fingerprint=pin.fingerprint,
                    pin=dataclasses.asdict(pin),
                )
            )

    def keep_finished(self, manifest: Manifest) -> None:
        """Mark the operators that had finished for good, and that the branch takes over."""
        finished = self.context.attempt.opened.finished_operators
        in_force = finished_in_force(self.context.store, self.branch.origin_run_id, manifest)
        for operator in self.context.graph.operators:
            saved = in_force.get(operator.operator_id)  # by id in every version
            if saved is None or operator.operator_id not in self.kept - finished:
                continue
            output = self._copied(saved).to_json()
            self.context.attempt.apply(
                OperatorFinished(**self.context.attempt.guard, operator_id=operator.operator_id, output=output)
            )

    def carried(self, manifest: Manifest) -> Manifest:
        """Return the manifest with copies of the streams that this attempt begins with, and with no others."""
        graph = self.context.graph
        operators = [graph.operator(name) for name in (*graph.feedback, *graph.states)]
        found = {operator: find_carried(manifest, operator) for operator in operators}
        copies = {name_in(manifest, op): self._copied(saved) for op, saved in found.items() if saved is not None}
        return dataclasses.replace(manifest, variables=copies, states={}, finished={}, outputs={})

    @property
    def _source(self) -> StateLocation:
        return StateLocation(self.branch.uri)

    def _copied(self, saved: SavedStream) -> SavedStream:
        return copy_stream(self._source, saved, destination=self.context.location, folder=self.folder)
