"""Are two streams the same rows, wherever and in whatever order they lie?

`row_digest` is a SHA-256 per row, summed modulo 2**256: the order of rows, the order of columns, files and buckets do
not show; how often a row is there does. Because it is a sum, executors digest their parts and the driver adds them up.
It tells accidents apart, not attackers: a sum of hashes can be met on purpose.

A row is its columns, sorted by name, each value as: one byte (0 null, 1 present), then a number's bytes (little-endian,
so that -0.0 is not 0.0, and one NaN is another only if their bits differ), or a text's length (8 bytes) and its UTF-8,
or a list's length (8 bytes) and its elements, likewise, or a struct's fields, likewise, in order of name (those of one
name in the order that the type has).

How Arrow lays a type out does not show: `canonical_schema` writes string for large_string and list<double> for a
fixed_size_list of any width. The schema is digested once per stream, in `state_digest`, not once per row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iteration_lib.state.digestible import drop_nulls
from iteration_lib.state.saved import SavedStream

_MODULUS = 1 << 256
_ABSENT, _PRESENT = b"\x00", b"\x01"

Bytes2D = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDigest:
    """The digest of some rows; parts add up to the digest of the whole."""

    rows: int
    total: int

    def __add__(self, other: RowDigest) -> RowDigest:
        return RowDigest(rows=self.rows + other.rows, total=(self.total + other.total) % _MODULUS)

    @property
    def hex(self) -> str:
        """The total as 64 hexadecimal digits."""
        return f"{self.total:064x}"


NO_ROWS = RowDigest(rows=0, total=0)


def row_digest(batches: Iterable[pa.RecordBatch]) -> RowDigest:
    """Return the digest of all rows of batches of one schema."""
    digest = NO_ROWS
    for batch in batches:
        digest += _digest_batch(batch)
    return digest


def state_digest(outputs: Mapping[str, SavedStream]) -> str:
    """Return one SHA-256 over names, schemas, record counts and row digests of published outputs.

    Raises ValueError for a stream without row digests: only Parquet files carry them.
    """
    described = [_describe_output(name, outputs[name]) for name in sorted(outputs)]
    return hashlib.sha256(json.dumps(described, separators=(",", ":")).encode()).hexdigest()


def canonical_schema(schema: pa.Schema) -> list[list[str]]:
    """Return [name, type] of every column, sorted by name, without what is only layout."""
    return sorted([field.name, _canonical_type(field.type)] for field in schema)


def _describe_output(name: str, stream: SavedStream) -> list[object]:
    digest = NO_ROWS
    for file in stream.files:
        if file.row_digest is None:
            raise ValueError(f"{file.path} has no row digest; publish it as Parquet")
        digest += RowDigest(rows=file.rows, total=int(file.row_digest, 16))
    schema = pa.ipc.read_schema(pa.BufferReader(bytes.fromhex(stream.schema)))
    return [name, canonical_schema(schema), digest.rows, digest.hex]


def _digest_batch(batch: pa.RecordBatch) -> RowDigest:
    if batch.num_rows == 0:
        return NO_ROWS
    order = sorted(range(batch.num_columns), key=lambda index: batch.schema.names[index])
    rows = _joined([_encode(batch.column(index)) for index in order], batch.num_rows)
    hashes = b"".join([hashlib.sha256(row).digest() for row in rows])
    words = np.frombuffer(hashes, ">u4").reshape(-1, 8).sum(axis=0, dtype=np.uint64)
    total = sum(int(word) << (32 * (7 - place)) for place, word in enumerate(words))
    return RowDigest(rows=batch.num_rows, total=total % _MODULUS)


def _encode(array: pa.Array) -> Bytes2D | list[bytes]:
    """Return each value's bytes: as rows of a matrix where all are of one width, else one by one."""
    while isinstance(array, pa.ExtensionArray | pa.DictionaryArray):
        array = array.storage if isinstance(array, pa.ExtensionArray) else array.dictionary_decode()
    if array.null_count:
        return _encode_nullable(array)
    for is_of_type, encode in _ENCODERS:
        if is_of_type(array.type):
            return encode(array)
    return _encode_texts(array)


def _encode_nullable(array: pa.Array) -> list[bytes]:
    if pa.types.is_null(array.type):
        return [_ABSENT] * len(array)
    encoded = iter(_rows_of(_encode(drop_nulls(array))))
    return [next(encoded) if valid else _ABSENT for valid in array.is_valid().to_pylist()]


