"""Which operators' outputs of an open epoch are durable edges, and how do more become so?

An edge found in the store was left by an earlier attempt, or by this one before. New parts are noted as they are
complete, from any thread, and marked once the epoch has switched to the unaligned checkpoint: after
`alignment_timeout`, or when the process is told to end. From then on each is marked as it is noted, for nobody knows
how much time is left; while the epoch before is not durable they wait, and are marked in the very step that completes
its checkpoint: what an epoch computed is worth nothing before the variables are durable that it computed from. What an
operator computed from has to be marked before it, so an operator behind one that may not be captured waits for the
aligned checkpoint (forced-aligned, FLIP-76). In epoch 0 that goes for the variables' first values too: no checkpoint
holds them, and computed again they may be others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from iteration_lib.crash_point import CrashPoint
from iteration_lib.driver.context import RunContext
from iteration_lib.errors import IterationError, StateCorruptedError
from iteration_lib.model.operator import Kind, Operator, Role
from iteration_lib.protocol import Event, RunState
from iteration_lib.protocol.event import AlignmentTimedOut, FinishedPart, PartsFinished
from iteration_lib.protocol.state import NO_EPOCH
from iteration_lib.protocol.status import UnalignedBy
from iteration_lib.state.saved import SavedFile, SavedStream, join_parts
from iteration_lib.store.record import PartRecord

_logger = logging.getLogger(__name__)

Range = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """The durable parts of one operator's output."""

    saved: SavedStream
    ranges: tuple[Range, ...]
    total: int
    metrics: Mapping[str, float]

    @property
    def is_complete(self) -> bool:
        """Whether every bucket is durable."""
        return sum(end - first for first, end in self.ranges) == self.total


def read_edges(parts: Iterable[PartRecord]) -> dict[int, dict[str, Edge]]:
    """Join live parts, by epoch and operator id."""
    found: dict[int, dict[str, list[PartRecord]]] = {}
    for part in parts:
        found.setdefault(part.epoch, {}).setdefault(part.operator_id, []).append(part)
    return {
        epoch: {operator_id: _join(parts) for operator_id, parts in known.items()} for epoch, known in found.items()
    }


