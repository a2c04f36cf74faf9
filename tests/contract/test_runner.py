"""What does every runner guarantee, whatever runs the operators? See `runner/seam.py`.

Each test runs on plain Python and on Spark; results are compared with those of plain Python and one subtask.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iteration_lib.errors import (
    DefinitionError,
    ExecutionLostError,
    InputError,
    OperatorFailedError,
    OperatorResultError,
    StateCorruptedError,
)
from iteration_lib.model.operator import Kind
from iteration_lib.runner.local import LocalRunner
from iteration_lib.state.digest import RowDigest, row_digest, state_digest
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import FileFormat
from tests import runner_cases as cases
from tests.runner_cases import BUCKETS, Harness, MakeHarness, Params, products_of


@pytest.mark.parametrize("parallelism", [1, 2, 3, 5])
def test_results_are_equal_to_the_bit_whatever_the_parallelism(
    make: MakeHarness, oracle: Harness, parallelism: int
) -> None:
    harness = make(parallelism=parallelism)
    result, expected = products_of(harness), products_of(oracle)
    published_by_oracle = oracle.write(expected, file_format=FileFormat.PARQUET)
    written, published = (harness.write(result, file_format=file_format) for file_format in FileFormat)
    assert written.saved
    assert published.saved

    assert expected.schema == written.stream.schema
    assert oracle.rows(expected) == harness.rows(result) == harness.rows(harness.runner.restore(written.saved))
    assert state_digest({"x": published_by_oracle.saved}) == state_digest({"x": published.saved})


def test_files_are_equal_to_the_byte(make: MakeHarness, tmp_path: Path) -> None:
    plain = Harness(LocalRunner(StateLocation(str(tmp_path / "plain")), max_buckets=BUCKETS, parallelism=3))
    harness = make(parallelism=3)

    digests = [[file.sha256 for file in h.write(products_of(h)).saved.files] for h in (plain, harness)]

    assert digests[0] == digests[1]


def test_sums_in_bucket_order_are_equal_to_the_bit(make: MakeHarness, oracle: Harness) -> None:
    results = []
    for harness in (oracle, make(parallelism=3)):
        summed = harness.buckets(cases.sums, points=harness.open(cases.thousand))
        results.append(harness.rows(harness.value(cases.total, given=summed)))

    assert results[0] == results[1]


def test_metrics_of_an_operator_are_its_own(make: MakeHarness) -> None:
    harness = make()
    summed = harness.buckets(cases.sums, points=harness.open(cases.three))

    harness.value(cases.total, given=summed)

    assert {"total": 15.0} == harness.metrics


def test_rows_are_cut_into_buckets_by_their_number(make: MakeHarness) -> None:
    harness = make()

    found = harness.rows(harness.buckets(cases.places, points=harness.open(cases.thousand)))

    assert list(range(1000)) == found["number"]
    assert [row * BUCKETS // 1000 for row in range(1000)] == found["bucket"]


def test_stream_saved_by_three_subtasks_restores_with_two(make: MakeHarness, oracle: Harness) -> None:
    saved = make(parallelism=3).write(products_of(make(parallelism=3))).saved
    assert saved
    assert [(0, 6), (6, 11), (11, 16)] == [(file.first_bucket, file.end_bucket) for file in saved.files]

    harness = make(parallelism=2)
    restored = harness.runner.restore(saved)
    again = harness.write(restored, folder="again")

    assert oracle.rows(products_of(oracle)) == harness.rows(restored)
    assert (500, 500) == again.records
    assert 2 == len(again.saved.files if again.saved else ())


def test_stream_of_another_number_of_buckets_is_refused(make: MakeHarness, tmp_path: Path) -> None:
    other = Harness(LocalRunner(StateLocation(str(tmp_path / "run")), max_buckets=8, parallelism=1))
    saved = other.write(other.buckets(cases.sums, points=other.open(cases.three))).saved
    assert saved

    with pytest.raises(StateCorruptedError, match="lacks the buckets 8 to 15 of a stream, of which the run has 16"):
        make().runner.restore(saved)


@pytest.mark.parametrize(("declared", "records"), [(None, (375, 313, 312)), (1, (1000,)), (2, (500, 500))])
def test_records_are_counted_per_subtask(make: MakeHarness, declared: int | None, records: tuple[int, ...]) -> None:
    harness = make(parallelism=3)
    points = harness.open(cases.thousand)

    stream = harness.call(cases.places, Kind.BUCKETS, parallelism=declared, points=points)

    assert records == harness.runner.materialise(stream, folder=None).records
    assert records == harness.write(stream).records


def test_empty_bucket_has_columns_of_the_right_width(make: MakeHarness) -> None:
    harness = make()

    found = harness.rows(harness.buckets(cases.widths, points=harness.open(cases.three)))

    assert 15.0 * 4 == np.sum(found["x"])
    assert BUCKETS == len(found["x"])


def test_random_numbers_depend_on_seed_operator_epoch_and_bucket_alone(make: MakeHarness) -> None:
    one, other = make(parallelism=1), make(parallelism=5, folder="other")

    def draw(harness: Harness, epoch: int | None) -> list[float]:
        return harness.rows(harness.call(cases.drawn, Kind.BUCKETS, epoch=epoch))["x"]

    drawn = draw(one, 0)
    several = [
        *drawn,
        *draw(one, 1),
        *draw(one, None),
        *draw(make(seed=8, folder="seed"), 0),
        *one.rows(one.value(cases.drawn_once))["x"],
    ]

    assert drawn == draw(other, 0)
    assert len(several) == len(set(several))


def test_arrays_that_an_operator_receives_are_read_only(make: MakeHarness) -> None:
    harness = make()
    points = harness.open(cases.three)

    with pytest.raises(OperatorFailedError, match="read-only"):
        harness.write(harness.buckets(cases.overwrite, points=points))


def test_chain_runs_each_operator_once_per_bucket(make: MakeHarness, tmp_path: Path) -> None:
    harness = make(log=str(tmp_path / "log"))
    summed = harness.buckets(cases.sums, points=harness.open(cases.thousand))

    written = harness.write(harness.buckets(cases.doubled, given=summed))
    harness.rows(written.stream)

    assert [f"{name}-{n:02d}" for name in ("doubled", "sums") for n in range(BUCKETS)] == harness.calls()


def test_result_with_two_consumers_is_computed_once(make: MakeHarness, tmp_path: Path) -> None:
    harness = make(log=str(tmp_path / "log"))
    summed = harness.buckets(cases.sums, consumers=3, points=harness.open(cases.thousand))
    twice = harness.buckets(cases.doubled, given=summed)

    first = harness.rows(twice)
    mixed = harness.rows(harness.buckets(cases.both, one=summed, other=twice))
    harness.value(cases.total, given=summed)
    harness.write(summed)

    assert [f"{name}-{n:02d}" for name in ("doubled", "sums") for n in range(BUCKETS)] == harness.calls()
    assert (np.array(first["sum"]) * 1.5).tolist() == mixed["sum"]


def test_materialised_stream_is_not_computed_again(make: MakeHarness, tmp_path: Path) -> None:
    harness = make(log=str(tmp_path / "log"))
    stream = harness.buckets(cases.sums, points=harness.open(cases.thousand))

    harness.runner.materialise(stream, folder=None)
    harness.write(stream, "one")
    harness.write(stream, "other", file_format=FileFormat.PARQUET)
    harness.rows(stream)

    assert BUCKETS == len(harness.calls())


def test_large_results_pass_through_files_and_are_complete(make: MakeHarness, oracle: Harness) -> None:
    results = []
    for harness in (oracle, make()):
        stream = harness.buckets(cases.large, consumers=2, points=harness.open(cases.thousand))
        counted = harness.rows(harness.value(cases.counted, given=stream))
        results.append((counted, harness.rows(harness.buckets(cases.counted, given=stream))))

    assert {"rows": [1000], "x": [999 * 500 * 900.0]} == results[0][0]
    assert results[0] == results[1]


def test_two_writes_of_a_stream_leave_two_sets_of_files(make: MakeHarness) -> None:
    harness = make()
    stream = harness.buckets(cases.sums, points=harness.open(cases.three))

    names = [file.path for _ in range(2) for file in harness.write(stream, "same").saved.files]  # type: ignore[union-attr]

    assert 4 == len(set(names))


def test_data_reaches_an_operator_on_whole_values_in_order(make: MakeHarness) -> None:
    harness = make()

    found = harness.rows(harness.open(cases.thousand))

    assert (list(range(1000)), "row 999") == (found["number"], found["text"][-1])


def test_published_rows_have_the_digest_that_the_stream_says(make: MakeHarness, tmp_path: Path) -> None:
    harness = make(parallelism=3)

    saved = harness.write(products_of(harness), file_format=FileFormat.PARQUET).saved
    assert saved

    for file in saved.files:
        found = row_digest(pq.read_table(tmp_path / "run" / file.path).to_batches())
        assert RowDigest(rows=file.rows, total=int(str(file.row_digest), 16)) == found


def test_none_is_a_stream_without_records(make: MakeHarness) -> None:
    harness = make()

    written = harness.write(harness.value(cases.nothing))

    assert ((0,), "no columns") == (written.records, written.stream.schema)


# What goes wrong in an operator


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (
            cases.fails,
            OperatorFailedError,
            "operator 'fails' failed in epoch 0: ZeroDivisionError: bucket 5 divides by zero; run the same",
        ),
        (cases.refuses, InputError, "column 'x' holds NaN; drop such rows"),
        (cases.returns_objects, OperatorResultError, "operator 'returns_objects' returned what no stream can hold"),
        (cases.returns_several, OperatorResultError, "returned (x: fixed_size_list<double>[3]) for bucket"),
    ],
)
def test_error_on_a_bucket_keeps_its_type_and_names_the_operator(
    make: MakeHarness, function: Callable[..., Any], error: type[Exception], message: str
) -> None:
    harness = make(parallelism=1)
    points = harness.open(cases.thousand)

    with pytest.raises(error) as caught:
        harness.write(harness.buckets(function, points=points))

    assert error is type(caught.value)
    assert message in str(caught.value)


def test_error_in_a_fused_operator_names_that_operator(make: MakeHarness) -> None:
    harness = make()
    points = harness.open(cases.thousand)

    with pytest.raises(OperatorFailedError) as caught:
        harness.write(harness.buckets(cases.counted, given=harness.buckets(cases.fails, points=points)))

    assert ("fails", 0) == (caught.value.operator_id, caught.value.epoch)


def test_other_columns_in_another_subtask_are_refused(make: MakeHarness) -> None:
    harness = make(parallelism=BUCKETS)
    points = harness.open(cases.thousand)

    with pytest.raises(OperatorResultError, match="for every bucket"):
        harness.write(harness.buckets(cases.returns_several, points=points))


def test_error_on_a_value_names_the_operator_and_chains_the_cause(make: MakeHarness) -> None:
    with pytest.raises(OperatorFailedError, match="operator 'fails_here' failed in epoch 0: KeyError") as caught:
        make().value(cases.fails_here)

    assert isinstance(caught.value.__cause__, KeyError)


# What goes wrong with data


def write_table(path: Path, **columns: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return str(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files, of which the middle one is empty, and some that Spark leaves beside them."""
    folder = tmp_path / "input"
    write_table(folder / "b.parquet", n=[3, 4], x=[[3.0, 3.5], [4.0, 4.5]])
    write_table(folder / "a.parquet", n=[0, 1, 2], x=[[0.0, 0.5], [1.0, 1.5], [2.0, 2.5]])
    write_table(folder / "ab.parquet", n=pa.array([], pa.int64()), x=pa.array([], pa.list_(pa.float64())))
    write_table(folder / "_temporary" / "c.parquet", n=[9], x=[[9.0, 9.5]])
    (folder / "_SUCCESS").touch()
    (folder / ".a.parquet.crc").touch()
    return folder


