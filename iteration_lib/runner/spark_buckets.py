"""How are streams of buckets computed on Spark?

One job computes a stream and, on the way, every stream inside it that others will use too: each operator runs once per
bucket. Small results come back as the action's own result, others as files that the executors wrote; what Spark counts
as the job's result is all that counts here, and what was told of it while it ran (see `spark_parts`).
"""

from __future__ import annotations

import threading
from dataclasses import replace
from secrets import token_hex
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import SparkSession

from iteration_lib.model.bucket import subtask_ranges
from iteration_lib.model.operator import Kind
from iteration_lib.runner.part_header import PartHeader
from iteration_lib.runner.parts import Ranges, Target, rows_of_subtasks
from iteration_lib.runner.plan import Part, PartsNode, PartsReader
from iteration_lib.runner.spark_broadcast import shipped
from iteration_lib.runner.spark_jobs import SparkJobs
from iteration_lib.runner.spark_parts import SidecarWatch, Teller
from iteration_lib.runner.spark_plan import StreamPlan
from iteration_lib.runner.spark_streams import BucketStream, scratch_name
from iteration_lib.runner.spark_tasks import RESULT_SCHEMA, BucketTask, Output, in_tasks, load_part, load_rows
from iteration_lib.state.block import concat_batches
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import FileFormat, SavedStream

# What the tasks say of each output, in the order of the buckets: a part's header, and its batches if it has no file.
_Results: TypeAlias = list[list[tuple[PartHeader, bytes]]]


class BucketJobs:
    """Computes streams of buckets, each once."""

    def __init__(
        self, spark: SparkSession, jobs: SparkJobs, location: StateLocation, *, max_buckets: int, scratch: str
    ) -> None:
        """Compute on `spark`; what is too large to come back is written under `scratch`."""
        self._spark = spark
        self._jobs = jobs
        self._location = location
        self._max_buckets = max_buckets
        self._scratch = scratch
        self._lock = threading.RLock()

    def compute(self, stream: BucketStream) -> PartsNode:
        """Return a stream's parts, computing it if it is still a call."""
        with self._lock:
            if stream.parts is not None:
                return stream.parts
            ranges = subtask_ranges(parallelism=stream.parallelism, count=self._max_buckets)
            parts = self._run(stream, tuple((buckets,) for buckets in ranges), None)
            stream.parts, stream.call = parts, None
            return parts

    def write(self, stream: BucketStream, target: Target, *, done: PartsNode | None) -> SavedStream:
        """Write a stream into files, computing it on the way if it is still a call; parts that are done are kept."""
        with self._lock:
            written = self._write(stream, target, done)
            if stream.parts is None or target.file_format is FileFormat.ARROW:
                stream.parts, stream.call = written, None
            return written.saved

    def whole(self, stream: BucketStream) -> pa.RecordBatch:
        """Return all rows of a stream, in bucket order."""
        reader = PartsReader(self.compute(stream))
        return concat_batches([reader.bucket(index) for index in range(self._max_buckets)])

    def records(self, stream: BucketStream) -> tuple[int, ...]:
        """Return each subtask's rows."""
        return rows_of_subtasks(self.compute(stream).rows, parallelism=stream.parallelism)

    def _write(self, stream: BucketStream, target: Target, done: PartsNode | None) -> PartsNode:
        ranges = target.ranges(parallelism=stream.parallelism, count=self._max_buckets)
        if done is not None and not ranges:
            return done
        if stream.parts is not None and all(part.batches is not None for part in stream.parts.parts):
            new = self._write_here(stream, stream.parts, ranges, target)
        else:
            new = self._run(stream, ranges, target)
        return new if done is None else done.joined_with(new)

    def _write_here(self, stream: BucketStream, known: PartsNode, ranges: Ranges, target: Target) -> PartsNode:
        """Write buckets that the driver holds."""
        target.check_columns(known.schema, bucket=ranges[0][0].start, operator_id=stream.operator_id)
        reader, parts = PartsReader(known), []
        for subtask, owned in enumerate(ranges):
            for buckets in owned:
                batches = [reader.bucket(index) for index in buckets]
                (file,) = target.write(Kind.BUCKETS, batches, subtask=subtask, buckets=buckets).files
                rows = tuple(batch.num_rows for batch in batches)
                parts.append(Part(buckets=buckets, rows=rows, batches=None, file=file))
        return replace(known, parts=tuple(parts), format=target.file_format)

    def _run(self, stream: BucketStream, ranges: Ranges, target: Target | None) -> PartsNode:
        """Compute these buckets of a stream and, on the way, what is shared inside it, in one job."""
        if target is not None and target.is_in_parts:
            # A job for some of the buckets, or whose parts are told one by one, makes nothing else that is kept.
            for shared in StreamPlan(self._max_buckets).shared_in(stream):
                self.compute(shared)
        plan = StreamPlan(self._max_buckets)
        inside = plan.shared_in(stream)
        outputs = [Output(node=plan.node(found), folder=None) for found in (stream, *inside)]
        if target is not None:
            outputs[0] = replace(outputs[0], folder=target.folder, format=target.file_format)
        scratch = f"{self._scratch}/{scratch_name(stream.epoch)}"
        task = BucketTask(outputs=tuple(outputs), ranges=ranges, location=self._location, scratch=scratch)
        results = self._collect(stream, task, plan, target)
        found = [self._parts(output, result) for output, result in zip(outputs, results, strict=True)]
        for shared, parts in zip(inside, found[1:], strict=True):
            shared.parts, shared.call = parts, None
        return found[0]

    def _collect(self, stream: BucketStream, task: BucketTask, plan: StreamPlan, target: Target | None) -> _Results:
        """Run a job and return what its tasks say, once every part of it has been told."""
        teller = Teller(target) if target is not None and target.on_part is not None else None
        results = self._run_job(stream, task) if teller is None else self._run_told_job(stream, task, teller)
        headers = [header for header, _ in results[0]]
        plan.check_columns(headers)
        if target is not None:
            target.check_columns(headers[0].schema, bucket=headers[0].buckets.start, operator_id=stream.operator_id)
        if teller is not None:
            for header in headers:
                teller.tell(header)
        return results

    def _run_told_job(self, stream: BucketStream, task: BucketTask, teller: Teller) -> _Results:
        sidecars = f"{task.scratch}/told-{token_hex(8)}"
        with SidecarWatch(self._location, sidecars, teller.tell, stop=self._jobs.stop):
            results = self._run_job(stream, replace(task, sidecars=sidecars))
        return [[(teller.told_instead_of(header), packed) for header, packed in result] for result in results]

    def _run_job(self, stream: BucketStream, task: BucketTask) -> _Results:
        def run() -> pa.Table:
            subtasks = self._spark.range(0, len(task.ranges), 1, len(task.ranges))
            with shipped(self._spark, in_tasks(task.run)) as run_task:
                return subtasks.mapInArrow(run_task, RESULT_SCHEMA).toArrow()

        operator = stream.call.operator if stream.call is not None else None
        result = self._jobs.run(run, operator=operator, epoch=stream.epoch, description=stream.description)
        results: _Results = [[] for _ in task.outputs]
        for row in load_rows(result):
            results[row["output"]].append((PartHeader.from_json(row["header"]), row["batches"]))
        return results

    def _parts(self, output: Output, result: list[tuple[PartHeader, bytes]]) -> PartsNode:
        parts = tuple(load_part(header, packed) for header, packed in result)
        return PartsNode(location=self._location, schema=result[0][0].schema, format=output.format, parts=parts)
