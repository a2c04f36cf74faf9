"""Where do tests find checkpoints that other code wrote, and how is one made with the code of today?"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from iteration_lib.clock import SystemClock
from iteration_lib.config import Settings
from iteration_lib.engine import Engine, EngineKind
from iteration_lib.launch import Drive, Request, drive_run, find_run, open_run
from iteration_lib.process import this_holder
from iteration_lib.runner.pins import pinned_from_json
from iteration_lib.savepoint import Savepoint
from iteration_lib.state.files import read_bytes
from iteration_lib.state.location import StateLocation
from iteration_lib.state.manifest import Manifest
from iteration_lib.store.memory import MemoryStore
from iteration_lib.store.record import RunRecord

KEPT = Path(__file__).parent / "checkpoints"
VERSIONS = (1, 2)
REFERENCE = "tests.iterations.kept:kept"
KEY = "kept"


def kept_run(version: int) -> Path:
    """Return the run's folder whose checkpoints 2 (of epoch 1) and 3 (the final one) are of a version."""
    return KEPT / f"version_{version}"


def kept_manifest(version: int, checkpoint_id: int) -> Path:
    """Return a manifest of a version."""
    (found,) = kept_run(version).glob(f"*/checkpoint-{checkpoint_id:06d}.json")
    return found


@dataclass(frozen=True, slots=True)
class FreshRun:
    """A run of an iteration by the code of today, in a folder of the test's own."""

    store: MemoryStore
    folder: Path

    @classmethod
    def begin(cls, folder: Path, *, reference: str = REFERENCE) -> FreshRun:
        """Make the run; nobody has driven it."""
        made = cls(MemoryStore(SystemClock()), folder)
        open_run(made.store, made._settings, Request(reference=reference, run_key=KEY, max_buckets=3))
        return made

    @property
    def run(self) -> RunRecord:
        """The run as it is now."""
        return find_run(self.store, KEY)

    @property
    def location(self) -> StateLocation:
        """Where its files lie."""
        return StateLocation(self.run.state_uri).below(self.run.run_id)

    def drive(self, *, until_epoch: int | None = None) -> RunRecord:
        """Drive it, to the end or up to an epoch."""
        drive = Drive(
            holder=this_holder(),
            open_runner=Engine(kind=EngineKind.LOCAL).open_runner,
            parallelism=2,
            until_epoch=until_epoch,
        )
        return drive_run(self.store, self._settings, self.run, drive)

    def manifest_path(self, checkpoint_id: int) -> Path:
        """Return where a checkpoint's manifest lies."""
        found = self.store.list_checkpoints(self.run.run_id)[checkpoint_id - 1]
        return Path(self.location.path(str(found.manifest_path)))

    def checkpoint(self, checkpoint_id: int) -> Savepoint:
        """Return a checkpoint as it lies in the run's folder, with all that a savepoint says of it."""
        record = self.store.list_checkpoints(self.run.run_id)[checkpoint_id - 1]
        path = str(record.manifest_path)
        content = read_bytes(self.location, path, sha256=str(record.manifest_sha256))
        return Savepoint(
            location=self.location,
            manifest=Manifest.from_bytes(content, path=path),
            definition=self.run.definition,
            params=self.run.params,
            pins={pin.name: pinned_from_json(pin.pin) for pin in self.store.list_pins(self.run.run_id)},
        )

    def go_on_from(self, version: int) -> None:
        """Put a checkpoint that other code wrote, of the same epoch, in the place of the completed one."""
        own, other = self.manifest_path(2), kept_manifest(version, 2)
        shutil.rmtree(own.parent / "epoch-000001")
        shutil.copytree(kept_run(version), self.location.uri, dirs_exist_ok=True)
        self.store._runs[self.run.run_id].checkpoints[2].update(
            manifest_path=f"{other.parent.name}/{other.name}",
            manifest_sha256=hashlib.sha256(other.read_bytes()).hexdigest(),
        )

    @property
    def _settings(self) -> Settings:
        return Settings(store_url=None, state_uri=str(self.folder / "state"))
