"""Which rows does a pinned data stream hold between two row numbers?

Every bucket of a stream has the same schema, that of its first row, so that a bucket without rows still has columns of
the right width. Row groups are decoded whole, and the last one is kept: buckets are read in order. A user's file is
held against its pin whenever something was read of it: it may be replaced while a run goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from iteration_lib.errors import InputError
from iteration_lib.runner.input_file import check_unchanged, reading
from iteration_lib.runner.pins import is_own, resolve
from iteration_lib.runner.seam import PinnedData, PinnedFile
from iteration_lib.state.block import ColumnError, concat_batches, describe_schema, normal_batch
from iteration_lib.state.location import StateLocation


def schema_of_data(location: StateLocation, pinned: PinnedData) -> pa.Schema:
    """Return the schema that every bucket of a pinned data stream has; raises InputError that names the column."""
    first = RowReader(location, replace(pinned, files=(file_with_rows(pinned),))).read(range(1))
    return first.schema


def file_with_rows(pinned: PinnedData) -> PinnedFile:
    """Return the first file that can tell the columns; there is one, or the stream would not have been pinned."""
    return next((file for file in pinned.files if file.rows), pinned.files[0])


@dataclass(frozen=True, slots=True)
class _Group:
    """One row group: its rows in the stream, and where it lies."""

    rows: range
    file: int
    index: int


class RowReader:
    """Reads ranges of rows of one pinned data stream; for one thread."""

    def __init__(self, location: StateLocation, pinned: PinnedData, schema: pa.Schema | None = None) -> None:
        """Read nothing yet; with a schema, every range comes with that schema."""
        self._location = location
        self._pinned = pinned
        self._schema = schema
        self._groups = tuple(self._list_groups())
        self._decoded: tuple[_Group, pa.Table] | None = None

    def read(self, rows: range) -> pa.RecordBatch:
        """Return these rows as one batch. Raises InputError that names the file and the column."""
        parts = [self._read_part(group, rows) for group in self._groups if _overlap(group.rows, rows)]
        if parts:
            return concat_batches(parts)
        if self._schema is None:
            raise InputError("a data stream without rows has no schema")
        return pa.RecordBatch.from_pylist([], schema=self._schema)

    def _read_part(self, group: _Group, rows: range) -> pa.RecordBatch:
        wanted = _overlap(group.rows, rows)
        table = self._decode(group).slice(wanted.start - group.rows.start, len(wanted))
        path = self._pinned.files[group.file].path
        try:
            batch = normal_batch(table)
        except ColumnError as err:
            raise InputError(f"input {path}: {err}") from err
        if self._schema is not None and not batch.schema.equals(self._schema, check_metadata=True):
            found, expected = describe_schema(batch.schema), describe_schema(self._schema)
            raise InputError(f"input {path} holds ({found}) in some rows, but the first row is ({expected})")
        return batch

    def _decode(self, group: _Group) -> pa.Table:
        if self._decoded is None or self._decoded[0] != group:
            columns = list(self._pinned.columns) if self._pinned.columns is not None else None
            with self._opened(self._pinned.files[group.file]) as parquet:
                table = parquet.read_row_group(group.index, columns=columns)
            self._decoded = (group, table.select(columns) if columns is not None else table)
        return self._decoded[1]

    @contextmanager
    def _opened(self, pinned: PinnedFile) -> Iterator[pq.ParquetFile]:
        """Open a file, to be read in the block; raises InputError where it is not the pinned one behind that."""
        filesystem, path = resolve(self._location, pinned.path)
        try:
            with reading(pinned.path), filesystem.open(path, "rb") as file, pq.ParquetFile(file) as parquet:
                yield parquet
        except Exception:  # another file cannot always be read as the pinned one could
            _check_user_file(pinned)
            raise
        _check_user_file(pinned)

    def _list_groups(self) -> Iterator[_Group]:
        start = 0
        for number, pinned in enumerate(self._pinned.files):
            with self._opened(pinned) as parquet:
                counts = [parquet.metadata.row_group(i).num_rows for i in range(parquet.num_row_groups)]
            for index, count in enumerate(counts):
                yield _Group(rows=range(start, start + count), file=number, index=index)
                start += count


def _check_user_file(pinned: PinnedFile) -> None:
    if not is_own(pinned.path):
        check_unchanged(pinned)


def _overlap(one: range, other: range) -> range:
    return range(max(one.start, other.start), min(one.stop, other.stop))
