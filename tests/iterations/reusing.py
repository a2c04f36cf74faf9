"""An operator that returns the same buffer in every epoch, as code does that saves allocations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from iteration_lib import Iteration

Block = dict[str, Any]  # Any: arrays of each column's own type

BUFFER = np.zeros(3)


@dataclass(frozen=True, slots=True)
class ReusingParams:
    """desk: for whoever steers; nothing here is steered."""

    desk: str
    max_epochs: int = 4


reusing = Iteration("reusing", params=ReusingParams)


@reusing.variable
def value() -> Block:
    """Start at 1."""
    return {"v": np.ones(3)}


@reusing.operator
def doubled(value: Block) -> Block:
    """Double the value, into the buffer."""
    return {"v": np.multiply(value["v"], 2.0, out=BUFFER)}


reusing.feedback(value=doubled)
