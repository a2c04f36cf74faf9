"""An iteration that a test steers from outside: every body says that it runs, and does what it finds on the desk.

The desk is a folder. Bodies append `operator epoch bucket` to its `log`. While one of these files is there and holds
that very line, the body that writes it

    fail    raises
    end     is told to end, as by a SIGTERM in that place
    hold    touches `held` and waits until `hold` is gone

`salt` is what makes the bodies undeterministic: a number that they read whenever they run. Eight operators: two that
finish for good, six in every epoch; three variables, in 3 subtasks, in 2, and in the driver; criteria. How checkpoints
are taken is read from the environment, for drivers in processes of their own.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from iteration_lib import Iteration, Metrics, records
from iteration_lib.interrupt import ToldToEnd
from iteration_lib.model.bucket import Bucket
from iteration_lib.model.checkpointing import Checkpointing
from iteration_lib.model.source import RecordsSource

Block = dict[str, Any]  # Any: arrays of each column's own type


@dataclass(frozen=True, slots=True)
class SteeredParams:
    """desk: the folder that steers. epochs: how many there are until `going` lists nothing."""

    desk: str
    epochs: int = 4
    seed: int = 3


def act(params: SteeredParams, operator_id: str, epoch: int | None = None, bucket: Bucket | None = None) -> float:
    """Say that a body runs, do what the desk asks of it, and return the salt."""
    obey(params.desk, f"{operator_id} {'-' if epoch is None else epoch} {'-' if bucket is None else bucket.index}")
    salt = Path(params.desk) / "salt"
    return float(salt.read_text()) if salt.exists() else 0.0


def obey(where: str, line: str) -> None:
    """Say a line, and do what the desk asks of whoever says it."""
    desk = Path(where)
    say(where, line)
    if is_asked(desk / "fail", line):
        raise RuntimeError(f"told to fail: {line}")
    if is_asked(desk / "end", line):
        raise ToldToEnd
    if is_asked(desk / "hold", line):
        (desk / "held").touch()
        while (desk / "hold").exists():
            time.sleep(0.01)


def say(where: str, line: str) -> None:
    """Append one line to the desk's log, whole, also when several processes do so at once."""
    descriptor = os.open(Path(where) / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


def is_asked(order: Path, line: str) -> bool:
    """Tell whether an order is for the body that writes this line."""
    return order.exists() and order.read_text() == line


def rows() -> RecordsSource:
    """Give 24 rows."""
    return records(x=[float(number) for number in range(24)])


def scaled(rows: Block, params: SteeredParams, bucket: Bucket) -> Block:
    """Scale a bucket, once per run."""
    return {"x": rows["x"] / 24.0 + act(params, "scaled", None, bucket)}


def size(scaled: Block, params: SteeredParams) -> Block:
    """Count the rows, once per run."""
    return {"n": np.array([len(scaled["x"]) + act(params, "size")])}


def ranks(scaled: Block, size: Block, params: SteeredParams, bucket: Bucket) -> Block:
    """Start with equal ranks."""
    return {"r": np.ones_like(scaled["x"]) / size["n"] + act(params, "ranks", None, bucket)}


def drifts(scaled: Block, params: SteeredParams, bucket: Bucket) -> Block:
    """Start without a drift."""
    return {"d": np.zeros(1) + len(scaled["x"]) + act(params, "drifts", None, bucket)}


def pace(params: SteeredParams) -> Block:
    """Start slowly."""
    return {"p": np.full(2, 0.5) + act(params, "pace")}


def shares(scaled: Block, ranks: Block, params: SteeredParams, epoch: int, bucket: Bucket) -> Block:
    """Share a bucket's ranks out."""
    return {"s": scaled["x"] * ranks["r"] + act(params, "shares", epoch, bucket)}


def total(shares: Block, pace: Block, params: SteeredParams, epoch: int, metrics: Metrics) -> Block:
    """Add all shares up."""
    found = shares["s"].sum() * pace["p"][0] + act(params, "total", epoch)
    metrics.report("total", found)
    return {"t": np.array([found])}


def ranked(shares: Block, total: Block, params: SteeredParams, epoch: int, bucket: Bucket) -> Block:
    """Rank a bucket anew."""
    return {"r": shares["s"] + 0.1 * total["t"] + act(params, "ranked", epoch, bucket)}


def drifted(
    drifts: Block, ranked: Block, params: SteeredParams, epoch: int, bucket: Bucket, rng: np.random.Generator
) -> Block:
    """Drift on."""
    return {"d": drifts["d"] + ranked["r"].sum() * rng.normal() + act(params, "drifted", epoch, bucket)}


def paced(pace: Block, total: Block, params: SteeredParams, epoch: int, metrics: Metrics) -> Block:
    """Go a little faster."""
    after = pace["p"] * (1.0 + 0.01 * total["t"]) + act(params, "paced", epoch)
    metrics.report("pace", after.max())
    return {"p": after}


def going(total: Block, params: SteeredParams, epoch: int) -> Block:
    """List the epochs that are left; the run ends when there are none."""
    return {"t": np.full(params.epochs - 1 - epoch, total["t"][0] + act(params, "going", epoch))}


CHECKPOINTING_VARIABLE = "STEERED_CHECKPOINTING"
PER_EPOCH = ("shares", "total", "ranked", "drifted", "paced", "going")


def wired(name: str, *, captures_total: bool = True) -> Iteration:
    """Return the operators above as an iteration."""
    checkpointing = Checkpointing(**json.loads(os.environ.get(CHECKPOINTING_VARIABLE, "{}")))
    made = Iteration(name, params=SteeredParams, checkpointing=checkpointing)
    made.data(rows)
    made.map_buckets(finishes=True)(scaled)
    made.operator(finishes=True)(size)
    for variable in (ranks, drifts, pace):
        made.variable(variable)
    made.map_buckets(shares)
    made.operator(capture=captures_total)(total)
    made.map_buckets(parallelism=3)(ranked)
    made.map_buckets(parallelism=2)(drifted)
    made.operator(paced)
    made.operator(going)
    made.feedback(ranks=ranked, drifts=drifted, pace=paced)
    made.criteria(going)
    return made


steered = wired("steered")
uncaptured = wired("uncaptured", captures_total=False)  # `total` is never a durable edge
