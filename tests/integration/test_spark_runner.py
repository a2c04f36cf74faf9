"""What does the Spark runner guarantee beyond the contract of all runners: DataFrames, retries, names, its end?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from contextvars import ContextVar
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from iteration_lib.errors import (
    ExecutionLostError,
    InputError,
    OperatorFailedError,
    OperatorResultError,
    StateCorruptedError,
    StateLocationError,
)
from iteration_lib.model.operator import Kind
from iteration_lib.runner.seam import Stream
from iteration_lib.runner.spark import SparkRunner
from iteration_lib.runner.spark_jobs import SparkJobs
from iteration_lib.runner.spark_session import jvm_pid
from iteration_lib.state.digest import RowDigest, row_digest
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import FileFormat, SavedStream
from iteration_lib.state.streams import load_schema
from tests import runner_cases as cases
from tests.failover.driven import PATIENCE_SECONDS, wait_until
from tests.runner_cases import Harness, Params

pytestmark = pytest.mark.spark


@pytest.fixture
def harness(spark: SparkSession, tmp_path: Path) -> Iterator[Harness]:
    runner = SparkRunner(spark, StateLocation(str(tmp_path / "run")), max_buckets=16, parallelism=3)
    yield Harness(runner, Params(log=str(tmp_path / "log")))
    runner.close()


def transform(
    harness: Harness, function: Callable[..., Any], *, epoch: int = 0, consumers: int = 1, **inputs: Stream
) -> Any:
    return harness.call(function, Kind.FRAME, epoch=epoch, consumers=consumers, **inputs)


def squares(harness: Harness, *, consumers: int = 1) -> Any:
    return transform(harness, cases.squares, consumers=consumers, points=harness.open(cases.frame_of_data))


def test_frame_is_written_counted_and_restored(harness: Harness) -> None:
    written = harness.write(squares(harness))
    assert written.saved

    restored = harness.runner.restore(written.saved)

    assert "number: bigint, square: double" == written.stream.schema == restored.schema
    assert (100, 100) == (sum(written.records), written.saved.rows)
    for stream in (written.stream, restored):
        found = harness.rows(stream)
        assert sorted(zip(found["number"], found["square"], strict=True)) == [(n, n * n) for n in range(100)]


@pytest.mark.parametrize("kind", [Kind.VALUE, Kind.BUCKETS])
def test_transform_takes_times_of_every_unit(harness: Harness, kind: Kind) -> None:
    given = harness.call(cases.times if kind is Kind.VALUE else cases.times_of_buckets, kind)

    found = harness.rows(transform(harness, cases.given_back, given=given))

    noon = datetime(2024, 7, 1, 12)  # noqa: DTZ001 - as numpy has it
    assert found == {
        "ns": [noon + timedelta(microseconds=1)],
        "s": [noon],
        "for": [timedelta(microseconds=5)],
        "both": [[timedelta(milliseconds=1), timedelta(milliseconds=2)]],
    }


def test_time_that_spark_cannot_hold_is_refused_by_the_name_of_who_takes_it(harness: Harness) -> None:
    given = harness.call(cases.too_fine_times, Kind.VALUE)

    with pytest.raises(
        OperatorResultError, match=r"operator 'given_back' takes .* column 'for' holds times that micro"
    ):
        transform(harness, cases.given_back, given=given)


@pytest.mark.parametrize(
    ("function", "kind", "problem"),
    [
        (cases.unsigned, Kind.VALUE, "column 'count' has the type uint32, which Spark has not; return it as int64"),
        (
            cases.short_floats,
            Kind.BUCKETS,
            "column 'x' has the type halffloat, which Spark has not; return it as float32",
        ),
    ],
)
def test_type_that_spark_has_not_is_refused_by_its_column(
    harness: Harness, function: Callable[..., Any], kind: Kind, problem: str
) -> None:
    given = harness.call(function, kind)

    with pytest.raises(OperatorResultError, match=f"operator 'given_back' takes .*: {problem}"):
        transform(harness, cases.given_back, given=given)


def test_frame_with_several_consumers_is_computed_once(harness: Harness) -> None:
    stream = squares(harness, consumers=3)

    total = harness.rows(transform(harness, cases.summed, given=stream))
    harness.write(stream, "one")
    harness.write(stream, "other", file_format=FileFormat.PARQUET)
    harness.rows(transform(harness, cases.odd, given=stream))

    assert {"sum": [sum(n * n for n in range(100))], "rows": [100]} == total
    assert sorted(map(str, range(100))) == harness.calls()


def test_materialising_without_a_folder_computes_once(harness: Harness) -> None:
    stream = squares(harness)

    first = harness.runner.materialise(stream, folder=None)
    second = harness.runner.materialise(first.stream, folder=None)
    harness.write(stream)

    assert (None, None, first.records) == (first.saved, second.saved, second.records)
    assert 100 == len(harness.calls())


def test_lineage_does_not_grow_with_the_epochs(harness: Harness) -> None:
    stream: Any = harness.write(transform(harness, cases.added, given=harness.open(cases.frame_of_data))).stream
    plans = []

    for epoch in range(4):
        stream = harness.write(transform(harness, cases.added, epoch=epoch, given=stream)).stream
        plans.append(len(stream.frame._jdf.queryExecution().toString()))

    assert plans[0] == pytest.approx(plans[-1], rel=0.1)
    assert list(range(5, 105)) == sorted(harness.rows(stream)["number"])


def test_published_frame_has_the_digest_of_its_rows(harness: Harness, tmp_path: Path) -> None:
    nested = transform(harness, cases.nested, given=harness.open(cases.frame_of_data))

    saved = harness.write(nested, file_format=FileFormat.PARQUET).saved
    assert saved

    for file in saved.files:
        found = row_digest(pq.ParquetFile(tmp_path / "run" / file.path).iter_batches())
        assert RowDigest(rows=file.rows, total=int(str(file.row_digest), 16)) == found


@pytest.mark.parametrize("made", ["not yet", "in scratch", "in files", "restored"])
def test_published_frame_may_be_removed_while_its_stream_is_used(harness: Harness, tmp_path: Path, made: str) -> None:
    """Sinks take away what was published beside the next epoch, which reads the very stream."""
    stream = squares(harness)
    if made == "in scratch":
        harness.runner.materialise(stream, folder=None)
    elif made != "not yet":
        written = harness.write(stream)
        assert written.saved
        stream = harness.runner.restore(written.saved) if made == "restored" else stream

    published = harness.write(stream, "published", file_format=FileFormat.PARQUET)
    assert published.saved
    for file in published.saved.files:
        (tmp_path / "run" / file.path).unlink()

    assert 100 == sum(published.records)
    assert list(range(100)) == sorted(harness.rows(stream)["number"])
    assert list(range(1, 101)) == sorted(harness.rows(transform(harness, cases.added, given=stream))["number"])


def test_frame_of_every_type_comes_back_as_it_was(harness: Harness) -> None:
    stream = transform(harness, cases.nested, given=harness.open(cases.frame_of_data))
    expected = sorted(map(str, stream.frame.collect()))
    schema = stream.schema

    restored: Any = harness.runner.restore(harness.write(stream).saved)  # type: ignore[arg-type]

    assert schema == restored.schema
    assert expected == sorted(map(str, restored.frame.collect()))


def test_columns_may_have_names_that_mean_something_to_spark(harness: Harness) -> None:
    stream = transform(harness, cases.oddly_named, given=harness.open(cases.frame_of_data))
    expected, schema = sorted(map(str, stream.frame.collect())), stream.schema

    published = harness.write(stream, "published", file_format=FileFormat.PARQUET).saved
    restored: Any = harness.runner.restore(harness.write(stream).saved)  # type: ignore[arg-type]

    assert schema == stream.schema == restored.schema
    assert expected == sorted(map(str, stream.frame.collect())) == sorted(map(str, restored.frame.collect()))
    assert published
    assert ["a.b", "a", "no`4", "a b,;{}()="] == load_schema(published).names


def test_operators_on_values_take_such_columns(harness: Harness) -> None:
    given = transform(harness, cases.plainly_odd, given=harness.open(cases.frame_of_data))

    found = harness.rows(harness.write(given).stream)

    assert ["a.b", "no`4", "a b,;{}()="] == list(found)
    assert list(range(2, 102)) == sorted(found["no`4"])


def test_frame_without_rows_keeps_its_schema(harness: Harness) -> None:
    written = harness.write(transform(harness, cases.emptied, given=squares(harness)))
    assert written.saved

    restored = harness.runner.restore(written.saved)

    assert (0, ()) == (sum(written.records), written.saved.files)
    assert "number: bigint, square: double" == written.stream.schema == restored.schema
    assert {"number": [], "square": []} == harness.rows(restored)


def test_transform_takes_data_values_and_buckets(harness: Harness) -> None:
    points = harness.open(cases.thousand)
    parts = harness.buckets(cases.places, points=points)
    large = harness.buckets(cases.large, points=points)
    value = harness.value(cases.weights)

    found = harness.rows(transform(harness, cases.joined, points=points, value=value, parts=parts))
    wide = harness.rows(transform(harness, cases.joined, points=points, value=value, parts=large))

    assert sorted(zip(found["number"], found["bucket"], strict=True)) == [(n, n * 16 // 1000) for n in range(1000)]
    assert [[0.1, 0.2, 0.3]] * 1000 == found["w"]
    assert sorted((n, x[0]) for n, x in zip(wide["number"], wide["x"], strict=True)) == [(n, n) for n in range(1000)]


def test_data_frame_is_pinned_once_and_read_by_every_kind(harness: Harness) -> None:
    data = harness.open(cases.frame_of_data)

    whole = harness.rows(data)
    placed = harness.rows(harness.buckets(cases.places, points=data))
    summed = harness.rows(transform(harness, cases.summed, given=transform(harness, cases.squares, points=data)))

    assert (100, [n * 0.5 for n in range(100)]) == (len(whole["number"]), sorted(row[0] for row in whole["vector"]))
    assert whole["number"] == placed["number"]
    assert [100] == summed["rows"]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (cases.fails_in_spark, "number is too large"),
        (cases.fails_in_python, "LookupError: no such square"),
        (cases.fails_in_analysis, "`cube` cannot be resolved"),
        (cases.names_what_spark_says, "`INTERRUPTED_AT` cannot be resolved"),
        (cases.says_what_spark_says, "ValueError: [INTERRUPTED] at row 7: ExecutorLostFailure (FetchFailed"),
        (cases.has_spark_say_it, "[INTERRUPTED] FetchFailed"),
        (cases.fails_in_the_driver, "AttributeError: 'NoneType' object has no attribute 'select'"),
        (cases.exits_in_the_driver, "SystemExit: no licence"),
        (cases.calls_what_java_has_not, "Py4JException: Method cube([]) does not exist"),
        (cases.connects_to_nobody, "ConnectionRefusedError: [Errno 111]"),
        (cases.finds_a_torn_file, "EOFError: the file is torn"),
    ],
)
def test_failure_of_a_transform_is_one_line_that_names_the_operator(
    harness: Harness, function: Callable[..., Any], message: str
) -> None:
    data = harness.open(cases.frame_of_data)

    with pytest.raises(OperatorFailedError) as caught:
        harness.write(transform(harness, function, given=data))

    assert (function.__name__, 0) == (caught.value.operator_id, caught.value.epoch)
    assert message in str(caught.value)
    assert 1 == len(str(caught.value).splitlines())


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (cases.returns_a_block, "'returns_a_block' returned a dict; a transform returns a DataFrame"),
        (cases.returns_a_column_twice, "'returns_a_column_twice' returned two columns 'number'"),
    ],
)
def test_what_is_no_frame_is_refused(harness: Harness, function: Callable[..., Any], message: str) -> None:
    data = harness.open(cases.frame_of_data)

    with pytest.raises(OperatorResultError, match=message):
        transform(harness, function, given=data)


def test_nulls_that_reach_an_operator_on_arrays_are_named(harness: Harness) -> None:
    stream = transform(harness, cases.with_nulls, given=harness.open(cases.frame_of_data))

    with pytest.raises(
        OperatorResultError, match=r"'with_nulls' returned a DataFrame .* column 'number' holds 1 nulls"
    ):
        harness.rows(stream)


def test_damaged_frame_is_detected_before_it_is_used(harness: Harness, tmp_path: Path) -> None:
    saved = harness.write(squares(harness)).saved
    assert saved
    path = tmp_path / "run" / saved.files[-1].path
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(StateCorruptedError) as caught:
        harness.runner.restore(saved)

    assert str(path) == caught.value.uri


def test_frame_whose_file_holds_other_rows_than_were_counted_is_refused(harness: Harness, tmp_path: Path) -> None:
    saved = harness.write(squares(harness)).saved
    assert saved
    *others, last = saved.files
    lie = replace(saved, files=(*others, replace(last, rows=last.rows + 1)))

    with pytest.raises(StateCorruptedError, match=f"holds {last.rows} rows, but {last.rows + 1} were") as caught:
        harness.runner.restore(lie)

    assert str(tmp_path / "run" / last.path) == caught.value.uri


def test_folders_may_have_names_that_spark_would_read_as_patterns(spark: SparkSession, tmp_path: Path) -> None:
    base = tmp_path / "my [1] {a,b} *? 100%25 #ü x=y"
    (base / "in").mkdir(parents=True)
    pq.write_table(pa.table({"number": list(range(50))}), base / "in" / "p.parquet")
    runner = SparkRunner(spark, StateLocation(str(base / "run")), max_buckets=4, parallelism=2)
    harness = Harness(runner, Params(input=str(base / "in")))
    data = harness.open(cases.table)

    written = harness.write(transform(harness, cases.odd, given=data))
    placed = harness.rows(harness.buckets(cases.places, points=data))

    assert list(range(50)) == placed["number"]
    assert written.saved
    assert list(range(1, 50, 2)) == sorted(harness.rows(runner.restore(written.saved))["number"])
    runner.close()


# Spark's own failures


def test_task_that_died_is_repeated_and_counts_once(harness: Harness, tmp_path: Path) -> None:
    written = harness.write(harness.buckets(cases.dies_once, points=harness.open(cases.thousand)))
    assert written.saved

    assert (tmp_path / "log").exists(), "no task died"
    assert (375, 313, 312) == written.records
    assert 3 == len(written.saved.files)
    assert list(range(1000)) == harness.rows(written.stream)["number"]


def test_task_that_meets_what_may_pass_is_repeated(harness: Harness) -> None:
    harness.params = replace(harness.params, seed=3)

    found = harness.rows(harness.buckets(cases.meets_an_outage, points=harness.open(cases.thousand)))

    assert ["called"] * 3 == harness.calls()
    assert list(range(1000)) == found["number"]


def test_what_does_not_pass_in_the_last_try_is_what_the_task_met(harness: Harness) -> None:
    harness.params = replace(harness.params, seed=99)

    with pytest.raises(InputError, match=r"^the input is away") as caught:
        harness.rows(harness.buckets(cases.meets_an_outage, points=harness.open(cases.thousand)))

    assert caught.value.is_passing
    assert ["called"] * 4 == harness.calls()


def test_frame_that_cannot_be_written_is_tried_again(harness: Harness, tmp_path: Path) -> None:
    stream = squares(harness)
    (tmp_path / "run" / "in-the-way").touch()

    with pytest.raises(StateLocationError) as caught:
        harness.write(stream, "in-the-way/out")

    assert caught.value.is_passing
    assert 4 == max(Counter(harness.calls()).values())


def test_part_of_a_task_that_is_repeated_stays_the_file_that_was_told(harness: Harness, tmp_path: Path) -> None:
    """The task makes the buckets up to 5, whose file is told, dies in the last one, and makes both parts again."""
    points = harness.open(cases.thousand)
    between = harness.write(harness.buckets(cases.numbers, points=points), "before").saved
    assert between
    told: list[SavedStream] = []

    def note(part: SavedStream) -> None:
        told.append(part)
        cases.sign(harness.params).touch()

    stream = harness.call(cases.dies_after_a_sign, Kind.BUCKETS, parallelism=1, points=points)
    written = harness.write(stream, done=replace(between, files=between.files[1:2]), on_part=note)
    assert written.saved

    files = [file for part in told for file in part.files]
    assert [range(6), range(11, 16)] == [file.buckets for file in files]
    assert files == [written.saved.files[0], written.saved.files[2]]
    assert 3 == len(list((tmp_path / "run" / "out").iterdir())), "the first part was not made twice"
    assert (1000,) == written.records
    assert list(range(1000)) == harness.rows(harness.runner.restore(written.saved))["number"]


def test_stream_is_made_in_one_job_whether_or_not_its_parts_are_told(
    harness: Harness, spark: SparkSession, tmp_path: Path
) -> None:
    tracker, run = spark.sparkContext.statusTracker(), tmp_path / "run"

    plain = harness.write(harness.call(cases.drawn, Kind.BUCKETS, epoch=70))
    scratch = list(run.glob("scratch-*"))
    told = harness.write(harness.call(cases.drawn, Kind.BUCKETS, epoch=71), on_part=lambda _: None)

    assert [1, 1] == [len(tracker.getJobIdsForGroup(f"tests/{epoch}/drawn")) for epoch in (70, 71)]
    assert [] == scratch, "nobody asked for a sidecar"
    assert plain.saved
    assert told.saved
    assert sorted(run / file.path for file in plain.saved.files + told.saved.files) == sorted(
        path for path in run.rglob("*") if path.is_file()
    )


def test_parts_are_told_at_the_end_where_there_can_be_no_sidecar(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "in-the-way").touch()
    location = StateLocation(str(tmp_path / "run"))
    runner = SparkRunner(spark, location, max_buckets=16, parallelism=3, scratch="in-the-way/scratch")
    harness = Harness(runner, Params())
    told: list[SavedStream] = []

    saved = harness.write(harness.buckets(cases.drawn), on_part=told.append).saved
    runner.close()

    assert saved
    assert list(saved.files) == [file for part in told for file in part.files]


@pytest.mark.parametrize("function", [cases.added, cases.emptied])
def test_frame_is_told_once_and_whole(harness: Harness, function: Callable[..., Any]) -> None:
    told: list[SavedStream] = []
    stream = transform(harness, function, given=harness.open(cases.frame_of_data))

    assert not harness.runner.is_computed(stream)
    saved = harness.write(stream, on_part=told.append).saved

    assert harness.runner.is_computed(stream)
    assert [saved] == told


def test_frame_that_was_materialised_is_computed(harness: Harness) -> None:
    stream = squares(harness)
    harness.runner.materialise(stream, folder=None)

    assert harness.runner.is_computed(stream)
    harness.write(stream)
    assert 100 == len(harness.calls())


def test_data_without_rows_is_a_frame_with_its_columns(harness: Harness, tmp_path: Path) -> None:
    for name, values in [("a", []), ("b", [1, 2]), ("c", [3])]:
        pq.write_table(pa.table({"number": pa.array(values, pa.int64())}), tmp_path / f"{name}.parquet")
    harness.params = Params(input=str(tmp_path))
    pinned = harness.runner.pin(cases.operator_of(cases.table, Kind.DATA), harness.params, folder="pins")
    full = harness.runner.open_data(pinned)
    seen = transform(harness, cases.odd, given=full)
    assert [1, 3] == sorted(harness.rows(seen)["number"])
    for name in "abc":
        pq.write_table(pa.table({"number": ["x"], "more": [1]}), tmp_path / f"{name}.parquet")

    for _ in range(2):
        found = transform(harness, cases.odd, given=harness.runner.without_rows(full))

        assert ({"number": []}, seen.schema) == (harness.rows(found), found.schema)


@pytest.mark.parametrize("kind", [Kind.FRAME, Kind.BUCKETS, Kind.VALUE])
def test_columns_that_nobody_has_asked_for_are_those_of_the_pinned_file(
    harness: Harness, tmp_path: Path, kind: Kind
) -> None:
    """As where an attempt begins behind epoch 0."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": [1.0]}), path)
    harness.params = Params(input=str(path))
    pinned = harness.runner.pin(cases.operator_of(cases.table, Kind.DATA), harness.params, folder="pins")
    full = harness.runner.open_data(pinned)

    pq.write_table(pa.table({"x": [1], "more": [1]}), path)

    for _ in range(2):
        with pytest.raises(InputError, match=r"a\.parquet has changed"):
            harness.rows(harness.call(cases.given_back, kind, given=harness.runner.without_rows(full)))


