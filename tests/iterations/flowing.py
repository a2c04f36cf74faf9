"""A DataFrame that feeds back and is published after every epoch; the next one waits until its copy has gone."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from iteration_lib import Iteration, records
from iteration_lib.model.source import RecordsSource
from iteration_lib.sinks import ParquetSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PATIENCE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class FlowingParams:
    """state: the folder with the runs' files. uri: where to publish."""

    state: str
    uri: str
    max_epochs: int = 3


def published(params: FlowingParams) -> ParquetSink:
    """Publish as Parquet files."""
    return ParquetSink(params.uri)


flowing = Iteration("flowing", params=FlowingParams)


@flowing.data
def numbers() -> RecordsSource:
    """Give 10 rows."""
    return records(id=list(range(10)))


@flowing.variable
def drops(numbers: DataFrame) -> DataFrame:
    """Start with a weight of 1 for each."""
    return numbers.selectExpr("id", "1 AS weight")


@flowing.transform
def fallen(drops: DataFrame, params: FlowingParams) -> DataFrame:
    """Double each, once a sink has taken all that earlier epochs published."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while list(Path(params.state).glob("**/outputs/**/*.parquet")):
        if time.monotonic() > deadline:
            raise TimeoutError("no sink took what was published")
        time.sleep(0.05)
    return drops.selectExpr("id", "2 * weight AS weight")


flowing.feedback(drops=fallen)
flowing.output(drops=fallen, sink=published, each_epoch=True)
