"""What does the plain-Python runner hold for a stream?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from iteration_lib.model.bucket import bucket_rows
from iteration_lib.model.operator import Kind
from iteration_lib.runner.calling import check_one_schema, one_thread
from iteration_lib.runner.rows import RowReader
from iteration_lib.state.block import concat_batches, describe_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalValue:
    """A whole value."""

    batch: pa.RecordBatch

    kind: Kind = Kind.VALUE
    is_computed: bool = True

    @property
    def schema(self) -> str:
        """The columns and their types."""
        return describe_schema(self.batch.schema)

    def bucket(self, _index: int) -> pa.RecordBatch:
        """Return what an operator on buckets sees of it: all."""
        return self.batch

    def whole(self) -> pa.RecordBatch:
        """Return all rows."""
        return self.batch


@dataclass(slots=True, kw_only=True)
class LocalData:
    """A data stream; its buckets are read when they are first used."""

    reader: RowReader
    rows: int
    count: int
    _batches: dict[int, pa.RecordBatch] = field(default_factory=dict)

    kind: Kind = Kind.DATA
    schema: None = None
    is_computed: bool = True

    def bucket(self, index: int) -> pa.RecordBatch:
        """Return one bucket."""
        if index not in self._batches:
            self._batches[index] = self.reader.read(bucket_rows(index, count=self.count, rows=self.rows))
        return self._batches[index]

    def whole(self) -> pa.RecordBatch:
        """Return all rows."""
        return self.reader.read(range(self.rows))


@dataclass(slots=True, kw_only=True)
class LocalBuckets:
    """A stream of buckets: a call of its operator for each, made once, when the bucket is first used."""

    call: Callable[[int], pa.RecordBatch] | None
    operator_id: str
    parallelism: int
    count: int
    _batches: dict[int, pa.RecordBatch] = field(default_factory=dict)

    kind: Kind = Kind.BUCKETS

    @property
    def is_computed(self) -> bool:
        """Whether every bucket is there."""
        return self.call is None

    @property
    def schema(self) -> str | None:
        """The columns and their types, once every bucket is there."""
        return describe_schema(self._batches[0].schema) if self.is_computed else None

    def bucket(self, index: int) -> pa.RecordBatch:
        """Return one bucket."""
        if index not in self._batches and self.call is not None:
            self.keep(index, self.call(index))
        return self._batches[index]

    def buckets(self, buckets: Sequence[int]) -> list[pa.RecordBatch]:
        """Return several buckets, in this order."""
        with one_thread():
            return [self.bucket(index) for index in buckets]

    def whole(self) -> pa.RecordBatch:
        """Return all rows, in the order of the buckets."""
        return concat_batches(self.buckets(range(self.count)))

    def keep(self, index: int, batch: pa.RecordBatch) -> None:
        """Hold a bucket that needs no call. Raises OperatorResultError for other columns than those of the others."""
        for known, other in self._batches.items():
            check_one_schema(self.operator_id, {known: other.schema, index: batch.schema})
            break  # the others have the columns of the first
        self._batches[index] = batch
        if len(self._batches) == self.count:
            self.call = None  # and with it what it was computed from


LocalStream: TypeAlias = LocalValue | LocalData | LocalBuckets
