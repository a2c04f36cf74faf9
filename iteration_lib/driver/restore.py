"""How is the completed checkpoint read back?"""

from __future__ import annotations

from collections.abc import Mapping

from iteration_lib.driver.context import RunContext
from iteration_lib.driver.streams import Streams
from iteration_lib.errors import ProtocolViolationError, RunDeletedError, StateCorruptedError
from iteration_lib.model.graph import Graph
from iteration_lib.model.operator import Operator
from iteration_lib.protocol.status import RunStatus
from iteration_lib.runner.seam import Stream
from iteration_lib.state.files import read_bytes
from iteration_lib.state.location import StateLocation
from iteration_lib.state.manifest import Manifest
from iteration_lib.state.saved import SavedStream
from iteration_lib.store.record import CheckpointRecord, Origin, RunRecord
from iteration_lib.store.seam import History


def restore_carried(context: RunContext, streams: Streams, manifest: Manifest) -> dict[str, Stream]:
    """Return the variables and states of a checkpoint, every file verified; raises StateCorruptedError.

    An operator that is new since then begins to carry a state with none, also where the checkpoint holds one of another
    operator that had its id.
    """
    restored: dict[str, Stream] = {}
    for name in (*context.graph.feedback, *context.graph.states):
        operator = context.graph.operator(name)
        saved = find_carried(manifest, operator)
        if saved is not None:
            restored[name] = context.runner.restore(saved)
        elif name in context.graph.states:
            restored[name] = streams.first_value(operator)
        else:
            raise StateCorruptedError(f"of checkpoint {manifest.checkpoint_id}", f"holds no variable {name!r}")
    return restored


def read_completed_manifest(store: History, run: RunRecord, location: StateLocation) -> Manifest:
    """Return the manifest of the run's completed checkpoint; raises StateCorruptedError that names the file.

    Raises RunDeletedError where somebody has deleted the run, and with it all of its checkpoints.
    """
    record = store.find_completed(run.run_id)
    if record is None or record.manifest_path is None or record.manifest_sha256 is None:
        now = store.find_run(run.run_id)
        if now is not None and now.status is RunStatus.DELETED:
            raise RunDeletedError(run.run_id)
        raise ProtocolViolationError(f"run {run.run_id} has no completed checkpoint; this is a bug, please report it")
    return read_manifest(location, record)


def read_manifest(location: StateLocation, checkpoint: CheckpointRecord) -> Manifest:
    """Return the manifest of a checkpoint that was completed; raises StateCorruptedError that names the file."""
    path = str(checkpoint.manifest_path)
    return Manifest.from_bytes(read_bytes(location, path, sha256=str(checkpoint.manifest_sha256)), path=path)


def read_origin_manifest(origin: Origin) -> Manifest:
    """Return the manifest of the checkpoint that a branch started from; raises StateCorruptedError that names it."""
    content = read_bytes(StateLocation(origin.uri), origin.manifest_path, sha256=origin.manifest_sha256)
    return Manifest.from_bytes(content, path=origin.manifest_path)


def carried_streams(graph: Graph, manifest: Manifest) -> tuple[SavedStream, ...]:
    """Return what a graph's variables and states begin with, as far as a checkpoint holds it."""
    found = (find_carried(manifest, graph.operator(name)) for name in (*graph.feedback, *graph.states))
    return tuple(saved for saved in found if saved is not None)


def find_carried(manifest: Manifest, operator: Operator) -> SavedStream | None:
    """Return a carried stream by its operator's id; the first manifests named variables by their names."""
    carried: Mapping[str, SavedStream] = {**manifest.variables, **manifest.states}
    return carried.get(name_in(manifest, operator))


def name_in(manifest: Manifest, operator: Operator) -> str:
    """Return what a manifest calls an operator."""
    return operator.name if manifest.format_version == 1 else operator.operator_id
