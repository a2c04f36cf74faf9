"""What does a Spark task do for this project?

These functions run on executors, inside mapInArrow: one row in per subtask, one row out per result. A task says in its
result what it computed and which file it wrote, so that only what Spark counts as its result counts here; what a
failed or repeated task wrote has a name that nobody learns. What they import is there (docs/clusters.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark import TaskContext

from iteration_lib.errors import IterationError, StateLocationError
from iteration_lib.runner.calling import one_thread
from iteration_lib.runner.node_cache import remove_scope
from iteration_lib.runner.part_header import PartHeader, write_sidecar
from iteration_lib.runner.plan import Evaluation, Node, Part, PartsNode, PartsReader
from iteration_lib.runner.remote_error import PassingError, dump_error, load_error
from iteration_lib.state.block import ColumnError
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import FileFormat, SavedStream
from iteration_lib.state.streams import dump_schema, new_part_path, save_batches, save_table, verify_rows

Batches: TypeAlias = Iterator[pa.RecordBatch]
MapInArrow: TypeAlias = Callable[[Batches], Batches]

RESULT_SCHEMA = "subtask int, output int, header string, batches binary"
_ARROW_SCHEMA = pa.schema(
    [("subtask", pa.int32()), ("output", pa.int32()), ("header", pa.string()), ("batches", pa.binary())]
)

# Types that Spark has not, and what holds their numbers: all of them, but for uint64's largest.
_NOT_IN_SPARK = {
    pa.float16(): "float32",
    pa.uint8(): "int16",
    pa.uint16(): "int32",
    pa.uint32(): "int64",
    pa.uint64(): "int64",
}

# Larger results of a subtask go through a file, so that they cannot fill the driver's memory.
INLINE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What to compute, and where it goes: into `folder`, or back to the driver unless it is too large for that."""

    node: Node
    folder: str | None
    format: FileFormat = FileFormat.ARROW


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketTask:
    """Computes several outputs in one pass; subtask i does the buckets `ranges[i]`, range after range.

    With `sidecars`, the driver hears of every part in that folder, too, as soon as its file is durable.
    """

    outputs: tuple[Output, ...]
    ranges: tuple[tuple[range, ...], ...]
    location: StateLocation
    scratch: str
    sidecars: str | None = None

    def run(self, subtask: int) -> Iterator[dict[str, object]]:
        """Compute one subtask's buckets, and yield one row per range and output."""
        evaluation = Evaluation()
        for buckets in self.ranges[subtask]:
            with one_thread():
                results = self._compute(evaluation, buckets)
            for number, (output, batches) in enumerate(zip(self.outputs, results, strict=True)):
                header = self._write(evaluation, output, batches, subtask=subtask, buckets=buckets)
                packed = _pack(batches) if header.file is None else b""
                yield {"subtask": subtask, "output": number, "header": header.to_json(), "batches": packed}

    def _compute(self, evaluation: Evaluation, buckets: range) -> list[list[pa.RecordBatch]]:
        nodes = [output.node for output in self.outputs]
        by_bucket = [evaluation.buckets(nodes, index) for index in buckets]
        return [list(batches) for batches in zip(*by_bucket, strict=True)]

    def _write(
        self,
        evaluation: Evaluation,
        output: Output,
        batches: Sequence[pa.RecordBatch],
        *,
        subtask: int,
        buckets: range,
    ) -> PartHeader:
        """Write a part where it is to go, if that is a file, and say what it is."""
        file, folder = None, output.folder
        if folder is not None or sum(batch.nbytes for batch in batches) > INLINE_BYTES:
            path = new_part_path(folder or self.scratch, subtask, output.format)
            file = save_batches(self.location, path, batches, file_format=output.format, buckets=buckets)
        header = PartHeader(
            buckets=buckets,
            rows=tuple(batch.num_rows for batch in batches),
            schema=dump_schema(batches[0].schema),
            calls={number: (index, dump_schema(schema)) for number, (index, schema) in evaluation.schemas.items()},
            file=file,
        )
        if self.sidecars is not None:
            with suppress(StateLocationError):  # the job's result says the same
                write_sidecar(self.location, self.sidecars, header)
        return header


def in_tasks(run: Callable[[int], Iterator[dict[str, object]]]) -> MapInArrow:
    """Return the function for mapInArrow that runs `run` for each subtask number that it gets."""

    def run_subtasks(batches: Batches) -> Batches:
        for batch in batches:
            for subtask in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pylist(_rows_or_error(run, subtask), schema=_ARROW_SCHEMA)

    return run_subtasks


