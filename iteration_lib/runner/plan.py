"""What is a stream of buckets before it is computed, and how is one bucket of it computed?

A plan is a tree that executors can evaluate bucket by bucket: data read from its source, parts that were computed
before, and calls of operators on these. Operators that only one other uses are thereby computed inside it, in one pass
over the buckets. No part of this knows Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from iteration_lib.model.bucket import Bucket
from iteration_lib.model.operator import Operator
from iteration_lib.runner.calling import call_on_blocks, check_one_schema, injectable
from iteration_lib.runner.node_cache import BucketCache, CachedData
from iteration_lib.runner.scratch import Scratch, injected_scratch
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import FileFormat, SavedFile, SavedStream
from iteration_lib.state.streams import BucketReader


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DataNode:
    """A data stream."""

    data: CachedData


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one subtask computed: its buckets' batches, or the file that it wrote them to."""

    buckets: range
    rows: tuple[int, ...]
    batches: tuple[pa.RecordBatch, ...] | None
    file: SavedFile | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartsNode:
    """A computed stream, as parts that follow one another."""

    location: StateLocation
    schema: str
    format: FileFormat
    parts: tuple[Part, ...]

    @property
    def rows(self) -> list[int]:
        """The rows of every bucket."""
        return [rows for part in self.parts for rows in part.rows]

    @property
    def saved(self) -> SavedStream:
        """The parts that are files."""
        files = tuple(part.file for part in self.parts if part.file is not None)
        return SavedStream(kind="buckets", format=self.format, schema=self.schema, files=files)

    def joined_with(self, other: PartsNode) -> PartsNode:
        """Return this stream with the parts that it lacks."""
        parts = sorted((*self.parts, *other.parts), key=lambda part: part.buckets.start)
        return replace(self, parts=tuple(parts))


class PartsReader:
    """Reads buckets of a computed stream, of which those in one file come one after the other."""

    def __init__(self, node: PartsNode) -> None:
        """Open nothing yet."""
        self._parts = node.parts
        self._files = BucketReader(node.location, node.saved)

    def bucket(self, index: int) -> pa.RecordBatch:
        """Return one bucket. Raises StateCorruptedError that names a part's file."""
        part = next(part for part in self._parts if index < part.buckets.stop)
        return self._files.bucket(index) if part.batches is None else part.batches[index - part.buckets.start]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CallNode:
    """A call of an operator on one bucket of `buckets` and the whole of `values`; `number` is its place in a plan."""

    number: int
    operator: Operator
    buckets: Mapping[str, Node]
    values: Mapping[str, pa.RecordBatch]
    params: object
    epoch: int | None
    count: int
    scratch: Scratch | None


Node = DataNode | PartsNode | CallNode


def restored_parts(location: StateLocation, saved: SavedStream, rows: Sequence[tuple[int, ...]]) -> PartsNode:
    """Return the parts of a stream of buckets that was written before; `rows` are those of each file's buckets."""
    parts = tuple(
        Part(buckets=file.buckets, rows=counts, batches=None, file=file)
        for file, counts in zip(saved.files, rows, strict=True)
    )
    return PartsNode(location=location, schema=saved.schema, format=saved.format, parts=parts)


@dataclass(slots=True)
class Evaluation:
    """Computes buckets of plans, each operator once per bucket, however many plans take it; for one task."""

    schemas: dict[int, tuple[int, pa.Schema]] = field(default_factory=dict)  # by a call's number: a bucket's columns
    _readers: dict[int, BucketCache | PartsReader] = field(default_factory=dict)
    _results: dict[tuple[int, int], pa.RecordBatch] = field(default_factory=dict)

    def buckets(self, nodes: Sequence[Node], index: int) -> list[pa.RecordBatch]:
        """Return bucket `index` of every node."""
        self._results.clear()
        return [self._bucket(node, index) for node in nodes]

    def _bucket(self, node: Node, index: int) -> pa.RecordBatch:
        key = (id(node), index)
        if key not in self._results:
            self._results[key] = self._call(node, index) if isinstance(node, CallNode) else self._read(node, index)
        return self._results[key]

    def _read(self, node: DataNode | PartsNode, index: int) -> pa.RecordBatch:
        if id(node) not in self._readers:
            self._readers[id(node)] = BucketCache(node.data) if isinstance(node, DataNode) else PartsReader(node)
        return self._readers[id(node)].bucket(index)

    def _call(self, node: CallNode, index: int) -> pa.RecordBatch:
        inputs = {name: self._bucket(found, index) for name, found in node.buckets.items()} | dict(node.values)
        bucket = Bucket(index=index, count=node.count)
        injected = injectable(node.operator, params=node.params, epoch=node.epoch, bucket=bucket)
        result = call_on_blocks(node.operator, inputs, injected | injected_scratch(node.scratch, bucket))
        first, schema = self.schemas.setdefault(node.number, (index, result.schema))
        check_one_schema(node.operator.operator_id, {first: schema, index: result.schema})
        return result
