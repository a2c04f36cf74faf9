"""Cluster handwritten digits with MLlib's streaming k-means, a mini-batch per epoch."""

import numpy as np
from pyspark.mllib.clustering import StreamingKMeansModel
from pyspark.sql import SparkSession
from sklearn.datasets import load_digits

spark = SparkSession.builder.master("local[2]").appName("mini-batches").getOrCreate()
batches = np.array_split(load_digits().data, 12)
model = StreamingKMeansModel(batches[0][:10], np.ones(10))

for number in range(24):
    batch = spark.sparkContext.parallelize(batches[number % len(batches)], 1)
    model.update(batch, 0.9, "batches")
    print(f"epoch {number}: the centres weigh {sum(model.clusterWeights):.2f}")
print("result", np.sum(model.clusterCenters), np.sum(model.clusterWeights))
