"""How is the completed checkpoint read back?"""

from __future__ import annotations

from iteration_lib.driver.context import RunContext
from iteration_lib.errors import ProtocolViolationError, StateCorruptedError
from iteration_lib.protocol.status import CheckpointStatus
from iteration_lib.runner.seam import Stream
from iteration_lib.state.files import read_bytes
from iteration_lib.state.location import StateLocation
from iteration_lib.state.manifest import Manifest
from iteration_lib.store.record import RunRecord
from iteration_lib.store.seam import History


def restore_variables(context: RunContext) -> dict[str, Stream]:
    """Return the variables of the completed checkpoint, every file verified; raises StateCorruptedError."""
    manifest = read_completed_manifest(context.store, context.run, context.location)
    missing = [name for name in context.graph.feedback if name not in manifest.variables]
    if missing:
        raise StateCorruptedError(f"of checkpoint {manifest.checkpoint_id}", f"holds no variable {missing[0]!r}")
    return {name: context.runner.restore(manifest.variables[name]) for name in context.graph.feedback}


def read_completed_manifest(store: History, run: RunRecord, location: StateLocation) -> Manifest:
    """Return the manifest of the run's completed checkpoint; raises StateCorruptedError that names the file."""
    for record in store.list_checkpoints(run.run_id):
        if record.status is not CheckpointStatus.COMPLETED:
            continue
        if record.manifest_path is not None and record.manifest_sha256 is not None:
            content = read_bytes(location, record.manifest_path, sha256=record.manifest_sha256)
            return Manifest.from_bytes(content, path=record.manifest_path)
    raise ProtocolViolationError(f"run {run.run_id} has no completed checkpoint; this is a bug, please report it")