def test_folder_is_read_in_the_order_of_its_names(make: MakeHarness, folder: Path) -> None:
    harness = make(input=str(folder))
    pinned = harness.runner.pin(cases.operator_of(cases.table, Kind.DATA), harness.params, folder="pins")

    assert [str(folder / name) for name in ("a.parquet", "ab.parquet", "b.parquet")] == [f.path for f in pinned.files]
    assert {"n": [0, 1, 2, 3, 4], "x": [[n, n + 0.5] for n in range(5)]} == harness.rows(
        harness.runner.open_data(pinned)
    )


def test_pin_is_the_same_each_time_and_depends_on_the_columns(make: MakeHarness, folder: Path) -> None:
    operator = cases.operator_of(cases.table, Kind.DATA)
    pins = [
        make().runner.pin(operator, Params(input=str(folder), columns=columns), folder="pins")
        for columns in (None, None, ("n",))
    ]

    assert pins[0] == pins[1]
    assert pins[0].fingerprint != pins[2].fingerprint


def test_only_the_chosen_columns_are_read_in_their_order(make: MakeHarness, folder: Path) -> None:
    harness = make(input=str(folder), columns=("x", "n"))

    assert ["x", "n"] == list(harness.rows(harness.open(cases.table)))


def break_nothing(folder: Path) -> Path:
    return folder.with_name("nowhere")


