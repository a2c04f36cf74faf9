"""May an attempt start from these markers: are they closed under what they were computed from?

The markers say what is durable beside the completed checkpoint: operators that finished for good, and the durable edges
of the epoch that comes next. An operator that is finished has only finished inputs; one that is finished in part has
all of its wide inputs and the same buckets of its narrow ones; a global one is never finished in part. (The rules are
those of Flink's VertexFinishedStateChecker; ours sees buckets, so the narrow one is exact.) In epoch 0 a variable is an
input as any other; later the checkpoint holds it. What the protocol marks is always so (I15). It is not so when the
operators are others: a new one stands before one that finished, say.

The checkpoint itself is of the last durable epoch (I6), or else somebody has written to the store besides.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from iteration_lib.errors import ProtocolViolationError
from iteration_lib.protocol.bucket_range import Ranges, missing_buckets, show_buckets
from iteration_lib.protocol.state import NO_EPOCH, EdgeState, RunId, RunState
from iteration_lib.protocol.status import OperatorStatus
from iteration_lib.protocol.topology import Exchange, Topology, Vertex


@dataclass(frozen=True, slots=True, kw_only=True)
class Markers:
    """What is durable beside the completed checkpoint, for whoever runs `epoch` next.

    `finished` are the operators that finished for good; `edges` those of finishing operators and of `epoch`.
    `was_unaligned` says whether the last attempt at the epoch had switched to the unaligned checkpoint, None if nobody
    has begun the epoch.
    """

    epoch: int
    finished: frozenset[str] = frozenset()
    edges: tuple[EdgeState, ...] = ()
    was_unaligned: bool | None = None

    @classmethod
    def of(cls, state: RunState) -> Markers:
        """Return a run's markers."""
        epoch = state.last_durable_epoch + 1
        known = state.epoch_state(epoch)
        return cls(
            epoch=epoch,
            finished=state.finished_operators,
            edges=tuple(edge for edge in state.edges if edge.epoch in (NO_EPOCH, epoch)),
            was_unaligned=known.unaligned_by is not None if known is not None else None,
        )

    def edge(self, vertex: Vertex) -> EdgeState | None:
        """Return an operator's edge: that of the run if it finishes for good, else that of the epoch."""
        epoch = NO_EPOCH if vertex.finishes else self.epoch
        return next((e for e in self.edges if (e.epoch, e.operator_id) == (epoch, vertex.operator_id)), None)

    def has_value_of(self, vertex: Vertex) -> bool:
        """Tell whether the whole output is there without an edge: marked for good, or in the checkpoint."""
        return vertex.operator_id in self.finished or self.is_in_checkpoint(vertex)

    def is_in_checkpoint(self, vertex: Vertex) -> bool:
        """Tell whether the completed checkpoint holds the output: a variable's, after any epoch."""
        return vertex.is_variable and self.epoch > 0

    def status(self, vertex: Vertex) -> OperatorStatus:
        """Return what the markers alone leave of an operator."""
        edge = self.edge(vertex)
        if self.has_value_of(vertex):
            return OperatorStatus.FINISHED
        return edge.status if edge is not None else OperatorStatus.RUNNING


class Rule(enum.Enum):
    """Which rule of legality is broken."""

    FINISHED_AFTER_RUNNING = "finished after a running input"
    PART_AFTER_WIDE = "in part after a wide input"
    PART_AFTER_NARROW = "in part after other buckets"
    HALF_OF_GLOBAL = "half of a global operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offence:
    """An operator whose marker cannot be, and the input that shows it."""

    rule: Rule
    operator_id: str
    input_id: str | None = None
    buckets: Ranges = ()

    def describe(self) -> str:
        """Return it in words."""
        match self.rule:
            case Rule.FINISHED_AFTER_RUNNING:
                return f"operator {self.operator_id!r} is finished, but its input {self.input_id!r} is not"
            case Rule.PART_AFTER_WIDE:
                return (
                    f"operator {self.operator_id!r} is finished in part, but {self.input_id!r}, of which every part "
                    "needs all, is not"
                )
            case Rule.PART_AFTER_NARROW:
                return (
                    f"operator {self.operator_id!r} is finished in part, but the buckets {show_buckets(self.buckets)} "
                    f"of its input {self.input_id!r} are not"
                )
            case Rule.HALF_OF_GLOBAL:
                return f"operator {self.operator_id!r} is finished in part, but gives its output as a whole"


def check_restored_epoch(run_id: RunId, *, restored: int, last_durable: int) -> None:
    """Raise ProtocolViolationError unless an attempt would begin behind the last durable epoch (I6).

    `restored` is the epoch of the completed checkpoint, or of what a branch starts from; NO_EPOCH for neither.
    """
    if restored == last_durable:
        return
    what = f"what it would go on with is of epoch {restored}"
    raise ProtocolViolationError(
        f"run {run_id}: epoch {last_durable} is its last durable one, and "
        f"{what if restored != NO_EPOCH else 'there is no checkpoint to go on with'} (I6); somebody has changed the "
        "store's rows: put its backup back, or branch a checkpoint under another run key"
    )


def check_restore(topology: Topology, markers: Markers) -> tuple[Offence, ...]:
    """Return every marker that cannot be; an operator that is not known counts as one that runs."""
    return tuple(offence for vertex in topology.vertices for offence in _offences(topology, markers, vertex))


def _offences(topology: Topology, markers: Markers, vertex: Vertex) -> list[Offence]:
    status = markers.status(vertex)
    if status is OperatorStatus.RUNNING or markers.is_in_checkpoint(vertex):
        return []
    found = []
    if vertex.is_global and status is OperatorStatus.PARTIALLY_FINISHED:
        found.append(Offence(rule=Rule.HALF_OF_GLOBAL, operator_id=vertex.operator_id))
    for input_id, exchange in vertex.predecessors.items():
        source = topology.vertex(input_id)
        offence = _offence(markers, vertex, input_id, source, exchange)
        if offence is not None:
            found.append(offence)
    return found


def _offence(
    markers: Markers, vertex: Vertex, input_id: str, source: Vertex | None, exchange: Exchange
) -> Offence | None:
    """Return what is wrong between an operator that is finished, or in part, and one of its inputs."""
    if source is not None and markers.status(source) is OperatorStatus.FINISHED:
        return None
    if markers.status(vertex) is OperatorStatus.FINISHED:
        return Offence(rule=Rule.FINISHED_AFTER_RUNNING, operator_id=vertex.operator_id, input_id=input_id)
    edge, source_edge = markers.edge(vertex), markers.edge(source) if source is not None else None
    if source is None or exchange is Exchange.WIDE or source.total != vertex.total or edge is None:
        return Offence(rule=Rule.PART_AFTER_WIDE, operator_id=vertex.operator_id, input_id=input_id)
    lacking = missing_buckets(source_edge.finished if source_edge is not None else (), edge.finished)
    if not lacking:
        return None
    return Offence(rule=Rule.PART_AFTER_NARROW, operator_id=vertex.operator_id, input_id=input_id, buckets=lacking)
