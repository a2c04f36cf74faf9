"""Durable iterations on Spark, driven by Airflow: every epoch recorded, aligned, checkpointed and resumable.

This is the public API; everything else may change. Importing it is cheap: neither Spark, nor Airflow, nor a database
driver comes with it, because every Spark worker imports it too.
"""

from iteration_lib.errors import InputError
from iteration_lib.loading import load
from iteration_lib.loop import open_run
from iteration_lib.model.checkpointing import Checkpointing
from iteration_lib.model.iteration import Iteration
from iteration_lib.model.metrics import Metrics
from iteration_lib.model.source import parquet, records

__all__ = ["Checkpointing", "InputError", "Iteration", "Metrics", "load", "open_run", "parquet", "records"]
