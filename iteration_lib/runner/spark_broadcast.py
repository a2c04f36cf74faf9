"""How does a function reach Spark's tasks with the values that it works on?

Spark pickles it, and pyspark makes a broadcast of what is large: a file on the driver's disk, which stays until the
context stops, so that every epoch would leave its values there. A broadcast of our own ends with what it was made for.
Spark Connect knows none, and leaves no file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import SparkSession

from iteration_lib.runner.spark_errors import FOREIGN
from iteration_lib.runner.spark_session import classic_context
from iteration_lib.runner.spark_tasks import Batches, MapInArrow

_LARGE_BYTES = 1 << 19  # pyspark's own limit is twice that, of all that it pickles

_pickle = cast("Any", CloudPickleSerializer)()  # Any: pyspark has not annotated it


@contextmanager
def shipped(spark: SparkSession, function: MapInArrow) -> Iterator[MapInArrow]:
    """Give a function for the mapInArrow of what is computed inside the block."""
    context = classic_context(spark)
    pickled = _pickle.dumps(function) if context is not None else b""
    if context is None or len(pickled) < _LARGE_BYTES:
        yield function
        return
    broadcast = context.broadcast(pickled)
    del pickled  # it may be large, and the block long

    def run(batches: Batches) -> Batches:
        yield from _pickle.loads(broadcast.value)(batches)

    try:
        yield run
    finally:
        with suppress(*FOREIGN):  # Spark is gone, and so is all that it kept
            broadcast.destroy()
