"""What do simulated runs compute, and what must come out? Small iterations on tuples of whole numbers.

A stream is a tuple of numbers, a bucket of it a part of that tuple. Between them the programs have several heads of
different parallelism, criteria, feedback that runs dry, operators that finish for good, and one epoch or many.
`reference` computes what an undisturbed run gives, by calling the functions one after another: it shares no code with
the driver.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from iteration_lib.model.bucket import Bucket
from iteration_lib.model.definition import describe
from iteration_lib.model.graph import Graph
from iteration_lib.model.iteration import Iteration
from iteration_lib.model.metrics import Metrics
from iteration_lib.model.operator import Kind, Operator, Role

Rows = tuple[int, ...]
Buckets = tuple[Rows, ...]

BUCKETS = 3  # of every stream; a run's `max_buckets`
_PRIME = 1_000_003


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """An iteration and its `max_epochs`."""

    name: str
    graph: Graph
    definition: Mapping[str, object]
    max_epochs: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What an undisturbed run gives: values per epoch, the rows in each bucket of each head, and how it ends."""

    finished: Mapping[str, Buckets]
    variables: tuple[Mapping[str, Buckets], ...]
    records: tuple[Mapping[str, tuple[int, ...]], ...]
    outputs: Mapping[str, Buckets]
    terminated_by: str

    @property
    def last_epoch(self) -> int:
        """The epoch that terminates the run."""
        return len(self.variables) - 1


def descent() -> Iteration:
    """Two variables of different parallelism, a chain that finishes for good, criteria."""
    iteration = Iteration("descent")

    @iteration.data
    def points() -> Rows:
        return tuple(range(3, 10))

    @iteration.map_buckets(finishes=True, parallelism=2)
    def scaled(points: Rows) -> Rows:
        return tuple(7 * point % _PRIME for point in points)

    @iteration.operator(finishes=True)
    def norms(scaled: Rows) -> Rows:
        return (mix(scaled),)

    @iteration.variable
    def weights(norms: Rows) -> Rows:
        return (1, mix(norms))

    @iteration.variable(parallelism=3)
    def shards(scaled: Rows, bucket: Bucket) -> Rows:
        return (*scaled, bucket.index)

    @iteration.map_buckets
    def parts(scaled: Rows, weights: Rows) -> Rows:
        return (mix(scaled + weights),)

    @iteration.operator
    def moved(parts: Rows, norms: Rows, metrics: Metrics) -> Rows:
        metrics.report("loss", mix(parts))
        return (len(parts), mix(parts + norms))

    @iteration.map_buckets(parallelism=3)
    def shifted(shards: Rows, parts: Rows, epoch: int) -> Rows:
        return tuple(mix((shard, epoch, *parts)) for shard in shards)

    @iteration.operator
    def still_moving(moved: Rows, epoch: int) -> Rows:
        return moved if epoch < 2 else ()

    iteration.feedback(weights=moved, shards=shifted)
    iteration.criteria(still_moving)
    iteration.output(model=moved, shards=shifted)
    return iteration


def drying() -> Iteration:
    """One variable in buckets that loses rows until nothing feeds back; its output is another operator."""
    iteration = Iteration("drying")

    @iteration.data
    def edges() -> Rows:
        return tuple(range(9))

    @iteration.variable(parallelism=2)
    def frontier(edges: Rows) -> Rows:
        return edges[:3]

    @iteration.operator(finishes=True)
    def degrees(edges: Rows) -> Rows:
        return (mix(edges), len(edges))

    @iteration.map_buckets(parallelism=2)
    def reached(frontier: Rows, degrees: Rows) -> Rows:
        return tuple(mix((row, *degrees)) for row in frontier[1:])

    @iteration.operator
    def sizes(reached: Rows) -> Rows:
        return (len(reached), mix(reached))

    iteration.feedback(frontier=reached)
    iteration.output(sizes=sizes)
    return iteration


def counted() -> Iteration:
    """The least there can be: one variable, no data, no criteria."""
    iteration = Iteration("counted")

    @iteration.variable
    def count() -> Rows:
        return (0,)

    @iteration.operator
    def next_count(count: Rows) -> Rows:
        return (count[0] + 1,)

    iteration.feedback(count=next_count)
    return iteration


