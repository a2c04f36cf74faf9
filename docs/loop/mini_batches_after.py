"""Cluster handwritten digits with MLlib's streaming k-means, a mini-batch per epoch."""

import numpy as np
from pyspark.mllib.clustering import StreamingKMeansModel
from pyspark.sql import SparkSession
from sklearn.datasets import load_digits

from iteration_lib import open_run

spark = SparkSession.builder.master("local[2]").appName("mini-batches").getOrCreate()
batches = np.array_split(load_digits().data, 12)

with open_run("mini-batches") as run:
    for epoch in run.epochs(centres=batches[0][:10], weights=np.ones(10), max_epochs=24):
        model = StreamingKMeansModel(epoch.centres, epoch.weights)
        batch = spark.sparkContext.parallelize(batches[epoch.number % len(batches)], 1)
        model.update(batch, 0.9, "batches")
        print(f"epoch {epoch.number}: the centres weigh {sum(model.clusterWeights):.2f}")
        epoch.centres, epoch.weights = np.array(model.clusterCenters), np.array(model.clusterWeights)
print("result", np.sum(run.result.centres), np.sum(run.result.weights))
