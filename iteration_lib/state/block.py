"""What does an operator see of a stream, and what may it return?

A block is a dict of numpy arrays of one length: the columns. A stream holds record batches; an operator always receives
blocks that were made from one, whether or not the run was restored in between, so that it cannot see a difference.
Conversions are exact: a block that becomes a batch and a block again holds the same bytes.

    numbers, bool, datetime64, timedelta64   the Arrow type of the same width
    strings, bytes                           string and binary; a block holds them as arrays of objects
    arrays of two and more dimensions        fixed_size_list of the flattened rest, its shape in the field's metadata
    lists of one length (Parquet)            read as arrays of two dimensions

Refused, naming the column: nulls (what a null means is the caller's choice), lists of several lengths, structs, maps,
decimals, Python objects. Arrays that an operator receives are read-only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iteration_lib.errors import OperatorResultError

# Any: a column may have any element type that the module's docstring lists.
Column = npt.NDArray[Any]
Block = dict[str, Column]

_SHAPE = b"iteration.shape"
_KEPT_TYPES = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_timestamp,
    pa.types.is_date32,
    pa.types.is_duration,
)

_LONGEST_NUMBER_BYTES = 8
_UNITS = {"M": ("D", "s", "ms", "us", "ns"), "m": ("s", "ms", "us", "ns")}
_NEAREST = {"f": "float64", "M": "datetime64[s]", "m": "timedelta64[s]"}


# Of the objects in a column of bytes: what is left of it, when an operator has filtered all of them out, is bytes too.
_BYTES = np.dtype(object, metadata={"iteration": "bytes"})


class ColumnError(ValueError):
    """A column that no block can hold; whoever knows where it came from turns it into an error of this project."""

    def __init__(self, column: str, problem: str) -> None:
        super().__init__(f"column {column!r} {problem}")


def block_of(batch: pa.RecordBatch) -> Block:
    """Return a batch as a block of read-only arrays; numbers are not copied. Raises ColumnError."""
    return {field.name: _array_of(column, field) for field, column in zip(batch.schema, batch.columns, strict=True)}


def batch_of(block: Mapping[str, Column]) -> pa.RecordBatch:
    """Return a block as one record batch. Raises ColumnError."""
    fields, columns = [], []
    for name, array in block.items():
        column, metadata = _column_of(name, np.asarray(array))
        fields.append(pa.field(name, column.type, metadata=metadata))
        columns.append(column)
    lengths = {name: len(column) for name, column in zip(block, columns, strict=True)}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise ColumnError(next(iter(lengths)), f"has another length than the others ({shown})")
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def batch_of_result(result: object, *, operator_id: str) -> pa.RecordBatch:
    """Return what an operator returned as one record batch; raises OperatorResultError.

    A mapping is a block, and a scalar in it a column of one row. A bare array, list or scalar is the one column
    `value`. Arrow tables and batches are copied: what lies below may be the operator's own memory. None is a stream
    without columns and without records.
    A bare bool is refused: it would be one record, true or false, where "no records" was probably meant.
    """
    try:
        if result is None:
            return batch_of({})
        if isinstance(result, pa.Table | pa.RecordBatch):
            return owned_batch(normal_batch(result))
        return batch_of(_block_of_result(result))
    except (ColumnError, pa.ArrowException) as err:
        raise OperatorResultError(
            operator_id=operator_id,
            problem=f"returned what no stream can hold: {err}; return a dict of numpy arrays of one length",
        ) from err


def normal_batch(table: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
    """Return a table or batch as one batch in the form that `batch_of` gives; raises ColumnError."""
    whole = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table
    for name in whole.schema.names:
        if whole.schema.names.count(name) > 1:
            raise ColumnError(name, "is there twice")
    columns = one_batch(whole).columns
    fields, normal = [], []
    for index, field in enumerate(whole.schema):
        column, metadata = _normal_column(columns[index], field)
        fields.append(pa.field(field.name, column.type, metadata=metadata))
        normal.append(column)
    return pa.RecordBatch.from_arrays(normal, schema=pa.schema(fields))


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return a table as one batch; raises ColumnError for more text than one batch can hold."""
    whole = table.combine_chunks()
    batches = whole.to_batches()
    if len(batches) > 1:
        raise ColumnError(table.schema.names[0], "and its neighbours hold more than 2 GiB of text; use more buckets")
    if batches:
        return batches[0]
    # a chunk without rows may have a dictionary all the same, such as the categories of pandas
    columns = [column.chunk(0) if column.num_chunks else pa.nulls(0, column.type) for column in whole.columns]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def owned_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch as it will be read from a file, in memory that nobody else can write."""
    target = pa.BufferOutputStream()
    with pa.ipc.new_file(target, batch.schema) as writer:
        writer.write_batch(batch)
    return pa.ipc.open_file(target.getvalue()).get_batch(0)


def batch_without_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of no rows; Arrow makes it of a list for some types alone."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def concat_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return batches of one schema as one batch, in order; there is at least one."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def describe_schema(schema: pa.Schema) -> str:
    """Return the columns and their types, such as `centroid: fixed_size_list<double>[64], size: int64`."""
    return ", ".join(f"{field.name}: {_describe_type(field)}" for field in schema) or "no columns"


def _describe_type(field: pa.Field) -> str:
    if pa.types.is_fixed_size_list(field.type):
        shape = ", ".join(str(length) for length in _shape_of(field))
        return f"fixed_size_list<{field.type.value_type}>[{shape}]"
    return str(field.type)


def _shape_of(field: pa.Field) -> tuple[int, ...]:
    stored = (field.metadata or {}).get(_SHAPE)
    return tuple(json.loads(stored)) if stored is not None else (field.type.list_size,)


def _array_of(column: pa.Array, field: pa.Field) -> Column:
    if column.null_count:
        raise ColumnError(field.name, f"holds {column.null_count} nulls; fill or drop them before")
    if pa.types.is_fixed_size_list(column.type):
        flat = _array_of(column.flatten(), pa.field(field.name, column.type.value_type))
        return flat.reshape(len(column), *_shape_of(field))
    array: Column = column.to_numpy(zero_copy_only=False)
    if pa.types.is_binary(column.type):
        array = array.view(_BYTES)
    array.flags.writeable = False
    return array


def _column_of(name: str, array: Column) -> tuple[pa.Array, dict[bytes, bytes] | None]:
    if array.ndim == 0:
        array = array.reshape(1)
    if 0 in array.shape[1:]:
        raise ColumnError(name, f"has the shape {array.shape}; only the first dimension may be 0")
    try:
        flat = _flat_column(name, np.ascontiguousarray(array).reshape(-1))
    except UnicodeEncodeError as err:  # half of a surrogate pair
        raise ColumnError(name, f"holds a text that is no Unicode ({err}); encode it, and give the bytes") from err
    if isinstance(flat, pa.ChunkedArray):
        raise ColumnError(name, "holds more than 2 GiB of text; use more buckets")
    if array.ndim == 1:
        return flat, None
    column = pa.FixedSizeListArray.from_arrays(flat, int(np.prod(array.shape[1:])))
    return column, {_SHAPE: json.dumps(array.shape[1:]).encode()} if array.ndim > 2 else None  # noqa: PLR2004 - 2-D is plain


def _flat_column(name: str, flat: Column) -> pa.Array:
    if not flat.dtype.isnative:
        flat = flat.astype(flat.dtype.newbyteorder("="))
    if flat.dtype.kind == "O":
        return _flat_objects(name, flat)
    if not _is_in_arrow(flat.dtype):
        known = _NEAREST.get(flat.dtype.kind)
        advice = f"; cast it, as by .astype({known!r})" if known else ""
        raise ColumnError(name, f"has the type {flat.dtype}, which Arrow has not{advice}")
    if flat.dtype.kind in "SUT":  # not by the array itself, of which Arrow would end each at its first NUL
        column = pa.array(flat.tolist(), pa.binary() if flat.dtype.kind == "S" else pa.string())
    else:
        column = pa.array(flat, from_pandas=False)
    if column.null_count:  # NaT
        raise ColumnError(name, f"holds {column.null_count} nulls; fill or drop them before")
    return column


def _is_in_arrow(dtype: np.dtype[Any]) -> bool:  # Any: of any column
    """Tell whether Arrow has a type; it would take a count of ten seconds for one of seconds."""
    if dtype.kind in "mM":
        return np.datetime_data(dtype) in [(unit, 1) for unit in _UNITS[dtype.kind]]
    return dtype.kind in "UST" or (dtype.kind in "biuf" and dtype.itemsize <= _LONGEST_NUMBER_BYTES)


def _flat_objects(name: str, flat: Column) -> pa.Array:
    kinds = {type(value) for value in flat} or {bytes if flat.dtype.metadata == _BYTES.metadata else str}
    if kinds <= {str, np.str_}:
        return pa.array(flat, pa.string(), from_pandas=False)
    if kinds <= {bytes, np.bytes_}:
        return pa.array(flat, pa.binary(), from_pandas=False)
    shown = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise ColumnError(name, f"holds Python objects ({shown}); only str or bytes, one of them, can be stored")


def _normal_column(column: pa.Array, field: pa.Field) -> tuple[pa.Array, dict[bytes, bytes] | None]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count:
        raise ColumnError(field.name, f"holds {column.null_count} nulls; fill or drop them before")
    if _is_list(column.type):
        column = _fixed_lists(column, field.name)
    shape = (field.metadata or {}).get(_SHAPE)
    plain = _plain_type(column.type, field.name)
    return (column if plain == column.type else column.cast(plain)), {_SHAPE: shape} if shape is not None else None


def _fixed_lists(column: pa.Array, name: str) -> pa.Array:
    """Return a list column as fixed_size_list; its rows must have one length."""
    if pa.types.is_fixed_size_list(column.type):
        lengths = np.array([column.type.list_size])
    else:
        lengths = np.unique(np.diff(column.offsets.to_numpy()))
    if len(lengths) == 0:
        raise ColumnError(name, "holds lists, but no row that tells their length; return a two-dimensional array")
    if len(lengths) > 1 or lengths[0] == 0:
        shown = f"{lengths.min()} to {lengths.max()}"
        raise ColumnError(name, f"holds lists of {shown} elements; every row must be a list of one length")
    values = column.flatten()
    if values.null_count:
        raise ColumnError(name, f"holds {values.null_count} nulls in its lists; fill or drop them before")
    return pa.FixedSizeListArray.from_arrays(values, int(lengths[0]))


def _plain_type(found: pa.DataType, name: str) -> pa.DataType:
    """Return the one type that stands for all of Arrow's ways to hold the same values."""
    if pa.types.is_fixed_size_list(found):
        return pa.list_(_plain_type(found.value_type, name), found.list_size)
    if pa.types.is_large_string(found) or pa.types.is_string_view(found):
        return pa.string()
    if pa.types.is_large_binary(found) or pa.types.is_binary_view(found) or pa.types.is_fixed_size_binary(found):
        return pa.binary()
    if pa.types.is_timestamp(found):
        return pa.timestamp(found.unit)  # an instant in UTC, as numpy has it
    if pa.types.is_date64(found):
        return pa.timestamp("ms")
    if any(is_kept(found) for is_kept in _KEPT_TYPES):
        return found
    raise ColumnError(name, f"has the type {found}, which no numpy array holds; cast it when you read it")


