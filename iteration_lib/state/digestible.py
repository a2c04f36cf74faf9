"""Which columns have a digest of their rows, and as what does a column with nulls go into it?

Arrow drops no nulls from views of text, nor from what holds them: they are cast to text first, at any depth. A type
that is not in the table here, such as list_view or a fixed_size_list of no elements, has no digest.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from iteration_lib.state.block import ColumnError


def check_digestible(schema: pa.Schema) -> None:
    """Check that rows of a schema have a digest; raises ColumnError that names the column."""
    for field in schema:
        try:
            _without_views(field.type)
        except TypeError as err:
            raise ColumnError(field.name, f"holds {err}, which has no digest") from err


def drop_nulls(array: pa.Array) -> pa.Array:
    """Return a column without its nulls, and without views."""
    plain = _without_views(array.type)
    return (array if plain == array.type else array.cast(plain)).drop_null()


def _without_views(found: pa.DataType) -> pa.DataType:
    """Return a type with text for each view in it; raises TypeError for what has no digest."""
    for is_of_type, plain in _PLAIN_TYPES:
        if is_of_type(found):
            return plain(found)
    raise TypeError(str(found))


def _field(found: pa.Field) -> pa.Field:
    return found.with_type(_without_views(found.type))


def _is_stored_as_another(found: pa.DataType) -> bool:
    return isinstance(found, pa.BaseExtensionType | pa.DictionaryType)


def _stored(found: pa.BaseExtensionType | pa.DictionaryType) -> pa.DataType:
    stored = found.storage_type if isinstance(found, pa.BaseExtensionType) else found.value_type
    plain = _without_views(stored)
    return found if plain == stored else plain


def _is_list_of_some(found: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_list(found) and found.list_size)  # Parquet gives no rows of the others back


def _is_plain(found: pa.DataType) -> bool:
    return any(is_of_type(found) for is_of_type in _PLAIN)


_PLAIN: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_primitive,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)

_PLAIN_TYPES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], pa.DataType]], ...] = (
    (_is_plain, lambda found: found),
    (pa.types.is_string_view, lambda _: pa.large_string()),
    (pa.types.is_binary_view, lambda _: pa.large_binary()),
    (_is_stored_as_another, _stored),
    (pa.types.is_list, lambda found: pa.list_(_field(found.value_field))),
    (pa.types.is_large_list, lambda found: pa.large_list(_field(found.value_field))),
    (_is_list_of_some, lambda found: pa.list_(_field(found.value_field), found.list_size)),
    (pa.types.is_struct, lambda found: pa.struct([_field(field) for field in found])),
    (pa.types.is_map, lambda found: pa.map_(_field(found.key_field), _field(found.item_field), found.keys_sorted)),
)
