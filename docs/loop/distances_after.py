"""How many friends lie between two members of Zachary's karate club? With DataFrames, a step further per epoch."""

from networkx import karate_club_graph
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from iteration_lib import open_run

spark = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", 4).getOrCreate()
pairs = [pair for edge in karate_club_graph().edges() for pair in (edge, edge[::-1])]
edges = spark.createDataFrame(pairs, "id long, friend long").cache()


def further(reached):
    """Return who is reached with one more step, and in how many at least."""
    found = reached.join(edges, "id").selectExpr("friend AS id", "steps + 1 AS steps")
    return reached.union(found).groupBy("id").agg(F.min("steps").alias("steps"))


reached = spark.createDataFrame([(16, 0)], "id long, steps long")
with open_run("distances", spark=spark) as run:
    for epoch in run.epochs(reached=reached, max_epochs=20):
        before = epoch.reached.count()
        epoch.reached = further(epoch.reached)
        print(f"epoch {epoch.number}: {epoch.reached.count()} members are reached")
        if epoch.reached.count() == before:
            epoch.stop()
print("result", sorted(map(tuple, run.result.reached.collect())))
