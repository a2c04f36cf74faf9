"""Does Spark read what a sink published, and nothing of what is only on its way?"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from iteration_lib.sinks import ParquetSink, latest
from iteration_lib.sinks.trial import publication_of, rows_of, transaction_of


@pytest.mark.spark
def test_spark_reads_the_files_of_a_publication_and_passes_over_all_of_them_in_the_folder(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink, transaction = ParquetSink(str(tmp_path)), transaction_of(0)
    sink.commit(transaction, sink.prepare(transaction, publication_of(0)))

    newest = latest(str(tmp_path))

    assert newest is not None
    assert rows_of(0) == sorted(tuple(row) for row in spark.read.parquet(*newest.files).collect())
    with pytest.raises(AnalysisException, match="UNABLE_TO_INFER_SCHEMA"):
        spark.read.parquet(str(tmp_path)).collect()
