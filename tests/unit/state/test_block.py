"""Which blocks become batches and come back as they were, and what is refused by name?"""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as np_st
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iteration_lib.errors import OperatorResultError
from iteration_lib.state.block import (
    ColumnError,
    batch_of,
    batch_of_result,
    block_of,
    describe_schema,
    normal_batch,
)

DTYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", "M8[us]", "M8[D]", "m8[s]", "U3", "S3"]


def columns_of(rows: int) -> st.SearchStrategy[npt.NDArray[Any]]:
    shapes = st.one_of(
        st.just((rows,)),
        st.integers(1, 3).map(lambda width: (rows, width)),
        st.tuples(st.just(rows), st.integers(1, 3), st.integers(1, 2)),
    )
    return st.sampled_from(DTYPES).flatmap(
        lambda dtype: shapes.flatmap(lambda shape: np_st.arrays(dtype, shape, elements=elements_of(dtype)))
    )


def elements_of(dtype: str) -> st.SearchStrategy[Any] | None:
    if dtype == "M8[D]":  # Arrow's dates have 32 bits
        return st.integers(-(2**31), 2**31 - 1).map(lambda days: np.datetime64(days, "D"))
    if dtype[0] in "Mm":
        return np_st.from_dtype(np.dtype(dtype), allow_nan=False)
    if dtype == "U3":
        texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
        return texts.map(lambda text: text.rstrip("\0"))  # numpy's own type holds none at the end
    return None


blocks = st.integers(0, 5).flatmap(
    lambda rows: st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), columns_of(rows))
)


@given(blocks)
def test_block_comes_back_from_arrow_as_it_was(block: dict[str, npt.NDArray[Any]]) -> None:
    found = block_of(batch_of(block))

    assert list(block) == list(found)
    for name, array in block.items():
        assert array.shape == found[name].shape
        if array.dtype.kind in "US":
            assert array.tolist() == found[name].tolist()
        else:
            assert (array.dtype, array.tobytes()) == (found[name].dtype, found[name].tobytes())


@given(blocks)
def test_batch_of_a_received_block_is_the_batch_that_it_came_from(block: dict[str, npt.NDArray[Any]]) -> None:
    batch = batch_of(block)

    again = batch_of(block_of(batch))

    assert batch.schema.equals(again.schema, check_metadata=True)
    assert batch.serialize() == again.serialize()


@pytest.mark.parametrize("is_view", [False, True], ids=["an array", "a read-only view of one"])
def test_batch_keeps_what_was_returned_whatever_the_operator_does_to_its_array_afterwards(*, is_view: bool) -> None:
    """A checkpoint is written while the operator runs again, and may return the same buffer."""
    buffer = np.arange(3.0)
    returned = buffer[:]
    returned.flags.writeable = not is_view

    batch = batch_of_result({"x": returned}, operator_id="x")
    buffer += 1.0

    assert [0.0, 1.0, 2.0] == batch.column("x").to_pylist()


def test_received_array_that_is_returned_is_not_copied() -> None:
    batch = batch_of({"x": np.arange(3.0)})

    returned = batch_of_result(block_of(batch), operator_id="x")

    assert batch.column("x").buffers()[1].address == returned.column("x").buffers()[1].address


def test_received_arrays_are_read_only() -> None:
    block = block_of(
        batch_of({"x": np.zeros(3), "b": np.zeros(3, bool), "m": np.zeros((3, 2)), "s": np.array(["a"] * 3)})
    )

    for array in block.values():
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]


@pytest.mark.parametrize(
    ("array", "described"),
    [
        (np.zeros(2), "x: double"),
        (np.zeros((2, 3)), "x: fixed_size_list<double>[3]"),
        (np.zeros((2, 3, 4), np.float32), "x: fixed_size_list<float>[3, 4]"),
        (np.array(["a", "b"]), "x: string"),
        (np.array([b"a", b"b"], object), "x: binary"),
    ],
)
def test_schema_is_readable(array: npt.NDArray[Any], described: str) -> None:
    assert described == describe_schema(batch_of({"x": array}).schema)


def test_big_endian_and_transposed_arrays_keep_their_values() -> None:
    given_arrays = {"be": np.arange(3, dtype=">i4"), "t": np.arange(6.0).reshape(2, 3).T}

    found = block_of(batch_of(given_arrays))

    assert [0, 1, 2] == found["be"].tolist()
    assert given_arrays["t"].tolist() == found["t"].tolist()


