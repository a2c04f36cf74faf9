"""What must come out of a simulated run? Its functions are called one after another, without the driver.

It shares no code with the driver: neither how operators are ordered in files, nor how state is carried, nor when data
is replayed is asked of anybody. Where the program changes on the way, each *leg* of the run has one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from iteration_lib.model.bucket import Bucket
from iteration_lib.model.graph import Graph
from iteration_lib.model.listener import ListenerEvent
from iteration_lib.model.metrics import Metrics
from iteration_lib.model.operator import Kind, Operator, Pair, Role
from tests.simulation.programs import BUCKETS, Program, Rows, programs

Buckets = tuple[Rows, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """Epochs of one program: up to one of them, or to the run's end. `fresh` are the operators that begin anew in it.

    What an operator carries passes to the next leg by its id, unless it is fresh there.
    """

    program: Program
    through: int | None = None
    fresh: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What one epoch gives: every operator's result by its name, and what was reported."""

    program: Program
    streams: Mapping[str, Buckets]
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def by_id(self, tails: Mapping[str, str]) -> dict[str, Buckets]:
        """Return the results of some tails, by the ids of their heads."""
        graph = self.program.graph
        return {graph.operator(head).operator_id: self.streams[tail] for head, tail in tails.items()}

    @property
    def all_metrics(self) -> dict[str, float]:
        """The metrics of all operators."""
        return {name: value for found in self.metrics.values() for name, value in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What an undisturbed run gives. Operators are named by their ids, variables too."""

    start: Mapping[str, Buckets]
    finished: Mapping[str, Buckets]
    results: tuple[Mapping[str, Buckets], ...]
    variables: tuple[Mapping[str, Buckets], ...]
    states: tuple[Mapping[str, Buckets], ...]
    records: tuple[Mapping[str, tuple[int, ...]], ...]
    metrics: tuple[Mapping[str, float], ...]
    effects: Mapping[tuple[str, int], Mapping[str, object] | None]
    outputs: Mapping[str, Buckets]
    terminated_by: str

    @property
    def last_epoch(self) -> int:
        """The epoch that terminates the run."""
        return len(self.variables) - 1


def reference(name: str, *, drained_in: int | None = None) -> Reference:
    """Return what an undisturbed run of a program gives; one that is drained ends with the epoch in progress."""
    program = next(program for program in programs() if program.name == name)
    return reference_of((Leg(program=program),), drained_in=drained_in)


@functools.lru_cache(maxsize=10_000)
def reference_of(legs: tuple[Leg, ...], *, drained_in: int | None = None) -> Reference:
    """Return what a run gives that has these legs, of which the last one goes on to its end."""
    passes = list(_passes(legs))
    program = passes[-1].program
    graph = program.graph
    by = _ends(program, len(passes) - 1, passes[-1].streams) or ""
    if drained_in is not None:
        passes, by = passes[: drained_in + 1], "drained"
    last = passes[-1]
    start = _start(legs[-1].program)
    return Reference(
        start={graph.operator(name).operator_id: buckets for name, buckets in start.items()},
        finished={o.operator_id: start[o.name] for o in legs[-1].program.graph.operators if o.finishes},
        results=tuple(made.by_id({name: name for name in made.streams}) for made in passes),
        variables=tuple(made.by_id(made.program.graph.feedback) for made in passes),
        states=tuple(made.by_id(made.program.graph.states) for made in passes),
        records=tuple(_records(made.program.graph, made.streams) for made in passes),
        metrics=tuple(made.all_metrics for made in passes),
        effects=dict(_effects(graph, passes, by)),
        outputs={output: last.streams[operator] for output, operator in last.program.graph.outputs.items()},
        terminated_by=by,
    )


def buckets_of(rows: Rows) -> Buckets:
    """Cut rows into buckets, as even as can be."""
    cuts = [-(-len(rows) * index // BUCKETS) for index in range(BUCKETS + 1)]
    return tuple(rows[start:end] for start, end in pairwise(cuts))


def flat(buckets: Buckets) -> Rows:
    """Return the rows of all buckets, in order."""
    return tuple(row for bucket in buckets for row in bucket)


def call(
    operator: Operator, given: Mapping[str, Rows], *, epoch: int | None, metrics: Metrics, place: Bucket | None = None
) -> Rows:
    """Call an operator's function once: on all rows, or on those of one bucket.

    Of a pair of result and state a row is made that says how long the result is; no rows are no state.
    """
    if operator.pair in (Pair.RESULT, Pair.STATE):
        (pair,) = given.values()
        end = pair[0] + 1
        return pair[1:end] if operator.pair is Pair.RESULT else pair[end:]
    known: dict[str, object] = {"epoch": epoch, "metrics": metrics, "bucket": place, "scratch": "scratch"}
    injected = {name: known[name] for name in operator.injected}
    if operator.pair is Pair.CALL:
        *taken, before = operator.inputs
        result, state = operator.function(**{n: given[n] for n in taken}, **injected, state=given[before] or None)
        return (len(result), *result, *state)
    found: Rows | None = operator.function(**given, **injected)
    return found if found is not None else ()


def _start(program: Program) -> dict[str, Buckets]:
    """Return what is there before epoch 0: data, what finishes for good, and what variables begin with."""
    start: dict[str, Buckets] = {}
    for operator in program.graph.operators:
        if operator.role is Role.DATA:
            start[operator.name] = buckets_of(operator.function())
        elif operator.role is Role.VARIABLE or operator.finishes:
            start[operator.name] = _call(operator, start, None)
    return start


def _passes(legs: Sequence[Leg]) -> Iterator[Pass]:
    """Yield what each epoch gives, up to the one that terminates the run."""
    carried: dict[str, Buckets] = {}
    epoch = 0
    for leg in legs:
        for made in _passes_of(leg, epoch, carried):
            yield made
            epoch += 1
        carried = {**made.by_id(leg.program.graph.feedback), **made.by_id(leg.program.graph.states)}


def _passes_of(leg: Leg, epoch: int, carried: Mapping[str, Buckets]) -> Iterator[Pass]:
    """Yield what each epoch of a leg gives that begins with what the one before carried, by ids."""
    program, graph = leg.program, leg.program.graph
    streams = _start(program)
    for operator in graph.operators:
        if operator.operator_id in carried and (operator.part_of or operator.operator_id) not in leg.fresh:
            streams[operator.name] = carried[operator.operator_id]
    while True:
        metrics = {}
        for operator in graph.operators:
            if operator.role is Role.DATA and not operator.replays and epoch:
                streams[operator.name] = ((),) * BUCKETS
            if operator.role is Role.OPERATOR and not operator.finishes:
                reported = Metrics(operator_id=operator.operator_id)
                streams[operator.name] = _call(operator, streams, epoch, reported)
                metrics[operator.name] = reported.values()
        yield Pass(program=program, streams=dict(streams), metrics=metrics)
        if epoch == leg.through or _ends(program, epoch, streams) is not None:
            return
        streams |= {variable: streams[tail] for variable, tail in {**graph.feedback, **graph.states}.items()}
        epoch += 1


def _effects(
    graph: Graph, passes: Sequence[Pass], by: str
) -> Iterator[tuple[tuple[str, int], Mapping[str, object] | None]]:
    """Yield what each listener returns that has to be called, by its id and the epoch."""
    for listener in graph.listeners:
        is_final = listener.event is ListenerEvent.TERMINATED
        for epoch, made in enumerate(passes):
            if is_final and epoch < len(passes) - 1:
                continue
            records = {head: sum(counts) for head, counts in _records(graph, made.streams).items()}
            known = {"epoch": epoch, "metrics": made.all_metrics, "records": records, "terminated_by": by}
            given = {name: known.get(name, "") for name in listener.injected}
            yield (listener.listener_id, epoch), listener.function(**given)


def _ends(program: Program, epoch: int, streams: Mapping[str, Buckets]) -> str | None:
    records = {head: sum(counts) for head, counts in _records(program.graph, streams).items()}
    if not any(records.values()):
        return "empty_feedback"
    if not records.get("criteria", 1):
        return "criteria"
    return "max_epochs" if epoch + 1 == program.max_epochs else None


def _records(graph: Graph, streams: Mapping[str, Buckets]) -> dict[str, tuple[int, ...]]:
    """Count the rows that each bucket of each head feeds back."""
    tails = dict(graph.feedback) | ({"criteria": graph.criteria} if graph.criteria is not None else {})
    return {head: tuple(len(bucket) for bucket in streams[tail]) for head, tail in tails.items()}


def _call(
    operator: Operator, streams: Mapping[str, Buckets], epoch: int | None, metrics: Metrics | None = None
) -> Buckets:
    """Call an operator on whole streams, bucket by bucket where it is on buckets."""
    reported = metrics or Metrics(operator_id=operator.operator_id)
    if operator.kind is Kind.VALUE:
        given = {name: flat(streams[name]) for name in operator.inputs}
        return (call(operator, given, epoch=epoch, metrics=reported),)
    found = []
    for index in range(BUCKETS):
        given = {name: streams[name][index if len(streams[name]) > 1 else 0] for name in operator.inputs}
        place = Bucket(index=index, count=BUCKETS)
        found.append(call(operator, given, epoch=epoch, metrics=reported, place=place))
    return tuple(found)
