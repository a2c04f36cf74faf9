"""How is one epoch computed? Its operators in order, its tails written, its feedback counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from iteration_lib.driver.context import RunContext
from iteration_lib.driver.streams import Streams
from iteration_lib.errors import SchemaMismatchError
from iteration_lib.model.metrics import Metrics
from iteration_lib.model.operator import Operator, Role
from iteration_lib.protocol.state import CRITERIA
from iteration_lib.runner.seam import Invocation, Materialised, Stream
from iteration_lib.state.saved import FileFormat, SavedStream
from iteration_lib.state.streams import save_no_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochResult:
    """What an epoch left: the variables' next values and their files, what each head reports, the metrics."""

    epoch: int
    variables: Mapping[str, Stream]
    saved: Mapping[str, SavedStream]
    reports: Mapping[str, Mapping[int, int]]
    metrics: Mapping[str, float]
    seconds: float


class EpochRunner:
    """Runs one epoch of an attempt."""

    def __init__(self, context: RunContext, streams: Streams, variables: Mapping[str, Stream], *, epoch: int) -> None:
        """Prepare `epoch`, which receives `variables`."""
        self._context = context
        self._attempt = context.attempt
        self._streams = streams
        self._variables = variables
        self._epoch = epoch
        self._results: dict[str, Stream] = {}
        self._materialised: dict[str, Materialised] = {}
        self._metrics: dict[str, float] = {}

    def run(self) -> EpochResult:
        """Run the operators and write the variables' next values to new files."""
        started = self._context.clock.monotonic_seconds()
        for operator in self._context.graph.per_epoch():
            self._results[operator.name] = self._compute(operator)
        tails = {variable: self._write_tail(variable) for variable in self._context.graph.feedback}
        criteria = self._context.graph.criteria
        heads = {**tails, **({CRITERIA: self._materialise(criteria)} if criteria is not None else {})}
        parallelism = self._context.heads()
        return EpochResult(
            epoch=self._epoch,
            variables={variable: tail.stream for variable, tail in tails.items()},
            saved={variable: cast("SavedStream", tail.saved) for variable, tail in tails.items()},
            reports={head: spread(found.records, over=parallelism[head]) for head, found in heads.items()},
            metrics=dict(self._metrics),
            seconds=self._context.clock.monotonic_seconds() - started,
        )

    def write_outputs(self) -> dict[str, SavedStream]:
        """Write the outputs of this epoch, which is the run's last, as Parquet files that readers may have."""
        return {output: self._write_output(output, name) for output, name in self._context.graph.outputs.items()}

    def _write_output(self, output: str, name: str) -> SavedStream:
        """Write one output; one without rows gets a file too, so that readers find its folder and its columns."""
        folder = f"outputs/{output}/{self._attempt.folder}-epoch-{self._epoch:06d}"
        written = self._context.runner.materialise(
            self._result(name), folder=folder, file_format=FileFormat.PARQUET
        ).saved
        saved = cast("SavedStream", written)  # a folder was given
        return saved if saved.files else replace(saved, files=(save_no_rows(self._context.location, saved, folder),))

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
            )
        )
        self._metrics |= metrics.values()
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
        return self._results[name] if name in self._results else self._streams.get(name)

    def _write_tail(self, variable: str) -> Materialised:
        name = self._context.graph.feedback[variable]
        operator = self._context.graph.operator(name)
        folder = f"{self._attempt.folder}/epoch-{self._epoch:06d}/{operator.operator_id}"
        written = self._materialise(name, folder=folder)
        expected, found = self._variables[variable].schema, written.stream.schema
        if expected != found:
            raise SchemaMismatchError(
                variable=variable, operator_id=operator.operator_id, expected=str(expected), found=str(found)
            )
        return written

    def _materialise(self, name: str, *, folder: str | None = None) -> Materialised:
        """Compute an operator's result, once, however many heads it feeds."""
        if name not in self._materialised:
            self._materialised[name] = self._context.runner.materialise(self._result(name), folder=folder)
        return self._materialised[name]


def spread(records: tuple[int, ...], *, over: int) -> dict[int, int]:
    """Count the records of physical partitions for a head's subtasks: each owns a range of partitions."""
    reports = dict.fromkeys(range(over), 0)
    for partition, count in enumerate(records):
        reports[partition * over // len(records)] += count
    return reports
