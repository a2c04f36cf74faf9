"""How is one epoch computed? Its operators in order, its tails written, its feedback counted.

As a rule results on buckets stay lazy, and are computed inside what uses them. Where the epoch may leave durable edges,
each operator is computed by itself, into files; one whose edge is durable is not run: its files are read where they
are needed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from iteration_lib.driver.context import RunContext
from iteration_lib.driver.edge import Edges, telling_of_ignore_edges
from iteration_lib.driver.publish import write_output
from iteration_lib.driver.streams import Streams
from iteration_lib.driver.sweep import FRESH_STATE
from iteration_lib.errors import SchemaMismatchError, StateLocationError
from iteration_lib.model.metrics import Metrics
from iteration_lib.model.operator import Kind, Operator, Role
from iteration_lib.protocol.state import CRITERIA
from iteration_lib.runner.seam import Invocation, Materialised, Stream
from iteration_lib.state.saved import SavedStream

if TYPE_CHECKING:
    from collections.abc import Iterator

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochResult:
    """What an epoch left: the carried streams' next values, the files of some of them, what each head reports."""

    epoch: int
    variables: Mapping[str, Stream]
    saved: Mapping[str, SavedStream]
    reports: Mapping[str, Mapping[int, int]]
    metrics: Mapping[str, float]
    seconds: float