def _rows_or_error(run: Callable[[int], Iterator[dict[str, object]]], subtask: int) -> list[dict[str, object]]:
    try:
        return list(run(subtask))
    except IterationError as err:
        return [_error_row(subtask, err)]


def _error_row(subtask: int, err: IterationError) -> dict[str, object]:
    """Return the row that tells of an error; raises what may pass, so that Spark tries the task again."""
    if err.is_passing:
        raise PassingError(err) from None  # it carries where that came from
    return {"subtask": subtask, "output": -1, "header": dump_error(err), "batches": b""}


def remove_cached(scope: str) -> MapInArrow:
    """Return the function for mapInArrow that removes what a scope holds on the node of each task; it gives no rows."""

    def remove_on_node(batches: Batches) -> Batches:
        for _ in batches:
            remove_scope(scope)
        yield from ()

    return remove_on_node


def write_rows(location: StateLocation, folder: str, *, names: Sequence[str], has_digest: bool) -> MapInArrow:
    """Return the function for mapInArrow that writes each partition of a DataFrame into a Parquet file of its own.

    The columns get these names.
    """

    def write_partition(batches: Batches) -> Batches:
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        try:
            path = new_part_path(folder, partition, FileFormat.PARQUET)
            named = (batch.rename_columns(names) for batch in batches)
            saved = save_table(location, path, named, has_digest=has_digest)
            header = {"file": asdict(saved[0]), "schema": dump_schema(saved[1])} if saved is not None else {}
            row: dict[str, object] = {"subtask": partition, "output": 0, "header": json.dumps(header), "batches": b""}
        except IterationError as err:
            row = _error_row(partition, err)
        yield pa.RecordBatch.from_pylist([row], schema=_ARROW_SCHEMA)

    return write_partition


def read_parts(parts: Sequence[PartsNode]) -> MapInArrow:
    """Return the function for mapInArrow that gives the rows of the parts whose numbers it gets."""

    def read_rows(batches: Batches) -> Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                reader = PartsReader(parts[number])
                for index in parts[number].parts[0].buckets:
                    yield as_spark_has_it(reader.bucket(index))

    return read_rows


def verify_files(
    location: StateLocation, saved: SavedStream, tasks: int
) -> Callable[[int], Iterator[dict[str, object]]]:
    """Return what a task does to verify every `tasks`-th file of a stream, rows and all, and to count its buckets'."""

    def verify(subtask: int) -> Iterator[dict[str, object]]:
        for number in range(subtask, len(saved.files), tasks):
            rows = verify_rows(location, saved, saved.files[number])
            yield {"subtask": number, "output": 0, "header": json.dumps(rows), "batches": b""}

    return verify


def as_spark_has_it(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch whose fixed_size_list columns are lists, and whose times are in microseconds.

    Raises ColumnError for a time that would lose something, and for a type that Spark has not.
    """
    columns = [_as_spark_has_it(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _as_spark_has_it(name: str, column: pa.Array) -> pa.Array:
    wanted = _type_in_spark(name, column.type)
    try:
        return column if column.type == wanted else column.cast(wanted)
    except pa.ArrowInvalid as err:
        raise ColumnError(name, f"holds times that microseconds, which Spark has, do not hold ({err})") from err


def _type_in_spark(name: str, found: pa.DataType) -> pa.DataType:
    if pa.types.is_fixed_size_list(found):
        return pa.list_(_type_in_spark(name, found.value_type))
    if found in _NOT_IN_SPARK:
        raise ColumnError(name, f"has the type {found}, which Spark has not; return it as {_NOT_IN_SPARK[found]}")
    if pa.types.is_timestamp(found):
        return pa.timestamp("us", found.tz)
    return pa.duration("us") if pa.types.is_duration(found) else found


def load_rows(result: pa.Table) -> list[dict[str, Any]]:  # Any: what Arrow gives for a row
    """Return a job's rows in the order of the subtasks; raises the error of the first subtask that had one."""
    rows = sorted(result.to_pylist(), key=lambda row: int(row["subtask"]))
    for row in rows:
        if row["output"] < 0:
            raise load_error(row["header"])
    return rows


def load_part(header: PartHeader, packed: bytes) -> Part:
    """Return the part that a task computed, from what its row holds."""
    batches = _unpack(packed) if header.file is None else None
    return Part(buckets=header.buckets, rows=header.rows, batches=batches, file=header.file)


def _pack(batches: Sequence[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _unpack(packed: bytes) -> tuple[pa.RecordBatch, ...]:
    with pa.ipc.open_stream(pa.BufferReader(packed)) as reader:
        return tuple(reader)
