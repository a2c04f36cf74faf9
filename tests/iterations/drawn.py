"""Iterations whose data streams take parameters: one gives rows itself, the other reads them by Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from iteration_lib import Iteration, records
from iteration_lib.model.source import RecordsSource

Block = dict[str, Any]  # Any: arrays of each column's own type


@dataclass(frozen=True, slots=True)
class DrawnParams:
    """scale: what the rows are multiplied with. desk: nothing here asks for it."""

    desk: str
    scale: float = 1.0
    max_epochs: int = 3


drawn = Iteration("drawn", params=DrawnParams)


@drawn.data
def rows(params: DrawnParams) -> RecordsSource:
    """Give 0 to 5, scaled: 2.5 on average."""
    return records(x=[params.scale * number for number in range(6)])


@drawn.operator(finishes=True)
def mean_row(rows: Block) -> Block:
    """Return the mean."""
    return {"m": np.array([rows["x"].mean()])}


@drawn.variable
def level() -> Block:
    """Start at nothing."""
    return {"v": np.zeros(1)}


@drawn.operator
def raised(level: Block, mean_row: Block) -> Block:
    """Go up by the mean."""
    return {"v": level["v"] + mean_row["m"]}


drawn.feedback(level=raised)

by_spark = Iteration("by_spark", params=DrawnParams)


@by_spark.data
def table(params: DrawnParams, spark: Any) -> Any:
    """Read what a parameter names."""
    return spark.range(int(params.scale))


@by_spark.data(replays=False)
def seed_rows(params: DrawnParams) -> RecordsSource:
    """Give one row, in epoch 0."""
    return records(y=[params.scale])


@by_spark.variable
def height() -> Block:
    """Start at nothing."""
    return {"v": np.zeros(1)}


@by_spark.operator
def higher(height: Block, table: Block, seed_rows: Block) -> Block:
    """Go up by the number of rows."""
    return {"v": height["v"] + len(table["id"]) + len(seed_rows["y"])}


by_spark.feedback(height=higher)
