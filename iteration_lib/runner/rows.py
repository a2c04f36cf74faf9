"""Which rows does a pinned data stream hold between two row numbers?

Every bucket of a stream has the same schema, that of its first row, so that a bucket without rows still has columns of
the right width. Only files that hold some of the rows are opened. Row groups are decoded whole, and the last one is
kept: buckets are read in order. A user's file is held against its pin whenever something was read of it: it may be
replaced while a run goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from iteration_lib.errors import InputError
from iteration_lib.runner.input_file import check_unchanged, open_parquet, reading
from iteration_lib.runner.pins import is_own, resolve
from iteration_lib.runner.seam import PinnedData, PinnedFile
from iteration_lib.state.block import ColumnError, concat_batches, describe_schema, normal_batch
from iteration_lib.state.location import StateLocation


def schema_of_data(location: StateLocation, pinned: PinnedData) -> pa.Schema:
    """Return the schema that every bucket of a pinned data stream has; raises InputError that names the column."""
    return RowReader(location, replace(pinned, files=(file_with_rows(pinned),))).read(range(1)).schema


def file_with_rows(pinned: PinnedData) -> PinnedFile:
    """Return the first file that can tell the columns; there is one, or the stream would not have been pinned."""
    return next((file for file in pinned.files if file.rows), pinned.files[0])


class RowReader:
    """Reads ranges of rows of one pinned data stream; for one thread."""

    def __init__(self, location: StateLocation, pinned: PinnedData, schema: pa.Schema | None = None) -> None:
        """Read nothing yet; with a schema, every range comes with that schema."""
        self._location = location
        self._pinned = pinned
        self._schema = schema
        self._rows_of_files = tuple(_consecutive(file.rows for file in pinned.files))
        self._decoded: tuple[range, pa.Table] = (range(0), pa.table({}))

    def read(self, rows: range) -> pa.RecordBatch:
        """Return these rows as one batch. Raises InputError that names the file and the column."""
        parts = [
            self._normal(file, table)
            for file, held in zip(self._pinned.files, self._rows_of_files, strict=True)
            if (wanted := _overlap(held, rows))
            for table in self._read_file(file, held.start, wanted)
        ]
        if parts:
            return concat_batches(parts)
        if self._schema is None:
            raise InputError("a data stream without rows has no schema")
        return pa.RecordBatch.from_pylist([], schema=self._schema)

    def without_rows(self) -> RowReader:
        """Return a reader of the same columns that has no rows, and opens nothing."""
        return RowReader(self._location, self._pinned.without_rows(), self._schema)

    def _read_file(self, file: PinnedFile, first: int, wanted: range) -> list[pa.Table]:
        """Return some rows of a file, of which `first` is the first row: a table per row group."""
        if _overlap(self._decoded[0], wanted) == wanted:
            return [_slice(self._decoded, wanted)]
        tables, decoded = [], self._decoded
        with self._opened(file) as (parquet, use_threads):
            counts = (parquet.metadata.row_group(group).num_rows for group in range(parquet.num_row_groups))
            for group, rows in enumerate(_consecutive(counts, first)):
                if part := _overlap(rows, wanted):
                    if rows != decoded[0]:
                        decoded = (rows, self._decode(parquet, group, use_threads=use_threads))
                    tables.append(_slice(decoded, part))
        self._decoded = decoded  # known to be of the pinned file only now
        return tables

    def _decode(self, parquet: pq.ParquetFile, group: int, *, use_threads: bool) -> pa.Table:
        if self._pinned.columns is None:
            return parquet.read_row_group(group, use_threads=use_threads)
        columns = list(self._pinned.columns)
        return parquet.read_row_group(group, columns=columns, use_threads=use_threads).select(columns)

    def _normal(self, file: PinnedFile, table: pa.Table) -> pa.RecordBatch:
        try:
            batch = normal_batch(table)
        except ColumnError as err:
            raise InputError(f"input {file.path}: {err}") from err
        if self._schema is not None and not batch.schema.equals(self._schema, check_metadata=True):
            found, expected = describe_schema(batch.schema), describe_schema(self._schema)
            raise InputError(f"input {file.path} holds ({found}) in some rows, but the first row is ({expected})")
        return batch

    @contextmanager
    def _opened(self, pinned: PinnedFile) -> Iterator[tuple[pq.ParquetFile, bool]]:
        """Open a file, to be read in the block; raises InputError where it is not the pinned one behind that."""
        filesystem, path = resolve(self._location, pinned.path)
        try:
            with reading(pinned.path), open_parquet(filesystem, path) as opened:
                yield opened
        except Exception:  # another file cannot always be read as the pinned one could
            self._check_user_file(pinned)
            raise
        self._check_user_file(pinned)

    def _check_user_file(self, pinned: PinnedFile) -> None:
        if not is_own(pinned.path):
            check_unchanged(pinned)


def _slice(decoded: tuple[range, pa.Table], wanted: range) -> pa.Table:
    rows, table = decoded
    return table.slice(wanted.start - rows.start, len(wanted))


def _consecutive(counts: Iterable[int], first: int = 0) -> Iterator[range]:
    """Yield the row numbers of parts of so many rows, of which the first begins with row `first`."""
    for count in counts:
        yield range(first, first + count)
        first += count


def _overlap(one: range, other: range) -> range:
    return range(max(one.start, other.start), min(one.stop, other.stop))
