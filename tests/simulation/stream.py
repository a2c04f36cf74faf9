"""What does the simulated runner hold for a stream? The buckets that are computed, and how to get the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from iteration_lib.model.operator import Kind
from tests.simulation.programs import Rows
from tests.simulation.reference import Buckets

# Computes the buckets of these numbers: those that are asked for, in order, none of which is there.
Compute = Callable[[Sequence[int]], Buckets]


class SimulatedStream:
    """A stream of `count` buckets; a value has one. `parallelism` subtasks share them.

    One that `is_fused` is computed inside what takes it, as Spark does: nothing of it is there by itself.
    """

    schema = "row: int64"

    def __init__(
        self, kind: Kind, compute: Compute | None, *, count: int, parallelism: int = 1, is_fused: bool = False
    ) -> None:
        self.kind = kind
        self.count = count
        self.parallelism = parallelism
        self.is_fused = is_fused
        self._compute = compute
        self._found: dict[int, Rows] = {}

    @property
    def is_computed(self) -> bool:
        """Whether every bucket is there."""
        return not self.is_fused and len(self._found) == self.count

    def whole(self) -> Rows:
        """Return the rows of all buckets, in order."""
        return tuple(chain.from_iterable(self.buckets(range(self.count))))

    def buckets(self, asked: Sequence[int]) -> Buckets:
        """Return some buckets; those that are not there are computed at once, each once."""
        missing = [index for index in asked if index not in self._found]
        if missing and self._compute is not None:
            self.keep(missing, self._compute(missing))
        return tuple(self._found[index] for index in asked)

    def keep(self, indexes: Iterable[int], buckets: Buckets) -> None:
        """Hold buckets that need not be computed any more."""
        self._found |= zip(indexes, buckets, strict=True)
