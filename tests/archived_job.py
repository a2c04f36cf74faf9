"""What does a job on Spark load? This one does what most tests' jobs do, so that its classes can be archived."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pandas as pd
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql


def as_they_are(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass Arrow's batches through a Python worker."""
    yield from batches


def group_as_it_is(group: pd.DataFrame) -> pd.DataFrame:
    """Pass a group through a Python worker."""
    return group


def main(folder: str) -> None:
    """Shuffle, join, aggregate, cross into Python and back, write and read."""
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    rows = spark.range(1000).withColumn("key", sql.col("id") % 7).repartition(3, "key").persist()
    rows.write.parquet(f"{folder}/rows")
    read = spark.read.parquet(f"{folder}/rows")
    joined = read.join(rows, "id").groupBy(read["key"]).agg(sql.sum("id").alias("total"), sql.collect_list("id"))
    joined.mapInArrow(as_they_are, joined.schema).orderBy("total").write.json(f"{folder}/joined")
    read.groupBy("key").applyInPandas(group_as_it_is, read.schema).toPandas()
    read.rdd.map(lambda row: row.id).sum()
    spark.createDataFrame([(1, "a", 2.5)], "number long, name string, share double").createOrReplaceTempView("told")
    spark.sql("select name, sum(number) over (partition by name order by number) from told").collect()
    rows.unpersist()
    spark.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