def break_into_nothing(folder: Path) -> Path:
    (folder.with_name("empty") / "sub").mkdir(parents=True)
    return folder.with_name("empty")


def break_rows(folder: Path) -> Path:
    return folder / "ab.parquet"


def break_content(folder: Path) -> Path:
    (folder / "b.parquet").write_bytes(b"PAR1 this is not")
    return folder


def break_schema(folder: Path) -> Path:
    write_table(folder / "b.parquet", n=[1.5], x=[[1.0, 2.0]])
    return folder


def break_layout(folder: Path) -> Path:
    write_table(folder / "year=2026" / "d.parquet", n=[1], x=[[1.0, 2.0]])
    return folder


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (break_nothing, "nowhere is not there"),
        (break_into_nothing, "empty is a folder without *.parquet files"),
        (break_rows, "ab.parquet holds no rows"),
        (break_content, "b.parquet is not a Parquet file"),
        (break_schema, "b.parquet has other columns than"),
        (break_layout, "is partitioned by folders (year=2026/d.parquet)"),
    ],
)
def test_input_that_cannot_be_pinned_is_named(
    make: MakeHarness, folder: Path, damage: Callable[[Path], Path], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        make(input=str(damage(folder))).open(cases.table)

    assert message in str(caught.value)


def test_files_that_differ_in_whether_nulls_are_allowed_are_one_input(make: MakeHarness, tmp_path: Path) -> None:
    folder = tmp_path / "input"
    folder.mkdir()
    for name, is_nullable in (("a", True), ("b", False)):
        lists = pa.list_(pa.field("element", pa.float64(), nullable=is_nullable))
        fields = [pa.field("n", pa.int64(), nullable=is_nullable), pa.field("x", lists, nullable=is_nullable)]
        pq.write_table(
            pa.table([[1], pa.array([[1.0, 2.0]], lists)], schema=pa.schema(fields)), folder / f"{name}.parquet"
        )
    harness = make(input=str(folder))

    assert {"n": [1, 1], "x": [[1.0, 2.0], [1.0, 2.0]]} == harness.rows(harness.open(cases.table))


def test_missing_column_is_named_with_what_there_is(make: MakeHarness, folder: Path) -> None:
    with pytest.raises(InputError, match=r"a\.parquet has no column 'label'; it has: n, x"):
        make(input=str(folder), columns=("n", "label")).open(cases.table)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"n": [1, None]}, "column 'n' holds 1 nulls"),
        ({"x": [[1.0], [1.0, 2.0]]}, "column 'x' holds lists of 1 to 2 elements"),
        ({"s": [{"a": 1}, {"a": 2}]}, "column 's' has the type struct"),
    ],
)
def test_column_that_no_block_can_hold_is_named_with_its_file(
    make: MakeHarness, tmp_path: Path, columns: dict[str, Any], message: str
) -> None:
    harness = make(input=write_table(tmp_path / "input.parquet", **columns))

    with pytest.raises(InputError) as caught:
        harness.rows(harness.open(cases.table))

    assert message in str(caught.value)
    assert "input.parquet" in str(caught.value)


