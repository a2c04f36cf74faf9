"""Least squares by consensus: every bucket fits its own rows, and all are drawn to one answer (ADMM).

It has a little of everything that a run has to keep: two variables in buckets of different parallelism (each bucket's
fit, and how far it was pulled), an operator that finishes for good (each bucket's normal equations), data that comes
once (a first guess), state carried by an operator on the whole (the guess, and the answer before) and by one on buckets
(how long a bucket has been settled), and criteria. Bodies append a line to a file each time they run; the one whose
line STATEFUL_FAILS_AT is raises, and the one for whose line there is a file `hold LINE` waits until that is gone.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from iteration_lib import Iteration, Metrics, records
from iteration_lib.model.bucket import Bucket
from iteration_lib.model.source import RecordsSource

Block = dict[str, Any]  # Any: arrays of each column's own type

TRUTH = (1.5, -2.0, 0.5)


@dataclass(frozen=True, slots=True)
class StatefulParams:
    """rows: of the data. log: a folder, for the file that bodies append to; none without. patience: epochs."""

    rows: int = 240
    log: str = ""
    pull: float = 4.0
    tolerance: float = 0.02
    patience: int = 2
    max_epochs: int = 30
    seed: int = 5


# How many subtasks the two variables have; another process may have others, and the result is the same.
FIT_SUBTASKS, PULL_SUBTASKS = (int(count) for count in os.environ.get("STATEFUL_SUBTASKS", "3,2").split(","))

stateful = Iteration("stateful", params=StatefulParams)


def note(params: StatefulParams, operator_id: str, epoch: int | None, bucket: Bucket | None = None) -> None:
    """Append a line (operator, epoch, bucket), whole, also when several processes do so at once."""
    line = f"{operator_id} {epoch} {bucket.index if bucket is not None else None}"
    if line == os.environ.get("STATEFUL_FAILS_AT"):
        raise RuntimeError(f"told to fail: {line}")
    if not params.log:
        return
    held = Path(params.log) / f"hold {line}"
    descriptor = os.open(Path(params.log) / "calls", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)
    while held.exists():
        time.sleep(0.02)


@stateful.data
def measured(params: StatefulParams) -> RecordsSource:
    """Make rows that follow TRUTH but for some noise."""
    random = np.random.default_rng(params.seed)
    at = random.normal(size=(params.rows, len(TRUTH)))
    value = (at * TRUTH).sum(axis=1) + 0.1 * random.normal(size=params.rows)
    return records(at=at.tolist(), value=value.tolist())


@stateful.data(replays=False)
def guessed() -> RecordsSource:
    """Make two first guesses, which epoch 0 alone sees."""
    return records(weights=[[1.0, -1.0, 0.0], [2.0, -1.0, 1.0]])


@stateful.map_buckets(finishes=True, operator_id="normal-equations")
def equations(measured: Block, params: StatefulParams, bucket: Bucket) -> Block:
    """Sum up a bucket's rows, once per run."""
    note(params, "normal-equations", None, bucket)
    at, value = measured["at"], measured["value"]
    gram = (at[:, :, np.newaxis] * at[:, np.newaxis]).sum(axis=0)
    return {"gram": gram[np.newaxis], "moment": (at * value[:, np.newaxis]).sum(axis=0)[np.newaxis]}


@stateful.variable
def fits(equations: Block) -> Block:
    """Start every bucket at zero."""
    return {"weights": np.zeros_like(equations["moment"])}


@stateful.variable
def pulls(equations: Block) -> Block:
    """Start with no bucket pulled."""
    return {"weights": np.zeros_like(equations["moment"])}


@stateful.operator(state="carry")
def agreed(
    fits: Block,
    pulls: Block,
    guessed: Block,
    *,
    state: Block | None,
    params: StatefulParams,
    epoch: int,
    metrics: Metrics,
) -> tuple[Block, Block]:
    """Let the buckets agree, and lean on the guesses, which no later epoch sees, a little less every time."""
    note(params, "agreed", epoch)
    guess = state["guess"] if state is not None else guessed["weights"].mean(axis=0)[np.newaxis]
    lean = 0.5 ** (epoch + 1) * (1 + len(guessed["weights"]) * 0.01)
    answer = (1 - lean) * (fits["weights"] + pulls["weights"]).mean(axis=0)[np.newaxis] + lean * guess
    before = state["answer"] if state is not None else guess
    metrics.report("step", np.abs(answer - before).max())
    return {"weights": answer}, {"guess": guess, "answer": answer}


@stateful.map_buckets(parallelism=FIT_SUBTASKS)
def fitted(equations: Block, pulls: Block, agreed: Block, params: StatefulParams, epoch: int, bucket: Bucket) -> Block:
    """Fit a bucket's rows, drawn to the answer."""
    note(params, "fitted", epoch, bucket)
    gram = equations["gram"][0] + params.pull * np.eye(len(TRUTH))
    moment = equations["moment"][0] + params.pull * (agreed["weights"] - pulls["weights"])[0]
    return {"weights": np.linalg.solve(gram, moment)[np.newaxis]}


@stateful.map_buckets(parallelism=PULL_SUBTASKS)
def pulled(pulls: Block, fitted: Block, agreed: Block, params: StatefulParams, epoch: int, bucket: Bucket) -> Block:
    """Pull a bucket by how far it is from the answer."""
    note(params, "pulled", epoch, bucket)
    return {"weights": pulls["weights"] + fitted["weights"] - agreed["weights"]}


@stateful.map_buckets(state="carry", operator_id="settling")
def settled(
    fitted: Block, agreed: Block, state: Block | None, params: StatefulParams, epoch: int, bucket: Bucket
) -> tuple[Block, Block]:
    """Count for how many epochs a bucket has been near the answer, and remember each of its distances."""
    note(params, "settling", epoch, bucket)
    distance = np.abs(fitted["weights"] - agreed["weights"]).max()
    known = state["distance"] if state is not None else np.zeros(0)
    distances = np.append(known, distance)
    near = np.cumprod(distances[::-1] < params.tolerance).sum()
    return {"near": np.array([near]), "bucket": np.array([bucket.index])}, {"distance": distances}


@stateful.operator
def unsettled(settled: Block, params: StatefulParams, epoch: int, metrics: Metrics) -> Block:
    """List the buckets that are not settled yet; the run ends when there are none."""
    note(params, "unsettled", epoch)
    metrics.report("settled", (settled["near"] >= params.patience).sum())
    return {"bucket": settled["bucket"][settled["near"] < params.patience]}


stateful.feedback(fits=fitted, pulls=pulled)
stateful.criteria(unsettled)
stateful.output(answer=agreed, fits=fitted, settled=settled)
