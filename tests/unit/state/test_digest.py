"""What shows in a digest of rows, and what does not?"""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iteration_lib.state.block import batch_of
from iteration_lib.state.digest import NO_ROWS, RowDigest, canonical_schema, row_digest, state_digest
from iteration_lib.state.saved import FileFormat, SavedFile, SavedStream
from iteration_lib.state.streams import dump_schema

cell = st.one_of(st.none(), st.text(max_size=4))
rows = st.lists(
    st.fixed_dictionaries(
        {
            "t": cell,
            "n": st.one_of(st.none(), st.integers(-(2**40), 2**40)),
            "f": st.floats(width=64),
            "l": st.one_of(st.none(), st.lists(cell, max_size=3)),
            "s": st.fixed_dictionaries({"a": cell, "b": st.booleans()}),
            "m": st.lists(st.tuples(st.text(max_size=2), st.integers(0, 9)), max_size=2),
        }
    ),
    max_size=8,
)
SCHEMA = pa.schema(
    [
        ("t", pa.string()),
        ("n", pa.int64()),
        ("f", pa.float64()),
        ("l", pa.list_(pa.string())),
        ("s", pa.struct([("a", pa.string()), ("b", pa.bool_())])),
        ("m", pa.map_(pa.string(), pa.int64())),
    ]
)


NESTED = [[{"f": ["a", None], "m": [("k", b"v"), ("l", None)]}, None], None, [{"f": None, "m": None}], []]


def nested(text: pa.DataType, raw: pa.DataType) -> pa.DataType:
    return pa.list_(pa.struct([("f", pa.list_(text, 2)), ("m", pa.map_(text, raw))]))


def batch_of_rows(found: list[dict[str, object]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(found, schema=SCHEMA)


@given(rows, st.randoms(use_true_random=False), st.integers(0, 8))
def test_order_and_partitioning_do_not_show(found: list[dict[str, object]], random: object, cut: int) -> None:
    shuffled = list(found)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    whole, other = batch_of_rows(found), batch_of_rows(shuffled)

    assert row_digest([whole]) == row_digest([other])
    assert row_digest([whole]) == row_digest([whole.slice(cut), whole.slice(0, cut)])
    assert row_digest([whole]) == row_digest([whole.slice(cut)]) + row_digest([whole.slice(0, cut)])


@given(rows.filter(bool))
def test_order_of_columns_does_not_show(found: list[dict[str, object]]) -> None:
    batch = batch_of_rows(found)

    assert row_digest([batch]) == row_digest([batch.select(list(reversed(batch.schema.names)))])


@given(rows.filter(bool))
def test_row_more_shows_and_row_twice_shows(found: list[dict[str, object]]) -> None:
    digest = row_digest([batch_of_rows(found)])

    assert digest != row_digest([batch_of_rows(found[1:])])
    assert digest != row_digest([batch_of_rows([*found, found[0]])])


def struct_of(one: list[object], other: list[object], *, is_view: bool = False) -> pa.Array:
    """Return structs with two fields of one name, and one that is null."""
    kind = pa.string_view() if is_view else None
    return pa.StructArray.from_arrays(
        [pa.array([*column, None], kind) for column in (one, other)], ["f", "f"], mask=pa.array([False, True])
    )


def single(array: pa.Array, name: str = "x") -> str:
    return row_digest([pa.RecordBatch.from_arrays([array], [name])]).hex


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array(["a", "b", None]), pa.array(["a", "b", None], pa.large_string())),
        (pa.array(["a", "b", "a"]), pa.array(["a", "b", "a"]).dictionary_encode()),
        (pa.array(["a", "b"]), pa.array(["a", "b"], pa.string_view())),
        (pa.array([[1.0, 2.0]]), pa.array([[1.0, 2.0]], pa.list_(pa.float64(), 2))),
        (pa.array([[1, 2], None]), pa.array([[1, 2], None], pa.large_list(pa.int64()))),
        (pa.array([[1, None]]), pa.array([[1, None]], pa.list_(pa.int64(), 2))),
        (pa.array([b"ab"]), pa.array([b"ab"], pa.binary(2))),
        (pa.array(["a", None]), pa.array(["a", None], pa.string_view())),
        (pa.array([b"a", None]), pa.array([b"a", None], pa.binary_view())),
        (pa.array(["1", None], pa.json_()), pa.array(["1", None], pa.json_(pa.string_view()))),
        *(
            (pa.array(NESTED, nested(pa.string(), pa.binary())), pa.array(NESTED, other))
            for other in (nested(pa.string_view(), pa.binary()), nested(pa.large_string(), pa.binary_view()))
        ),
    ],
)
def test_layout_does_not_show(one: pa.Array, other: pa.Array) -> None:
    schemas = [canonical_schema(pa.schema([("x", array.type)])) for array in (one, other)]

    assert single(one) == single(other)
    assert schemas[0] == schemas[1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([0.0]), pa.array([-0.0])),
        (pa.array([None], pa.string()), pa.array([""])),
        (pa.array([["a", "b"], []]), pa.array([["a"], ["b"]])),
        (pa.array([["ab"]]), pa.array([["a", "b"]])),
        (pa.array([1, 2]), pa.array([1, 3])),
        (pa.array([[]], pa.list_(pa.int64())), pa.array([None], pa.list_(pa.int64()))),
        (struct_of([1], [3]), struct_of([2], [3])),
        (struct_of([3], [1]), struct_of([3], [2])),
        (struct_of([1], [2]), struct_of([2], [1])),
        (struct_of(["u"], ["w"], is_view=True), struct_of(["v"], ["w"], is_view=True)),
    ],
)
def test_value_shows(one: pa.Array, other: pa.Array) -> None:
    assert single(one) != single(other)


