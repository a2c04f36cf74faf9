"""How do a stream's batches lie in a file, and how does one bucket come back?

An Arrow file holds one record batch per bucket, uncompressed, so that a bucket is mapped into memory by itself. A
Parquet file is what is published: its rows have a digest, and its metadata says how many rows each bucket has. Whoever
reads a file compares how many rows it holds with how many were counted when it was written.
"""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq

from iteration_lib.errors import StateCorruptedError
from iteration_lib.state.block import batch_without_rows, concat_batches, one_batch
from iteration_lib.state.digest import NO_ROWS, row_digest
from iteration_lib.state.files import NewFile, create_file, open_verified
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import FileFormat, SavedFile, SavedStream

_BUCKET_ROWS = b"iteration.bucket_rows"


def save_batches(
    location: StateLocation,
    path: str,
    batches: Sequence[pa.RecordBatch],
    *,
    file_format: FileFormat,
    buckets: range | None = None,
) -> SavedFile:
    """Write batches of one schema into a new file; with `buckets`, there is one batch for each of them, in order."""
    with create_file(location, path) as new:
        if file_format is FileFormat.ARROW:
            _write_arrow(new, batches)
        else:
            _write_parquet(new, batches, in_buckets=buckets is not None)
    return SavedFile(
        path=path,
        size_bytes=new.written.size_bytes,
        sha256=new.written.sha256,
        rows=sum(batch.num_rows for batch in batches),
        first_bucket=buckets.start if buckets is not None else None,
        end_bucket=buckets.stop if buckets is not None else None,
        row_digest=row_digest(batches).hex if file_format is FileFormat.PARQUET else None,
    )


def save_table(
    location: StateLocation, path: str, batches: Iterator[pa.RecordBatch], *, has_digest: bool
) -> tuple[SavedFile, pa.Schema] | None:
    """Write batches into a new Parquet file as they come; writes nothing and returns None where there are no rows."""
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return None
    digest, rows = NO_ROWS, 0
    with create_file(location, path) as new, pq.ParquetWriter(new, first.schema) as writer:
        for batch in itertools.chain([first], batches):
            writer.write_batch(batch)
            rows += batch.num_rows
            digest += row_digest([batch]) if has_digest else NO_ROWS
    file = SavedFile(
        path=path,
        size_bytes=new.written.size_bytes,
        sha256=new.written.sha256,
        rows=rows,
        row_digest=digest.hex if has_digest else None,
    )
    return file, first.schema


def save_no_rows(location: StateLocation, stream: SavedStream, folder: str) -> SavedFile:
    """Write a new file of a published stream that has its columns and no rows."""
    nothing = batch_without_rows(load_schema(stream))
    return save_batches(location, new_part_path(folder, 0, stream.format), [nothing], file_format=stream.format)


def new_part_path(folder: str, subtask: int, file_format: FileFormat) -> str:
    """Return a path that no other write has: a repeated task must not meet the file of its first try."""
    return f"{folder}/part-{subtask:05d}-{secrets.token_hex(8)}.{file_format.value}"


def load_whole(location: StateLocation, stream: SavedStream) -> pa.RecordBatch:
    """Return all rows of a stream as one batch, in order. Raises StateCorruptedError that names the file."""
    batches = [batch for file in stream.files for batch in _batches(location, stream, file)]
    return concat_batches(batches or [batch_without_rows(load_schema(stream))])


class BucketReader:
    """Reads buckets of one stream; keeps the file that it has opened last, since buckets are read in order."""

    def __init__(self, location: StateLocation, stream: SavedStream) -> None:
        """Open nothing yet."""
        self._location = location
        self._stream = stream
        self._opened: tuple[SavedFile, list[pa.RecordBatch]] | None = None

    def bucket(self, index: int) -> pa.RecordBatch:
        """Return one bucket. Raises StateCorruptedError that names the file."""
        for file in self._stream.files:
            if index in file.buckets:
                return self._open(file)[index - file.buckets.start]
        raise StateCorruptedError(self._location.uri, f"holds no bucket {index}")

    def _open(self, file: SavedFile) -> list[pa.RecordBatch]:
        if self._opened is None or self._opened[0] != file:
            self._opened = (file, load_buckets(self._location, self._stream, file))
        return self._opened[1]


