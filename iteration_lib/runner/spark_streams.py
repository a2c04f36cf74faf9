"""What does the Spark runner hold for a stream?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame

from iteration_lib.model.operator import Kind, Operator
from iteration_lib.runner.node_cache import CachedData
from iteration_lib.runner.pins import is_own
from iteration_lib.runner.plan import PartsNode
from iteration_lib.runner.scratch import Scratch
from iteration_lib.runner.seam import Invocation, PinnedData, PinnedFile
from iteration_lib.runner.spark_errors import spark_errors
from iteration_lib.state.block import describe_schema
from iteration_lib.state.saved import SavedStream
from iteration_lib.state.streams import load_schema


@dataclass(kw_only=True)
class DataStream:
    """A pinned data stream, which executors and Spark read in their own ways.

    One that has no rows has the columns of another one, `columns_of`.
    """

    pinned: PinnedData
    read_schema: Callable[[], CachedData]
    read_frame: Callable[[], DataFrame]
    columns_of: DataStream | None = None
    has_columns: bool = False  # whether Spark has asked its files for them, and they were the pinned ones

    kind: Kind = Kind.DATA
    schema: None = None

    @cached_property
    def cached(self) -> CachedData:
        """The stream as executors read it. Raises InputError that names the column that no block can hold."""
        return self.read_schema()

    @cached_property
    def frame(self) -> DataFrame:
        """The stream as Spark reads it; made once, because Spark asks a file for its columns in a job."""
        return self.read_frame()

    @property
    def sources(self) -> frozenset[PinnedFile]:
        """The user's files that Spark reads for it; where it has no rows, none once its columns are known."""
        if self.columns_of is not None:
            return frozenset() if self.columns_of.has_columns else self.columns_of.sources
        return frozenset(file for file in self.pinned.files if not is_own(file.path))


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueStream:
    """A whole value, in the driver."""

    batch: pa.RecordBatch

    kind: Kind = Kind.VALUE

    @property
    def schema(self) -> str:
        """The columns and their types."""
        return describe_schema(self.batch.schema)


@dataclass(slots=True, kw_only=True)
class BucketStream:
    """A stream of buckets: a call that is still to be made, or the parts that it gave."""

    call: Invocation | None
    parallelism: int
    parts: PartsNode | None = None
    epoch: int | None = None
    description: str = "iteration"
    scratch: Scratch | None = None

    kind: Kind = Kind.BUCKETS

    @property
    def schema(self) -> str | None:
        """The columns and their types, once there are parts."""
        return describe_schema(load_schema(self.parts.saved)) if self.parts is not None else None

    @property
    def operator_id(self) -> str:
        """The operator that gives it, or what else tells where it is from."""
        return self.call.operator.operator_id if self.call is not None else self.description

    @property
    def is_shared(self) -> bool:
        """Whether more than one consumer will use it."""
        return self.call is not None and self.call.consumers > 1


@dataclass(slots=True, kw_only=True)
class FrameStream:
    """A DataFrame: lazy, or backed by files once it was materialised.

    `sources` are the user's files that Spark reads while it is lazy.
    """

    frame: DataFrame
    operator: Operator | None
    epoch: int | None
    description: str
    saved: SavedStream | None = None
    records: tuple[int, ...] = field(default=())
    collected: pa.RecordBatch | None = None  # what operators on whole values saw of it
    sources: frozenset[PinnedFile] = frozenset()

    kind: Kind = Kind.FRAME

    @property
    def schema(self) -> str:
        """The columns and their types, as Spark names them."""
        with spark_errors(self.operator, self.epoch):
            return ", ".join(f"{column.name}: {column.dataType.simpleString()}" for column in self.frame.schema)


def scratch_name(epoch: int | None) -> str:
    """Return the folder, under a runner's scratch folder, of what is only needed for an epoch."""
    return "start" if epoch is None else f"epoch-{epoch:06d}"
