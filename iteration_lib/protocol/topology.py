"""What does an operator wait for: everything that its inputs compute, or only the same buckets of it?

A *narrow* input is taken bucket by bucket: bucket 7 needs bucket 7 of it and nothing else (Flink's pointwise edge).
Every other input is *wide*: one bucket of it that is missing keeps the operator waiting (all-to-all). An operator is
*global* when it gives its output as a whole: it is finished or not, never in part.

What is always there is no vertex: data streams, which are pinned, and the state that operators carry. A variable is one
only because its value before epoch 0 is computed; later the checkpoint holds it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass


class Exchange(enum.Enum):
    """How an operator takes an input."""

    NARROW = "narrow"
    WIDE = "wide"


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One input of an operator."""

    operator_id: str
    exchange: Exchange


@dataclass(frozen=True, slots=True, kw_only=True)
class Vertex:
    """An operator, or a variable, as resuming sees it.

    `total` counts its buckets, 1 where its stream has none. One that `finishes` runs once in a run; one that
    `is_per_epoch` in every epoch; one that is neither is a variable, computed before epoch 0. Of one that is not
    `is_capturable` no new part of an edge is made.
    """

    operator_id: str
    name: str
    total: int = 1
    inputs: tuple[Input, ...] = ()
    finishes: bool = False
    is_global: bool = True
    is_capturable: bool = True
    is_per_epoch: bool = True

    @property
    def is_variable(self) -> bool:
        """Whether it is the value of a variable before epoch 0."""
        return not self.finishes and not self.is_per_epoch

    @property
    def predecessors(self) -> Mapping[str, Exchange]:
        """Each operator that it takes something from, once: of a narrow and a wide input the wide one counts.

        A global operator needs all of every input, whatever it is wired to.
        """
        found: dict[str, Exchange] = {}
        for taken in self.inputs:
            if found.get(taken.operator_id) is not Exchange.WIDE:
                found[taken.operator_id] = Exchange.WIDE if self.is_global else taken.exchange
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The operators of an iteration, in an order in which each comes after its inputs."""

    vertices: tuple[Vertex, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        known = {vertex.operator_id for vertex in self.vertices}
        for vertex in self.vertices:
            late = next((name for name in vertex.predecessors if name in known - seen), None)
            if late is not None or vertex.operator_id in seen:
                raise ValueError(f"operator {vertex.operator_id!r} comes before its input {late!r}, or twice")
            seen.add(vertex.operator_id)

    def vertex(self, operator_id: str) -> Vertex | None:
        """Return the operator with this id."""
        return next((vertex for vertex in self.vertices if vertex.operator_id == operator_id), None)
