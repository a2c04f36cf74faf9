"""How does a value of a user's own script become a record batch, and the same value again?

    numpy arrays   of any shape and type without objects; see `array`
    scalars        None, bool, int, float, str, bytes, numpy's own
    tables         pandas DataFrames, Arrow tables
    dicts          of arrays, scalars and dicts, by text

What a value was is written into the schema's metadata, so that each comes back as the type that it was given as: a
variable may hold another type in every epoch. Arrays of one length lie as the columns of a table; otherwise a value is
one row, and an array in it a list. Nothing is pickled.

A batch shares no memory with the value that it was made from, nor the value with the batch: a script may change its
arrays in place.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from iteration_lib.errors import ValueNotKeptError
from iteration_lib.state.array import AnyArray, array_of_flat, dtype_text, flat_of_array
from iteration_lib.state.block import ColumnError, one_batch, owned_batch
from iteration_lib.state.digestible import check_digestible

_KEY = b"iteration.value"
_INT64 = range(-(2**63), 2**63)
_SCALARS: dict[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    np.str_: pa.string(),  # as an array it would lose every NUL at its end
    np.bytes_: pa.binary(),
}
_NUMPY_TEXTS = {"str_": np.str_, "bytes_": np.bytes_}
_LONGEST_DECIMAL_BITS = 2_000  # Python may refuse to write, and to read, a number of more than 640 digits
_DEEPEST = 100  # dicts in dicts: what a deep stack could write a shallow one could not read
_KEPT = "a number, a text, a numpy array, a pandas DataFrame, an Arrow table, or a dict of numbers, texts and arrays"
_ADVICE_INSIDE = "make it a variable of its own, since a dict holds numbers, texts, arrays and dicts"

Node: TypeAlias = dict[str, Any]  # Any: JSON; what it holds follows from its type


def batch_of_value(value: object, *, variable: str) -> pa.RecordBatch:
    """Return a value as one batch; raises ValueNotKeptError that says what to give instead."""
    if type(value) is pa.Table:
        return owned_batch(_batch_of_table(value, variable=variable, kind="table"))
    if _is_pandas(value):
        try:
            table = pa.Table.from_pandas(value)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as err:
            advice = "give each column a name of its own and one type, which for whole numbers has at most 64 bits"
            problem = f"is a DataFrame that Arrow cannot hold ({err}); {advice}"
            raise ValueNotKeptError(variable=variable, problem=problem) from err
        return owned_batch(_batch_of_table(table, variable=variable, kind="pandas"))
    taken = _Taken(variable=variable)
    node = taken.apart(value, ())
    return owned_batch(taken.batch({"kind": "tree", "tree": node}))


def value_of_batch(batch: pa.RecordBatch) -> object:
    """Return the value that a batch was made from."""
    metadata = dict(batch.schema.metadata)
    found: Node = json.loads(metadata.pop(_KEY))
    if found["kind"] == "tree":
        return _value_of_node(found["tree"], batch)
    table = pa.Table.from_batches([batch]).replace_schema_metadata(metadata or None)
    return table.to_pandas().copy() if found["kind"] == "pandas" else table


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leaf:
    """An array or a scalar inside a value, as a column to be; a scalar, and what has no first dimension, is one row."""

    name: str
    flat: pa.Array
    shape: tuple[int, ...] | None

    @property
    def rows(self) -> int | None:
        """How many rows it would be, where each element of the first dimension is one."""
        return self.shape[0] if self.shape and 0 not in self.shape[1:] else None

    def as_rows(self, rows: int) -> pa.Array:
        """Return a column of that many rows."""
        trailing = (self.shape or ())[1:]
        width = len(self.flat) // rows if rows else math.prod(trailing)
        is_plain = not trailing and width == 1
        return self.flat if is_plain else pa.FixedSizeListArray.from_arrays(self.flat, width)

    def as_list(self) -> pa.Array:
        """Return a column of one row."""
        if self.shape is None:
            return self.flat
        return pa.LargeListArray.from_arrays(pa.array([0, len(self.flat)], pa.int64()), self.flat)


@dataclass(slots=True, kw_only=True)
class _Taken:
    """A value, taken apart: its leaves, in order."""

    variable: str
    leaves: list[_Leaf] = field(default_factory=list)

    def apart(self, value: object, path: tuple[str, ...]) -> Node:
        """Take a value apart, and return how it is put together again."""
        if len(path) > _DEEPEST:
            raise self._refused(path, f"is nested deeper than {_DEEPEST} dicts; give a flatter one")
        if value is None:
            return {"type": "none"}
        if type(value) is dict:
            return {
                "type": "dict",
                "items": [[self._key(k, path), self.apart(v, (*path, k))] for k, v in value.items()],
            }
        if type(value) in _SCALARS:
            return self._scalar(value, path)
        if isinstance(value, np.generic):
            return self._array(np.asarray(value), path, kind="scalar")
        if type(value) is np.ndarray:
            return self._array(value, path, kind="array")
        advice = _ADVICE_INSIDE if path and (type(value) is pa.Table or _is_pandas(value)) else _advice(value)
        raise self._refused(path, f"is a {type(value).__name__}; {advice}")

    def batch(self, found: Node) -> pa.RecordBatch:
        """Return the leaves as columns, and in the metadata what was found."""
        counts = {leaf.rows for leaf in self.leaves}
        rows = counts.pop() if len(counts) == 1 else None
        columns = [leaf.as_list() if rows is None else leaf.as_rows(rows) for leaf in self.leaves]
        names = [leaf.name for leaf in self.leaves]
        if not columns:  # None, or an empty dict: one row all the same
            columns, names = [pa.nulls(1)], ["value"]
        schema = pa.schema(
            [pa.field(name, column.type) for name, column in zip(names, columns, strict=True)],
            metadata={_KEY: json.dumps(found)},
        )
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _array(self, array: AnyArray, path: tuple[str, ...], *, kind: str) -> Node:
        try:
            flat = flat_of_array(array)
        except (ValueError, pa.ArrowException) as err:
            problem = f"is an array that Arrow cannot hold ({err}); give it another type, as by .astype(float)"
            raise self._refused(path, problem) from err
        column = self._add(flat, path, shape=array.shape)
        return {"type": kind, "column": column, "dtype": dtype_text(array.dtype), "shape": list(array.shape)}

    def _scalar(self, value: object, path: tuple[str, ...]) -> Node:
        try:
            if isinstance(value, int) and value not in _INT64:
                flat = pa.array([_text_of(value)])
            else:
                flat = pa.array([value], _SCALARS[type(value)])
        except ValueError as err:  # half of a surrogate pair
            raise self._refused(path, f"is a text that is no Unicode ({err}); encode it, and give the bytes") from err
        return {"type": type(value).__name__, "column": self._add(flat, path, shape=None)}

    def _add(self, flat: pa.Array, path: tuple[str, ...], *, shape: tuple[int, ...] | None) -> int:
        name = ".".join(key.replace("~", "~0").replace(".", "~1") for key in path)  # so that no two are called the same
        self.leaves.append(_Leaf(name=name or "value", flat=flat, shape=shape))
        return len(self.leaves) - 1

    def _key(self, key: object, path: tuple[str, ...]) -> str:
        if type(key) is not str:
            raise self._refused(path, f"is a dict with the key {key!r}; give keys that are texts")
        try:
            key.encode()
        except UnicodeEncodeError as err:
            problem = f"is a dict with the key {key!r}, which is no Unicode; give keys that are"
            raise self._refused(path, problem) from err
        return key

    def _refused(self, path: tuple[str, ...], problem: str) -> ValueNotKeptError:
        inside = "".join(f"[{key!r}]" for key in path)
        return ValueNotKeptError(variable=f"{self.variable}{inside}", problem=problem)


def _value_of_node(node: Node, batch: pa.RecordBatch) -> object:
    if node["type"] == "none":
        return None
    if node["type"] == "dict":
        return {key: _value_of_node(inner, batch) for key, inner in node["items"]}
    column = batch.column(node["column"])
    if node["type"] in ("array", "scalar"):
        is_list = pa.types.is_large_list(column.type) or pa.types.is_fixed_size_list(column.type)
        flat = column.flatten() if is_list else column
        array = array_of_flat(flat, dtype=node["dtype"], shape=node["shape"])
        return array if node["type"] == "array" else array[()]
    scalar = column[0].as_py()
    if node["type"] in _NUMPY_TEXTS:
        return _NUMPY_TEXTS[node["type"]](scalar)
    return int(scalar, 0) if node["type"] == "int" and isinstance(scalar, str) else scalar


def _text_of(number: int) -> str:
    return str(number) if number.bit_length() <= _LONGEST_DECIMAL_BITS else f"{number:#x}"


def _batch_of_table(table: pa.Table, *, variable: str, kind: str) -> pa.RecordBatch:
    if len(set(table.schema.names)) < len(table.schema.names):
        raise ValueNotKeptError(variable=variable, problem="is a table with two columns of one name; rename one")
    if table.num_rows and not table.column_names:
        problem = f"is a table with {table.num_rows} rows and no column; give it a column"
        raise ValueNotKeptError(variable=variable, problem=problem)
    try:
        batch = one_batch(table)
        _check_published(batch)
    except (pa.ArrowException, OSError, ColumnError) as err:  # without rows, closing the file is what fails
        raise ValueNotKeptError(
            variable=variable, problem=f"is a table that no file can hold ({err}); cast its columns"
        ) from err
    metadata = {**(batch.schema.metadata or {}), _KEY: json.dumps({"kind": kind})}
    return batch.replace_schema_metadata(metadata)


def _check_published(batch: pa.RecordBatch) -> None:
    """Check that a table could be published, as the last one will be; one row shows what Parquet cannot write."""
    check_digestible(batch.schema)
    with pq.ParquetWriter(pa.BufferOutputStream(), batch.schema) as writer:
        writer.write_batch(batch.slice(0, 1))


def _is_pandas(value: object) -> bool:
    pandas = sys.modules.get("pandas")  # who has a DataFrame has imported it
    return pandas is not None and type(value) is pandas.DataFrame


def _advice(value: object) -> str:
    """Say what to give instead of a value that cannot be kept."""
    if isinstance(value, Sequence | set | frozenset):
        return "make it an array, as by numpy.array(list(...))"
    if type(value).__module__.startswith("pandas."):
        return "make it a DataFrame, as by .to_frame()"
    if hasattr(value, "get_params"):
        learnt = "{name: value for name, value in vars(model).items() if name.strip('_') + '_' == name}"
        return f"give what it has learnt, the attributes whose names end with an underscore: {learnt}"
    if type(value).__module__.startswith("pyspark."):
        return "only a DataFrame of its own is kept, by open_run(..., spark=session); collect the rest into arrays"
    if hasattr(value, "__array__"):
        return "make it a plain array, as by numpy.asarray(...)"
    return f"give {_KEPT}"
