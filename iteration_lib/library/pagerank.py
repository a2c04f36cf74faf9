"""How likely is a random surfer to be at each node of a graph? PageRank, on DataFrames.

The state is large: one row per node. Each epoch is one pass of the power method, with the rules of networkx'
`pagerank`: nodes without edges out spread their rank over all nodes, and the run terminates when the ranks change by
less than `tolerance` times the number of nodes, in sum. Spark adds up the shares in no fixed order, so two runs agree
to rounding, not to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from iteration_lib import Iteration, Metrics, parquet
from iteration_lib.model.source import ParquetSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Block = dict[str, npt.NDArray[Any]]  # Any: each column has the type of its data


@dataclass(frozen=True, slots=True)
class PageRankParams:
    """Parameters of `pagerank`. input: Parquet with the edges' ends, `src` and `dst`, of one type."""

    input: str
    damping: float = 0.85
    max_epochs: int = 100
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if not 0 <= self.damping <= 1:
            raise ValueError(f"parameter 'damping' is {self.damping}; it is from 0 to 1")


pagerank = Iteration("pagerank", params=PageRankParams)


@pagerank.data
def edges(params: PageRankParams) -> ParquetSource:
    """Read the edges."""
    return parquet(params.input, columns=["src", "dst"])


@pagerank.transform(finishes=True)
def links(edges: DataFrame) -> DataFrame:
    """Give each edge the share of its source's rank that it passes on."""
    degrees = edges.groupBy("src").count()
    return edges.join(degrees, "src").selectExpr("src", "dst", "1.0D / count AS share")


@pagerank.transform(finishes=True)
def nodes(edges: DataFrame) -> DataFrame:
    """List the nodes, each with whether it is dangling and with the number of all nodes."""
    ends = edges.selectExpr("src AS id", "false AS dangling").union(edges.selectExpr("dst AS id", "true AS dangling"))
    listed = ends.groupBy("id").agg({"dangling": "min"}).withColumnRenamed("min(dangling)", "dangling")
    return listed.crossJoin(listed.selectExpr("count(*) AS size"))


@pagerank.variable
def ranks(nodes: DataFrame) -> DataFrame:
    """Start with the same rank everywhere."""
    return nodes.selectExpr("id", "1.0D / size AS rank")


@pagerank.transform
def passed_on(nodes: DataFrame, links: DataFrame, ranks: DataFrame, params: PageRankParams) -> DataFrame:
    """Make one pass: every node gets its share of its neighbours' ranks; keep the rank from before beside it."""
    received = (
        links.join(ranks, links["src"] == ranks["id"])
        .selectExpr("dst AS id", "rank * share AS part")
        .groupBy("id")
        .agg({"part": "sum"})
        .withColumnRenamed("sum(part)", "received")
    )
    known = nodes.join(ranks, "id")
    spread = known.selectExpr("coalesce(sum(CASE WHEN dangling THEN rank END), 0.0D) AS spread")
    return (
        known.join(received, "id", "left")
        .crossJoin(spread)
        .selectExpr(
            "id",
            f"(1.0D - {params.damping!r}D) / size"
            f" + {params.damping!r}D * (coalesce(received, 0.0D) + spread / size) AS rank",
            "rank AS before",
        )
    )


@pagerank.transform
def passed(passed_on: DataFrame) -> DataFrame:
    """Return the new ranks."""
    return passed_on.select("id", "rank")


@pagerank.transform
def change(passed_on: DataFrame) -> DataFrame:
    """Sum up how far the ranks moved: one row."""
    return passed_on.selectExpr("sum(abs(rank - before)) AS moved", "count(*) AS size")


@pagerank.operator
def still_moving(change: Block, params: PageRankParams, metrics: Metrics) -> Block:
    """Return the change while it is too large; nothing means that the run terminates."""
    metrics.report("change", change["moved"][0])
    return {"moved": change["moved"][change["moved"] >= change["size"] * params.tolerance]}


pagerank.feedback(ranks=passed)
pagerank.criteria(still_moving)
pagerank.output(ranks=passed)