class EpochRunner:
    """Runs one epoch of an attempt."""

    def __init__(
        self, context: RunContext, streams: Streams, variables: Mapping[str, Stream], *, edges: Edges, epoch: int
    ) -> None:
        """Prepare `epoch`, which receives `variables`, states included, and finds `edges`."""
        self._context = context
        self._attempt = context.attempt
        self._streams = streams
        self._variables = variables
        self._edges = edges
        self._epoch = epoch
        self._results: dict[str, Stream] = {}
        self._materialised: dict[str, Materialised] = {}
        self._metrics: dict[str, dict[str, float]] = {}

    def run(self, *, is_saved: bool) -> EpochResult:
        """Run the operators; with `is_saved` the tails that executors hold are written to new files on the way."""
        started = self._context.clock.monotonic_seconds()
        graph = self._context.graph
        if self._edges.is_capturing:
            self._leave_first_values()
        for operator in graph.per_epoch():
            self._run(operator)
        carried = {name: self._carry(name, is_saved=is_saved) for name in (*graph.feedback, *graph.states)}
        criteria = {CRITERIA: self._materialise(graph.criteria)} if graph.criteria is not None else {}
        heads = {**{name: carried[name] for name in graph.feedback}, **criteria}
        parallelism = self._context.heads()
        return EpochResult(
            epoch=self._epoch,
            variables={name: tail.stream for name, tail in carried.items()},
            saved={name: tail.saved for name, tail in carried.items() if tail.saved is not None},
            reports={head: spread(found.records, over=parallelism[head]) for head, found in heads.items()},
            metrics={name: value for found in self._metrics.values() for name, value in found.items()},
            seconds=self._context.clock.monotonic_seconds() - started,
        )

    def write_outputs(self, is_last: bool) -> dict[str, SavedStream]:  # noqa: FBT001 - see WriteOutputs
        """Write what this epoch publishes as Parquet files: all outputs, if it is the run's last."""
        graph = self._context.graph
        return {
            output: write_output(self._context, output, self._result(name), epoch=self._epoch)
            for output, name in graph.outputs.items()
            if is_last or graph.is_published_each_epoch(output)
        }

    def drop_scratch(self) -> None:
        """Remove what operators with fresh state left in this epoch's folder; what cannot be removed is garbage."""
        if not any("scratch" in operator.injected for operator in self._context.graph.operators):
            return
        try:
            self._context.location.remove(self._scratch_folder)
        except StateLocationError as err:
            _logger.warning("event=scratch_left folder=%s error=%s", self._scratch_folder, err)

    def _run(self, operator: Operator) -> None:
        """Run one operator, unless its edge is durable; leave files of it, where the epoch may leave edges."""
        edge = self._edges.complete(operator)
        if edge is not None:
            _logger.info(
                "event=operator_skipped operator_id=%s epoch=%s reason=durable_edge", operator.operator_id, self._epoch
            )
            self._metrics[operator.name] = dict(edge.metrics)
            return
        self._results[operator.name] = self._compute(operator)
        begun = self._edges.begun(operator)
        if begun is not None or (self._edges.is_capturing and self._edges.is_capturable(operator)):
            self._leave_files(operator, begun)

    def _leave_files(self, operator: Operator, begun: SavedStream | None) -> None:
        def note(part: SavedStream) -> None:
            self._edges.note(operator, part, self._metrics.get(operator.name))

        with telling_of_ignore_edges(self._context, begun):
            self._materialised[operator.name] = self._context.runner.materialise(
                self._results[operator.name],
                folder=self._context.epoch_folder(operator, self._epoch),
                done=begun,
                on_part=note,
            )

    def _leave_first_values(self) -> None:
        """Leave files of the variables before epoch 0, each as a whole: what is computed from them needs them."""
        for variable in self._context.graph.variables if self._epoch == 0 else ():
            known = variable.part_of is not None or self._edges.complete(variable) is not None
            if known or self._edges.is_noted(variable):
                continue
            stream, folder = self._variables[variable.name], self._context.epoch_folder(variable, self._epoch)
            written = self._context.runner.materialise(stream, folder=folder).saved
            self._edges.note(variable, cast("SavedStream", written))  # a folder was given

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """Let what is computed become durable edges when the epoch takes too long, or the process is told to end.

        That goes for as long as the epoch is open, also while its alignment is held.
        """
        what = f"epoch={self._epoch}"
        with self._edges.capturing(what, self._leave_what_is_computed), self._edges.timed():
            yield

    def _leave_what_is_computed(self) -> None:
        self._leave_first_values()
        for operator in self._context.graph.per_epoch():
            stream = self._results.get(operator.name)
            if stream is None or self._edges.is_whole(operator) or not self._edges.is_capturable(operator):
                continue
            written = self._materialised.get(operator.name)
            if written is not None and written.saved is not None:
                self._edges.note(operator, written.saved, self._metrics.get(operator.name))
            elif self._context.runner.is_computed(stream):
                self._leave_files(operator, self._edges.begun(operator))
        for operator in self._context.graph.per_epoch():
            if self._may_be_used_up(operator):
                self._edges.note_consumed(operator, self._metrics.get(operator.name))

    def _may_be_used_up(self, operator: Operator) -> bool:
        """Tell whether an operator left no files and others alone take it: with all of them marked it is used up."""
        graph = self._context.graph
        is_left = self._edges.is_noted(operator) or self._edges.is_begun(operator)
        return bool(graph.consumers(operator.name)) and not (graph.is_asked_later(operator.name) or is_left)

    def _compute(self, operator: Operator) -> Stream:
        metrics = Metrics(operator_id=operator.operator_id)
        stream = self._context.runner.compute(
            Invocation(
                operator=operator,
                inputs={name: self._input(name) for name in operator.inputs},
                params=self._context.params,
                epoch=self._epoch,
                metrics=metrics,
                description=f"{self._context.run.run_key}/{self._epoch}/{operator.operator_id}",
                consumers=self._context.graph.uses(operator.name),
                scratch=f"{self._scratch_folder}/{operator.operator_id}" if "scratch" in operator.injected else None,
            )
        )
        self._metrics[operator.name] = metrics.values()
        return stream

    def _input(self, name: str) -> Stream:
        operator = self._context.graph.operator(name)
        if operator.role is Role.VARIABLE:
            return self._variables[name]
        return self._result(name)

    def _result(self, name: str) -> Stream:
        """Return an operator's result of this epoch: the materialised one, where there is one."""
        if name in self._materialised:
            return self._materialised[name].stream
        if name in self._results:
            return self._results[name]
        edge = self._edges.complete(self._context.graph.operator(name))
        if edge is None:
            return self._streams.get(name, epoch=self._epoch)
        self._results[name] = self._streams.restore_edge(edge)
        return self._results[name]

    def _carry(self, variable: str, *, is_saved: bool) -> Materialised:
        """Compute what a variable or a state is in the next epoch; its edge's files serve the checkpoint too."""
        operator = self._context.tail(variable)
        in_files = is_saved and operator.kind is not Kind.VALUE
        folder = self._context.epoch_folder(operator, self._epoch) if in_files else None
        edge = self._edges.complete(operator)
        written = self._materialise(operator.name, folder=folder if edge is None else None)
        if edge is not None:
            written = replace(written, saved=edge.saved)
        self._check_schema(variable, written.stream, operator)
        return written

    def _check_schema(self, variable: str, fed_back: Stream, tail: Operator) -> None:
        """Refuse a variable that changes its columns; a state's are checked where it is returned."""
        expected, found = self._variables[variable].schema, fed_back.schema
        if variable in self._context.graph.feedback and expected != found:
            raise SchemaMismatchError(
                variable=variable,
                operator_id=tail.operator_id,
                expected=str(expected),
                found=str(found),
                epoch=self._epoch,
            )

    def _materialise(self, name: str, *, folder: str | None = None) -> Materialised:
        """Compute an operator's result, once, however many heads it feeds."""
        if name not in self._materialised:
            self._materialised[name] = self._context.runner.materialise(self._result(name), folder=folder)
        return self._materialised[name]

    @property
    def _scratch_folder(self) -> str:
        return f"{self._attempt.folder}/{FRESH_STATE}/epoch-{self._epoch:06d}"


def spread(records: tuple[int, ...], *, over: int) -> dict[int, int]:
    """Count the records of physical partitions for a head's subtasks: each owns a range of partitions."""
    reports = dict.fromkeys(range(over), 0)
    for partition, count in enumerate(records):
        reports[partition * over // len(records)] += count
    return reports
