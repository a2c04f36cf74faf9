"""An iteration whose only output goes to a sink of the user's own, which a test steers as the bodies of `steered`.

The sink says `prepare 0`, `commit 0` or `abort 0` before it does that, with the epoch; what it shows is lines of JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from iteration_lib import Iteration
from iteration_lib.sinks import Publication, SinkTransaction
from tests.iterations.steered import is_asked, obey
from tests.json_lines_sink import JsonLinesSink

Block = dict[str, Any]  # Any: arrays of each column's own type

EPOCHS = 4


@dataclass(frozen=True, slots=True)
class DeliveringParams:
    """desk: the folder that steers. name: which folder beside it shows what was published."""

    desk: str
    name: str = "shown"
    max_epochs: int = EPOCHS


class SteeredSink(JsonLinesSink):
    """JSON lines, in a folder on the desk; told to `forget`, it returns no JSON, and to `garble`, fails in no text."""

    def __init__(self, params: DeliveringParams) -> None:
        super().__init__(Path(params.desk) / params.name)
        self.desk = params.desk

    def describe(self) -> str:
        return f"the folder {self.folder.name}"

    def prepare(self, transaction: SinkTransaction, publication: Publication) -> Mapping[str, object]:
        obey(self.desk, f"prepare {transaction.epoch}")
        if is_asked(Path(self.desk) / "garble", f"prepare {transaction.epoch}"):
            raise ValueError("no such file: caf\udce9\0")  # half a surrogate pair, as Python has file names, and a NUL
        prepared = super().prepare(transaction, publication)
        is_forgotten = is_asked(Path(self.desk) / "forget", f"prepare {transaction.epoch}")
        return {**prepared, "of": {transaction.output}} if is_forgotten else prepared  # a set is no JSON

    def commit(self, transaction: SinkTransaction, committable: Mapping[str, object]) -> None:
        obey(self.desk, f"commit {transaction.epoch}")
        super().commit(transaction, committable)

    def abort(self, transaction: SinkTransaction) -> None:
        obey(self.desk, f"abort {transaction.epoch}")
        super().abort(transaction)


def steered_sink(params: DeliveringParams) -> SteeredSink:
    """Publish on the desk."""
    obey(params.desk, "make the sink")
    return SteeredSink(params)


delivering = Iteration("delivering", params=DeliveringParams)


@delivering.variable
def level() -> Block:
    """Start at 1."""
    return {"l": np.ones(1)}


@delivering.operator
def raised(level: Block, params: DeliveringParams, epoch: int) -> Block:
    """Go one higher."""
    obey(params.desk, f"raised {epoch}")
    return {"l": level["l"] + 1.0}


delivering.feedback(level=raised)
delivering.output(levels=raised, sink=steered_sink, each_epoch=True)

silent = Iteration("delivering", params=DeliveringParams)
"""The same without its sink."""

silent.variable(level)
silent.operator(raised)
silent.feedback(level=raised)
silent.output(levels=raised)
