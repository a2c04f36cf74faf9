"""A DataFrame that feeds back, in as many partitions as a test says; in the epoch that it says, a body fails."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from iteration_lib import Iteration, records
from iteration_lib.model.source import RecordsSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class SpreadingParams:
    """max_epochs: how many epochs there are."""

    max_epochs: int = 4


spreading = Iteration("spreading", params=SpreadingParams)


@spreading.data
def numbers() -> RecordsSource:
    """Give 40 rows."""
    return records(id=list(range(40)))


@spreading.variable
def grains(numbers: DataFrame) -> DataFrame:
    """Start with a weight for each."""
    return spread(numbers).selectExpr("id", "1.0D / (id + 1) AS weight")


@spreading.transform
def shifted(grains: DataFrame, epoch: int) -> DataFrame:
    """Make each heavier."""
    if os.environ.get("SPREADING_FAILS_IN") == str(epoch):
        raise RuntimeError(f"told to fail in epoch {epoch}")
    return spread(grains).selectExpr("id", "weight * 1.1D + id AS weight")


def spread(frame: DataFrame) -> DataFrame:
    """Spread rows over partitions."""
    return frame.repartition(int(os.environ["SPREADING_PARTITIONS"]), "id")


spreading.feedback(grains=shifted)
spreading.output(grains=shifted)
