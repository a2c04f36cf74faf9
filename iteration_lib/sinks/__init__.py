"""Where do outputs go, so that every epoch is published once, and readers see all of it or none?

`ParquetSink` and `PostgresSink` are built in; a sink of your own has the three methods of `Sink` and passes the suite
of `iteration_lib.sinks.contract`. Importing this imports no database driver.
"""

from iteration_lib.sinks.parquet import ParquetSink
from iteration_lib.sinks.pointer import Published, latest, published
from iteration_lib.sinks.postgres import PostgresSink
from iteration_lib.sinks.seam import Publication, Sink, SinkTransaction

__all__ = ["ParquetSink", "PostgresSink", "Publication", "Published", "Sink", "SinkTransaction", "latest", "published"]
