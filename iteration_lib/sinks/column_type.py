"""Which Arrow columns does a Postgres table hold, and as which types are they sent?

The driver sends numbers, texts, bytes, times, decimals and lists of them exactly as they are. What it would send as
something else, or not at all, is changed before: unsigned 64-bit integers to decimals, nanoseconds to microseconds
where none is lost, dictionaries to their values, short decimals to long ones. Structs, maps and lists of lists have no
column type and are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa

from iteration_lib.errors import SinkTargetError

_LONGEST_NAME_BYTES = 63  # Postgres cuts what is longer, and would take two names for one
_WHOLE_NUMBERS = re.compile(r"smallint|integer|bigint|numeric\(\d+,(0|-\d+)\)")
_PARTS_OF_INSTANTS = ("date", "time without time zone", "time with time zone")
_WAY_OUT = "change the output's columns, or publish it as Parquet"


def storable_schema(schema: pa.Schema, *, target: str) -> pa.Schema:
    """Return the schema in which rows are sent; raises SinkTargetError that names a column which has no type there."""
    if not schema.names:
        raise SinkTargetError(target, "does not take an output without columns", way_out=_WAY_OUT)
    return pa.schema([pa.field(field.name, _storable_field(field, target)) for field in schema])


def to_storable(batch: pa.RecordBatch, schema: pa.Schema, *, target: str) -> pa.RecordBatch:
    """Return rows in the schema that `storable_schema` gave; raises SinkTargetError where a value would be lost."""
    columns = []
    for field, column in zip(schema, batch.columns, strict=True):
        try:
            plain = column.storage if isinstance(column, pa.ExtensionArray) else column
            columns.append(plain.cast(field.type))
        except pa.ArrowInvalid as err:
            problem = f"cannot hold a value of the column {field.name!r} ({err})"
            raise SinkTargetError(target, problem, way_out=_WAY_OUT) from err
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def is_cut(sent: pa.DataType, held: str) -> bool:
    """Whether the server would silently keep less of a value in what a column holds: a rounded number, a mere date."""
    element = sent.value_type if _is_list(sent) else sent
    if pa.types.is_floating(element) or (pa.types.is_decimal(element) and element.scale > 0):
        return _WHOLE_NUMBERS.fullmatch(held) is not None
    return (pa.types.is_timestamp(element) or pa.types.is_duration(element)) and held in _PARTS_OF_INSTANTS


def _storable_field(field: pa.Field, target: str) -> pa.DataType:
    problem = None
    if not field.name or "\0" in field.name or len(field.name.encode()) > _LONGEST_NAME_BYTES:
        problem = f"cannot name a column {field.name!r}"
    elif (found := _storable(field.type)) is None:
        problem = f"has no type for the column {field.name!r}, which is {field.type}"
    else:
        return found
    raise SinkTargetError(target, problem, way_out=_WAY_OUT)


def _storable(found: pa.DataType) -> pa.DataType | None:
    for is_of_type, change in _CHANGES:
        if is_of_type(found):
            return change(found)
    return found


def _storable_list(found: pa.DataType) -> pa.DataType | None:
    element = None if pa.types.is_nested(found.value_type) else _storable(found.value_type)
    return None if element is None else pa.list_(element)


def _in_microseconds(found: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(found):
        return pa.timestamp("us", found.tz)
    return pa.duration("us") if pa.types.is_duration(found) else pa.time64("us")


def _is_list(found: pa.DataType) -> bool:
    return bool(pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found))


def _is_short_decimal(found: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(found) and found.bit_width < pa.decimal128(1).bit_width)


_CHANGES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], pa.DataType | None]], ...] = (
    (lambda found: isinstance(found, pa.BaseExtensionType), lambda found: _storable(found.storage_type)),
    (pa.types.is_dictionary, lambda found: _storable(found.value_type)),
    (_is_list, _storable_list),
    (pa.types.is_nested, lambda _: None),
    (_is_short_decimal, lambda found: pa.decimal128(found.precision, found.scale)),
    (pa.types.is_uint64, lambda _: pa.decimal128(20, 0)),
    (pa.types.is_date64, lambda _: pa.date32()),
    (lambda found: getattr(found, "unit", None) == "ns", _in_microseconds),
)