def test_input_that_changed_after_it_was_pinned_is_named(make: MakeHarness, folder: Path) -> None:
    harness = make(input=str(folder))
    pinned = harness.runner.pin(cases.operator_of(cases.table, Kind.DATA), harness.params, folder="pins")
    write_table(folder / "b.parquet", n=[3, 5], x=[[3.0, 3.5], [4.0, 4.5]])

    with pytest.raises(InputError, match=r"b\.parquet has changed .* since the run started"):
        harness.runner.open_data(pinned)


def test_records_are_pinned_in_the_run_folder_and_survive_its_move(make: MakeHarness, tmp_path: Path) -> None:
    pinned = make().runner.pin(cases.operator_of(cases.thousand, Kind.DATA), Params(), folder="pins/thousand")
    (tmp_path / "run").rename(tmp_path / "moved")

    harness = make(folder="moved")

    assert list(range(1000)) == harness.rows(harness.runner.open_data(pinned))["number"]


def test_function_that_returns_no_source_is_refused(make: MakeHarness) -> None:
    with pytest.raises(OperatorResultError, match=r"'weights' returned a dict; return parquet\(...\)"):
        make().open(cases.weights)


# What goes wrong with state


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [(Path.unlink, "is missing"), (truncate, "were written"), (flip, "has the SHA-256")],
)
@pytest.mark.parametrize("kind", [Kind.VALUE, Kind.BUCKETS])
def test_damaged_state_is_detected_before_it_is_used(
    make: MakeHarness, tmp_path: Path, damage: Callable[[Path], None], problem: str, kind: Kind
) -> None:
    harness = make()
    stream = harness.open(cases.thousand)
    result = products_of(harness) if kind is Kind.BUCKETS else harness.value(cases.places_of_all, points=stream)
    saved = harness.write(result).saved
    assert saved
    damage(tmp_path / "run" / saved.files[-1].path)

    with pytest.raises(StateCorruptedError, match=problem) as caught:
        make().runner.restore(saved)

    assert saved.files[-1].path in caught.value.uri


