"""On what is a contract tested? On each store; that of runners on each of those, in a folder of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iteration_lib.runner.local import LocalRunner
from iteration_lib.runner.seam import Runner
from iteration_lib.state.location import StateLocation
from iteration_lib.store.seam import StoreWithHistory
from tests.runner_cases import BUCKETS, Harness, MakeHarness, Params


@pytest.fixture
def store(each_store: StoreWithHistory) -> StoreWithHistory:
    return each_store


@pytest.fixture(params=["local", pytest.param("spark", marks=pytest.mark.spark)])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeHarness]:
    """Return what makes a harness around a runner in a folder, with a parallelism and parameters."""
    opened: list[Runner] = []

    def make_harness(*, parallelism: int = 2, folder: str = "run", **params: Any) -> Harness:
        location = StateLocation(str(tmp_path / folder))
        runner: Runner = LocalRunner(location, max_buckets=BUCKETS, parallelism=parallelism)
        if request.param == "spark":
            from iteration_lib.runner.spark import SparkRunner  # noqa: PLC0415  (the other half needs no Spark)

            spark = request.getfixturevalue("spark")
            runner = SparkRunner(spark, location, max_buckets=BUCKETS, parallelism=parallelism)
        opened.append(runner)
        return Harness(runner, Params(**params))

    yield make_harness
    for runner in opened:
        runner.close()


@pytest.fixture
def oracle(tmp_path: Path) -> Harness:
    return Harness(LocalRunner(StateLocation(str(tmp_path / "oracle")), max_buckets=BUCKETS, parallelism=1))
