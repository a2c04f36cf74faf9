"""Two iterations whose checkpoints are kept as files in tests/checkpoints, as each version of the format was written.

`kept` has what every version can name: a data stream that is copied into the run's folder, an operator that finishes
for good, a variable in buckets and a value (whose operator's id is not its name), and an output. `carrying` has what
version 2 added: the state of an operator on buckets, and of one on the whole (whose id is not its name either).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from iteration_lib import Iteration, records
from iteration_lib.model.source import RecordsSource

Block = dict[str, Any]  # Any: arrays of each column's own type


@dataclass(frozen=True, slots=True)
class KeptParams:
    """max_epochs: how many epochs there are."""

    max_epochs: int = 3


kept = Iteration("kept", params=KeptParams)


@kept.data
def points() -> RecordsSource:
    """Give five rows."""
    return records(x=[1.0, 2.0, 3.0, 4.0, 5.0])


@kept.map_buckets(finishes=True)
def halves(points: Block) -> Block:
    """Halve a bucket, once per run."""
    return {"h": points["x"] / 2.0}


@kept.variable
def ranks(halves: Block) -> Block:
    """Start with equal ranks."""
    return {"r": np.ones_like(halves["h"])}


@kept.variable(operator_id="middle")
def centre() -> Block:
    """Start at 0."""
    return {"at": np.zeros(1)}


@kept.map_buckets
def ranked(halves: Block, ranks: Block, centre: Block) -> Block:
    """Rank a bucket anew."""
    return {"r": ranks["r"] + halves["h"] - centre["at"][0]}


@kept.operator
def moved(ranked: Block, centre: Block) -> Block:
    """Go half of the way."""
    return {"at": centre["at"] / 2.0 + ranked["r"].max(keepdims=True)}


kept.feedback(ranks=ranked, centre=moved)
kept.output(centre=moved, ranks=ranked)

carrying = Iteration("carrying", params=KeptParams)
carrying.data(points)


@carrying.variable
def level() -> Block:
    """Start at 1."""
    return {"l": np.ones(1)}


@carrying.map_buckets(state="carry")
def hoarded(points: Block, level: Block, state: Block | None) -> tuple[Block, Block]:
    """Keep every level in every bucket, and add their sum to the rows."""
    hoard = np.append(state["h"] if state is not None else np.zeros(0), level["l"])
    return {"x": points["x"] + hoard.sum()}, {"h": hoard}


@carrying.operator(state="carry", operator_id="steps")
def raised(hoarded: Block, state: Block | None) -> tuple[Block, Block]:
    """Raise the level to half of the greatest row, a little more in every epoch."""
    counted = state["n"] + 1 if state is not None else np.ones(1)
    return {"l": hoarded["x"].max(keepdims=True) / 2.0 + counted}, {"n": counted}


carrying.feedback(level=raised)
carrying.output(level=raised, rows=hoarded)
