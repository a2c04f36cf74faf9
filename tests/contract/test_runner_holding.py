"""Does a runner hold what was computed elsewhere as it holds what it computed? On each of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from iteration_lib.errors import OperatorResultError, ValueNotKeptError
from iteration_lib.model.operator import Kind
from iteration_lib.runner.seam import Stream
from iteration_lib.runner.spark import SparkRunner
from iteration_lib.state.location import StateLocation
from tests import runner_cases as cases
from tests.runner_cases import BUCKETS, Harness, MakeHarness, operator_of

BATCH = pa.RecordBatch.from_pydict({"a": [1, None], "b": [[1.5], []]}).replace_schema_metadata({"kept": "too"})


@pytest.fixture
def on_spark(spark: SparkSession, tmp_path: Path) -> Iterator[Harness]:
    """Return a harness around a runner on Spark: plain Python holds no DataFrame."""
    runner = SparkRunner(spark, StateLocation(str(tmp_path)), max_buckets=BUCKETS, parallelism=2)
    with closing(runner):
        yield Harness(runner)


def hold(harness: Harness, value: object, *, epoch: int | None = 0) -> Stream:
    operator = operator_of(cases.weights, Kind.VALUE)
    return harness.runner.hold(value, operator=operator, epoch=epoch, description=f"tests/{epoch}/weights")


def test_batch_is_given_back_as_it_was_held_before_and_after_it_was_written(make: MakeHarness) -> None:
    harness = make()
    stream = hold(harness, BATCH)

    written = harness.write(stream)
    assert written.saved
    found = [stream, written.stream, harness.runner.restore(written.saved)]

    assert (Kind.VALUE, (2,)) == (stream.kind, written.records)
    assert all(BATCH.equals(cast("pa.RecordBatch", harness.runner.give(one)), check_metadata=True) for one in found)


def test_stream_that_was_computed_is_given_as_a_batch(make: MakeHarness) -> None:
    harness = make()

    found = cast("pa.RecordBatch", harness.runner.give(harness.value(cases.weights)))

    assert [[0.1, 0.2, 0.3]] == found["w"].to_pylist()


def test_data_frame_without_spark_is_refused_with_what_to_do(oracle: Harness) -> None:
    with pytest.raises(ValueNotKeptError, match=r"needs Spark; give its session, as in open_run\(..., spark=spark\)"):
        hold(oracle, object())


@pytest.mark.spark
def test_data_frame_is_computed_once_and_loses_its_lineage(spark: SparkSession, on_spark: Harness) -> None:
    stream = hold(on_spark, spark.range(10, numPartitions=3).selectExpr("id", "rand() AS drawn"))

    first = on_spark.runner.materialise(stream, folder=None)
    rows = [on_spark.runner.give(one).orderBy("id").collect() for one in (stream, first.stream)]  # type: ignore[attr-defined]

    assert (Kind.FRAME, 10) == (stream.kind, sum(first.records))
    assert rows[0] == rows[1]


@pytest.mark.spark
def test_scratch_of_a_data_frame_goes_with_the_epoch_after_the_next(
    spark: SparkSession, on_spark: Harness, tmp_path: Path
) -> None:
    written = []

    for epoch in range(3):
        on_spark.runner.materialise(hold(on_spark, spark.range(1), epoch=epoch), folder=None)
        written.append(sorted({path.parts[-3] for path in tmp_path.rglob("*.parquet")}))

    assert [["epoch-000000"], ["epoch-000000", "epoch-000001"], ["epoch-000001", "epoch-000002"]] == written


@pytest.mark.spark
def test_data_frame_with_two_columns_of_one_name_is_refused(spark: SparkSession, on_spark: Harness) -> None:
    with pytest.raises(OperatorResultError, match="returned two columns 'id'; rename one"):
        hold(on_spark, spark.range(1).selectExpr("id", "id"))