# How it ends


def test_cancelled_runner_refuses_what_comes(make: MakeHarness) -> None:
    harness = make()
    points = harness.open(cases.three)
    harness.runner.cancel()
    harness.runner.cancel()

    with pytest.raises(ExecutionLostError, match="cancelled"):
        harness.rows(harness.buckets(cases.sums, points=points))


def test_cancelled_runner_still_writes_a_value_that_the_driver_holds(make: MakeHarness) -> None:
    """What is computed can be captured, also when Spark is gone."""
    harness = make()
    value = harness.value(cases.weights)
    harness.runner.cancel()

    saved = harness.write(value).saved

    assert saved is not None
    assert [1] == [file.rows for file in saved.files]


def test_cancelling_stops_what_is_running(make: MakeHarness, tmp_path: Path) -> None:
    log = tmp_path / "log"
    harness = make(log=str(log))
    points = harness.open(cases.thousand)
    errors: list[Exception] = []

    def run() -> None:
        try:
            harness.write(harness.buckets(cases.waits, points=points))
        except ExecutionLostError as err:
            errors.append(err)

    thread = threading.Thread(target=run)
    thread.start()
    while not log.exists():
        thread.join(0.01)
    harness.runner.cancel()
    if isinstance(harness.runner, LocalRunner):
        log.unlink()  # plain Python stops between two calls, Spark inside of one
    thread.join(30)
    is_over = not thread.is_alive()
    log.unlink(missing_ok=True)

    assert (True, 1) == (is_over, len(errors))


def test_closing_twice_is_harmless(make: MakeHarness) -> None:
    runner = make().runner

    runner.close()
    runner.close()


def test_plain_python_refuses_what_needs_spark(tmp_path: Path) -> None:
    harness = Harness(LocalRunner(StateLocation(str(tmp_path)), max_buckets=BUCKETS, parallelism=1))

    with pytest.raises(DefinitionError, match="operator 'nothing': works with Spark"):
        harness.call(cases.nothing, Kind.FRAME)


@pytest.mark.parametrize("kind", [Kind.VALUE, Kind.BUCKETS])
def test_file_that_holds_other_rows_than_were_counted_is_refused(make: MakeHarness, kind: Kind) -> None:
    """Its bytes are those that were written: what is wrong is what the manifest says of them."""
    harness = make()
    stream = harness.open(cases.thousand)
    result = products_of(harness) if kind is Kind.BUCKETS else harness.value(cases.places_of_all, points=stream)
    saved = harness.write(result).saved
    assert saved
    *others, last = saved.files
    lie = replace(saved, files=(*others, replace(last, rows=last.rows - 1)))

    with pytest.raises(StateCorruptedError, match=f"holds {last.rows} rows, but {last.rows - 1} were") as caught:
        make().runner.restore(lie)

    assert last.path in caught.value.uri


def test_file_that_holds_other_buckets_than_it_is_said_to_is_refused(make: MakeHarness) -> None:
    saved = make().write(products_of(make(parallelism=2))).saved
    assert saved
    first, second = saved.files
    lie = replace(saved, files=(replace(first, end_bucket=7), replace(second, first_bucket=7)))

    with pytest.raises(StateCorruptedError, match="holds 8 buckets, but 7 were written") as caught:
        make().runner.restore(lie)

    assert first.path in caught.value.uri
