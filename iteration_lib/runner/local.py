"""How do operators run without Spark? In this process, bucket after bucket.

The oracle for the Spark runner: the same results to the bit, the same records per subtask, the same files. A stream of
buckets is computed where it is first used, as on Spark.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pyarrow as pa

from iteration_lib.errors import DefinitionError, ExecutionLostError, ValueNotKeptError
from iteration_lib.model.bucket import Bucket, subtask_count
from iteration_lib.model.operator import Kind, Operator
from iteration_lib.runner.calling import call_on_blocks, injectable, one_thread, user_errors
from iteration_lib.runner.local_streams import LocalBuckets, LocalData, LocalStream, LocalValue
from iteration_lib.runner.parts import Target, rows_of_subtasks, target_of
from iteration_lib.runner.pins import check_pinned, pin_source
from iteration_lib.runner.rows import RowReader, schema_of_data
from iteration_lib.runner.scratch import injected_scratch, scratch_of
from iteration_lib.runner.seam import Invocation, Materialised, PartListener, PinnedData, Stream
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import FileFormat, SavedStream, join_parts
from iteration_lib.state.streams import check_buckets, dump_schema, load_buckets, load_whole


class LocalRunner:
    """Runs operators in this process; see `seam.Runner` for what each method guarantees."""

    def __init__(self, location: StateLocation, *, max_buckets: int, parallelism: int) -> None:
        """Run in the folder of one run."""
        self._location = location
        self._max_buckets = max_buckets
        self._parallelism = parallelism
        self._cancelled = threading.Event()

    def pin(self, operator: Operator, params: object, *, folder: str) -> PinnedData:
        """Ask a data stream for its source and pin it."""
        if "spark" in operator.injected:
            raise _needs_spark(operator)
        with user_errors(operator, None):
            source = operator.function(**dict.fromkeys(operator.injected, params))
        return pin_source(source, operator=operator, location=self._location, folder=folder)

    def open_data(self, pinned: PinnedData) -> Stream:
        """Return a pinned data stream."""
        check_pinned(self._location, pinned)
        reader = RowReader(self._location, pinned, schema_of_data(self._location, pinned))
        return LocalData(reader=reader, rows=pinned.rows, count=self._max_buckets)

    def without_rows(self, stream: Stream) -> Stream:
        """Return the columns of a data stream, which are known."""
        if not isinstance(stream, LocalData):
            raise TypeError("a computed stream has rows in every epoch")
        return LocalData(reader=stream.reader.without_rows(), rows=0, count=stream.count)

    def compute(self, invocation: Invocation) -> Stream:
        """Run an operator on whole values at once; note one on buckets, to be computed where it is used."""
        operator = invocation.operator
        if operator.kind is Kind.FRAME:
            raise _needs_spark(operator)
        if operator.kind is Kind.VALUE:
            return LocalValue(batch=self._call_on_values(invocation))
        return LocalBuckets(
            call=self._call_on_bucket(invocation),
            operator_id=operator.operator_id,
            parallelism=subtask_count(operator.parallelism, default=self._parallelism, count=self._max_buckets),
            count=self._max_buckets,
        )

    def hold(self, value: object, *, operator: Operator, epoch: int | None, description: str) -> Stream:  # noqa: ARG002 - the seam's
        """Return a stream of a record batch."""
        if not isinstance(value, pa.RecordBatch):
            problem = (
                f"is a {type(value).__name__}, which needs Spark; give its session, as in open_run(..., spark=spark)"
            )
            raise ValueNotKeptError(variable=operator.operator_id, problem=problem)
        return LocalValue(batch=value)

    def give(self, stream: Stream) -> object:
        """Return the record batch of a whole value."""
        return _own(stream).whole()

    def is_computed(self, stream: Stream) -> bool:
        """Whether a stream's rows are there."""
        return _own(stream).is_computed

    def materialise(
        self,
        stream: Stream,
        *,
        folder: str | None,
        file_format: FileFormat = FileFormat.ARROW,
        done: SavedStream | None = None,
        on_part: PartListener | None = None,
    ) -> Materialised:
        """Compute a stream, count it, and with a folder write it there, subtask after subtask."""
        found = _own(stream)
        target = target_of(found.kind, self._location, folder, file_format, done=done, on_part=on_part)
        if isinstance(found, LocalValue):
            saved = target.write(found.kind, [found.batch]) if target is not None else None
            return Materialised(stream=found, records=(found.batch.num_rows,), saved=saved)
        if isinstance(found, LocalData):
            raise TypeError("a data stream is not computed")
        saved = self._write(found, target) if target is not None else None
        rows = [batch.num_rows for batch in found.buckets(range(found.count))]
        return Materialised(stream=found, records=rows_of_subtasks(rows, parallelism=found.parallelism), saved=saved)

    def restore(self, saved: SavedStream) -> Stream:
        """Return a stream that was materialised before, by this runner or by the Spark one."""
        kind = Kind(saved.kind)
        if kind is Kind.VALUE:
            return LocalValue(batch=load_whole(self._location, saved))
        if kind is Kind.FRAME:
            raise DefinitionError("restore", "holds a DataFrame, which needs Spark; run it with --master")
        check_buckets(self._location, saved, count=self._max_buckets)
        parallelism = min(self._parallelism, self._max_buckets)
        restored = LocalBuckets(call=None, operator_id="restored", parallelism=parallelism, count=self._max_buckets)
        self._keep(restored, saved)
        return restored

    def cancel(self) -> None:
        """Stop before the next call of an operator."""
        self._cancelled.set()

    def close(self) -> None:
        """Release nothing: there is nothing."""

    def _call_on_values(self, invocation: Invocation) -> pa.RecordBatch:
        operator = invocation.operator
        self._check_not_cancelled()
        inputs = {name: _own(stream).whole() for name, stream in invocation.inputs.items()}
        injected = injectable(operator, params=invocation.params, epoch=invocation.epoch)
        injected |= injected_scratch(scratch_of(invocation, self._location))
        with one_thread():
            return call_on_blocks(operator, inputs, injected | {"metrics": invocation.metrics})

    def _call_on_bucket(self, invocation: Invocation) -> Callable[[int], pa.RecordBatch]:
        operator = invocation.operator
        inputs = {name: _own(stream) for name, stream in invocation.inputs.items()}
        scratch = scratch_of(invocation, self._location)

        def call(index: int) -> pa.RecordBatch:
            self._check_not_cancelled()
            bucket = Bucket(index=index, count=self._max_buckets)
            injected = injectable(operator, params=invocation.params, epoch=invocation.epoch, bucket=bucket)
            given = {name: stream.bucket(index) for name, stream in inputs.items()}
            return call_on_blocks(operator, given, injected | injected_scratch(scratch, bucket))

        return call

    def _write(self, stream: LocalBuckets, target: Target) -> SavedStream:
        """Write the buckets that are not done, and return where all of them are."""
        ranges = target.ranges(parallelism=stream.parallelism, count=stream.count)
        parts = []
        if target.done is not None:
            durable = list(self._load(target.done))
            if ranges:
                first = ranges[0][0].start
                schema = dump_schema(stream.buckets([first])[0].schema)
                target.check_columns(schema, bucket=first, operator_id=stream.operator_id)
            for index, batch in durable:
                stream.keep(index, batch)
            parts.append(target.done)
        for subtask, owned in enumerate(ranges):
            for buckets in owned:
                batches = stream.buckets(buckets)
                parts.append(target.write(stream.kind, batches, subtask=subtask, buckets=buckets))
        return join_parts(parts)

    def _keep(self, stream: LocalBuckets, saved: SavedStream) -> None:
        for index, batch in self._load(saved):
            stream.keep(index, batch)

    def _load(self, saved: SavedStream) -> Iterator[tuple[int, pa.RecordBatch]]:
        for file in saved.files:
            yield from zip(file.buckets, load_buckets(self._location, saved, file), strict=True)

    def _check_not_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise ExecutionLostError("the run was cancelled")


def _own(stream: Stream) -> LocalStream:
    if not isinstance(stream, LocalStream):
        raise TypeError(f"{type(stream).__name__} is not a stream of this runner")
    return stream


def _needs_spark(operator: Operator) -> DefinitionError:
    return DefinitionError(
        operator.function.__module__,
        "works with Spark, which this runner is not; run it with --master",
        operator_id=operator.operator_id,
    )
