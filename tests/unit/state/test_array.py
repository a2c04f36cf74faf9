"""Does every array come back to the bit, whatever its type, shape and order in memory?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from iteration_lib.state.array import AnyArray, array_of_flat, dtype_text, flat_of_array

DTYPES = ["bool", "i1", ">i2", "u8", "f2", ">f4", "f8", "longdouble", "c8", ">c16", "clongdouble", "M8[D]", "M8[ns]"]
DTYPES += [">m8[h]", "U3", ">U2", "S3", "V5"]
RECORD = np.dtype([("id", ">i4"), ("place", "f8", (2,)), ("name", "U4")])


def there_and_back(array: AnyArray) -> AnyArray:
    return array_of_flat(flat_of_array(array), dtype=dtype_text(array.dtype), shape=list(array.shape))


def told(array: AnyArray) -> tuple[np.dtype[Any], tuple[int, ...], bytes]:
    """Return all that tells an array from another."""
    return array.dtype, array.shape, array.tobytes()


@st.composite
def arrays(draw: st.DrawFn) -> AnyArray:
    """Draw an array of any bytes, NaNs of every kind among them, or of any text."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = draw(hnp.array_shapes(min_dims=0, min_side=0, max_side=4))
    if dtype.kind == "U":
        return draw(hnp.arrays(dtype, shape, elements=st.text(st.characters(codec="utf-8"), max_size=2)))
    size = int(np.prod(shape))
    content = draw(st.binary(min_size=size * dtype.itemsize, max_size=size * dtype.itemsize))
    found = np.frombuffer(content, np.uint8) & 1 if dtype.kind == "b" else np.frombuffer(content, np.uint8)
    return found.view(dtype).reshape(shape)


@given(array=arrays())
def test_array_of_any_type_and_shape_comes_back_to_the_bit(array: AnyArray) -> None:
    found = there_and_back(array)

    assert told(array) == told(found)


@pytest.mark.parametrize(
    "array",
    [
        np.array([(1, (0.5, -0.0), "é")], RECORD),
        np.arange(12.0).reshape(3, 4).T,
        np.arange(12)[::-3],
        np.array(["2020-01-01", "NaT"], "M8[D]"),
        np.frombuffer(np.array([0x7FF8000000000001], np.uint64).tobytes()),
        np.broadcast_to(np.float32(1.5), (2, 2)),
    ],
    ids=["records", "columns first", "backwards", "NaT", "a NaN of its own", "one for all"],
)
def test_array_comes_back_whatever_lies_in_memory(array: AnyArray) -> None:
    found = there_and_back(array)

    assert told(array) == told(found)


def test_array_that_comes_back_is_nobody_elses() -> None:
    array = np.arange(3.0)
    flat = flat_of_array(array)

    there = array_of_flat(flat, dtype="'<f8'", shape=[3])
    there[0] = 9.0

    assert [0.0, 1.0, 2.0] == array_of_flat(flat, dtype="'<f8'", shape=[3]).tolist()


@pytest.mark.parametrize(
    "array", [np.array([None]), np.array([(1, [])], [("a", "i4"), ("b", "O")]), np.array(["\ud800"])]
)
def test_objects_and_what_is_no_unicode_are_refused(array: AnyArray) -> None:
    with pytest.raises(ValueError, match=r"has the type|surrogates"):
        flat_of_array(array)
