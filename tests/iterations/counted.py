"""Lloyd's algorithm on made points; every body appends `operator epoch` to a file, and one can be held by a latch.

The latch is a file: while it exists, the operator `moved` stops in epoch `hold_epoch`, after it has touched
`<latch>.reached`, until the latch is removed.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from iteration_lib import Iteration, Metrics, records
from iteration_lib.model.source import RecordsSource

Block = dict[str, Any]  # Any: arrays of each column's own type


@dataclass(frozen=True, slots=True)
class CountedParams:
    """log: the file that bodies append to. latch: the file that holds `moved` in `hold_epoch` while it exists."""

    log: str
    latch: str = ""
    hold_epoch: int = 5
    max_epochs: int = 8
    seed: int = 3


counted = Iteration("counted", params=CountedParams)


def note(params: CountedParams, operator_id: str, epoch: int | None) -> None:
    """Append one line, whole, also when several processes do so at once."""
    descriptor = os.open(params.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, f"{operator_id} {epoch}\n".encode())
    finally:
        os.close(descriptor)


@counted.data
def points() -> RecordsSource:
    """Make 400 points in the plane."""
    drawn = np.random.default_rng(11).normal(size=(400, 2))
    return records(x=drawn[:, 0].tolist(), y=drawn[:, 1].tolist())


@counted.map_buckets(finishes=True)
def scaled(points: Block, params: CountedParams, bucket: Any) -> Block:
    """Scale a bucket, once per run."""
    if bucket.index == 0:
        note(params, "scaled", None)
    return {"at": np.stack([points["x"], points["y"]], axis=1) * 2.0}


@counted.variable
def centres(scaled: Block) -> Block:
    """Start from the first points."""
    return {"at": scaled["at"][:5].copy()}


@counted.map_buckets
def sums(scaled: Block, centres: Block, params: CountedParams, epoch: int, bucket: Any) -> Block:
    """Sum a bucket's points by their nearest centre."""
    if bucket.index == 0:
        note(params, "sums", epoch)
    apart = scaled["at"][:, np.newaxis] - centres["at"][np.newaxis]
    nearest = (apart**2).sum(axis=2).argmin(axis=1)
    total = np.zeros_like(centres["at"])
    np.add.at(total, nearest, scaled["at"])
    return {"total": total, "count": np.bincount(nearest, minlength=len(total))}


@counted.operator
def moved(sums: Block, centres: Block, params: CountedParams, epoch: int, metrics: Metrics) -> Block:
    """Move the centres; in `hold_epoch`, wait while the latch is there."""
    note(params, "moved", epoch)
    if params.latch and epoch == params.hold_epoch and Path(params.latch).exists():
        Path(f"{params.latch}.reached").touch()
        while Path(params.latch).exists():
            time.sleep(0.02)
    count = sums["count"].reshape(-1, 5).sum(axis=0)[:, np.newaxis]
    total = sums["total"].reshape(-1, 5, 2).sum(axis=0)
    after = np.where(count > 0, total / np.maximum(count, 1), centres["at"])
    metrics.report("shift", np.abs(after - centres["at"]).max())
    return {"at": after}


counted.feedback(centres=moved)
