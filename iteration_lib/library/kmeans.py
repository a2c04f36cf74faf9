"""Which k centres have the smallest sum of squared distances to the points? Lloyd's algorithm.

An epoch assigns every point to its nearest centre and moves each centre to the mean of its points, as scikit-learn's
`KMeans(algorithm="lloyd")` does from the same starting centres. One rule differs: a centre that has no points stays
where it is, and is not moved to a far point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from iteration_lib import InputError, Iteration, Metrics, parquet
from iteration_lib.model.source import ParquetSource

Floats = npt.NDArray[np.float64]
Block = dict[str, npt.NDArray[Any]]  # Any: each column has the type of its data


@dataclass(frozen=True, slots=True)
class KMeansParams:
    """Parameters of `kmeans`.

    input: Parquet with a column `features` (array of double, the same length in every row).
    tolerance: stop when no centre moves farther than this (Euclidean, in the features' units).
    initial_centres: Parquet with k rows of `features` to start from; else k distinct points are drawn, by `seed`.
    """

    input: str
    k: int = 8
    seed: int = 0
    max_epochs: int = 100
    tolerance: float = 1e-4
    initial_centres: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if self.k < 1:
            raise ValueError(f"parameter 'k' is {self.k}; there is at least 1 centre")
        if self.tolerance < 0:
            raise ValueError(f"parameter 'tolerance' is {self.tolerance}; it is not negative")


kmeans = Iteration("kmeans", params=KMeansParams)


@kmeans.data
def points(params: KMeansParams) -> ParquetSource:
    """Read the points."""
    return parquet(params.input, columns=["features"])


@kmeans.data
def start(params: KMeansParams) -> ParquetSource:
    """Read what the first centres are drawn from: the given centres, or the points."""
    return parquet(params.initial_centres or params.input, columns=["features"])


@kmeans.map_buckets(finishes=True)
def candidates(start: Block, params: KMeansParams, rng: np.random.Generator) -> Block:
    """Draw up to k distinct rows of a bucket, each with a random key; given centres are all taken, in order."""
    given: Floats = start["features"].astype(np.float64)
    if not np.isfinite(given).all():
        raise InputError(
            f"column 'features' of {params.initial_centres or params.input} holds NaN or infinity; drop such rows"
        )
    if params.initial_centres is not None:
        return {"key": np.zeros(len(given)), "features": given}
    rows = np.unique(given, axis=0)
    keys = rng.random(len(rows))
    drawn = np.argsort(keys)[: params.k]
    return {"key": keys[drawn], "features": rows[drawn]}


@kmeans.variable
def centres(candidates: Block, params: KMeansParams) -> Block:
    """Start from the k candidates with the smallest keys."""
    order = np.argsort(candidates["key"], kind="stable")
    rows = candidates["features"][order]
    if params.initial_centres is None:
        _, first = np.unique(rows, axis=0, return_index=True)
        rows = rows[np.sort(first)][: params.k]
    if len(rows) != params.k:
        found = f"{params.initial_centres} holds" if params.initial_centres else f"{params.input} has distinct points:"
        raise InputError(f"{found} {len(rows)}, but k is {params.k}; choose k={len(rows)}")
    return {"centre": rows}


@kmeans.map_buckets
def sums(points: Block, centres: Block) -> Block:
    """Sum a bucket's points by their nearest centre: k rows of `sum`, `count` and `inertia`."""
    x: Floats = points["features"].astype(np.float64, copy=False)
    c: Floats = centres["centre"]
    middle = c.mean(axis=0)  # from where the squares are small, so that little of their differences is rounded away
    points_from, centres_from = x - middle, c - middle
    distances = (centres_from**2).sum(axis=1) - 2.0 * (points_from @ centres_from.T)  # squared, less each own square
    nearest = distances.argmin(axis=1)
    own = (points_from**2).sum(axis=1) + distances[np.arange(len(x)), nearest]
    if not np.isfinite(own).all():
        raise InputError("column 'features' holds NaN, infinity or what is too large to be squared; drop such rows")
    members = np.zeros((len(c), len(x)))
    members[nearest, np.arange(len(x))] = 1.0
    return {
        "sum": members @ x,
        "count": np.bincount(nearest, minlength=len(c)),
        "inertia": np.bincount(nearest, weights=own, minlength=len(c)).astype(np.float64),  # int64 without points
    }


@kmeans.operator
def moved(sums: Block, centres: Block, metrics: Metrics) -> Block:
    """Move every centre to the mean of its points, adding the buckets up in order."""
    before = centres["centre"]
    k, dimensions = before.shape
    total = sums["sum"].reshape(-1, k, dimensions).sum(axis=0)
    count = sums["count"].reshape(-1, k).sum(axis=0)[:, np.newaxis]
    after = np.where(count > 0, total / np.maximum(count, 1), before)
    metrics.report("inertia", sums["inertia"].sum())
    metrics.report("shift", np.linalg.norm(after - before, axis=1).max())
    return {"centre": after}


@kmeans.operator
def still_moving(centres: Block, moved: Block, params: KMeansParams) -> Block:
    """Name the centres that moved farther than the tolerance; none means that the run terminates."""
    shift = np.linalg.norm(moved["centre"] - centres["centre"], axis=1)
    return {"centre": np.flatnonzero(shift > params.tolerance)}


kmeans.feedback(centres=moved)
kmeans.criteria(still_moving)
kmeans.output(model=moved)
