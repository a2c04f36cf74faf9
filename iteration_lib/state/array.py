"""How does a numpy array of any shape and type lie in a flat Arrow array, and come back to the bit?

Numbers and bools lie as they are, texts and bytes as such. What Arrow has no type for lies as what it is made of: a
complex number as two floats, an instant or a duration as the integer that it is, long floats and records as bytes. The
dtype is told in text, as in numpy's own files. Arrays of Python objects are refused.
"""

from __future__ import annotations

import ast
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

AnyArray: TypeAlias = npt.NDArray[Any]  # Any: whatever numpy holds

_LONGEST_FLOAT_BYTES = 8  # of Arrow; numpy has longer ones


def flat_of_array(array: AnyArray) -> pa.Array:
    """Return an array's elements in C order. Raises ValueError for objects, and for text that is no Unicode."""
    is_of_nothing = array.dtype.kind == "V" and not array.dtype.itemsize
    if array.dtype.hasobject or array.dtype.kind not in "biufcmMUSV" or is_of_nothing:
        raise ValueError(f"has the type {array.dtype}")
    native = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(-1)
    if array.dtype.kind == "U":
        return pa.array(native.tolist(), pa.string())
    if array.dtype.kind == "S":
        return pa.array(native.tolist(), pa.binary())
    return pa.array(native.view(_stored(native.dtype)), from_pandas=False)


def array_of_flat(flat: pa.Array, *, dtype: str, shape: list[int]) -> AnyArray:
    """Return the array again; nobody else holds its memory."""
    found = np.lib.format.descr_to_dtype(ast.literal_eval(dtype))
    if found.kind in "US":
        return np.array(flat.to_pylist(), dtype=found).reshape(shape)
    stored = np.array(flat.to_numpy(zero_copy_only=False))
    native: AnyArray = stored.view(found.newbyteorder("="))
    return native.astype(found, copy=False).reshape(shape)


def dtype_text(dtype: np.dtype[Any]) -> str:  # Any: of any array
    """Return a dtype as `array_of_flat` takes it."""
    return repr(np.lib.format.dtype_to_descr(dtype))


def _stored(dtype: np.dtype[Any]) -> np.dtype[Any]:  # Any: as above
    """Return the type as which Arrow holds the bytes of a native one."""
    if dtype.kind in "mM":
        return np.dtype(np.int64)
    if dtype.kind == "c" and dtype.itemsize <= 2 * _LONGEST_FLOAT_BYTES:
        return np.dtype(f"f{dtype.itemsize // 2}")
    if dtype.kind in "biuf" and dtype.itemsize <= _LONGEST_FLOAT_BYTES:
        return dtype
    return np.dtype(np.uint8)