@pytest.mark.parametrize(
    ("result", "columns", "rows"),
    [
        (None, [], 0),
        ({}, [], 0),
        ({"a": 1.5, "b": "x"}, ["a", "b"], 1),
        ([1, 2, 3], ["value"], 3),
        (np.arange(4), ["value"], 4),
        (2.5, ["value"], 1),
        (pa.table({"a": [1, 2]}), ["a"], 2),
        ({"a": np.float64(1)}, ["a"], 1),
    ],
)
def test_result_becomes_a_batch(result: object, columns: list[str], rows: int) -> None:
    batch = batch_of_result(result, operator_id="op")

    assert (columns, rows) == (batch.schema.names, batch.num_rows)


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (True, "bare bool"),
        ({"a": np.zeros(2), "b": np.zeros(3)}, "'a' has another length than the others (a: 2, b: 3)"),
        ({"a": np.array([object()])}, "'a' holds Python objects (object)"),
        ({"a": np.array(["x", b"y"], object)}, "'a' holds Python objects (bytes, str)"),
        ({"a": [[1], [2, 3]]}, "'a' is a list of lists of several lengths"),
        ({"a": [1, "b"]}, "'a' is a list of several types"),
        ({"a": np.zeros(2, complex)}, "'a' has the type complex128"),
        (
            {"a": np.zeros(2, "M8[h]")},
            "'a' has the type datetime64[h], which Arrow has not; cast it, as by .astype('datet",
        ),
        (
            {"a": np.zeros(2, "m8[D]")},
            "'a' has the type timedelta64[D], which Arrow has not; cast it, as by .astype('time",
        ),
        ({"a": np.zeros(2, "m8[25s]")}, "'a' has the type timedelta64[25s], which Arrow has not; cast it, as by"),
        ({"a": np.zeros((2, 2), "M8[2D]")}, "'a' has the type datetime64[2D], which Arrow has not; cast it, as by"),
        ({"a": np.array(["NaT"], "M8")}, "'a' has the type datetime64, which Arrow has not; cast it, as by"),
        (
            {"a": np.longdouble(1)},
            f"'a' has the type {np.dtype('g')}, which Arrow has not; cast it, as by .astype('float64')",
        ),
        ({"a": np.zeros((2, 0))}, "'a' has the shape (2, 0)"),
        ({"a": np.array(["NaT"], "M8[s]")}, "'a' holds 1 nulls"),
        ({"a": None}, "'a' is a NoneType"),
        ({1: np.zeros(2)}, "'1' is named by a int"),
        (object(), "'value' is a object"),
        (pa.table({"a": [1, None]}), "'a' holds 1 nulls"),
        (pa.table({"a": [[1.0, None]]}), "'a' holds 1 nulls in its lists"),
        (pa.table({"a": [[1], [2, 3]]}), "'a' holds lists of 1 to 2 elements"),
        (pa.table({"a": pa.array([[]], pa.list_(pa.int64(), 0))}), "'a' holds lists of 0 to 0 elements"),
        (pa.table({"a": [{"b": 1}]}), "'a' has the type struct"),
        (pa.table([[1], [2]], names=["a", "a"]), "'a' is there twice"),
    ],
)
def test_what_no_stream_can_hold_is_refused_by_name(result: object, problem: str) -> None:
    with pytest.raises(OperatorResultError) as caught:
        batch_of_result(result, operator_id="op")

    assert "'op'" in str(caught.value)
    assert problem in str(caught.value)


def test_lists_of_one_length_are_read_as_two_dimensions() -> None:
    table = pa.table({"x": pa.chunked_array([[[1.0, 2.0]], [[3.0, 4.0]]])})

    assert [[1.0, 2.0], [3.0, 4.0]] == block_of(normal_batch(table))["x"].tolist()


def test_other_layouts_of_the_same_values_become_one() -> None:
    table = pa.table(
        {"s": pa.array(["a", "b"], pa.large_string()), "d": pa.array(["a", "a"]).dictionary_encode(), "n": [1, 2]}
    )

    assert "s: string, d: string, n: int64" == describe_schema(normal_batch(table).schema)


def test_column_of_lists_without_rows_is_refused() -> None:
    with pytest.raises(ColumnError, match="no row that tells their length"):
        normal_batch(pa.table({"x": pa.array([], pa.list_(pa.float64()))}))


@pytest.mark.parametrize(
    "texts",
    [
        np.array([b"a\0b", b"\0"]),
        np.array(["a\0b", "c"]),
        [b"a\0", b"b"],
        ("a\0", "b"),
        b"a\0",
        np.array([b"a\0", b""], dtype=object),
    ],
    ids=["an array", "an array of texts", "a list", "a tuple of texts", "one", "objects"],
)
def test_text_and_bytes_keep_every_nul_that_numpy_has(texts: object) -> None:
    """A digest is bytes too."""
    given = texts.tolist() if isinstance(texts, np.ndarray) else [texts] if isinstance(texts, bytes) else [*texts]

    found = block_of(batch_of_result({"x": texts}, operator_id="op"))["x"]

    assert given == found.tolist()


def test_table_that_lies_in_the_operators_own_memory_is_kept_as_it_was_returned() -> None:
    own = np.ones(3)

    batch = batch_of_result(pa.table({"x": own}), operator_id="op")
    own[:] = 2.0

    assert [1.0, 1.0, 1.0] == block_of(batch)["x"].tolist()


def test_masked_values_are_refused_as_nulls_are_and_a_mask_of_nothing_is_none() -> None:
    whole = np.ma.masked_array([1.0, 2.0], mask=[False, False])

    with pytest.raises(OperatorResultError, match="column 'x' holds 1 masked values; fill or drop them before"):
        batch_of_result({"x": np.ma.masked_array([1.0, 2.0], mask=[False, True])}, operator_id="op")

    assert [1.0, 2.0] == block_of(batch_of_result({"x": whole}, operator_id="op"))["x"].tolist()


def test_bytes_of_which_an_operator_keeps_none_are_bytes() -> None:
    received = block_of(batch_of({"x": np.array([b"a", b"b"])}))["x"]

    assert pa.binary() == batch_of_result({"x": received[received == b"c"]}, operator_id="op").schema.field("x").type


def test_text_that_is_no_unicode_is_refused_by_name() -> None:
    for column in (np.array(["a", "a\ud800"]), np.array(["a", "a\ud800"], object)):
        with pytest.raises(OperatorResultError, match=r"operator 'o' .*column 't' holds a text that is no Unicode"):
            batch_of_result({"t": column}, operator_id="o")