def _is_list(found: pa.DataType) -> bool:
    return bool(pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found))


def _block_of_result(result: object) -> Block:
    if isinstance(result, bool | np.bool_):
        raise ColumnError("value", "is one bare bool, which is a record either way; return None for no records")
    columns = result if isinstance(result, Mapping) else {"value": result}
    return {_name_of(name): _array_of_result(name, column) for name, column in columns.items()}


def _name_of(name: object) -> str:
    if not isinstance(name, str):
        raise ColumnError(str(name), f"is named by a {type(name).__name__}; a column's name is a str")
    return name


def _is_for_ever(array: Column) -> bool:
    """Tell whether nobody can change an array any more; a stream may be written while its operator runs again."""
    base: object = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return False
        base = base.base
    return True


def _array_of_result(name: object, column: object) -> Column:
    if isinstance(column, np.ma.MaskedArray):
        masked = int(np.sum(np.ma.getmaskarray(column)))
        if masked:
            raise ColumnError(str(name), f"holds {masked} masked values; fill or drop them before")
        return column.data.copy()
    if isinstance(column, np.ndarray):
        return column if _is_for_ever(column) else column.copy()
    if isinstance(column, str | bytes):
        return np.array([column], dtype=object)  # numpy's own types of text hold no NUL at the end
    if isinstance(column, np.generic | bool | int | float):
        return np.asarray(column)
    if not isinstance(column, list | tuple):
        raise ColumnError(str(name), f"is a {type(column).__name__}; make it a numpy array")
    try:
        array = np.asarray(column) if len(column) else np.zeros(0)
    except ValueError as err:
        raise ColumnError(str(name), "is a list of lists of several lengths") from err
    if array.dtype.kind not in "US":
        return array
    if any(not isinstance(value, str | bytes) for value in column):
        raise ColumnError(str(name), "is a list of several types")
    return np.array(column, dtype=object)