class Edges:
    """The durable edges of one epoch; NO_EPOCH for operators that finish for good."""

    def __init__(
        self,
        context: RunContext,
        found: Mapping[str, Edge],
        *,
        epoch: int,
        is_of_use: bool = True,
        is_waiting: bool = False,
    ) -> None:
        """Begin with what is durable already; the time until the epoch switches begins now.

        Nothing is captured where it is of no use: behind variables that no checkpoint holds, or is about to. While it
        is about to, what is captured waits for `release`.
        """
        self.epoch = epoch
        self._context = context
        self._is_of_use = is_of_use
        self._is_waiting = is_waiting
        self._attempt = context.attempt
        self._found = dict(found)
        self._noted: dict[str, list[SavedStream]] = {}
        self._used_up: set[str] = set()
        self._metrics: dict[str, Mapping[str, float]] = {}
        self._marked: dict[str, set[Range]] = {name: set(edge.ranges) for name, edge in found.items()}
        self._is_unaligned = epoch == NO_EPOCH
        self._is_ending = False
        self._lock = context.background.lock()
        self._started_seconds = context.clock.monotonic_seconds()

    @property
    def is_capturing(self) -> bool:
        """Whether operators leave files as they finish, so that they can be marked at any time."""
        return self._is_of_use and self._context.alignment_timeout_seconds is not None

    def complete(self, operator: Operator) -> Edge | None:
        """Return an operator's edge, if it was complete when the epoch began."""
        edge = self._found.get(operator.operator_id)
        return edge if edge is not None and edge.is_complete else None

    def begun(self, operator: Operator) -> SavedStream | None:
        """Return what was durable when the epoch began, or noted since, of an output that is not whole; else None."""
        edge = self._found.get(operator.operator_id)
        found: list[SavedStream] = [edge.saved] if edge is not None else []
        parts = [*found, *self._parts(operator).values()]
        if not parts or self.is_whole(operator):
            return None
        return join_parts(parts)

    def is_capturable(self, operator: Operator) -> bool:
        """Tell whether an operator's output may become a durable edge: neither it nor one before it is left out."""
        is_asked = self._is_of_use and operator.capture
        return is_asked and all(self.is_capturable(source) for source in self._before(operator))

    def is_whole(self, operator: Operator) -> bool:
        """Tell whether all of an operator's output was durable when the epoch began, or noted since."""
        edge = self._found.get(operator.operator_id)
        ranges = {*(edge.ranges if edge is not None else ()), *self._parts(operator)}
        return self._is_complete(operator, {operator.operator_id: ranges})

    def is_noted(self, operator: Operator) -> bool:
        """Tell whether any file of an operator's output was noted."""
        return bool(self._noted.get(operator.operator_id))

    def is_begun(self, operator: Operator) -> bool:
        """Tell whether any of an operator's output was durable when the epoch began."""
        return operator.operator_id in self._found

    def note_consumed(self, operator: Operator, metrics: Mapping[str, float] | None) -> None:
        """Note that an operator's output needs no files where all who take it are marked (not in-flight, FLIP-76)."""
        self._used_up.add(operator.operator_id)
        self.note(operator, SavedStream.of_nothing(operator.kind.value), metrics)

    def note(self, operator: Operator, saved: SavedStream, metrics: Mapping[str, float] | None = None) -> None:
        """Note that files of an operator's output are complete; mark them, if it is time. Safe in any thread."""
        with self._lock:
            self._metrics[operator.operator_id] = metrics or {}
            self._noted.setdefault(operator.operator_id, []).append(saved)  # from here on a signal finds all of it
        if self._is_ending:
            self.mark(UnalignedBy.PREEMPTION)
        elif self.is_due:
            self.mark(UnalignedBy.TIMEOUT)

    @property
    def is_due(self) -> bool:
        """Whether the epoch has switched, or takes longer than it may."""
        timeout = self._context.alignment_timeout_seconds
        if timeout is None:
            return False
        return self._context.clock.monotonic_seconds() - self._started_seconds >= timeout

    @contextmanager
    def capturing(self, what: str, leave_what_is_computed: Callable[[], None]) -> Iterator[None]:
        """Make the most of the grace period, should the process be told to end meanwhile.

        What is noted is marked, and from then on each part as it is noted: also what was computed and has no files yet.
        `what` is for the log.
        """
        try:
            yield
        except Exception:
            raise
        except BaseException:  # nobody's error: a signal, an interrupt, the timeout of a task
            try:
                self._hear_of_end()
                leave_what_is_computed()
            except (IterationError, OSError) as err:  # the process ends in any case; nothing durable is lost
                _logger.warning("event=not_captured %s error=%s", what, err)
            raise

    def _hear_of_end(self) -> None:
        self._is_ending = True
        self.mark(UnalignedBy.PREEMPTION)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Switch the epoch when it takes longer than it may, also while nothing finishes: in a long operator, say.

        Without a time to wait for there is nothing to do here: a timeout of 0 marks each part as it is noted.
        """
        timeout = self._context.alignment_timeout_seconds if self._is_of_use else None
        cancel = self._context.background.after(timeout, self._mark_beside) if timeout else None
        try:
            yield
        finally:
            if cancel is not None:
                cancel()

    def _mark_beside(self) -> None:
        try:
            self.mark(UnalignedBy.TIMEOUT)
        except IterationError as err:  # the driver hears of it at its own next step
            _logger.warning("event=not_marked epoch=%s error=%s", self.epoch, err)

    def mark(self, by: UnalignedBy) -> None:
        """Mark all that is noted and may be marked, in running order, in one transaction, which switches the epoch."""
        with self._lock:
            parts = self._markable()
            if not parts:
                return
            events: list[Event] = []
            if not self._is_unaligned:
                events.append(AlignmentTimedOut(**self._attempt.guard, epoch=self.epoch, by=by))
            if not self._is_waiting:
                events.append(self._finished(parts))
            if not events:
                return
            state = self._attempt.apply(*events)
            self._is_unaligned = True  # only now: a call that is interrupted is repeated
            has_marked = self._note_marked(state, parts)
        if has_marked:
            self._context.crash_plan.reach(CrashPoint.EDGE_MARKED, self.epoch)

    def waiting(self) -> tuple[Event, ...]:
        """Return what marks, in the step that makes the epoch before durable, all that has waited for it."""
        with self._lock:
            parts = self._markable() if self._is_waiting and self._is_unaligned else []
            return (self._finished(parts),) if parts else ()

    def release(self, state: RunState) -> None:
        """Wait no more, if the epoch before is durable now, and mark what has come since `waiting`."""
        with self._lock:
            if not self._is_waiting or state.last_durable_epoch < self.epoch - 1:
                return
            self._is_waiting = False
            has_marked = self._note_marked(state, self._markable())
        if has_marked:
            self._context.crash_plan.reach(CrashPoint.EDGE_MARKED, self.epoch)
        if self._is_unaligned and state.last_durable_epoch < self.epoch:
            self._mark_beside()

    def _finished(self, parts: Sequence[FinishedPart]) -> PartsFinished:
        return PartsFinished(**self._attempt.guard, epoch=self.epoch, parts=tuple(parts))

    def _note_marked(self, state: RunState, parts: Sequence[FinishedPart]) -> bool:
        """Note which parts the store has now, and tell whether any; the others wait, or the epoch is over."""
        has_marked = False
        for part in parts:
            edge = state.edge(self.epoch, part.operator_id)
            if edge is None or not edge.covers(part.first_bucket, part.end_bucket):
                continue
            has_marked = True
            self._marked.setdefault(part.operator_id, set()).add((part.first_bucket, part.end_bucket))
            _logger.info(
                "event=part_finished operator_id=%s epoch=%s buckets=%s-%s",
                part.operator_id,
                self.epoch,
                part.first_bucket,
                part.end_bucket,
            )
        return has_marked

    def _markable(self) -> list[FinishedPart]:
        """Return the new parts that may be marked; what was used up, with all who took it or not at all."""
        graph = self._context.graph
        left_out: set[str] = set()
        while True:
            marked = {operator_id: set(ranges) for operator_id, ranges in self._marked.items()}
            operators = [operator for operator in graph.operators if operator.operator_id not in left_out]
            parts = [part for operator in operators for part in self._unmarked(operator, marked)]
            used_up = [operator for operator in operators if operator.operator_id in self._used_up]
            asked = {
                operator.operator_id
                for operator in used_up
                if not all(self._is_complete(consumer, marked) for consumer in graph.consumers(operator.name))
            }
            if not asked:
                return parts
            left_out |= asked

    def _unmarked(self, operator: Operator, marked: dict[str, set[Range]]) -> list[FinishedPart]:
        """Return what is noted of an operator, is not in `marked` yet and may be now; and add it there."""
        if not (self.is_noted(operator) and self.is_capturable(operator)):
            return []
        before = self._before(operator)
        if not all(self._is_complete(source, marked) for source in before):
            return []
        known = marked.setdefault(operator.operator_id, set())
        parts = self._parts(operator)
        new = [self._part(operator, saved_part, before) for found, saved_part in parts.items() if found not in known]
        known.update(parts)
        return new

    def _parts(self, operator: Operator) -> dict[Range, SavedStream]:
        """Return what was noted of an operator, part by part."""
        noted, total = self._noted.get(operator.operator_id, ()), self._total(operator)
        return {_range(part, total): part for saved in noted for part in _one_by_one(saved)}

    def _part(self, operator: Operator, saved: SavedStream, before: Sequence[Operator]) -> FinishedPart:
        first, end = _range(saved, self._total(operator))
        narrow = [source.operator_id for source in before if operator.kind is source.kind is Kind.BUCKETS]
        return FinishedPart(
            operator_id=operator.operator_id,
            total=self._total(operator),
            first_bucket=first,
            end_bucket=end,
            output=saved.to_json(),
            after_narrow=tuple(narrow),
            after_wide=tuple(source.operator_id for source in before if source.operator_id not in narrow),
            metrics=dict(self._metrics[operator.operator_id]),
        )

    def _is_complete(self, operator: Operator, marked: Mapping[str, set[Range]]) -> bool:
        ranges = marked.get(operator.operator_id, ())
        return sum(end - first for first, end in ranges) == self._total(operator)

    def _before(self, operator: Operator) -> list[Operator]:
        """Return what is computed in this very epoch and an operator takes."""
        if self.epoch == NO_EPOCH:
            return []
        inputs = [self._context.graph.operator(name) for name in operator.inputs]
        return [source for source in inputs if not source.finishes and self._is_computed(source)]

    def _is_computed(self, source: Operator) -> bool:
        is_first_value = source.role is Role.VARIABLE and source.part_of is None and self.epoch == 0
        return source.role is Role.OPERATOR or is_first_value

    def _total(self, operator: Operator) -> int:
        return self._context.run.max_buckets if operator.kind is Kind.BUCKETS else 1


@contextmanager
def telling_of_ignore_edges(context: RunContext, saved: SavedStream | None) -> Iterator[None]:
    """Have StateCorruptedError of an edge's file say that the attempt can do without it."""
    try:
        yield
    except StateCorruptedError as err:
        if err.uri not in [context.location.path(file.path) for file in (saved.files if saved is not None else ())]:
            raise
        way_out = "or compute anew what is durable inside the open epoch with --ignore-edges"
        raise StateCorruptedError(err.uri, err.problem, way_out=way_out) from err


def _join(parts: list[PartRecord]) -> Edge:
    return Edge(
        saved=join_parts([SavedStream.from_json(part.output) for part in parts]),
        ranges=tuple(sorted((part.first_bucket, part.end_bucket) for part in parts)),
        total=parts[0].total,
        metrics={name: value for part in parts for name, value in part.metrics.items()},
    )


def _one_by_one(saved: SavedStream) -> list[SavedStream]:
    """Return a stream of buckets file by file; one without buckets, or without files, is a part by itself."""
    if saved.kind != Kind.BUCKETS.value or not saved.files:
        return [saved]
    return [replace(saved, files=(file,)) for file in saved.files]


def _range(saved: SavedStream, total: int) -> Range:
    file: SavedFile | None = saved.files[0] if saved.kind == Kind.BUCKETS.value and saved.files else None
    if file is None or file.first_bucket is None or file.end_bucket is None:
        return 0, total
    return file.first_bucket, file.end_bucket
