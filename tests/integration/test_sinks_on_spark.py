"""Does a run whose DataFrames feed back go on when a sink has taken what was published of them?"""

from __future__ import annotations

from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from iteration_lib.runner.seam import Runner
from iteration_lib.runner.spark import SparkRunner
from iteration_lib.sinks import published
from iteration_lib.state.location import StateLocation
from iteration_lib.store.record import RunRecord
from tests.kept_checkpoints import FreshRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_next_epoch_computes_from_a_frame_whose_published_files_are_gone(spark: SparkSession, tmp_path: Path) -> None:
    def open_runner(run: RunRecord, location: StateLocation, scratch: str) -> AbstractContextManager[Runner]:
        return closing(SparkRunner(spark, location, max_buckets=run.max_buckets, parallelism=2, scratch=scratch))

    state, uri = tmp_path / "state", tmp_path / "published"
    run = FreshRun.begin(tmp_path, reference="tests.iterations.flowing:flowing", state=str(state), uri=str(uri))

    finished = run.drive(open_runner=open_runner)

    weights = {
        one.transaction.epoch: [row for file in one.files for row in pq.read_table(file)["weight"].to_pylist()]
        for one in published(str(uri))
    }
    assert {epoch: [2 ** (epoch + 1)] * 10 for epoch in range(3)} == weights
    assert 1 == finished.fencing_token
