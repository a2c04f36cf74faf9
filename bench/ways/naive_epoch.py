"""What is one epoch of K-means as a Spark application of its own, which hands Parquet on, as people write it?

spark-submit naive_epoch.py POINTS CENTRES NEW_CENTRES
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession


def main(points: str, centres: str, new_centres: str) -> None:
    """Move every centre to the mean of its points."""
    spark = SparkSession.builder.appName("naive epoch").getOrCreate()
    before = np.array([row.features for row in spark.read.parquet(centres).orderBy("number").collect()])

    def add_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            x = np.array(batch.column("features").to_pylist())
            nearest = ((before * before).sum(axis=1) - 2.0 * (x @ before.T)).argmin(axis=1)
            for number in np.unique(nearest).tolist():
                members = x[nearest == number]
                row = {"number": number, "count": len(members), "sum": members.sum(axis=0).tolist()}
                yield pa.RecordBatch.from_pylist([row])

    sums = spark.read.parquet(points).mapInArrow(add_up, "number long, count long, sum array<double>").collect()
    after = before.copy()
    for number in {row.number for row in sums}:
        own = [row for row in sums if row.number == number]
        after[number] = np.sum([row["sum"] for row in own], axis=0) / sum(row["count"] for row in own)
    rows = [(number, centre.tolist()) for number, centre in enumerate(after)]
    spark.createDataFrame(rows, "number long, features array<double>").coalesce(1).write.parquet(new_centres)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
