"""How do operators run without Spark? In this process, bucket after bucket, at once.

The oracle for the Spark runner: the same results to the bit, the same records per subtask, the same files.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from iteration_lib.errors import DefinitionError, ExecutionLostError
from iteration_lib.model.bucket import Bucket, bucket_rows, subtask_count, subtask_ranges
from iteration_lib.model.operator import Kind, Operator
from iteration_lib.runner.calling import call_on_blocks, check_one_schema, injectable, one_thread, user_errors
from iteration_lib.runner.pins import check_pinned, pin_source
from iteration_lib.runner.rows import RowReader, schema_of_data
from iteration_lib.runner.seam import Invocation, Materialised, PinnedData, Stream
from iteration_lib.state.block import concat_batches, describe_schema
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import FileFormat, SavedStream
from iteration_lib.state.streams import check_buckets, dump_schema, load_bucket, load_whole, new_part_path, save_batches


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalStream:
    """A computed stream: one batch (VALUE), or one batch per bucket."""

    kind: Kind
    batches: tuple[pa.RecordBatch, ...]
    parallelism: int = 1

    @property
    def schema(self) -> str:
        """The columns and their types."""
        return describe_schema(self.batches[0].schema)


@dataclass(slots=True, kw_only=True)
class LocalData:
    """A data stream; its buckets are read when they are first used."""

    reader: RowReader
    rows: int
    count: int
    _batches: dict[int, pa.RecordBatch] = field(default_factory=dict)

    kind: Kind = Kind.DATA
    schema: None = None

    def bucket(self, index: int) -> pa.RecordBatch:
        """Return one bucket."""
        if index not in self._batches:
            self._batches[index] = self.reader.read(bucket_rows(index, count=self.count, rows=self.rows))
        return self._batches[index]


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

    def compute(self, invocation: Invocation) -> Stream:
        """Run an operator on its inputs, at once."""
        operator = invocation.operator
        if operator.kind is Kind.FRAME:
            raise _needs_spark(operator)
        with one_thread():
            if operator.kind is Kind.VALUE:
                return LocalStream(kind=Kind.VALUE, batches=(self._call_on_values(invocation),))
            batches = tuple(self._call_on_bucket(invocation, index) for index in range(self._max_buckets))
        check_one_schema(operator.operator_id, {index: batch.schema for index, batch in enumerate(batches)})
        parallelism = subtask_count(operator.parallelism, default=self._parallelism, count=self._max_buckets)
        return LocalStream(kind=Kind.BUCKETS, batches=batches, parallelism=parallelism)

    def materialise(
        self, stream: Stream, *, folder: str | None, file_format: FileFormat = FileFormat.ARROW
    ) -> Materialised:
        """Count a stream, and with a folder write it there."""
        found = _own(stream)
        ranges = subtask_ranges(parallelism=found.parallelism, count=len(found.batches))
        parts = [found.batches[buckets.start : buckets.stop] for buckets in ranges]
        records = tuple(sum(batch.num_rows for batch in part) for part in parts)
        if folder is None:
            return Materialised(stream=found, records=records, saved=None)
        in_buckets = found.kind is Kind.BUCKETS
        files = tuple(
            save_batches(
                self._location,
                new_part_path(folder, subtask, file_format),
                part,
                file_format=file_format,
                buckets=buckets if in_buckets else None,
            )
            for subtask, (part, buckets) in enumerate(zip(parts, ranges, strict=True))
        )
        schema = dump_schema(found.batches[0].schema)
        saved = SavedStream(kind=found.kind.value, format=file_format, schema=schema, files=files)
        return Materialised(stream=found, records=records, saved=saved)

    def restore(self, saved: SavedStream) -> Stream:
        """Return a stream that was materialised before, by this runner or by the Spark one."""
        kind = Kind(saved.kind)
        if kind is Kind.VALUE:
            return LocalStream(kind=kind, batches=(load_whole(self._location, saved),))
        if kind is Kind.FRAME:
            raise DefinitionError("restore", "holds a DataFrame, which needs Spark; run it with --master")
        check_buckets(self._location, saved, count=self._max_buckets)
        batches = tuple(load_bucket(self._location, saved, bucket) for bucket in range(self._max_buckets))
        return LocalStream(kind=kind, batches=batches, parallelism=min(self._parallelism, self._max_buckets))

    def cancel(self) -> None:
        """Stop before the next call of an operator."""
        self._cancelled.set()

    def close(self) -> None:
        """Release nothing: there is nothing."""

    def _call_on_values(self, invocation: Invocation) -> pa.RecordBatch:
        operator = invocation.operator
        self._check_not_cancelled()
        injected = injectable(operator, params=invocation.params, epoch=invocation.epoch)
        inputs = {name: self._whole(stream) for name, stream in invocation.inputs.items()}
        return call_on_blocks(operator, inputs, injected | {"metrics": invocation.metrics})

    def _call_on_bucket(self, invocation: Invocation, index: int) -> pa.RecordBatch:
        operator = invocation.operator
        self._check_not_cancelled()
        bucket = Bucket(index=index, count=self._max_buckets)
        injected = injectable(operator, params=invocation.params, epoch=invocation.epoch, bucket=bucket)
        return call_on_blocks(operator, self._inputs_of_bucket(invocation.inputs, index), injected)

    def _inputs_of_bucket(self, inputs: Mapping[str, Stream], index: int) -> dict[str, pa.RecordBatch]:
        found = {}
        for name, stream in inputs.items():
            if isinstance(stream, LocalData):
                found[name] = stream.bucket(index)
            else:
                own = _own(stream)
                found[name] = own.batches[index if own.kind is Kind.BUCKETS else 0]
        return found

    def _whole(self, stream: Stream) -> pa.RecordBatch:
        if isinstance(stream, LocalData):
            return stream.reader.read(range(stream.rows))
        return concat_batches(_own(stream).batches)

    def _check_not_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise ExecutionLostError("the run was cancelled")


def _own(stream: Stream) -> LocalStream:
    if not isinstance(stream, LocalStream):
        raise TypeError(f"{type(stream).__name__} is not a computed stream of this runner")
    return stream


def _needs_spark(operator: Operator) -> DefinitionError:
    return DefinitionError(
        operator.function.__module__,
        "works with Spark, which this runner is not; run it with --master",
        operator_id=operator.operator_id,
    )
