"""Does a value of a script come back as the type that it was given as, and is what cannot be kept named?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import SGDClassifier

from iteration_lib.errors import ValueNotKeptError
from iteration_lib.state.digest import row_digest
from iteration_lib.state.value import batch_of_value, value_of_batch

FRAME = pd.DataFrame(
    {
        "count": [1, 2],
        "name": ["x", None],
        "at": pd.to_datetime(["2020-01-01", None]),
        "kind": pd.Categorical(["u", "v"]),
    },
    index=pd.Index(["r", "q"], name="row"),
)
VIEWS = pa.table(
    {
        "text": pa.array(["a", None], pa.string_view()),
        "raw": pa.array([None, b"a"], pa.binary_view()),
        "words": pa.array([["a", None], None], pa.list_(pa.string_view())),
    }
)
LEARNT = {
    "coef_": np.eye(2),
    "t_": 3.0,
    "classes_": np.array(["no", "yes"]),
    "inner": {"a.b": 1, "a": {"b": np.int8(2)}},
}


def there_and_back(value: object) -> Any:
    return value_of_batch(batch_of_value(value, variable="x"))


def same(one: object, other: object) -> bool:
    """Tell whether two values are one type and, to the bit, one value."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray | np.generic) and isinstance(other, np.ndarray | np.generic):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    return one == other if isinstance(one, int) else repr(one) == repr(other)


@pytest.mark.parametrize(
    "value",
    [
        *(
            None,
            True,
            3,
            2**100,
            16**5000,
            -(2**100),
            -(2**63),
            -(2**63) - 1,
            0.1,
            -0.0,
            float("nan"),
            float("inf"),
            "a\0é",
            "",
            b"\xff\0",
        ),
        *(
            np.float64(0.1),
            np.float32(0.1),
            np.bool_(True),
            np.str_("é"),
            np.str_("a\0"),
            np.bytes_(b"\0\xff\0"),
            np.datetime64("2020-01-01"),
            np.complex64(1j),
        ),
        *({}, {"inner": {}}, LEARNT, {"id": np.arange(3), "place": np.eye(3)}, {"a": np.arange(3), "b": np.arange(2)}),
        *(np.zeros((0, 3)), np.zeros((3, 0)), np.array(5.0), np.arange(24.0).reshape(2, 3, 4)),
        *(np.random.default_rng(1).bit_generator.state, np.random.MT19937(1).state),
    ],
    ids=lambda value: repr(value)[:40] if not isinstance(value, int) else f"{value:#x}"[:40],
)
def test_value_comes_back_as_the_type_that_it_was_given_as(value: object) -> None:
    found = there_and_back(value)

    assert same(value, found), (value, found)


def test_data_frame_comes_back_with_its_index_and_its_types() -> None:
    found = there_and_back(FRAME)

    pd.testing.assert_frame_equal(FRAME, found)


@pytest.mark.parametrize("categories", [["u", "v"], [1, 2], [0.5, 1.5]], ids=["texts", "integers", "fractions"])
def test_categorical_without_rows_keeps_its_categories(categories: list[object]) -> None:
    """A work list becomes empty, and is filled again in a later epoch."""
    nothing = pd.DataFrame({"kind": pd.Categorical(categories, ordered=True)}).iloc[:0]

    found = there_and_back(there_and_back(nothing))

    pd.testing.assert_frame_equal(nothing, found)


def test_arrow_table_comes_back_with_what_its_schema_said() -> None:
    table = pa.table({"a": [1, None], "b": [[1], [2, 3]]}).replace_schema_metadata({"mine": "kept"})

    found = there_and_back(table)

    assert table.equals(found, check_metadata=True)


@pytest.mark.parametrize("chunks", [0, 1, 2])
def test_arrow_table_without_rows_comes_back_with_its_types(chunks: int) -> None:
    """Of a tensor whose axes have an order, and of whatever holds one, Arrow makes no array from an empty list."""
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((1, 2, 2)))
    inside = pa.StructArray.from_arrays([tensors], ["t"])
    empty = pa.RecordBatch.from_arrays([tensors, inside], ["tensor", "inside"]).slice(1)
    table = pa.Table.from_batches([empty] * chunks, schema=empty.schema)

    found = there_and_back(table)

    assert table.equals(found)


@pytest.mark.parametrize(
    ("value", "columns", "rows"),
    [
        (np.eye(3), {"value": "fixed_size_list<item: double>[3]"}, 3),
        (np.zeros((0, 3)), {"value": "fixed_size_list<item: double>[3]"}, 0),
        ({"id": np.arange(2), "place": np.eye(2)}, {"id": "int64", "place": "fixed_size_list<item: double>[2]"}, 2),
        ({"coef_": np.eye(2), "t_": 1.0}, {"coef_": "large_list<item: double>", "t_": "double"}, 1),
        ({"a.b": 1, "a": {"b": 2}}, {"a~1b": "int64", "a.b": "int64"}, 1),
        ("text", {"value": "string"}, 1),
        (None, {"value": "null"}, 1),
    ],
    ids=["array", "no rows", "block", "dict", "names", "text", "none"],
)
def test_value_is_a_table_that_others_can_read(value: object, columns: dict[str, str], rows: int) -> None:
    batch = batch_of_value(value, variable="x")

    assert (columns, rows) == ({field.name: str(field.type) for field in batch.schema}, batch.num_rows)