def test_file_that_told_the_columns_may_be_replaced_before_they_are_used(harness: Harness, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": [1.0]}), path)
    harness.params = Params(input=str(path))
    full = harness.open(cases.table)
    made = harness.call(cases.given_back, Kind.FRAME, given=harness.runner.without_rows(full))

    pq.write_table(pa.table({"x": [1], "more": [1]}), path)

    assert {"x": []} == harness.rows(made)


@pytest.mark.parametrize("beside", [pa.timestamp("ns"), pa.time32("ms"), pa.float16()], ids=str)
def test_transform_takes_chosen_columns_beside_one_that_spark_cannot_read(
    harness: Harness, tmp_path: Path, beside: pa.DataType
) -> None:
    columns = {"count": pa.array([1, 200], pa.uint8()), "at": pa.array([1, 2], pa.timestamp("us"))}
    columns |= {"a.b": pa.array(["x", "y"]).dictionary_encode(), "no`4": pa.array([[1.5, 2.5], [0.5, 0.5]])}
    names = ("no`4", "count", "a.b", "at")
    found = {}

    for folder, table in (("alone", columns), ("beside", columns | {"other": pa.nulls(2, beside)})):
        (tmp_path / folder).mkdir()
        pq.write_table(pa.table(table), tmp_path / folder / "a.parquet")
        harness.params = Params(input=str(tmp_path / folder), columns=names)
        given: Any = transform(harness, cases.given_back, given=harness.open(cases.table))
        found[folder] = (given.schema, given.frame.collect())

    assert "no`4: array<double>, count: smallint, a.b: string, at: timestamp_ntz" == found["alone"][0]
    assert found["alone"] == found["beside"]


def test_scratch_lies_in_the_folder_that_is_named(spark: SparkSession, tmp_path: Path) -> None:
    location = StateLocation(str(tmp_path / "run"))
    runner = SparkRunner(spark, location, max_buckets=16, parallelism=2, scratch="000001-abc/scratch")
    harness = Harness(runner, Params())

    harness.rows(harness.buckets(cases.large, points=harness.open(cases.thousand)))
    kept = {path.parts[:2] for path in map(PurePosixPath, location.list_files())}
    runner.close()

    assert {("000001-abc", "scratch"), ("pins", "thousand")} == kept
    assert ["pins"] == sorted({path.partition("/")[0] for path in location.list_files()})


def test_jobs_carry_the_name_of_run_epoch_and_operator(harness: Harness, spark: SparkSession) -> None:
    harness.call(
        cases.total,
        Kind.VALUE,
        epoch=5,
        given=harness.call(cases.sums, Kind.BUCKETS, epoch=5, points=harness.open(cases.three)),
    )
    stream = transform(harness, cases.odd, epoch=6, given=harness.open(cases.frame_of_data))
    harness.write(stream)

    tracker = spark.sparkContext.statusTracker()
    assert len(tracker.getJobIdsForGroup("tests/5/sums")) >= 1
    assert len(tracker.getJobIdsForGroup("tests/6/odd")) >= 1
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None


def test_scratch_files_go_with_the_epochs_and_with_the_runner(harness: Harness, tmp_path: Path) -> None:
    points = harness.open(cases.thousand)

    def files() -> list[str]:
        return sorted({path.parts[-2 if path.suffix == ".arrow" else -3] + path.suffix for path in scratch()})

    def scratch() -> list[Path]:
        return [path for path in tmp_path.glob("run/scratch-*/**/*") if path.is_file()]

    for epoch in range(4):
        harness.rows(harness.call(cases.large, Kind.BUCKETS, epoch=epoch, points=points))
        harness.runner.materialise(transform(harness, cases.odd, epoch=epoch, given=points), folder=None)
    kept = files()
    harness.runner.close()

    assert [f"epoch-00000{epoch}.{kind}" for epoch in (2, 3) for kind in ("arrow", "parquet")] == kept
    assert [] == files()


def test_what_tasks_are_given_leaves_the_drivers_disk_with_its_epoch(harness: Harness, spark: SparkSession) -> None:
    """Where pyspark makes a broadcast by itself, its file stays as long as the session."""
    points, heavy = harness.open(cases.thousand), harness.value(cases.heavy)
    before = kept_by(spark)

    for epoch in range(3):
        parts = harness.call(cases.widened, Kind.BUCKETS, epoch=epoch, points=points, heavy=heavy)
        harness.write(transform(harness, cases.odd, epoch=epoch, given=parts), f"epoch-{epoch}")
    kept = kept_by(spark) - before
    harness.runner.close()

    assert (2, before) == (len(kept), kept_by(spark))  # the parts that a DataFrame of the last two epochs is read from


def kept_by(spark: SparkSession) -> set[Path]:
    return set(Path(spark.sparkContext._temp_dir).iterdir())


class TimeIsUp(BaseException):
    """Raised as Airflow raises its `execution_timeout`: by a signal's handler, and no Exception."""


@pytest.fixture(params=[SystemExit, TimeIsUp])
def told_to_end(request: pytest.FixtureRequest) -> Iterator[type[BaseException]]:
    """Return what the handler of SIGUSR1 raises."""

    def interrupt(_number: int, _frame: object) -> None:
        raise request.param("told to end")

    before = signal.signal(signal.SIGUSR1, interrupt)
    yield request.param
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def jobs(spark: SparkSession) -> Iterator[SparkJobs]:
    with closing(SparkJobs(spark)) as opened:
        yield opened


@pytest.fixture
def others_jobs(spark: SparkSession) -> Iterator[SparkJobs]:
    """Return those of whoever goes on with the same operators, in the same session."""
    with closing(SparkJobs(spark)) as opened:
        yield opened


Call = Callable[[], Any]


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as opened:
        yield opened


@pytest.fixture
def beginning(tmp_path: Path, spark: SparkSession, pool: ThreadPoolExecutor) -> Iterator[Call]:
    """Return a call, for `pool`, whose job runs until the file `going-on` is gone."""
    assert pool  # shut down behind this, when its jobs may end
    going_on = tmp_path / "going-on"
    going_on.touch()

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        while going_on.exists():
            time.sleep(0.01)
        yield from batches

    yield lambda: len(spark.range(0, 1, 1, 1).mapInArrow(task, "id bigint").collect())
    going_on.unlink(missing_ok=True)


def run_on(jobs: SparkJobs, call: Call, description: str) -> Any:
    return jobs.run(call, operator=None, epoch=None, description=description)


def threads_of(jobs: SparkJobs) -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(jobs._tag)]