def load_buckets(location: StateLocation, stream: SavedStream, file: SavedFile) -> list[pa.RecordBatch]:
    """Return every bucket that one file of a stream holds; raises StateCorruptedError that names it."""
    if stream.format is FileFormat.ARROW:
        batches = _arrow_batches(location, file)
    else:
        batches = _parquet_buckets(location, stream, file)
    _check_count(location, file, "buckets", found=len(batches), written=len(file.buckets))
    return batches


def verify_rows(location: StateLocation, stream: SavedStream, file: SavedFile) -> list[int]:
    """Verify one file of a stream and return the rows of each bucket inside; none of a file that has no buckets.

    Raises StateCorruptedError that names the file.
    """
    if file.buckets or stream.format is FileFormat.ARROW:
        return [batch.num_rows for batch in load_buckets(location, stream, file)]
    with _open_parquet(location, file) as parquet:
        _check_rows(location, file, parquet.metadata.num_rows)
    return []


def iterate_file(location: StateLocation, stream: SavedStream, file: SavedFile) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one Parquet file of a stream, a batch at a time; raises StateCorruptedError that names it."""
    schema = load_schema(stream)
    with _open_parquet(location, file) as parquet:
        _check_rows(location, file, parquet.metadata.num_rows)
        for batch in parquet.iter_batches():
            yield _as_written(batch, schema)


def check_buckets(location: StateLocation, stream: SavedStream, *, count: int) -> None:
    """Check that a stream's files hold `count` buckets, each once; raises StateCorruptedError."""
    missing = missing_buckets(location, stream, count=count)
    if missing:
        shown = ", ".join(_show(buckets) for buckets in missing)
        raise StateCorruptedError(location.uri, f"lacks the buckets {shown} of a stream, of which the run has {count}")


def missing_buckets(location: StateLocation, stream: SavedStream, *, count: int) -> tuple[range, ...]:
    """Return the ranges of `count` buckets that no file of a stream holds.

    Raises StateCorruptedError for a file that holds none, or some that are not above those of the file before it.
    """
    missing, end = [], 0
    for file in stream.files:
        if not file.buckets or file.buckets.start < end or file.buckets.stop > count:
            held = f"the buckets {_show(file.buckets)}" if file.buckets else "no buckets"
            problem = f"holds {held}, where some of {_show(range(end, count))} are to come"
            raise StateCorruptedError(location.path(file.path), problem)
        missing.append(range(end, file.buckets.start))
        end = file.buckets.stop
    return tuple(buckets for buckets in (*missing, range(end, count)) if buckets)


def load_schema(stream: SavedStream) -> pa.Schema:
    """Return the Arrow schema of a saved stream."""
    return read_schema(stream.schema)


def read_schema(text: str) -> pa.Schema:
    """Return the Arrow schema that `dump_schema` wrote."""
    return pa.ipc.read_schema(pa.BufferReader(bytes.fromhex(text)))


def dump_schema(schema: pa.Schema) -> str:
    """Return an Arrow schema as a saved stream holds it."""
    text: str = schema.serialize().to_pybytes().hex()
    return text


