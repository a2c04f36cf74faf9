"""An iteration that tells listeners how it goes on; each says what it hears, and can be steered as `steered` is.

A line is `heard EPOCH`, `overheard EPOCH` or `ended EPOCH`; behind it stands the line of the effect's id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from iteration_lib import Iteration, Metrics
from tests.iterations.steered import obey, say

Block = dict[str, Any]  # Any: arrays of each column's own type


@dataclass(frozen=True, slots=True)
class ToldParams:
    """desk: the folder that steers."""

    desk: str
    max_epochs: int = 3


told = Iteration("told", params=ToldParams)


@told.variable
def level() -> Block:
    """Start with two rows at 1."""
    return {"l": np.ones(2)}


@told.operator
def raised(level: Block, params: ToldParams, epoch: int, metrics: Metrics) -> Block:
    """Go one higher."""
    obey(params.desk, f"raised {epoch}")
    metrics.report("level", level["l"][0])
    return {"l": level["l"] + 1.0}


@told.on_epoch_durable
def heard(
    epoch: int, params: ToldParams, metrics: Mapping[str, float], records: Mapping[str, int], effect_id: str
) -> dict[str, object]:
    """Hear of an epoch, and keep what it measured."""
    say(params.desk, f"heard {epoch} is {effect_id}")
    obey(params.desk, f"heard {epoch}")
    return {"level": metrics["level"], "records": dict(records)}


@told.on_epoch_durable
def overheard(epoch: int, params: ToldParams) -> None:
    """Hear of an epoch too."""
    obey(params.desk, f"overheard {epoch}")


@told.on_terminated
def ended(epoch: int, params: ToldParams, terminated_by: str, effect_id: str) -> dict[str, object]:
    """Hear of the end."""
    say(params.desk, f"ended {epoch} is {effect_id}")
    obey(params.desk, f"ended {epoch}")
    return {"by": terminated_by}


told.feedback(level=raised)