def started(spark: SparkSession, description: str) -> int:
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(description))


def active_jobs_in_the_end(spark: SparkSession) -> list[int]:
    """Return the jobs that still run when they had time to be stopped."""
    tracker, deadline = spark.sparkContext.statusTracker(), time.monotonic() + 60
    while tracker.getActiveJobsIds() and time.monotonic() < deadline:
        time.sleep(0.05)
    return list(tracker.getActiveJobsIds())


def write_buckets_that_wait(harness: Harness, points: Stream) -> None:
    harness.write(harness.buckets(cases.waits, points=points))


def transform_by_a_job_that_waits(harness: Harness, points: Stream) -> None:
    transform(harness, cases.counted_by_a_job, given=points)


@pytest.mark.parametrize("wait", [write_buckets_that_wait, transform_by_a_job_that_waits])
def test_job_ends_when_a_signal_ends_what_waits_for_it(
    harness: Harness,
    spark: SparkSession,
    tmp_path: Path,
    told_to_end: type[BaseException],
    wait: Callable[[Harness, Stream], None],
) -> None:
    log = tmp_path / "log"
    points = harness.open(cases.thousand)

    def signal_when_begun() -> None:
        cases.wait_for(log)
        os.kill(os.getpid(), signal.SIGUSR1)

    sender = threading.Thread(target=signal_when_begun)
    sender.start()
    try:
        with pytest.raises(told_to_end, match="told to end"):
            wait(harness, points)
    finally:
        sender.join()

    assert [] == active_jobs_in_the_end(spark)
    log.unlink()
    assert 1000 == len(harness.rows(harness.buckets(cases.places, points=points))["number"])


