"""Where do tests find checkpoints that other code wrote, and how is one made with the code of today?"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from iteration_lib.clock import SystemClock
from iteration_lib.config import Settings
from iteration_lib.driver.context import Observer, Silent
from iteration_lib.engine import Engine, EngineKind
from iteration_lib.launch import Drive, Request, RunnerFactory, drive_run, open_run
from iteration_lib.process import this_holder
from iteration_lib.savepoint import Savepoint, checkpoint_of
from iteration_lib.state.location import StateLocation
from iteration_lib.store.memory import MemoryStore
from iteration_lib.store.opening import find_run
from iteration_lib.store.record import RunRecord

KEPT = Path(__file__).parent / "checkpoints"
VERSIONS = (1, 2)
REFERENCE = "tests.iterations.kept:kept"
CARRYING = "tests.iterations.kept:carrying"
KEY = "kept"


def kept_run(version: int, reference: str = REFERENCE) -> Path:
    """Return the run's folder whose checkpoints 2 (of epoch 1) and 3 (the final one) are of a version."""
    return KEPT / (f"version_{version}_carrying" if reference == CARRYING else f"version_{version}")


def kept_manifest(version: int, checkpoint_id: int, reference: str = REFERENCE) -> Path:
    """Return a manifest of a version."""
    (found,) = kept_run(version, reference).glob(f"*/checkpoint-{checkpoint_id:06d}.json")
    return found


@dataclass(frozen=True, slots=True)
class FreshRun:
    """A run of an iteration by the code of today, in a folder of the test's own, or wherever its state goes."""

    store: MemoryStore
    folder: Path
    state_uri: str | None = None

    @classmethod
    def begin(
        cls, folder: Path, *, reference: str = REFERENCE, state_uri: str | None = None, **params: object
    ) -> FreshRun:
        """Make the run; nobody has driven it."""
        made = cls(MemoryStore(SystemClock()), folder, state_uri)
        open_run(made.store, made._settings, Request(reference=reference, run_key=KEY, max_buckets=3, params=params))
        return made

    @property
    def run(self) -> RunRecord:
        """The run as it is now."""
        return find_run(self.store, KEY)

    @property
    def location(self) -> StateLocation:
        """Where its files lie."""
        return StateLocation(self.run.state_uri).below(self.run.run_id)

    def drive(
        self,
        *,
        until_epoch: int | None = None,
        open_runner: RunnerFactory | None = None,
        observer: Observer | None = None,
    ) -> RunRecord:
        """Drive it in plain Python, or on another runner, to the end or up to an epoch."""
        drive = Drive(
            holder=this_holder(),
            open_runner=open_runner or Engine(kind=EngineKind.LOCAL).open_runner,
            parallelism=2,
            until_epoch=until_epoch,
            observer=observer or Silent(),
        )
        return drive_run(self.store, self._settings, self.run, drive)

    def manifest_path(self, checkpoint_id: int) -> Path:
        """Return where a checkpoint's manifest lies."""
        found = self.store.list_checkpoints(self.run.run_id)[checkpoint_id - 1]
        return Path(self.location.path(str(found.manifest_path)))

    def checkpoint(self, checkpoint_id: int) -> Savepoint:
        """Return a checkpoint as it lies in the run's folder, with all that a savepoint says of it."""
        return checkpoint_of(self.store, self.run, self.store.list_checkpoints(self.run.run_id)[checkpoint_id - 1])

    def go_on_from(self, folder: Path, manifest: str) -> None:
        """Put the files of another run, and its checkpoint of epoch 1, in the place of all that lies in the folder."""
        shutil.rmtree(self.location.uri)
        shutil.copytree(folder, self.location.uri)
        content = (folder / manifest).read_bytes()
        rows = self.store._runs[self.run.run_id]
        rows.checkpoints[2].update(manifest_path=manifest, manifest_sha256=hashlib.sha256(content).hexdigest())
        for operator_id, stream in json.loads(content)["finished"].items():
            rows.operators[operator_id]["output"] = stream

    def pin(self, savepoint: Savepoint) -> None:
        """Read what a savepoint says that data streams read."""
        rows = self.store._runs[self.run.run_id]
        for name, pin in savepoint.pins.items():
            rows.pins[name].update(fingerprint=pin.fingerprint, pin=dataclasses.asdict(pin))

    @property
    def _settings(self) -> Settings:
        return Settings(store_url=None, state_uri=self.state_uri or str(self.folder / "state"))
