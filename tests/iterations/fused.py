"""An iteration whose operators on buckets are used by two others, one of them for its metrics alone; see steered."""

from __future__ import annotations

import numpy as np

from iteration_lib import Iteration, Metrics
from iteration_lib.model.bucket import Bucket
from tests.iterations.steered import Block, SteeredParams, act, rows


def centre(params: SteeredParams) -> Block:
    """Start at 0."""
    return {"c": np.zeros(1) + act(params, "centre")}


def features(rows: Block, centre: Block, params: SteeredParams, epoch: int, bucket: Bucket) -> Block:
    """Tell a bucket's rows from the centre."""
    return {"f": rows["x"] - centre["c"][0] + act(params, "features", epoch, bucket)}


def weights(rows: Block, params: SteeredParams, epoch: int, bucket: Bucket) -> Block:
    """Weigh a bucket's rows."""
    return {"w": 1.0 / (1.0 + rows["x"]) + act(params, "weights", epoch, bucket)}


def moved(features: Block, weights: Block, params: SteeredParams, epoch: int) -> Block:
    """Move the centre."""
    return {"c": np.array([(features["f"] * weights["w"]).sum() + act(params, "moved", epoch)])}


def size(features: Block, params: SteeredParams, epoch: int) -> Block:
    """Count the rows, so that what takes it comes after `moved`."""
    return {"n": np.array([len(features["f"]) + act(params, "size", epoch)])}


def idle(centre: Block, params: SteeredParams, epoch: int) -> Block:
    """Do nothing that anybody uses."""
    return {"c": centre["c"] + act(params, "idle", epoch)}


def loss(weights: Block, size: Block, params: SteeredParams, epoch: int, metrics: Metrics) -> Block:
    """Report a metric; nobody uses the result."""
    metrics.report("loss", float(weights["w"].sum() / size["n"][0]) + act(params, "loss", epoch))
    return {"l": np.zeros(1)}


fused = Iteration("fused", params=SteeredParams)
fused.data(rows)
fused.variable(centre)
for bucketed in (features, weights):
    fused.map_buckets(bucketed)
for whole in (moved, size, loss, idle):
    fused.operator(whole)
fused.feedback(centre=moved)