def test_job_that_starts_after_a_signal_has_ended_the_wait_for_it_is_stopped_and_no_other(
    *,
    spark: SparkSession,
    jobs: SparkJobs,
    others_jobs: SparkJobs,
    pool: ThreadPoolExecutor,
    beginning: Call,
    tmp_path: Path,
    told_to_end: type[BaseException],
) -> None:
    is_told, is_over = threading.Event(), threading.Event()
    description = f"late {told_to_end.__name__}"

    def plan_and_start() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        is_told.wait(PATIENCE_SECONDS)
        try:
            beginning()
        finally:
            is_over.set()

    with pytest.raises(told_to_end, match="told to end"):
        run_on(jobs, plan_and_start, description)
    answer = pool.submit(run_on, others_jobs, beginning, description)
    wait_until(lambda: started(spark, description) == 1, "the other job")
    is_told.set()
    wait_until(lambda: started(spark, description) == 2, "the late job")
    assert is_over.wait(PATIENCE_SECONDS)
    (tmp_path / "going-on").unlink()

    assert 1 == answer.result(PATIENCE_SECONDS)


def test_call_that_a_signal_ends_the_wait_for_keeps_nobody_waiting(
    spark: SparkSession, jobs: SparkJobs, told_to_end: type[BaseException]
) -> None:
    computes, goes_on = threading.Event(), threading.Event()

    def compute() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        goes_on.wait(PATIENCE_SECONDS)
        computes.set()

    with pytest.raises(told_to_end, match="told to end"):
        run_on(jobs, compute, "compute")

    assert 3 == run_on(jobs, spark.range(3).count, "next")
    assert not computes.is_set()
    goes_on.set()
    wait_until(lambda: len(threads_of(jobs)) == 1, "the threads that it was left with")


