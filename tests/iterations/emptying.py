"""A frontier of three rows that loses one in every epoch, as a breadth-first search does at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iteration_lib import Iteration, records
from iteration_lib.model.source import RecordsSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

emptying = Iteration("emptying")


@emptying.data
def nodes() -> RecordsSource:
    """Name three nodes."""
    return records(id=[0, 1, 2])


@emptying.variable
def frontier(nodes: DataFrame) -> DataFrame:
    """Start with all of them."""
    return nodes.select("id")


@emptying.transform
def left(frontier: DataFrame, epoch: int) -> DataFrame:
    """Drop one."""
    return frontier.where(f"id > {epoch}")


emptying.feedback(frontier=left)
