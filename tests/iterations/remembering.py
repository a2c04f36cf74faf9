"""Operators that keep something: from epoch to epoch, or within one; and data that comes once.

Every body is steered as those of `steered`, and says what it found: whether there was a state, how many rows of `once`
there were, and that its scratch folder was empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from iteration_lib import Iteration, records
from iteration_lib.model.bucket import Bucket
from iteration_lib.model.source import RecordsSource
from tests.iterations.steered import obey, say

Block = dict[str, Any]  # Any: arrays of each column's own type


@dataclass(frozen=True, slots=True)
class RememberingParams:
    """desk: the folder that steers."""

    desk: str
    max_epochs: int = 4


remembering = Iteration("remembering", params=RememberingParams)


@remembering.data
def given() -> RecordsSource:
    """Give 12 rows, in every epoch."""
    return records(x=[float(number) for number in range(12)])


@remembering.data(replays=False)
def once() -> RecordsSource:
    """Give 3 rows, in epoch 0 alone."""
    return records(x=[1.0, 2.0, 4.0], name=["a", "b", "c"])


@remembering.variable
def level() -> Block:
    """Start at 1."""
    return {"l": np.ones(1)}


@remembering.map_buckets(state="carry")
def hoarded(
    given: Block, level: Block, state: Block | None, params: RememberingParams, epoch: int, bucket: Bucket
) -> tuple[Block, Block]:
    """Keep every level in every bucket, and give their sum beside the rows."""
    obey(params.desk, f"hoarded {epoch} {bucket.index}")
    kept = state["l"] if state is not None else np.zeros(0)
    kept = np.append(kept, level["l"][0] * (bucket.index + 1))
    return {"x": given["x"] + kept.sum()}, {"l": kept}


@remembering.operator(state="carry")
def counted(
    hoarded: Block, once: Block, state: Block | None, params: RememberingParams, epoch: int
) -> tuple[Block, Block]:
    """Count the epochs, and add up what came once."""
    obey(params.desk, f"counted {epoch} -")
    say(params.desk, f"once {epoch} {len(once['x'])} {','.join(sorted(once))} {once['x'].dtype}")
    say(params.desk, f"state {epoch} {'none' if state is None else int(state['epochs'][0])}")
    epochs = 1 if state is None else state["epochs"][0] + 1
    found = once["x"].sum() + (0.0 if state is None else state["once"][0])
    return {"c": np.array([hoarded["x"].sum() * found])}, {"epochs": np.array([epochs]), "once": np.array([found])}


@remembering.map_buckets(state="fresh")
def drafted(given: Block, counted: Block, scratch: str, params: RememberingParams, epoch: int, bucket: Bucket) -> Block:
    """Go by way of a file."""
    say(params.desk, f"drafted in {scratch}")
    draft = Path(scratch) / "draft"
    assert [] == list(Path(scratch).iterdir()), "the folder is not new"
    draft.write_bytes((given["x"] * counted["c"][0]).tobytes())
    obey(params.desk, f"drafted {epoch} {bucket.index}")
    return {"x": np.frombuffer(draft.read_bytes())}


@remembering.operator(state="fresh")
def raised(drafted: Block, level: Block, scratch: str, params: RememberingParams, epoch: int) -> Block:
    """Raise the level, by way of a file too."""
    say(params.desk, f"raised in {scratch}")
    (Path(scratch) / "note").write_text(str(drafted["x"].mean()))
    obey(params.desk, f"raised {epoch} -")
    mean = float((Path(scratch) / "note").read_text())
    return {"l": level["l"] + mean / (1.0 + abs(mean))}


remembering.feedback(level=raised)