def test_next_call_is_made_and_the_threads_end_also_where_no_thread_can_stop_the_call_that_was_left(
    *,
    spark: SparkSession,
    pool: ThreadPoolExecutor,
    told_to_end: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    goes_on, start, jobs = threading.Event(), SparkJobs._start, SparkJobs(spark)

    def compute() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        goes_on.wait(PATIENCE_SECONDS)

    def start_but_one(jobs: SparkJobs, target: Call, *arguments: object) -> None:
        if target.__name__ == "_stop_until_over":
            raise RuntimeError("can't start new thread")
        start(jobs, target, *arguments)

    monkeypatch.setattr(SparkJobs, "_start", start_but_one)
    with closing(jobs):
        with pytest.raises(told_to_end, match="told to end"):
            run_on(jobs, compute, "compute")
        assert 1 == pool.submit(run_on, jobs, lambda: 1, "next").result(PATIENCE_SECONDS)

    goes_on.set()
    wait_until(lambda: not threads_of(jobs), "the threads' end")


def test_closing_stops_what_two_signals_have_left_behind(
    *,
    spark: SparkSession,
    pool: ThreadPoolExecutor,
    beginning: Call,
    told_to_end: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second one comes before a thread could be started that stops what the first one has left."""

    def be_told_again(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGUSR1)

    def signal_when_begun(description: str) -> None:
        wait_until(lambda: started(spark, description) == 1, "the job")
        os.kill(os.getpid(), signal.SIGUSR1)

    description = f"twice {told_to_end.__name__}"
    with closing(SparkJobs(spark)) as jobs:
        sent = pool.submit(signal_when_begun, description)
        with monkeypatch.context() as patched, pytest.raises(told_to_end, match="told to end"):  # noqa: PT012
            patched.setattr(jobs, "_start", be_told_again)
            run_on(jobs, beginning, description)
        sent.result(PATIENCE_SECONDS)
        assert spark.sparkContext.statusTracker().getActiveJobsIds()

    assert [] == active_jobs_in_the_end(spark)
    wait_until(lambda: not threads_of(jobs), "the threads' end")


def test_signal_goes_on_also_where_no_thread_can_be_started(
    jobs: SparkJobs, told_to_end: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()

    def compute() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        goes_on.wait(PATIENCE_SECONDS)

    def start_none(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched, pytest.raises(told_to_end, match="told to end"):  # noqa: PT012
        patched.setattr(jobs, "_start", start_none)
        run_on(jobs, compute, "compute")
    goes_on.set()

    assert 1 == run_on(jobs, lambda: 1, "next")


def test_call_that_comes_as_the_runner_ends_is_refused(jobs: SparkJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner's thread has ended when the call is left for it, and nobody else would make it."""
    calls, refused = jobs._calls, threading.Event()

    class ClosedFirst:
        get = calls.get

        def put(self, call: Any) -> None:
            if call is not None:
                jobs.close()
                wait_until(lambda: not threads_of(jobs), "the thread's end")
            calls.put(call)

    def come_late() -> None:
        with pytest.raises(ExecutionLostError, match="cancelled"):
            run_on(jobs, lambda: 1, "late")
        refused.set()

    monkeypatch.setattr(jobs, "_calls", ClosedFirst())
    threading.Thread(target=come_late, daemon=True).start()

    assert refused.wait(PATIENCE_SECONDS)


def test_frame_that_a_signal_ends_the_persisting_of_is_released(
    harness: Harness, spark: SparkSession, told_to_end: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    frames, shape = [], type(spark.range(1))  # DataFrame itself is abstract
    persist = shape.persist

    def persist_and_be_told(frame: DataFrame) -> None:
        frames.append(persist(frame))
        os.kill(os.getpid(), signal.SIGUSR1)

    monkeypatch.setattr(shape, "persist", persist_and_be_told)
    with pytest.raises(told_to_end, match="told to end"):
        squares(harness, consumers=2)
    assert [True] == [frame.storageLevel.useMemory for frame in frames]
    harness.runner.close()

    assert [False] == [frame.storageLevel.useMemory for frame in frames]


def test_operator_that_is_in_files_holds_no_executor(harness: Harness, spark: SparkSession) -> None:
    """Though two others take it, for whom its rows were to be kept: they read the files."""
    stream = squares(harness, consumers=2)
    kept = stream.frame
    was_kept = kept.storageLevel.useMemory

    written = harness.write(stream)

    assert (True, False) == (was_kept, kept.storageLevel.useMemory)
    assert [] == active_jobs_in_the_end(spark)
    assert 100 == len(harness.rows(written.stream)["number"])


def test_call_that_a_signal_ends_before_it_has_begun_is_never_made(
    jobs: SparkJobs, pool: ThreadPoolExecutor, told_to_end: type[BaseException]
) -> None:
    has_begun, is_over, made = threading.Event(), threading.Event(), []

    def first() -> None:
        has_begun.set()
        is_over.wait(PATIENCE_SECONDS)

    def signal_when_queued() -> None:
        wait_until(lambda: not jobs._calls.empty(), "the second call")
        os.kill(os.getpid(), signal.SIGUSR1)

    pool.submit(run_on, jobs, first, "first")
    has_begun.wait(PATIENCE_SECONDS)
    pool.submit(signal_when_queued)
    with pytest.raises(told_to_end, match="told to end"):
        run_on(jobs, lambda: made.append("second"), "second")
    is_over.set()

    assert 1 == run_on(jobs, lambda: 1, "third")
    assert [] == made


def test_signal_that_another_thread_receives_ends_the_wait_too(
    jobs: SparkJobs, told_to_end: type[BaseException]
) -> None:
    """One that comes just before the wait begins goes the same way: nothing interrupts the wait itself."""
    goes_on, ended = threading.Event(), []

    def call() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        goes_on.wait(PATIENCE_SECONDS)
        ended.append("call")

    with pytest.raises(told_to_end, match="told to end"):
        run_on(jobs, call, "call")

    assert [] == ended
    goes_on.set()


def test_signal_ends_the_wait_also_where_spark_does_not_answer(
    jobs: SparkJobs, told_to_end: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, is_asked, ended = threading.Event(), threading.Event(), []

    def hang(*_: object) -> None:
        is_asked.set()
        answers.wait(PATIENCE_SECONDS)
        ended.append("hanging")

    def call() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        is_asked.wait(PATIENCE_SECONDS)

    monkeypatch.setattr(SparkContext, "cancelJobsWithTag", hang)
    with pytest.raises(told_to_end, match="told to end"):
        run_on(jobs, call, "call")
    jobs.cancel("the run was cancelled")

    assert is_asked.wait(PATIENCE_SECONDS)
    assert [] == ended
    answers.set()


def test_cancelling_reaches_a_job_that_is_yet_to_start_and_a_call_that_waits_its_turn(
    spark: SparkSession, jobs: SparkJobs, pool: ThreadPoolExecutor, beginning: Call
) -> None:
    is_planning, goes_on, made = threading.Event(), threading.Event(), []

    def plan_and_start() -> None:
        is_planning.set()
        goes_on.wait(PATIENCE_SECONDS)
        beginning()

    planned = pool.submit(run_on, jobs, plan_and_start, "planned")
    is_planning.wait(PATIENCE_SECONDS)
    queued = pool.submit(run_on, jobs, lambda: made.append("queued"), "queued")
    wait_until(lambda: not jobs._calls.empty(), "the call that is queued")
    jobs.cancel("the run was cancelled")
    goes_on.set()

    assert isinstance(planned.exception(PATIENCE_SECONDS), ExecutionLostError)
    wait_until(lambda: started(spark, "planned") == 1, "the job that was stopped to be known")
    assert isinstance(queued.exception(PATIENCE_SECONDS), ExecutionLostError)
    with pytest.raises(ExecutionLostError, match="cancelled"):
        run_on(jobs, lambda: made.append("late"), "late")
    assert [] == made


def test_cancelling_stops_no_other_job_of_the_session(
    spark: SparkSession,
    jobs: SparkJobs,
    others_jobs: SparkJobs,
    pool: ThreadPoolExecutor,
    beginning: Call,
    tmp_path: Path,
) -> None:
    foreign = pool.submit(run_on, others_jobs, beginning, "foreign")
    wait_until(lambda: started(spark, "foreign") == 1, "the foreign job")
    stopped = pool.submit(run_on, jobs, beginning, "own")
    wait_until(lambda: started(spark, "own") == 1, "the own job")
    jobs.cancel("the run was cancelled")

    assert isinstance(stopped.exception(PATIENCE_SECONDS), ExecutionLostError)
    (tmp_path / "going-on").unlink()
    assert 1 == foreign.result(PATIENCE_SECONDS)


PLACE: ContextVar[str] = ContextVar("place", default="nowhere")


def test_call_runs_in_the_context_and_the_session_of_its_caller(spark: SparkSession, jobs: SparkJobs) -> None:
    token = PLACE.set("here")
    try:
        assert "here" == run_on(jobs, PLACE.get, "context")
    finally:
        PLACE.reset(token)
    assert spark is run_on(jobs, SparkSession.getActiveSession, "session")


SCRIPT = """
    import functools, os, signal, sys, threading
    from pathlib import Path
    from iteration_lib.errors import ExecutionLostError
    from iteration_lib.runner.spark import SparkRunner
    from iteration_lib.runner.spark_session import jvm_pid, open_session
    from iteration_lib.state.location import StateLocation
    from tests import runner_cases as cases
    from tests.runner_cases import Harness, Params

    folder = Path(sys.argv[1])
    spark = open_session("local[2]", "killed")
    runner = SparkRunner(spark, StateLocation(str(folder / "run")), max_buckets=4, parallelism=2, owns_session=True)
    harness = Harness(runner, Params(log=str(folder / "log")))
    points = harness.open(cases.thousand)

    def kill():
        while not (folder / "log").exists():
            pass
        os.kill(jvm_pid(spark), signal.SIGKILL)

    threading.Thread(target=kill).start()
    def wait():
        harness.write(harness.buckets(cases.waits, points=points))

    for call in (wait, wait, lambda: harness.open(cases.frame_of_data)):
        try:
            call()
        except ExecutionLostError as err:
            print("LOST", err)
    (folder / "log").unlink()
    stop = functools.partial(runner._jobs._stop_tagged, "tag")
    for end in (stop, runner.close, stop):
        end()
    print("CLOSED")
"""


BETWEEN_TWO_JOBS = """
    import os, signal, sys, time
    from pathlib import Path
    from iteration_lib.errors import ExecutionLostError
    from iteration_lib.model.operator import Kind
    from iteration_lib.runner.spark import SparkRunner
    from iteration_lib.runner.spark_session import jvm_pid, open_session
    from iteration_lib.state.location import StateLocation
    from tests import runner_cases as cases
    from tests.runner_cases import Harness, Params, operator_of

    spark = open_session("local[2]", "killed")
    frame = spark.range(3)
    pid = jvm_pid(spark)
    runner = SparkRunner(spark, StateLocation(sys.argv[1]), max_buckets=4, parallelism=2, owns_session=True)
    harness = Harness(runner, Params())
    points = harness.open(cases.frame_of_data)
    kept = [harness.call(cases.odd, Kind.FRAME, consumers=2, given=points) for _ in range(2)]
    lazy = harness.call(cases.odd, Kind.FRAME, given=points)
    written = harness.write(harness.call(cases.added, Kind.FRAME, given=points), "written")
    restored = runner.restore(written.saved)
    os.kill(pid, signal.SIGKILL)
    while Path(f"/proc/{pid}").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text():
        time.sleep(0.01)

    print("VALUE", harness.rows(harness.call(cases.weights, Kind.VALUE, epoch=2)))
    held = operator_of(cases.odd, Kind.FRAME)
    calls = [
        lambda: harness.call(cases.odd, Kind.FRAME, epoch=2, given=lazy),
        lambda: harness.call(cases.odd, Kind.FRAME, epoch=2, given=points),
        lambda: harness.write(lazy),
        lambda: runner.materialise(kept[0], folder=None),
        lambda: harness.rows(kept[1]),
        lambda: written.stream.schema,
        lambda: runner.restore(written.saved),
        lambda: harness.write(restored, "again"),
        lambda: harness.rows(harness.buckets(cases.numbers, points=points)),
        lambda: runner.hold(frame, operator=held, epoch=2, description="held"),
        lambda: harness.open(cases.frame_of_data),
    ]
    for number, call in enumerate(calls):
        try:
            call()
        except ExecutionLostError as err:
            print("LOST", err)
        except Exception as err:
            print("OTHER", number, type(err).__name__, err)
    runner.close()
    print("CLOSED")
"""

WATCHED = """
    import os, signal, sys
    from types import SimpleNamespace
    from pyspark.sql import SparkSession
    from iteration_lib.engine import Engine, EngineKind
    from iteration_lib.errors import ExecutionLostError
    from iteration_lib.model.operator import Kind
    from iteration_lib.runner.spark_session import jvm_pid
    from iteration_lib.state.location import StateLocation
    from tests import runner_cases as cases
    from tests.runner_cases import Harness

    run = SimpleNamespace(run_key="watched", reference="tests.runner_cases:table", max_buckets=4)
    engine = Engine(kind=EngineKind.SPARK, master="local[2]")
    with engine.open_runner(run, StateLocation(sys.argv[1]), "scratch") as runner:
        harness = Harness(runner)
        os.kill(jvm_pid(SparkSession.getActiveSession()), signal.SIGKILL)
        try:
            while True:
                harness.call(cases.weights, Kind.VALUE)
        except ExecutionLostError as err:
            print("LOST", err)
"""

RESUME = "run the same command again to resume from the last durable epoch"


def printed_by(script: str, folder: Path) -> list[str]:
    """Return what a script prints that kills its JVM."""
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(folder)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert 0 == found.returncode, found.stderr
    return [line for line in found.stdout.splitlines() if line.startswith(("VALUE", "LOST", "OTHER", "CLOSED"))]


def test_death_of_the_jvm_is_an_execution_lost(tmp_path: Path) -> None:
    lost = f"LOST Spark's driver JVM is gone; {RESUME}"

    assert [lost, lost, lost, "CLOSED"] == printed_by(SCRIPT, tmp_path)


def test_death_of_the_jvm_between_two_jobs_is_one_for_whoever_needs_it(tmp_path: Path) -> None:
    """What was kept for an epoch is released, and an operator on whole values needs no Spark."""
    value, *found = printed_by(BETWEEN_TWO_JOBS, tmp_path / "run")

    assert "VALUE {'w': [[0.1, 0.2, 0.3]]}" == value
    assert [*[f"LOST Spark's driver JVM is gone; {RESUME}"] * 11, "CLOSED"] == found


def test_runner_that_the_watchdog_cancels_says_who_is_gone(tmp_path: Path) -> None:
    assert [f"LOST Spark's JVM is gone; {RESUME}"] == printed_by(WATCHED, tmp_path / "run")


def test_jvm_of_the_session_is_known(spark: SparkSession) -> None:
    pid = jvm_pid(spark)

    assert "java" in Path(f"/proc/{pid}/cmdline").read_text()
