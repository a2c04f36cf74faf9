"""How likely is a random surfer to be at each node of a graph? PageRank, on DataFrames.

The state is large: one row per node. Each epoch is one pass of the power method, with the rules of networkx'
`pagerank`: nodes without edges out spread their rank over all nodes, and the run terminates when the ranks change by
less than `tolerance` times the number of nodes, in sum. Spark spreads rows over partitions as it likes and adds them up
in the order in which they come; here every sum is made smallest first, so that two runs agree to the bit.
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


_NO_END = "column src or dst of the edges holds nulls; drop such rows"

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
    """List the nodes, and which of them are dangling: without edges out."""
    ends = edges.selectExpr("src AS id", "false AS dangling").union(edges.selectExpr("dst AS id", "true AS dangling"))
    known = f"coalesce(id, raise_error('{_NO_END}')) AS id"
    return (
        ends.selectExpr(known, "dangling")
        .groupBy("id")
        .agg({"dangling": "min"})
        .withColumnRenamed("min(dangling)", "dangling")
    )


@pagerank.transform(finishes=True)
def counts(nodes: DataFrame) -> DataFrame:
    """Count the nodes: one row."""
    return nodes.selectExpr("count(*) AS nodes", "count_if(dangling) AS dangling")


@pagerank.variable
def ranks(nodes: DataFrame, counts: DataFrame) -> DataFrame:
    """Start with the same rank everywhere."""
    return nodes.crossJoin(counts.select("nodes")).selectExpr("id", "dangling", "1.0D / nodes AS rank")


@pagerank.variable
def spread(counts: Block) -> Block:
    """Know what the dangling nodes, together, give to each node: one row."""
    return {"each": counts["dangling"] / counts["nodes"] / counts["nodes"], "nodes": counts["nodes"]}


@pagerank.transform
def passed_on(links: DataFrame, ranks: DataFrame, spread: DataFrame, params: PageRankParams) -> DataFrame:
    """Make one pass: every node gets its share of its neighbours' ranks; keep the rank from before beside it."""
    parts = links.join(ranks, links["src"] == ranks["id"]).selectExpr("dst AS id", "rank * share AS part")
    leave, follow = f"{1 - params.damping!r}D", f"{params.damping!r}D"
    return (
        ranks.join(sum_each(parts, by="id", values=["part"]), "id", "left")
        .crossJoin(spread)
        .selectExpr(
            "id",
            "dangling",
            f"{leave} / nodes + {follow} * (coalesce(part, 0.0D) + each) AS rank",
            "rank AS before",
        )
    )


@pagerank.transform
def passed(passed_on: DataFrame) -> DataFrame:
    """Return the new ranks."""
    return passed_on.select("id", "dangling", "rank")


@pagerank.transform
def totals(passed_on: DataFrame) -> DataFrame:
    """Sum up how far the ranks moved, and what the dangling nodes have: one row."""
    columns = ["abs(rank - before) AS moved", "CASE WHEN dangling THEN rank ELSE 0.0D END AS dangling"]
    groups = sum_each(
        passed_on.selectExpr("pmod(hash(id), 1024) AS id", *columns), by="id", values=["moved", "dangling"]
    )
    return sum_each(groups.drop("id"), by=None, values=["moved", "dangling"])


@pagerank.operator
def spread_after(totals: Block, spread: Block) -> Block:
    """Return what the dangling nodes give to each node in the next pass."""
    return {"each": totals["dangling"] / spread["nodes"], "nodes": spread["nodes"]}


@pagerank.operator
def still_moving(totals: Block, spread: Block, params: PageRankParams, metrics: Metrics) -> Block:
    """Return the change while it is too large; nothing means that the run terminates."""
    moved = totals["moved"]
    metrics.report("moved", moved[0])
    return {"moved": moved[moved >= spread["nodes"] * params.tolerance]}


def sum_each(frame: DataFrame, *, by: str | None, values: list[str]) -> DataFrame:
    """Add columns up for each `by`, smallest first; with None, all rows: one row."""
    listed = frame.groupBy(*([by] if by else [])).agg(dict.fromkeys(values, "collect_list"))
    sums = [f"aggregate(array_sort(`collect_list({v})`), 0.0D, (sum, next) -> sum + next) AS {v}" for v in values]
    return listed.selectExpr(*([by] if by else []), *sums)


pagerank.feedback(ranks=passed, spread=spread_after)
pagerank.criteria(still_moving)
pagerank.output(ranks=passed)