@pytest.mark.parametrize(
    "value", [None, {}, LEARNT, FRAME, VIEWS, np.zeros((3, 0)), np.float16(1), np.array([1j])], ids=type
)
def test_value_can_be_published(value: object) -> None:
    """Its rows have a digest, which does not change on the way through Parquet."""
    batch = batch_of_value(value, variable="x")
    target = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_batches([batch]), target)

    (read,) = pq.read_table(pa.BufferReader(target.getvalue())).to_batches()

    assert row_digest([batch]) == row_digest([read])


@pytest.mark.parametrize(
    "value", [np.arange(3.0), pd.DataFrame({"a": np.arange(3.0)}), {"a": np.arange(3.0)}], ids=type
)
def test_value_that_is_changed_in_place_changes_no_batch(value: Any) -> None:
    batch = batch_of_value(value, variable="x")
    given, first = value, value_of_batch(batch)

    for changed in (given, first):
        (changed["a"] if isinstance(changed, dict) else changed)[:] = 9.0

    second = value_of_batch(batch)
    assert [0.0, 1.0, 2.0] == np.asarray(second["a"] if isinstance(second, dict) else second).ravel().tolist()


def test_data_frame_may_be_changed_in_place_whatever_its_columns_are() -> None:
    """Arrow lends some columns to pandas, where nobody may write."""
    batch = batch_of_value(FRAME, variable="x")

    changed: pd.DataFrame = value_of_batch(batch)
    changed.loc["r"] = [9, "z", pd.Timestamp("2021-01-01"), "v"]

    pd.testing.assert_frame_equal(FRAME, value_of_batch(batch))
    assert [9, "z", pd.Timestamp("2021-01-01"), "v"] == changed.loc["r"].tolist()


def test_table_shares_no_memory_with_the_arrays_that_it_was_made_of() -> None:
    array = np.arange(3.0)
    batch = batch_of_value(pa.table({"a": array}), variable="x")

    array[:] = 9.0

    assert [0.0, 1.0, 2.0] == value_of_batch(batch)["a"].to_pylist()


def _nested(depth: int) -> object:
    return {"in": _nested(depth - 1)} if depth else 1


def test_number_that_an_older_version_wrote_in_decimals_is_read() -> None:
    batch = batch_of_value(2**5000, variable="x")
    older = pa.RecordBatch.from_arrays([pa.array([str(2**5000)])], schema=batch.schema)

    assert 2**5000 == value_of_batch(older)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([1], r"^variable x is a list; make it an array, as by numpy.array\(list\(...\)\)$"),
        ({"a": {"b": (1, 2)}}, r"^variable x\['a'\]\['b'\] is a tuple; make it an array"),
        ({1: 2}, "^variable x is a dict with the key 1; give keys that are texts$"),
        (pd.Series([1]), r"^variable x is a Series; make it a DataFrame, as by .to_frame\(\)$"),
        (
            SGDClassifier(),
            r"^variable x is a SGDClassifier; give what it has learnt, the attributes .*: \{name: value for",
        ),
        (np.ma.array([1]), r"^variable x is a MaskedArray; make it a plain array, as by numpy.asarray\(...\)$"),
        (
            np.array([None]),
            "^variable x is an array that Arrow cannot hold .has the type object.; give it another type",
        ),
        ("\ud800", "^variable x is a text that is no Unicode .*; encode it, and give the bytes$"),
        (pa.table([[1], [2]], names=["a", "a"]), "^variable x is a table with two columns of one name; rename one$"),
        ({"\ud800": 1}, r"^variable x is a dict with the key '\\ud800', which is no Unicode; give keys that are"),
        (_nested(200), r"^variable x.* is nested deeper than 100 dicts; give a flatter one$"),
        ({"a": pd.DataFrame({"b": [1]})}, r"^variable x\['a'\] is a DataFrame; make it a variable of its own"),
        ({"a": pa.table({"b": [1]})}, r"^variable x\['a'\] is a Table; make it a variable of its own"),
        (pd.DataFrame(index=range(5)), "^variable x is a table with 5 rows and no column; give it a column"),
        (np.zeros(3, "V0"), r"^variable x is an array that Arrow cannot hold .has the type \|V0"),
        (pd.DataFrame({"a": [1, "x"]}), "^variable x is a DataFrame that Arrow cannot hold .*; give each column"),
        (
            pd.DataFrame({"a": [2**70, 1]}),
            "^variable x is a DataFrame that Arrow cannot hold .*too large.*; give each column .* at most 64 bits$",
        ),
        (object(), "^variable x is a object; give a number, a text, a numpy array, a pandas DataFrame, an Arrow table"),
    ],
    ids=lambda found: type(found).__name__,
)
def test_what_cannot_be_kept_is_named_with_what_to_give_instead(value: object, sentence: str) -> None:
    with pytest.raises(ValueNotKeptError, match=sentence):
        batch_of_value(value, variable="x")


@pytest.mark.parametrize(
    "column",
    [
        pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
        pa.array([None, [1]], pa.list_view(pa.int64())),
        pa.array([[], []], pa.list_(pa.int64(), 0)),
        pa.array([[], [[1]]], pa.list_(pa.list_view(pa.int64()))),
        pa.DictionaryArray.from_arrays([0], pa.array(["a", None])),
        pa.DictionaryArray.from_arrays([0], pa.array(["a"], pa.string_view())),
        pa.DictionaryArray.from_arrays([0], pa.array([{"left": 0, "right": 1}])).slice(1),
    ],
    ids=lambda column: str(column.type),
)
def test_table_that_cannot_be_published_is_refused_before_the_run_has_come_to_its_end(column: pa.Array) -> None:
    table = pa.table({"a": column})

    with pytest.raises(ValueNotKeptError, match=r"^variable x is a table that no file can hold"):
        batch_of_value(table, variable="x")
