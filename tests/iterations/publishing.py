"""An iteration that publishes through sinks, after every epoch and after the last one.

Rows go to Parquet files and losses to a table, in every epoch; the model and a summary at the end. What each body
computes depends on the epoch alone, so that a run which was killed publishes what an undisturbed one does; `raised` can
be steered, as in `steered`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from iteration_lib import Iteration, records
from iteration_lib.model.source import RecordsSource
from iteration_lib.sinks import ParquetSink, PostgresSink
from tests.iterations.steered import obey
from tests.mortal_parquet_sink import MortalParquetSink

Block = dict[str, Any]  # Any: arrays of each column's own type

ROWS = 12


@dataclass(frozen=True, slots=True)
class PublishingParams:
    """desk: the folder that steers. uri, table: where to publish; url: the table's database, the store's if empty."""

    desk: str
    uri: str
    table: str
    url: str = ""
    max_epochs: int = 4


def folder(params: PublishingParams) -> ParquetSink:
    """Publish as Parquet files."""
    return MortalParquetSink(params.uri)


def table(params: PublishingParams) -> PostgresSink:
    """Publish into a table."""
    return PostgresSink(params.table, url=params.url or None, run_column="run", epoch_column="epoch")


def summary_table(params: PublishingParams) -> PostgresSink:
    """Publish into another table."""
    return PostgresSink(f"{params.table}_summary", url=params.url or None)


publishing = Iteration("publishing", params=PublishingParams)


@publishing.data
def numbers() -> RecordsSource:
    """Some numbers."""
    return records(n=np.arange(ROWS))


@publishing.variable
def level() -> Block:
    """Start at 1."""
    return {"l": np.ones(1)}


@publishing.map_buckets
def rows(numbers: Block, level: Block) -> Block:
    """Raise every number."""
    return {"n": numbers["n"], "raised": numbers["n"] * level["l"][0]}


@publishing.operator
def losses(rows: Block) -> Block:
    """Say how far it has come, in two rows."""
    return {"name": ["sum", "largest"], "value": np.array([rows["raised"].sum(), rows["raised"].max()])}


@publishing.operator
def raised(level: Block, params: PublishingParams, epoch: int) -> Block:
    """Go one higher."""
    obey(params.desk, f"raised {epoch}")
    return {"l": level["l"] + 1.0}


publishing.feedback(level=raised)
publishing.output(rows=rows, sink=folder, each_epoch=True)
publishing.output(losses=losses, sink=table, each_epoch=True)
publishing.output(model=raised, sink=folder)
publishing.output(summary=losses, sink=summary_table)
