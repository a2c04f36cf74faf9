"""How do tests drive a small run in this very process? On a store in memory, in a folder of the test's own."""

from __future__ import annotations

import dataclasses
import importlib
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from iteration_lib.clock import SystemClock
from iteration_lib.config import Settings
from iteration_lib.coordinator import Coordinator
from iteration_lib.engine import Engine, EngineKind
from iteration_lib.errors import OperatorFailedError
from iteration_lib.launch import Drive, Request, drive_run, open_run, read_outputs
from iteration_lib.process import this_holder
from iteration_lib.protocol import Command
from iteration_lib.protocol.command import RecordCommittables
from iteration_lib.protocol.event import Committable
from iteration_lib.store.memory import MemoryStore
from iteration_lib.store.opening import find_run
from iteration_lib.store.record import RunRecord
from tests.protocol_script import claim

MODULE = "planned_by_a_test"
KEY = "planned"

# `moved` fails in epoch 1 while the file `broken` is there.
SOURCE = """
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from iteration_lib import Iteration, parquet, records


@dataclass(frozen=True)
class Params:
    input: str
    broken: str
    max_epochs: int = 3


planned = Iteration("planned", params=Params)


@planned.data
def points(params):
    return parquet(params.input, columns=["x"])


@planned.data
def made():
    return records(y=[1.0, 2.0, 3.0, 4.0])


@planned.map_buckets(finishes=True)
def scaled(points, made):
    return {"at": points["x"] * 2.0 + made["y"].sum()}


@planned.variable
def centre():
    return {"at": np.zeros(1)}


@planned.map_buckets
def sums(scaled, centre):
    return {"sum": np.array([scaled["at"].sum() - centre["at"][0]])}


@planned.operator
def moved(sums, params, epoch):
    if epoch == 1 and Path(params.broken).exists():
        raise RuntimeError("broken")
    return {"at": sums["sum"].sum(keepdims=True)}


planned.feedback(centre=moved)
"""


@dataclass(frozen=True, slots=True)
class InMemory:
    """A store in memory, a folder for everything else, and the text of the iteration."""

    folder: Path
    store: MemoryStore = field(default_factory=lambda: MemoryStore(SystemClock()))

    @classmethod
    def begin(cls, folder: Path, source: str = SOURCE) -> InMemory:
        """Write the iteration and what it reads, and make the run; modules of the folder have to be importable."""
        made = cls(folder)
        made.write_input()
        made.write_iteration(source)
        made.open()
        return made

    @property
    def input(self) -> Path:
        """The file that the data stream `points` reads."""
        return self.folder / "points.parquet"

    @property
    def state(self) -> Path:
        """The folder of the run's files."""
        return self.folder / "state" / self.run.run_id

    @property
    def run(self) -> RunRecord:
        """The run as it is now."""
        return find_run(self.store, KEY)

    def write_input(self, rows: int = 8) -> None:
        """Write what the data stream reads."""
        pq.write_table(pa.table({"x": [float(row) for row in range(rows)]}), self.input)

    def write_iteration(self, source: str = SOURCE) -> None:
        """Write the module of the iteration, as if somebody had edited it."""
        (self.folder / f"{MODULE}.py").write_text(source)
        # else Python takes the bytecode of the file before for it, where both are as long and of the same second
        shutil.rmtree(self.folder / "__pycache__", ignore_errors=True)
        sys.modules.pop(MODULE, None)
        importlib.invalidate_caches()

    def open(self, *, checkpointing: Mapping[str, object] | None = None, **params: object) -> RunRecord:
        """Make the run, if it is not there yet."""
        request = Request(
            reference=f"{MODULE}:planned",
            run_key=KEY,
            params={"input": str(self.input), "broken": str(self.folder / "broken"), **params},
            max_buckets=4,
            checkpointing=checkpointing or {},
        )
        return open_run(self.store, self._settings, request)

    def drive(self, *, alignment_timeout_seconds: float | None = 0.0, **options: Any) -> RunRecord:
        """Drive the run to its end, or as far as the fields of Drive say."""
        drive = Drive(
            holder=this_holder(),
            open_runner=Engine(kind=EngineKind.LOCAL).open_runner,
            parallelism=2,
            checkpointing={"alignment_timeout_seconds": alignment_timeout_seconds},
        )
        return drive_run(self.store, self._settings, self.run, dataclasses.replace(drive, **options))

    def drive_until_broken(self, *, alignment_timeout_seconds: float | None = 0.0) -> None:
        """Drive the run until `moved` fails in epoch 1; by then the edge of `sums` is durable, unless there is none."""
        (self.folder / "broken").touch()
        try:
            self.drive(alignment_timeout_seconds=alignment_timeout_seconds)
        except OperatorFailedError:
            return
        raise AssertionError("nothing failed")

    def write_as_it_was_driven(self, *commands: Command) -> None:
        """Write what the last attempt might have written before it ended."""
        rows, token = self.store._runs[self.run.run_id], self.run.fencing_token
        attempt = rows.attempts[token]
        ended = {name: attempt[name] for name in ("ended_at", "outcome")}
        attempt.update(dict.fromkeys(ended))
        with self.store.transaction(self.run.run_id) as transaction:
            transaction.write(commands, token)
        self.store._runs[self.run.run_id].attempts[token].update(ended)

    def store_as_it_was_driven(self, committable: Committable) -> None:
        """Store what the last attempt might have prepared of an output that had a sink then."""
        row = self.store._runs[self.run.run_id].run
        definition = row["definition"]
        row["definition"] = {**definition, "sinks": {committable.output: True}}
        self.write_as_it_was_driven(RecordCommittables(committables=(committable,)))
        self.store._runs[self.run.run_id].run["definition"] = definition

    def be_killed(self) -> None:
        """Have an attempt open whose process is gone."""
        gone = dataclasses.replace(this_holder(), process_started=this_holder().process_started + "0")
        Coordinator(self.store).apply(self.run.run_id, dataclasses.replace(claim(), holder=gone))

    def mend(self) -> None:
        """Let `moved` fail no more."""
        (self.folder / "broken").unlink()

    def outputs(self) -> dict[str, pa.Table]:
        """Return what the run has published."""
        return read_outputs(self.store, self.run)

    def all_files(self) -> dict[str, bytes]:
        """Return every file of the test and what is in it, compiled modules aside."""
        found = (path for path in self.folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in found}

    @property
    def _settings(self) -> Settings:
        return Settings(store_url=None, state_uri=str(self.folder / "state"))
