"""Where does an operator's input come from? From pins, finished operators, restored variables, or a computation.

Streams that never change within an attempt (data, operators that finish for good) are had when they are first asked
for, and kept. On a resumed run an operator that finished is read back from its files; its function is not called.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import cast

from iteration_lib.crash_point import CrashPoint
from iteration_lib.driver.context import RunContext
from iteration_lib.driver.edge import Edge, Edges, read_edges, telling_of_ignore_edges
from iteration_lib.model.metrics import Metrics
from iteration_lib.model.operator import Operator, Role
from iteration_lib.protocol.event import DataPinned, OperatorFinished
from iteration_lib.protocol.state import NO_EPOCH
from iteration_lib.runner.pins import pinned_from_json
from iteration_lib.runner.seam import Invocation, Materialised, Stream
from iteration_lib.state.saved import SavedStream

_logger = logging.getLogger(__name__)


class Streams:
    """The streams of one attempt that outlive an epoch.

    `finished` names the files of finished operators; `edges` are the durable ones as the attempt found them, by epoch.
    """

    def __init__(self, context: RunContext) -> None:
        """Read what the run has pinned and finished so far; opens no file yet."""
        self._context = context
        self._attempt = context.attempt
        run_id = self._context.run.run_id
        store = self._context.store
        self._pins = {pin.name: pinned_from_json(pin.pin) for pin in store.list_pins(run_id)}
        self.finished = {
            operator.name: SavedStream.from_json(operator.output)
            for operator in store.list_operators(run_id)
            if operator.output is not None
        }
        self.edges = read_edges(store.list_live_parts(run_id))
        self._edges = Edges(context, self.edges.get(NO_EPOCH, {}), epoch=NO_EPOCH)
        self._computed: dict[str, Stream] = {}
        self._kept: dict[str, Stream] = {}
        self._empty: dict[str, Stream] = {}

    def check_pins(self) -> None:
        """Pin every data stream that has no pin yet, and check that the others still read what was pinned."""
        for operator in self._context.graph.data:
            self.get(operator.name)

    def first_values(self) -> dict[str, Stream]:
        """Return the variables as epoch 0 receives them, each computed once; read back if its edge is durable."""
        edges = self.edges.get(0, {})
        return {
            operator.name: self.restore_edge(edge)
            if (edge := edges.get(operator.operator_id)) is not None and edge.is_complete
            else self.first_value(operator)
            for operator in self._context.graph.variables
        }

    def restore_edge(self, edge: Edge) -> Stream:
        """Return the output whose edge is complete."""
        with telling_of_ignore_edges(self._context, edge.saved):
            return self._context.runner.restore(edge.saved)

    def first_value(self, operator: Operator) -> Stream:
        """Return a variable, or a state, as it is before it was ever fed back."""
        return self._context.runner.materialise(self._compute(operator), folder=None).stream

    def get(self, name: str, *, epoch: int = NO_EPOCH) -> Stream:
        """Return a data stream or the output of an operator that finishes for good.

        A data stream that is not replayed has its records in epoch 0 (and before) alone.
        """
        operator = self._context.graph.operator(name)
        if name not in self._kept:
            self._kept[name] = self._open(operator) if operator.role is Role.DATA else self._finish(operator)
        if operator.role is not Role.DATA or operator.replays or epoch <= 0:
            return self._kept[name]
        if name not in self._empty:
            self._empty[name] = self._context.runner.without_rows(self._kept[name])
        return self._empty[name]

    def _open(self, operator: Operator) -> Stream:
        pinned = self._pins.get(operator.operator_id)
        if pinned is None:
            folder = f"{self._attempt.folder}/pins/{operator.operator_id}"
            pinned = self._context.runner.pin(operator, self._context.params, folder=folder)
            self._attempt.apply(
                DataPinned(
                    **self._attempt.guard,
                    name=operator.operator_id,
                    fingerprint=pinned.fingerprint,
                    pin=dataclasses.asdict(pinned),
                )
            )
            self._pins[operator.operator_id] = pinned
            self._context.crash_plan.reach(CrashPoint.DATA_PINNED)
        return self._context.runner.open_data(pinned)

    def _finish(self, operator: Operator) -> Stream:
        """Return the output of an operator that finishes for good: from its files, or computed, written and marked."""
        saved = self.finished.get(operator.name)
        if saved is not None:
            _logger.info("event=operator_skipped operator_id=%s reason=finished", operator.operator_id)
            return self._context.runner.restore(saved)
        what = f"operator_id={operator.operator_id}"
        with self._edges.capturing(what, lambda: self._leave_what_is_computed(operator)):
            stream, written = self._finished_stream(operator)
            self._context.crash_plan.reach(CrashPoint.OPERATOR_WRITTEN)
            self._attempt.apply(
                OperatorFinished(**self._attempt.guard, operator_id=operator.operator_id, output=written.to_json())
            )
        self.finished[operator.name] = written
        self._computed.pop(operator.name, None)
        self._context.crash_plan.reach(CrashPoint.OPERATOR_FINISHED)
        return stream

    def _finished_stream(self, operator: Operator) -> tuple[Stream, SavedStream]:
        """Return an operator's whole output and its files, which may all be durable already, but for the marker."""
        edge = self._edges.complete(operator)
        if edge is not None:
            return self.restore_edge(edge), edge.saved
        materialised = self._compute_for_good(operator)
        return materialised.stream, cast("SavedStream", materialised.saved)  # a folder was given

    def _compute_for_good(self, operator: Operator) -> Materialised:
        """Compute an operator into files."""
        stream = self._computed[operator.name] = self._compute(operator)
        with self._edges.timed():
            return self._leave_files(operator, stream)

    def _leave_files(self, operator: Operator, stream: Stream) -> Materialised:
        """Write an operator's output, going on behind the buckets that are durable already."""
        folder = f"{self._attempt.folder}/finished/{operator.operator_id}"
        begun = self._edges.begun(operator)
        with telling_of_ignore_edges(self._context, begun):
            return self._context.runner.materialise(
                stream, folder=folder, done=begun, on_part=lambda part: self._edges.note(operator, part)
            )

    def _leave_what_is_computed(self, operator: Operator) -> None:
        """Write what was computed of an operator, where an end came too soon to write or to tell of it."""
        stream = self._computed.get(operator.name)
        is_left = self._edges.is_capturable(operator) and not self._edges.is_whole(operator)
        if is_left and stream is not None and self._context.runner.is_computed(stream):
            self._leave_files(operator, stream)

    def _compute(self, operator: Operator) -> Stream:
        return self._context.runner.compute(
            Invocation(
                operator=operator,
                inputs={name: self.get(name) for name in operator.inputs},
                params=self._context.params,
                epoch=None,
                metrics=Metrics(operator_id=operator.operator_id),
                description=f"{self._context.run.run_key}/start/{operator.operator_id}",
                consumers=self._context.graph.uses(operator.name),
            )
        )
