"""How are streams of buckets computed on Spark?

One job computes a stream and, on the way, every stream inside it that others will use too: each operator runs once per
bucket. Small results come back as the action's own result, others as files that the executors wrote; what Spark counts
as the job's result is all that counts here.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from iteration_lib.model.bucket import subtask_ranges
from iteration_lib.model.operator import Kind
from iteration_lib.runner.calling import check_one_schema
from iteration_lib.runner.plan import CallNode, DataNode, Node, Part, PartsNode
from iteration_lib.runner.seam import Stream
from iteration_lib.runner.spark_streams import BucketStream, DataStream, JobContext, ValueStream, scratch_name
from iteration_lib.runner.spark_tasks import RESULT_SCHEMA, BucketTask, Output, in_tasks, load_headers, load_part
from iteration_lib.state.block import concat_batches
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import FileFormat, SavedStream
from iteration_lib.state.streams import new_part_path, save_batches


class BucketJobs:
    """Computes streams of buckets, each once."""

    def __init__(
        self, spark: SparkSession, location: StateLocation, *, max_buckets: int, scratch: str, in_job: JobContext
    ) -> None:
        """Compute on `spark`; what is too large to come back is written under `scratch`."""
        self._spark = spark
        self._location = location
        self._max_buckets = max_buckets
        self._scratch = scratch
        self._in_job = in_job
        self._lock = threading.RLock()

    def compute(self, stream: BucketStream) -> PartsNode:
        """Return a stream's parts, computing it if it is still a call."""
        with self._lock:
            return stream.parts or self._run(stream, folder=None, file_format=FileFormat.ARROW)

    def write(self, stream: BucketStream, *, folder: str, file_format: FileFormat) -> SavedStream:
        """Write a stream into a folder, in one file per subtask, computing it on the way if it is still a call."""
        with self._lock:
            if stream.parts is None:
                return self._run(stream, folder=folder, file_format=file_format).saved
            if all(part.batches is not None for part in stream.parts.parts):
                written = self._write_here(stream, stream.parts, folder=folder, file_format=file_format)
            else:
                written = self._run(stream, folder=folder, file_format=file_format)
            if file_format is FileFormat.ARROW:
                stream.parts = written
            return written.saved

    def whole(self, stream: BucketStream) -> pa.RecordBatch:
        """Return all rows of a stream, in bucket order."""
        parts = self.compute(stream)
        return concat_batches([parts.bucket(index) for index in range(self._max_buckets)])

    def records(self, stream: BucketStream) -> tuple[int, ...]:
        """Return each subtask's rows."""
        rows = self.compute(stream).rows
        ranges = subtask_ranges(parallelism=stream.parallelism, count=self._max_buckets)
        return tuple(sum(rows[buckets.start : buckets.stop]) for buckets in ranges)

    def _run(self, stream: BucketStream, *, folder: str | None, file_format: FileFormat) -> PartsNode:
        plan = _Plan(self._max_buckets)
        outputs = [Output(node=plan.node(stream), folder=folder, format=file_format)]
        shared = [found for found in plan.shared if found is not stream]
        outputs += [Output(node=plan.node(found), folder=None) for found in shared]
        ranges = subtask_ranges(parallelism=stream.parallelism, count=self._max_buckets)
        operator, epoch = (call.operator, call.epoch) if (call := stream.call) is not None else (None, None)
        scratch = f"{self._scratch}/{scratch_name(epoch)}"
        task = BucketTask(outputs=tuple(outputs), ranges=ranges, location=self._location, scratch=scratch)
        with self._in_job(operator, epoch, stream.description):
            subtasks = self._spark.range(0, len(ranges), 1, len(ranges))
            rows = subtasks.mapInArrow(in_tasks(task.run), RESULT_SCHEMA).toArrow().to_pylist()
        headers = load_headers(rows)
        plan.check_schemas(headers)
        found = [self._parts(rows, headers, number, output, ranges) for number, output in enumerate(outputs)]
        for computed, parts in zip([stream, *shared], found, strict=True):
            if computed.parts is None:
                computed.parts, computed.call = parts, None
        return found[0]

    def _parts(
        self,
        rows: Sequence[dict[str, Any]],  # Any: what Arrow gives for a row
        headers: Sequence[dict[str, Any]],  # Any: JSON that a task wrote
        number: int,
        output: Output,
        ranges: Sequence[range],
    ) -> PartsNode:
        found = sorted(
            (row["subtask"], header, row["batches"])
            for row, header in zip(rows, headers, strict=True)
            if row["output"] == number
        )
        parts = tuple(load_part(header, batches, buckets=ranges[subtask]) for subtask, header, batches in found)
        return PartsNode(location=self._location, schema=found[0][1]["schema"], format=output.format, parts=parts)

    def _write_here(self, stream: BucketStream, parts: PartsNode, *, folder: str, file_format: FileFormat) -> PartsNode:
        written = []
        for subtask, buckets in enumerate(subtask_ranges(parallelism=stream.parallelism, count=self._max_buckets)):
            batches = tuple(parts.bucket(index) for index in buckets)
            path = new_part_path(folder, subtask, file_format)
            file = save_batches(self._location, path, batches, file_format=file_format, buckets=buckets)
            rows = tuple(batch.num_rows for batch in batches)
            written.append(Part(buckets=buckets, rows=rows, batches=None, file=file))
        return replace(parts, parts=tuple(written), format=file_format)


class _Plan:
    """Builds the tree for one job, with one node per stream."""

    def __init__(self, max_buckets: int) -> None:
        self.shared: list[BucketStream] = []
        self._max_buckets = max_buckets
        self._nodes: dict[int, Node] = {}
        self._numbers = count()
        self._operators: dict[int, str] = {}

    def node(self, stream: Stream) -> Node:
        """Return the node of a stream of data or of buckets."""
        if id(stream) not in self._nodes:
            self._nodes[id(stream)] = self._make(stream)
        return self._nodes[id(stream)]

    def check_schemas(self, headers: Sequence[dict[str, Any]]) -> None:  # Any: JSON that a task wrote
        """Check that each call gave the same columns in every subtask; raises OperatorResultError."""
        for number, operator_id in self._operators.items():
            first = [header["schemas"][str(number)] for header in headers]
            check_one_schema(operator_id, {bucket: _read_schema(schema) for bucket, schema in sorted(first)})

    def _make(self, stream: Stream) -> Node:
        if isinstance(stream, DataStream):
            return DataNode(data=stream.cached)
        if not isinstance(stream, BucketStream):
            raise TypeError(f"{type(stream).__name__} is not a stream of buckets")
        if stream.parts is not None:
            return stream.parts
        if stream.call is None:
            raise TypeError("a stream of buckets is a call or has parts")
        if stream.is_shared:
            self.shared.append(stream)
        number, call = next(self._numbers), stream.call
        self._operators[number] = call.operator.operator_id
        return CallNode(
            number=number,
            operator=call.operator,
            buckets={n: self.node(s) for n, s in call.inputs.items() if s.kind in (Kind.DATA, Kind.BUCKETS)},
            values={n: s.batch for n, s in call.inputs.items() if isinstance(s, ValueStream)},
            params=call.params,
            epoch=call.epoch,
            count=self._max_buckets,
        )


def _read_schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.BufferReader(bytes.fromhex(text)))
