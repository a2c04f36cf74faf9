"""An iteration that counts, writes down each time that a body runs, and fails or waits when it is told to."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from iteration_lib import Iteration, Metrics, records

Block = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountingParams:
    """`trace` is a folder; the run goes on up to and with epoch `until`.

    In epoch `fails_in` the body raises until `trace/mended` exists; in epoch `holds_in` it makes `trace/held` and waits
    until `trace/released` exists.
    """

    trace: str
    until: int = 100
    max_epochs: int = 8
    fails_in: int = -1
    holds_in: int = -1


counting = Iteration("counting", params=CountingParams)


@counting.data
def numbers() -> object:
    return records(x=[float(number) for number in range(64)])


@counting.variable
def total() -> Block:
    return {"total": np.zeros(1)}


@counting.operator(finishes=True)
def largest(numbers: Block, params: CountingParams) -> Block:
    _note(params, "largest")
    return {"x": np.array([numbers["x"].max()])}


@counting.map_buckets
def sums(numbers: Block, total: Block) -> Block:
    return {"sum": np.array([numbers["x"].sum() + 0.1 * total["total"][0]])}


@counting.operator
def added(sums: Block, largest: Block, *, epoch: int, params: CountingParams, metrics: Metrics) -> Block:
    _note(params, f"added {epoch}")
    trace = Path(params.trace)
    if epoch == params.fails_in and not (trace / "mended").exists():
        raise RuntimeError("told to fail")
    if epoch == params.holds_in:
        (trace / "held").touch()
        while not (trace / "released").exists():
            time.sleep(0.02)
    value = float(np.add.reduce(sums["sum"])) / float(largest["x"][0])
    metrics.report("total", value)
    return {"total": np.array([value])}


@counting.operator
def going_on(added: Block, *, epoch: int, params: CountingParams) -> Block:
    return {"epoch": np.arange(1 if epoch < params.until else 0)}


counting.feedback(total=added)
counting.criteria(going_on)


def _note(params: CountingParams, what: str) -> None:
    with (Path(params.trace) / "bodies").open("a") as file:
        file.write(f"{what}\n")
