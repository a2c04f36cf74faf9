"""Iterations that cannot be run, each for one reason; a test names the reason."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from iteration_lib import Iteration, Metrics, parquet, records
from iteration_lib.model.source import ParquetSource, RecordsSource

Block = dict[str, Any]  # Any: arrays of each column's own type


@dataclass(frozen=True, slots=True)
class Params:
    """input: where the points lie. broken: whether `moved` does what it must not. log: a file that it appends to."""

    input: str = ""
    broken: bool = True
    log: str = "/nowhere"
    max_epochs: int = 3


@dataclass(frozen=True, slots=True)
class Required:
    """A parameter that has no default."""

    input: str


def one(value: float) -> Block:
    """Return one row."""
    return {"value": np.array([value])}


def grow(value: Block) -> Block:
    """Go on from a value."""
    return {"value": value["value"] + 1.0}


def iteration(name: str, params: type = Params) -> Iteration:
    """Return an iteration of one variable, which is sound."""
    made = Iteration(name, params=params)

    @made.variable
    def value() -> Block:
        return one(0.0)

    @made.operator
    def moved(value: Block) -> Block:
        return grow(value)

    made.feedback(value=moved)
    return made


needy = iteration("needy", Required)

stray = iteration("stray")


@stray.operator(operator_id="the-stray")
def strayed(nothing_there: Block) -> Block:
    """Take what nobody gives."""
    return nothing_there


cycle = iteration("cycle")


@cycle.operator
def chicken(egg: Block) -> Block:
    """Come from the egg."""
    return egg


@cycle.operator
def egg(chicken: Block) -> Block:
    """Come from the chicken."""
    return chicken


twice = iteration("twice")


@twice.operator(operator_id="moved")
def moved_again(value: Block) -> Block:
    """Have an id that is taken."""
    return value


lonely = Iteration("lonely", params=Params)

not_an_iteration = 3

other_schema = Iteration("other_schema", params=Params)


@other_schema.variable
def weights() -> Block:
    """Start with one column."""
    return one(0.0)


@other_schema.operator
def next_weights(weights: Block, params: Params) -> Block:
    """Return another column than the variable has."""
    return {"other": weights["value"]} if params.broken else grow(weights)


other_schema.feedback(weights=next_weights)

nan_metric = Iteration("nan_metric", params=Params)


@nan_metric.variable
def start() -> Block:
    """Start at 0."""
    return one(0.0)


@nan_metric.operator
def reported(start: Block, metrics: Metrics, epoch: int) -> Block:
    """Report what is no number, in epoch 1."""
    metrics.report("loss", math.nan if epoch == 1 else 0.5)
    return grow(start)


nan_metric.feedback(start=reported)

reading = Iteration("reading", params=Params)


@reading.data
def points(params: Params) -> ParquetSource:
    """Read what may not be there."""
    return parquet(params.input, columns=["x"])


@reading.variable
def total(points: Block) -> Block:
    """Add the points up."""
    return one(float(points["x"].sum()))


@reading.operator
def grown(total: Block) -> Block:
    """Go on from the total."""
    return grow(total)


reading.feedback(total=grown)

raising = Iteration("raising", params=Params)


@raising.data
def few() -> RecordsSource:
    """Give three rows."""
    return records(x=[1.0, 2.0, 3.0])


@raising.variable
def state(few: Block) -> Block:
    """Start at 0."""
    return one(0.0 * float(few["x"].sum()))


@raising.operator
def raised(state: Block, params: Params, epoch: int) -> Block:
    """Raise what no database keeps as it is, in epoch 1, while the file is not there."""
    if epoch == 1 and not Path(params.log).exists():
        raise ValueError("a NUL \0, a lone surrogate \ud800 and [/markup]")
    return grow(state)


raising.feedback(state=raised)