def _encode_struct(array: pa.StructArray) -> Bytes2D | list[bytes]:
    fields = sorted(zip(array.type, array.flatten(), strict=True), key=lambda field: field[0].name)
    parts = [_encode(values) for _, values in fields]  # two may have one name
    present = np.ones((len(array), 1), np.uint8)
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.hstack([present, *parts])
    return _joined([present, *parts], len(array))


def _encode_list(array: pa.Array) -> Bytes2D | list[bytes]:
    if pa.types.is_fixed_size_list(array.type):
        lengths = np.full(len(array), array.type.list_size, np.int64)
    else:
        lengths = np.diff(array.offsets.to_numpy()).astype(np.int64)
    elements = _encode(_elements(array))
    counts = _present(lengths.astype("<i8").view(np.uint8).reshape(-1, 8))
    if isinstance(elements, np.ndarray) and len(set(lengths.tolist())) == 1:
        return np.hstack([counts, elements.reshape(len(array), -1)])
    ends = np.cumsum(lengths).tolist()
    listed = _rows_of(elements)
    parts = [b"".join(listed[end - length : end]) for end, length in zip(ends, lengths.tolist(), strict=True)]
    return _joined([counts, parts], len(array))


def _elements(array: pa.Array) -> pa.Array:
    if pa.types.is_map(array.type):  # its offsets may start after 0, which `entries` would not show
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        return pa.StructArray.from_arrays([array.keys[first:last], array.items[first:last]], ["key", "value"])
    return array.flatten()


def _encode_booleans(array: pa.Array) -> Bytes2D:
    return _present(np.asarray(array.to_numpy(zero_copy_only=False), np.uint8).reshape(-1, 1))


def _encode_fixed_width(array: pa.Array) -> Bytes2D:
    width = array.type.bit_width // 8
    data = array.buffers()[1]
    stored = np.frombuffer(data, np.uint8, count=len(array) * width, offset=array.offset * width)
    return _present(stored.reshape(len(array), width))


def _encode_texts(array: pa.Array) -> list[bytes]:
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type):
        array = array.cast(pa.large_string()).cast(pa.large_binary())
    return [_PRESENT + len(value).to_bytes(8, "little") + value for value in array.to_pylist()]


def _present(values: Bytes2D) -> Bytes2D:
    return np.hstack([np.ones((len(values), 1), np.uint8), values])


def _joined(parts: list[Bytes2D | list[bytes]], count: int) -> list[bytes]:
    """Return each row's bytes: its columns' bytes after one another."""
    if not parts:
        return [b""] * count
    if all(isinstance(part, np.ndarray) for part in parts):
        return _rows_of(np.hstack(parts))
    return [b"".join(row) for row in zip(*(_rows_of(part) for part in parts), strict=True)]


def _rows_of(encoded: Bytes2D | list[bytes]) -> list[bytes]:
    if isinstance(encoded, list):
        return encoded
    width = encoded.shape[1]
    whole = encoded.tobytes()
    return [whole[start : start + width] for start in range(0, len(whole), width)]


def _canonical_type(found: pa.DataType) -> str:
    for is_of_type, name in _CANONICAL_NAMES:
        if is_of_type(found):
            return name
    if isinstance(found, pa.ExtensionType | pa.DictionaryType):
        return _canonical_type(found.storage_type if isinstance(found, pa.ExtensionType) else found.value_type)
    if pa.types.is_map(found):
        return f"map<{_canonical_type(found.key_type)}, {_canonical_type(found.item_type)}>"
    if _is_list(found):
        return f"list<{_canonical_type(found.value_type)}>"
    if pa.types.is_struct(found):
        fields = sorted(f"{field.name}: {_canonical_type(field.type)}" for field in found)
        return f"struct<{', '.join(fields)}>"
    return str(found)


def _is_list(found: pa.DataType) -> bool:
    return bool(pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found))


_ENCODERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], Bytes2D | list[bytes]]], ...] = (
    (pa.types.is_boolean, _encode_booleans),
    (pa.types.is_primitive, _encode_fixed_width),
    (pa.types.is_decimal, _encode_fixed_width),
    (pa.types.is_struct, _encode_struct),
    (pa.types.is_map, _encode_list),
    (_is_list, _encode_list),
)

_CANONICAL_NAMES: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_string, "string"),
    (pa.types.is_large_string, "string"),
    (pa.types.is_string_view, "string"),
    (pa.types.is_binary, "binary"),
    (pa.types.is_large_binary, "binary"),
    (pa.types.is_binary_view, "binary"),
    (pa.types.is_fixed_size_binary, "binary"),
)