def _write_arrow(new: NewFile, batches: Sequence[pa.RecordBatch]) -> None:
    with pa.ipc.new_file(new, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _write_parquet(new: NewFile, batches: Sequence[pa.RecordBatch], *, in_buckets: bool) -> None:
    with pq.ParquetWriter(new, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
        if in_buckets:
            writer.add_key_value_metadata({_BUCKET_ROWS: json.dumps([batch.num_rows for batch in batches])})


def _batches(location: StateLocation, stream: SavedStream, file: SavedFile) -> Iterable[pa.RecordBatch]:
    if stream.format is FileFormat.ARROW:
        return _arrow_batches(location, file)
    if not file.rows:
        return []
    with _open_parquet(location, file) as parquet:
        return [_read_rows(location, stream, file, parquet)]


def _arrow_batches(location: StateLocation, file: SavedFile) -> list[pa.RecordBatch]:
    reader = _open_arrow(location, file)
    batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
    _check_rows(location, file, sum(batch.num_rows for batch in batches))
    return batches


def _parquet_buckets(location: StateLocation, stream: SavedStream, file: SavedFile) -> list[pa.RecordBatch]:
    with _open_parquet(location, file) as parquet:
        counts = cast("list[int]", json.loads(parquet.metadata.metadata[_BUCKET_ROWS]))
        whole = _read_rows(location, stream, file, parquet)
    _check_rows(location, file, sum(counts))
    starts = itertools.accumulate(counts, initial=0)
    return [whole.slice(start, length) for start, length in zip(starts, counts, strict=False)]


def _read_rows(
    location: StateLocation, stream: SavedStream, file: SavedFile, parquet: pq.ParquetFile
) -> pa.RecordBatch:
    table = parquet.read()
    _check_rows(location, file, table.num_rows)
    return _as_written(one_batch(table), load_schema(stream))


def _open_arrow(location: StateLocation, file: SavedFile) -> pa.RecordBatchFileReader:
    source = open_verified(location, file.path, size_bytes=file.size_bytes, sha256=file.sha256)
    return pa.ipc.open_file(source)


def _open_parquet(location: StateLocation, file: SavedFile) -> pq.ParquetFile:
    source = open_verified(location, file.path, size_bytes=file.size_bytes, sha256=file.sha256)
    return pq.ParquetFile(source)


def _check_rows(location: StateLocation, file: SavedFile, found: int) -> None:
    _check_count(location, file, "rows", found=found, written=file.rows)


def _check_count(location: StateLocation, file: SavedFile, what: str, *, found: int, written: int) -> None:
    if found != written:
        raise StateCorruptedError(location.path(file.path), f"holds {found} {what}, but {written} were written")


def _as_written(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of a Parquet file as the stream had them: Parquet has fewer types, and adds to what fields say."""
    columns = [_in_type(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _in_type(column: pa.Array, found: pa.DataType) -> pa.Array:
    """Return a column in another type of the same values: Parquet gives dictionaries of texts with other indices."""
    if column.type == found:
        return column
    if pa.types.is_dictionary(found):
        encoded = column.dictionary_encode()
        return pa.DictionaryArray.from_arrays(
            encoded.indices.cast(found.index_type), encoded.dictionary.cast(found.value_type), ordered=found.ordered
        )
    try:
        return column.cast(found)
    except pa.ArrowNotImplementedError:  # a dictionary inside
        return _with_inner_types(pa.concat_arrays([column]), found)  # which begins at its first row


def _with_inner_types(column: pa.Array, found: pa.DataType) -> pa.Array:
    nulls = column.is_null() if column.null_count else None
    if pa.types.is_struct(found):
        inner = [_in_type(column.field(number), field.type) for number, field in enumerate(found)]
        return pa.StructArray.from_arrays(inner, fields=list(found), mask=nulls)
    if pa.types.is_map(found):
        keys, items = _in_type(column.keys, found.key_type), _in_type(column.items, found.item_type)
        return pa.MapArray.from_arrays(column.offsets, keys, items, found, mask=nulls)
    values = _in_type(column.values, found.value_type)
    if pa.types.is_fixed_size_list(found):
        return pa.FixedSizeListArray.from_arrays(values, type=found, mask=nulls)
    of_lists = pa.LargeListArray if pa.types.is_large_list(found) else pa.ListArray
    return of_lists.from_arrays(column.offsets, values, type=found, mask=nulls)


def _show(buckets: range) -> str:
    return f"{buckets.start} to {buckets.stop - 1}"
