"""The smallest driver: runs an iteration's epochs on a runner, with nothing recorded and nothing to resume."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from iteration_lib.model.graph import Graph
from iteration_lib.model.iteration import Iteration
from iteration_lib.model.metrics import Metrics
from iteration_lib.model.operator import Operator
from iteration_lib.runner.seam import Invocation, Runner, Stream
from iteration_lib.state.saved import FileFormat, SavedStream


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run left."""

    epochs: int
    outputs: dict[str, SavedStream]
    metrics: list[dict[str, float]]
    records: list[int]


class Loop:
    """Runs one iteration."""

    def __init__(self, runner: Runner, iteration: Iteration, params: Any) -> None:
        self._runner = runner
        self._graph: Graph = iteration.graph()
        self._params = params
        self._bounded: dict[str, Stream] = {}
        self._empty: dict[str, Stream] = {}  # what later epochs see of data that epoch 0 alone sees
        self._metrics: dict[str, float] = {}

    def run(self) -> Outcome:
        """Run epochs until the criteria have no records, or `max_epochs` are done."""
        for operator in self._graph.data:
            pinned = self._runner.pin(operator, self._params, folder=f"pins/{operator.name}")
            self._bounded[operator.name] = self._runner.open_data(pinned)
            if not operator.replays:
                self._empty[operator.name] = self._runner.without_rows(self._bounded[operator.name])
        for operator in (operator for operator in self._graph.operators if operator.finishes):
            self._bounded[operator.name] = self._materialise(self._compute(operator, None, self._bounded), "finished")
        variables = {
            operator.name: self._materialise(self._compute(operator, None, self._bounded), "variables")
            for operator in self._graph.variables
        }
        metrics, records = [], []
        for epoch in range(self._params.max_epochs):
            streams = self._bounded | (self._empty if epoch else {}) | variables
            for operator in self._graph.per_epoch():
                streams[operator.name] = self._compute(operator, epoch, streams)
            variables = {
                name: self._materialise(streams[tail], f"epoch-{epoch}/{name}")
                for name, tail in self._graph.tails.items()
            }
            metrics.append(dict(self._metrics))
            if self._graph.criteria is not None:
                found = self._runner.materialise(streams[self._graph.criteria], folder=None)
                records.append(sum(found.records))
                if records[-1] == 0:
                    break
        outputs = {
            name: self._runner.materialise(streams[tail], folder=f"out/{name}", file_format=FileFormat.PARQUET).saved
            for name, tail in self._graph.outputs.items()
        }
        return Outcome(
            epochs=len(metrics),
            outputs={name: saved for name, saved in outputs.items() if saved is not None},
            metrics=metrics,
            records=records,
        )

    def _compute(self, operator: Operator, epoch: int | None, streams: dict[str, Stream]) -> Stream:
        metrics = Metrics(operator_id=operator.operator_id)
        stream = self._runner.compute(
            Invocation(
                operator=operator,
                inputs={name: streams[name] for name in operator.inputs},
                params=self._params,
                epoch=epoch,
                metrics=metrics,
                description=f"loop/{epoch}/{operator.operator_id}",
                consumers=self._graph.uses(operator.name),
            )
        )
        self._metrics |= metrics.values()
        return stream

    def _materialise(self, stream: Stream, folder: str) -> Stream:
        return self._runner.materialise(stream, folder=folder).stream
