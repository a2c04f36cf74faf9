"""What do simulated runs compute? Small iterations on tuples of whole numbers.

A stream is a tuple of numbers, a bucket of it a part of that tuple. Between them the programs have several heads of
different parallelism, criteria, feedback that runs dry, operators that finish for good bucket by bucket, carry state,
keep a scratch folder or may not be captured, data that only epoch 0 sees, listeners, and one epoch or many.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from iteration_lib.model.bucket import Bucket
from iteration_lib.model.definition import describe, load_iteration
from iteration_lib.model.graph import Graph
from iteration_lib.model.iteration import Iteration
from iteration_lib.model.metrics import Metrics
from iteration_lib.model.operator import Operator
from tests.simulation.listening import listen

Rows = tuple[int, ...]

BUCKETS = 3  # of every stream; a run's `max_buckets`
_PRIME = 1_000_003


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The parameters of every program."""

    max_epochs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Program:
    """An iteration and its `max_epochs`; `reference` is by what a branch finds it again."""

    name: str
    reference: str
    graph: Graph
    definition: Mapping[str, object]
    max_epochs: int | None

    def operator(self, operator_id: str) -> Operator:
        """Return an operator by its id."""
        return next(operator for operator in self.graph.operators if operator.operator_id == operator_id)


def descent() -> Iteration:
    """Two variables of different parallelism, a chain that finishes for good, criteria, listeners of both kinds."""
    iteration = Iteration("descent", params=Params)

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
    iteration.output(model=moved, sink=some_sink)
    iteration.output(shards=shifted, sink=some_sink, each_epoch=True)
    _tell_all(iteration)
    return iteration


def _tell_all(iteration: Iteration) -> None:
    """Add listeners of both kinds, and one that returns nothing."""

    @iteration.on_epoch_durable
    def logged(
        epoch: int, metrics: Mapping[str, float], records: Mapping[str, int], effect_id: str
    ) -> Mapping[str, object]:
        listen("logged", epoch, effect_id)
        return {"epoch": epoch, "metrics": dict(metrics), "records": dict(records)}

    @iteration.on_epoch_durable
    def counted_up(epoch: int) -> None:
        listen("counted_up", epoch)

    @iteration.on_terminated
    def told(epoch: int, terminated_by: str, effect_id: str) -> Mapping[str, object]:
        listen("told", epoch, effect_id)
        return {"epoch": epoch, "terminated_by": terminated_by}


def drying() -> Iteration:
    """One variable in buckets that loses rows until nothing feeds back; its output is another operator."""
    iteration = Iteration("drying", params=Params)

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
    iteration.output(sizes=sizes, sink=some_sink, each_epoch=True)
    return iteration


def counted() -> Iteration:
    """The least there can be: one variable, no data, no criteria."""
    iteration = Iteration("counted", params=Params)

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
    iteration = Iteration("shared", params=Params)

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


def remembering() -> Iteration:
    """Operators that carry state, on values and on buckets, and data that only epoch 0 sees."""
    iteration = Iteration("remembering", params=Params)

    @iteration.data
    def points() -> Rows:
        return tuple(range(4, 12))

    @iteration.data(replays=False)
    def news() -> Rows:
        return (91, 92, 93, 94)

    @iteration.variable
    def weight(points: Rows, news: Rows) -> Rows:
        return (mix(points + news),)

    @iteration.map_buckets(parallelism=2, state="carry")
    def visits(points: Rows, news: Rows, weight: Rows, state: Rows | None) -> tuple[Rows, Rows]:
        seen = (*(state or ()), len(news))
        return (mix(points + weight + seen),), (*seen, mix(news))

    @iteration.operator(state="carry")
    def moved(visits: Rows, news: Rows, state: Rows | None) -> tuple[Rows, Rows]:
        total = state[0] if state is not None else 1
        return (mix((total, *visits, *news)), total), (total + mix(visits),)

    @iteration.operator
    def still_moving(moved: Rows, epoch: int) -> Rows:
        return moved if epoch < 3 else ()

    iteration.feedback(weight=moved)
    iteration.criteria(still_moving)
    iteration.output(moved=moved, visits=visits)
    return iteration


def guarded() -> Iteration:
    """An operator that may not be captured, some before and some behind it, a scratch folder, one that finishes."""
    iteration = Iteration("guarded", params=Params)

    @iteration.data
    def points() -> Rows:
        return tuple(range(20, 28))

    @iteration.map_buckets(finishes=True, parallelism=3)
    def squares(points: Rows) -> Rows:
        return tuple(point * point for point in points)

    @iteration.variable(parallelism=2)
    def left(squares: Rows, bucket: Bucket) -> Rows:
        return (*squares, bucket.index)

    @iteration.variable
    def right(points: Rows) -> Rows:
        return (mix(points),)

    @iteration.map_buckets(parallelism=3)
    def pulled(left: Rows, squares: Rows) -> Rows:
        return (mix(left), mix(squares))

    @iteration.map_buckets(parallelism=2, state="fresh")
    def pushed(pulled: Rows, left: Rows, scratch: str) -> Rows:
        return (*pulled, mix(left), len(scratch) // 1_000)

    @iteration.operator(capture=False)
    def drawn(right: Rows, pulled: Rows) -> Rows:
        return (mix(right + pulled),)

    @iteration.operator
    def behind(drawn: Rows, right: Rows, metrics: Metrics) -> Rows:
        metrics.report("behind", mix(drawn))
        return (mix(drawn), *right[:1])

    @iteration.operator
    def weighed(pushed: Rows, metrics: Metrics) -> Rows:
        metrics.report("weight", mix(pushed))
        return (mix(pushed),)

    iteration.feedback(left=pushed, right=behind)
    iteration.output(weighed=weighed, left=pushed)
    _tell_all(iteration)
    return iteration


def some_sink(_params: object) -> object:
    """Stand for the sink that each attempt is given."""
    raise NotImplementedError


def mix(rows: Rows) -> int:
    """Return a number that tells rows apart, their order too."""
    found = 17
    for row in rows:
        found = (31 * found + row + 1) % _PRIME
    return found


DESCENT, DRYING, COUNTED = descent(), drying(), counted()
SHARED, REMEMBERING, GUARDED = shared(), remembering(), guarded()

_PROGRAMS: tuple[tuple[str, int | None], ...] = (
    ("DESCENT", None),
    ("DESCENT", 2),  # max_epochs ends it before the criteria do
    ("DESCENT", 3),  # both in the same epoch
    ("DRYING", None),
    ("COUNTED", 1),
    ("COUNTED", 6),
    ("SHARED", 4),
    ("REMEMBERING", None),
    ("GUARDED", 3),
)


@functools.cache
def programs() -> tuple[Program, ...]:
    """Return every program."""
    return tuple(_program(constant, max_epochs) for constant, max_epochs in _PROGRAMS)


def _program(constant: str, max_epochs: int | None) -> Program:
    reference = f"{__name__}:{constant}"
    iteration = load_iteration(reference)
    graph = iteration.graph()
    name = f"{iteration.name}-{max_epochs or 'free'}"
    return Program(name=name, reference=reference, graph=graph, definition=describe(graph), max_epochs=max_epochs)