def test_bits_of_a_nan_show() -> None:
    bits = np.array([0x7FF8000000000000, 0x7FF8000000000001], np.uint64).view(np.float64)

    assert single(pa.array(bits[:1], from_pandas=False)) != single(pa.array(bits[1:], from_pandas=False))


def test_boundary_between_columns_shows() -> None:
    one = pa.RecordBatch.from_pydict({"a": ["xy"], "b": ["z"]})
    other = pa.RecordBatch.from_pydict({"a": ["x"], "b": ["yz"]})

    assert row_digest([one]) != row_digest([other])


def test_row_is_encoded_as_the_module_says() -> None:
    """Written out once more by hand: a change of the encoding would make every published digest a lie."""
    batch = batch_of({"x": np.array([1.5, -0.0]), "name": np.array(["a", "bc"]), "v": np.arange(4).reshape(2, 2)})

    def text(value: str) -> bytes:
        return b"\1" + struct.pack("<q", len(value)) + value.encode()

    def numbers(*values: int) -> bytes:
        return b"\1" + struct.pack("<q", len(values)) + b"".join(b"\1" + struct.pack("<q", v) for v in values)

    encoded = [
        text("a") + numbers(0, 1) + b"\1" + struct.pack("<d", 1.5),
        text("bc") + numbers(2, 3) + b"\1" + struct.pack("<d", -0.0),
    ]
    total = sum(int.from_bytes(hashlib.sha256(row).digest(), "big") for row in encoded) % 2**256

    assert RowDigest(rows=2, total=total) == row_digest([batch])


def test_place_of_a_null_shows() -> None:
    one = pa.RecordBatch.from_pydict({"a": pa.array(["x"]), "b": pa.array([None], pa.string())})
    other = pa.RecordBatch.from_pydict({"a": pa.array([None], pa.string()), "b": pa.array(["x"])})

    assert row_digest([one]) != row_digest([other])


def published(batches: list[pa.RecordBatch], schema: pa.Schema) -> SavedStream:
    files = tuple(
        SavedFile(path=f"{n}", size_bytes=n, sha256=str(n), rows=b.num_rows, row_digest=row_digest([b]).hex)
        for n, b in enumerate(batches)
    )
    return SavedStream(kind="value", format=FileFormat.PARQUET, schema=dump_schema(schema), files=files)


def test_state_digest_shows_names_schemas_and_rows_but_not_files() -> None:
    batch = batch_of({"x": np.arange(4.0), "n": np.arange(4)})
    whole = published([batch], batch.schema)
    cut = published([batch.slice(2), batch.slice(0, 2)], batch.schema)
    empty_floats, empty_ints = (batch_of({"x": np.zeros(0, kind)}) for kind in (float, int))

    assert state_digest({"a": whole, "b": cut}) == state_digest({"b": whole, "a": cut})
    assert state_digest({"a": whole}) != state_digest({"b": whole})
    assert state_digest({"a": whole}) != state_digest({"a": whole, "b": whole})
    assert state_digest({"a": published([], empty_floats.schema)}) != state_digest(
        {"a": published([], empty_ints.schema)}
    )


def test_state_digest_refuses_a_stream_without_row_digests() -> None:
    file = SavedFile(path="p", size_bytes=1, sha256="", rows=1)
    stream = SavedStream(kind="value", format=FileFormat.ARROW, schema=dump_schema(pa.schema([])), files=(file,))

    with pytest.raises(ValueError, match="p has no row digest"):
        state_digest({"a": stream})


def test_parts_add_up_from_nothing() -> None:
    digest = row_digest([batch_of({"x": np.arange(3)})])

    assert digest == NO_ROWS + digest