def shared() -> Iteration:
    """One operator feeds two variables and is the criteria as well; its criteria never say that it is enough."""
    iteration = Iteration("shared")

    @iteration.data
    def points() -> Rows:
        return (5, 6, 7, 8)

    @iteration.variable
    def old(points: Rows) -> Rows:
        return points

    @iteration.variable
    def new(points: Rows) -> Rows:
        return points

    @iteration.map_buckets
    def sums(points: Rows, old: Rows, new: Rows) -> Rows:
        return (mix(points + old + new),)

    iteration.feedback(old=sums, new=sums)
    iteration.criteria(sums)
    iteration.output(sums=sums)
    return iteration


def mix(rows: Rows) -> int:
    """Return a number that tells rows apart, their order too."""
    found = 17
    for row in rows:
        found = (31 * found + row + 1) % _PRIME
    return found


_PROGRAMS: tuple[tuple[Callable[[], Iteration], int | None], ...] = (
    (descent, None),
    (descent, 2),  # max_epochs ends it before the criteria do
    (descent, 3),  # both in the same epoch
    (drying, None),
    (counted, 1),
    (counted, 5),
    (shared, 3),
)


@functools.cache
def programs() -> tuple[Program, ...]:
    """Return every program."""
    return tuple(_program(make(), max_epochs) for make, max_epochs in _PROGRAMS)


def _program(iteration: Iteration, max_epochs: int | None) -> Program:
    graph = iteration.graph()
    name = f"{iteration.name}-{max_epochs or 'free'}"
    return Program(name=name, graph=graph, definition=describe(graph), max_epochs=max_epochs)


def buckets_of(rows: Rows) -> Buckets:
    """Cut rows into buckets, as even as can be."""
    cuts = [-(-len(rows) * index // BUCKETS) for index in range(BUCKETS + 1)]
    return tuple(rows[start:end] for start, end in pairwise(cuts))


def flat(buckets: Buckets) -> Rows:
    """Return the rows of all buckets, in order."""
    return tuple(row for bucket in buckets for row in bucket)


def call(operator: Operator, inputs: Mapping[str, Buckets], *, epoch: int | None, metrics: Metrics) -> Buckets:
    """Call an operator's function: once on all rows, or once per bucket."""
    injected = {"epoch": epoch, "metrics": metrics}
    if operator.kind is Kind.VALUE:
        given = {name: flat(buckets) for name, buckets in inputs.items()}
        return (operator.function(**given, **{name: injected[name] for name in operator.injected}),)
    found = []
    for index in range(BUCKETS):
        given = {name: buckets[index if len(buckets) > 1 else 0] for name, buckets in inputs.items()}
        place = {**injected, "bucket": Bucket(index=index, count=BUCKETS)}
        found.append(operator.function(**given, **{name: place[name] for name in operator.injected}))
    return tuple(found)


@functools.cache
def reference(name: str) -> Reference:
    """Return what an undisturbed run of a program gives."""
    program = next(program for program in programs() if program.name == name)
    graph = program.graph
    start: dict[str, Buckets] = {}
    for operator in graph.operators:
        if operator.role is Role.DATA:
            start[operator.name] = buckets_of(operator.function())
        elif operator.role is Role.VARIABLE or operator.finishes:
            start[operator.name] = _call(operator, start, None)
    passes = list(_passes(program, start))
    last = passes[-1]
    return Reference(
        finished={o.operator_id: start[o.name] for o in graph.operators if o.finishes},
        variables=tuple({head: made[tail] for head, tail in graph.feedback.items()} for made in passes),
        records=tuple(_records(graph, made) for made in passes),
        outputs={output: last[operator] for output, operator in graph.outputs.items()},
        terminated_by=_ends(program, len(passes) - 1, last) or "",
    )


def _passes(program: Program, start: Mapping[str, Buckets]) -> Iterator[dict[str, Buckets]]:
    """Yield every stream after each epoch, up to the one that terminates the run."""
    streams, epoch = dict(start), 0
    while True:
        for operator in program.graph.operators:
            if operator.role is Role.OPERATOR and not operator.finishes:
                streams[operator.name] = _call(operator, streams, epoch)
        yield dict(streams)
        if _ends(program, epoch, streams) is not None:
            return
        streams |= {variable: streams[tail] for variable, tail in program.graph.feedback.items()}
        epoch += 1


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


def _call(operator: Operator, streams: Mapping[str, Buckets], epoch: int | None) -> Buckets:
    inputs = {name: streams[name] for name in operator.inputs}
    return call(operator, inputs, epoch=epoch, metrics=Metrics(operator_id=operator.operator_id))
