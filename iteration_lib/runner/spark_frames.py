"""How do streams become DataFrames, and how is a DataFrame computed once?

A materialised DataFrame is Parquet files that the executors wrote, with their digests, in one job; from then on it is
read from these files, so that its lineage is cut and nothing is lost with an executor. A result with several consumers
is persisted until it is materialised, or until the epoch after the next.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from iteration_lib.errors import OperatorFailedError, OperatorResultError
from iteration_lib.model.operator import Operator
from iteration_lib.runner.input_file import check_unchanged, open_parquet, reading
from iteration_lib.runner.pins import is_own, resolve
from iteration_lib.runner.plan import PartsNode
from iteration_lib.runner.rows import file_with_rows
from iteration_lib.runner.seam import PinnedData, PinnedFile
from iteration_lib.runner.spark_broadcast import shipped
from iteration_lib.runner.spark_errors import CLOSED
from iteration_lib.runner.spark_jobs import SparkJobs
from iteration_lib.runner.spark_streams import FrameStream
from iteration_lib.runner.spark_tasks import (
    RESULT_SCHEMA,
    as_spark_has_it,
    in_tasks,
    load_rows,
    read_parts,
    verify_files,
    write_rows,
)
from iteration_lib.state.block import ColumnError, batch_without_rows, normal_batch
from iteration_lib.state.files import create_file
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import FileFormat, SavedFile, SavedStream
from iteration_lib.state.streams import dump_schema, load_schema, new_part_path, read_schema

_Result = TypeVar("_Result")

_CHECKS_AT_ONCE = 16
_SPARK_SCHEMA = b"spark.schema"
_HADOOP_SCHEMES = {"s3": "s3a", "gcs": "gs", "abfs": "abfss"}


class Frames:
    """Reads and writes DataFrames."""

    def __init__(
        self, spark: SparkSession, jobs: SparkJobs, location: StateLocation, *, parallelism: int, scratch: str
    ) -> None:
        """Work on `spark`, in the folder of one run; what is for a while is written under `scratch`."""
        self._scratch = scratch
        self._spark = spark
        self._location = location
        self._parallelism = parallelism
        self._jobs = jobs
        self._persisted: list[tuple[int | None, DataFrame]] = []
        self._shipped: dict[int | None, ExitStack] = {}

    def persist(self, frame: DataFrame, *, epoch: int | None) -> DataFrame:
        """Keep a DataFrame's rows when they are first computed, so that its consumers share them."""
        self._persisted.append((epoch, frame))  # first: a signal may come in between
        return frame.persist()

    def release(self, *, before_epoch: int) -> None:
        """Drop the rows that were kept for earlier epochs."""
        self._drop([frame for epoch, frame in self._persisted if epoch is not None and epoch < before_epoch])
        for epoch in [epoch for epoch in self._shipped if epoch is not None and epoch < before_epoch]:
            self._shipped.pop(epoch).close()

    def release_all(self) -> None:
        """Drop all rows that were kept."""
        self._drop([frame for _, frame in self._persisted])
        for kept in self._shipped.values():
            kept.close()

    def of_pinned(self, pinned: PinnedData) -> DataFrame:
        """Return a data stream as a DataFrame that Spark reads from the pinned files itself, its columns known."""
        frame = self._read_pinned(pinned, [self._address(file.path) for file in pinned.files])
        _ = frame.schema  # Spark Connect would ask when they are wanted, of files that are others by then
        return frame

    def without_rows(self, frame: DataFrame) -> DataFrame:
        """Return the columns of a DataFrame."""
        return self._spark.createDataFrame([], frame.schema)

    def of_batch(self, batch: pa.RecordBatch) -> DataFrame:
        """Return a batch as a small DataFrame."""
        table = pa.Table.from_batches([as_spark_has_it(batch)])
        schema = from_arrow_schema(table.schema)
        return self._spark.createDataFrame(table, schema) if len(table) else self._spark.createDataFrame([], schema)

    def of_parts(self, parts: PartsNode, *, epoch: int | None) -> DataFrame:
        """Return computed buckets as a DataFrame, read by the executors until an epoch's rows are released."""
        schema = from_arrow_schema(as_spark_has_it(batch_without_rows(load_schema(parts.saved))).schema)
        each = [replace(parts, parts=(part,)) for part in parts.parts]
        read = self._shipped.setdefault(epoch, ExitStack()).enter_context(shipped(self._spark, read_parts(each)))
        return self._spark.range(0, len(each), 1, len(each)).mapInArrow(read, schema)

    def collect(self, stream: FrameStream) -> pa.RecordBatch:
        """Return all rows of a DataFrame, in no particular order, the same for all who ask.

        Raises OperatorResultError for nulls and for what no array holds.
        """
        if stream.collected is not None:
            return stream.collected
        table = self._run(stream, stream.frame.toArrow)
        try:
            stream.collected = normal_batch(table)
        except ColumnError as err:
            raise OperatorResultError(
                operator_id=stream.operator.operator_id if stream.operator is not None else stream.description,
                problem=f"returned a DataFrame that an operator on whole values takes as arrays, but {err}",
            ) from err
        return stream.collected

    def write(self, stream: FrameStream, *, folder: str) -> SavedStream:
        """Compute a DataFrame and write it into a folder, in one job; the stream is then read from there."""
        saved, records = self._write(stream, folder, has_digest=False)
        with self._jobs.errors(stream.operator, stream.epoch):
            frame = self._read(saved, stream.frame.schema)
        self._drop([stream.frame])
        stream.frame, stream.saved, stream.records, stream.sources = frame, saved, records, frozenset()
        return saved

    def publish(self, stream: FrameStream, *, folder: str) -> tuple[SavedStream, tuple[int, ...]]:
        """Write a DataFrame into a folder that a sink may remove at any time: the stream stays what it was.

        Returns the files, and the rows of each partition.
        """
        return self._write(stream, folder, has_digest=True)

    def restore(self, saved: SavedStream) -> FrameStream:
        """Return a DataFrame that was written before, its files verified by the executors."""
        struct = StructType.fromJson(json.loads(load_schema(saved).metadata[_SPARK_SCHEMA]))
        self.verify(saved)
        with self._jobs.errors(None, None):
            frame = self._read(saved, struct)
        return FrameStream(
            frame=frame,
            operator=None,
            epoch=None,
            description="restored",
            saved=saved,
            records=tuple(file.rows for file in saved.files),
        )

    def verify(self, saved: SavedStream) -> list[tuple[int, ...]]:
        """Let the executors verify a stream's files; return the rows of each file's buckets.

        Raises StateCorruptedError that names the first bad one.
        """
        tasks = min(self._parallelism, len(saved.files))
        if tasks == 0:
            return []
        verify = in_tasks(verify_files(self._location, saved, tasks))

        def run() -> pa.Table:
            return self._spark.range(0, tasks, 1, tasks).mapInArrow(verify, RESULT_SCHEMA).toArrow()

        result = self._jobs.run(run, operator=None, epoch=None, description="restore")
        return [tuple(json.loads(row["header"])) for row in load_rows(result)]

    def _read_pinned(self, pinned: PinnedData, paths: Sequence[str]) -> DataFrame:
        """Read the chosen columns; Spark looks at all that a file has, and may have no type for another one."""
        if pinned.columns is None:
            return self._spark.read.parquet(*paths)
        try:
            known = self._spark.read.parquet(*paths).schema
        except AnalysisException:
            known = self._ask_for_columns(pinned, pinned.columns)
        return self._spark.read.schema(StructType([known[name] for name in pinned.columns])).parquet(*paths)

    def _ask_for_columns(self, pinned: PinnedData, columns: Sequence[str]) -> StructType:
        """Ask Spark for its types of these columns by a file that has no others, and no rows."""
        file = file_with_rows(pinned)
        filesystem, path = resolve(self._location, file.path)
        with reading(file.path), open_parquet(filesystem, path) as (parquet, _):
            schema = parquet.schema_arrow
        asked = new_part_path(f"{self._scratch}/columns", 0, FileFormat.PARQUET)
        with create_file(self._location, asked) as new:
            pq.write_table(pa.schema([schema.field(name) for name in columns]).empty_table(), new)
        return self._spark.read.parquet(self._address(asked)).schema

    def _write(self, stream: FrameStream, folder: str, *, has_digest: bool) -> tuple[SavedStream, tuple[int, ...]]:
        def compute() -> tuple[StructType, pa.Table]:
            names = stream.frame.columns
            write = write_rows(self._location, folder, names=names, has_digest=has_digest)
            numbered = stream.frame.toDF(*map(str, range(len(names))))  # pyspark resolves names: dots, say, are fields
            return stream.frame.schema, numbered.mapInArrow(write, RESULT_SCHEMA).toArrow()

        struct, result = self._run(stream, compute)
        headers = [json.loads(row["header"]) for row in load_rows(result)]
        files = [SavedFile(**header["file"]) if header else None for header in headers]
        schemas = [read_schema(header["schema"]) for header in headers if header]
        schema = schemas[0] if schemas else self._run(stream, lambda: stream.frame.limit(0).toArrow()).schema
        saved = SavedStream(
            kind=stream.kind.value,
            format=FileFormat.PARQUET,
            schema=dump_schema(schema.with_metadata({_SPARK_SCHEMA: struct.json()})),
            files=tuple(file for file in files if file is not None),
        )
        return saved, tuple(file.rows if file is not None else 0 for file in files)

    def run(
        self,
        call: Callable[[], _Result],
        *,
        operator: Operator | None,
        epoch: int | None,
        description: str,
        sources: Collection[PinnedFile],
    ) -> _Result:
        """Return what a call returns that may read the user's files; raises as SparkJobs.run does.

        Raises InputError where one of these files is not the pinned one behind it.
        """
        try:
            found = self._jobs.run(call, operator=operator, epoch=epoch, description=description)
        except OperatorFailedError:  # another file cannot always be read as the pinned one could
            _check_unchanged(sources)
            raise
        _check_unchanged(sources)
        return found

    def _run(self, stream: FrameStream, call: Callable[[], _Result]) -> _Result:
        return self.run(
            call,
            operator=stream.operator,
            epoch=stream.epoch,
            description=stream.description,
            sources=stream.sources,
        )

    def _drop(self, frames: Sequence[DataFrame]) -> None:
        for kept in [kept for kept in self._persisted if any(kept[1] is frame for frame in frames)]:
            with suppress(*CLOSED):
                kept[1].unpersist()
            self._persisted.remove(kept)

    def _read(self, saved: SavedStream, struct: StructType) -> DataFrame:
        paths = [self._address(file.path) for file in saved.files]
        if not paths:
            return self._spark.createDataFrame([], struct)
        return self._spark.read.schema(struct).parquet(*paths)

    def _address(self, path: str) -> str:
        """Return a file's address as Spark takes it: a URI in Hadoop's scheme, its globbing characters escaped."""
        full = self._location.path(path) if is_own(path) else path
        escaped = "".join(f"\\{character}" if character in "{}[]*?\\" else character for character in full)
        scheme, separator, rest = escaped.partition("://")
        return f"{_HADOOP_SCHEMES.get(scheme, scheme)}://{rest}" if separator else f"file://{escaped}"


def _check_unchanged(files: Collection[PinnedFile]) -> None:
    if files:
        with ThreadPoolExecutor(_CHECKS_AT_ONCE) as pool:  # for the sake of stores that take their time
            list(pool.map(check_unchanged, files))


def check_frame(frame: object, *, operator_id: str) -> DataFrame:
    """Return what a transform returned, if it is a DataFrame with columns of its own; else OperatorResultError."""
    if not isinstance(frame, DataFrame):
        raise OperatorResultError(
            operator_id=operator_id, problem=f"returned a {type(frame).__name__}; a transform returns a DataFrame"
        )
    twice = _first_twice(frame.columns)
    if twice is not None:
        raise OperatorResultError(operator_id=operator_id, problem=f"returned two columns {twice!r}; rename one")
    return frame


def _first_twice(names: Sequence[str]) -> str | None:
    return next((name for name in names if names.count(name) > 1), None)
