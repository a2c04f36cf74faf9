"""Is a Spark DataFrame a variable like any other: written by the executors, read back, without its lineage?"""

# ruff: noqa: PT012 - the block that raises is a whole script

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import iteration_lib
from iteration_lib import Checkpointing, open_run
from iteration_lib.errors import OperatorFailedError, ValueNotKeptError
from iteration_lib.protocol.status import RunStatus
from iteration_lib.store.opening import find_run
from iteration_lib.store.postgres import PostgresStore
from tests.size import nightly

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


@pytest.fixture
def where(store_url: str, tmp_path: Path) -> dict[str, Any]:
    return {"run_key": uuid.uuid4().hex, "store": store_url, "state": str(tmp_path / "state")}


def walk(
    spark: SparkSession, where: dict[str, Any], *, fails_in: int | None = None, every: int = 1
) -> tuple[list[int], list[list[Any]]]:
    """Drive a loop whose variables are two DataFrames and a count; return its epochs and what each is in the end."""
    numbers = []
    with open_run(**where, spark=spark, checkpointing=Checkpointing(every_epochs=every)) as run:
        for epoch in run.epochs(ranks=lambda: ranks_of(spark), seen=lambda: spark.range(3), count=0, max_epochs=5):
            numbers.append(epoch.number)
            epoch.ranks = epoch.ranks.selectExpr("id", "rank * 1.1 + id AS rank", "name")
            epoch.count += epoch.seen.count()
            if epoch.number == fails_in:
                raise ValueError("out of luck")
        result = run.result
    return numbers, [
        sorted(map(tuple, result.ranks.collect())),
        sorted(map(tuple, result.seen.collect())),
        [result.count],
    ]


def ranks_of(spark: SparkSession) -> DataFrame:
    return spark.range(6, numPartitions=2).selectExpr("id", "1 / (id + 1) AS rank", "IF(id > 2, 'n', NULL) AS name")


@pytest.mark.parametrize("every", [pytest.param(1, marks=nightly("every third is the harder one")), 3])
def test_resumed_loop_gives_the_same_rows_to_the_bit(
    spark: SparkSession, where: dict[str, Any], store: PostgresStore, every: int
) -> None:
    _, expected = walk(spark, {**where, "run_key": uuid.uuid4().hex}, every=every)

    with pytest.raises(ValueError, match="out of luck"):
        walk(spark, where, fails_in=4, every=every)
    numbers, found = walk(spark, where, every=every)

    run = find_run(store, where["run_key"])
    assert ([4] if every == 1 else [3, 4], expected) == (numbers, found)
    assert {"ranks": 6, "seen": 3, "count": 1, "criteria": 1} == dict(
        store.list_epochs(run.run_id)[-1].decision_records
    )
    published = iteration_lib.load(run.run_id, store=where["store"])
    assert expected[0] == sorted(zip(*published["ranks"].to_pydict().values(), strict=True))


def test_finished_run_gives_its_data_frames_at_once(spark: SparkSession, where: dict[str, Any]) -> None:
    _, first = walk(spark, where)

    numbers, second = walk(spark, where)

    assert ([], first) == (numbers, second)


def test_data_frame_that_only_the_first_epoch_gave_is_still_there_in_the_last(
    spark: SparkSession, where: dict[str, Any]
) -> None:
    """No checkpoint holds it meanwhile, and the scratch of an epoch goes with the epoch after the next."""
    with open_run(**where, spark=spark, checkpointing=Checkpointing(every_epochs=100)) as run:
        for epoch in run.epochs(kept=lambda: spark.range(1), count=0, max_epochs=5):
            epoch.count += 1
            if epoch.number == 0:
                epoch.kept = spark.range(3)

    assert 3 == run.result.kept.count()


def test_lineage_does_not_grow_with_the_epochs(spark: SparkSession, where: dict[str, Any]) -> None:
    plans = []
    with open_run(**where, spark=spark) as run:
        for epoch in run.epochs(ranks=ranks_of(spark), max_epochs=3):
            plans.append(epoch.ranks._jdf.queryExecution().optimizedPlan().toString().count("\n"))
            epoch.ranks = epoch.ranks.selectExpr("id", "rank * 2 AS rank", "name")

    assert [1, 1, 1] == plans


def test_data_frame_without_its_session_is_refused(spark: SparkSession, where: dict[str, Any]) -> None:
    sentence = "variable ranks is a DataFrame, which needs Spark; give its session"
    with pytest.raises(ValueNotKeptError, match=sentence), open_run(**where) as run:
        next(iter(run.epochs(ranks=ranks_of(spark), max_epochs=3)))


def test_error_in_a_lazy_data_frame_names_its_variable(
    spark: SparkSession, where: dict[str, Any], store: PostgresStore
) -> None:
    with (
        pytest.raises(OperatorFailedError, match=r"operator 'ranks' failed in epoch 1: .*bad row"),
        open_run(**where, spark=spark) as run,
    ):
        for epoch in run.epochs(ranks=ranks_of(spark), max_epochs=3):
            if epoch.number == 1:
                epoch.ranks = epoch.ranks.selectExpr("raise_error('bad row') AS id")

    run = find_run(store, where["run_key"])
    assert (RunStatus.FAILED, 1) == (run.status, run.epochs)


def test_session_is_still_there_when_the_run_is_over(spark: SparkSession, where: dict[str, Any]) -> None:
    walk(spark, where)

    assert 10 == spark.range(10).count()
