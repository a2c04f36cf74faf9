"""What does a checkpoint consist of, and how is its manifest written?

The synchronous part, at the boundary of an epoch, pins references: a Snapshot. What executors hold is in files by then;
what the driver holds is written by the asynchronous part, before the manifest that names it all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from iteration_lib.driver.context import RunContext
from iteration_lib.driver.epoch import EpochResult
from iteration_lib.driver.sinks import Key
from iteration_lib.model.operator import Kind
from iteration_lib.protocol.event import CheckpointAcknowledged
from iteration_lib.protocol.state import CheckpointState
from iteration_lib.protocol.status import OperatorStatus
from iteration_lib.runner.seam import Stream
from iteration_lib.state.files import write_bytes
from iteration_lib.state.manifest import Manifest
from iteration_lib.state.saved import SavedStream


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A pending checkpoint, as the next epoch may not change it any more.

    By the names of variables, `saved` holds the carried streams that are in files, `unsaved` those that the driver
    still has to write. `finished` holds the operators that finished for good, by name. `written` are the files of what
    epochs that are not durable publish through sinks, by epoch and output.
    """

    checkpoint_id: int
    epoch: int
    participants: Mapping[str, int]
    saved: Mapping[str, SavedStream]
    unsaved: Mapping[str, Stream]
    finished: Mapping[str, SavedStream]
    outputs: Mapping[str, SavedStream]
    written: Mapping[Key, SavedStream]


def take_snapshot(
    context: RunContext,
    checkpoint: CheckpointState,
    result: EpochResult,
    *,
    finished: Mapping[str, SavedStream],
    outputs: Mapping[str, SavedStream],
    written: Mapping[Key, SavedStream],
) -> Snapshot:
    """Pin what a checkpoint consists of; what executors hold and have not written yet is written now."""
    saved = dict(result.saved)
    unsaved: dict[str, Stream] = {}
    for variable, stream in result.variables.items():
        if variable in saved:
            continue
        if stream.kind is Kind.VALUE:
            unsaved[variable] = stream
        else:
            saved[variable] = _save(context, variable, stream, epoch=result.epoch)
    return Snapshot(
        checkpoint_id=checkpoint.checkpoint_id,
        epoch=checkpoint.epoch,
        participants={known.name: known.expected for known in checkpoint.participants},
        saved=saved,
        unsaved=unsaved,
        finished=dict(finished),
        outputs=dict(outputs),
        written=dict(written),
    )


def write_manifest(context: RunContext, snapshot: Snapshot) -> CheckpointAcknowledged:
    """Write what the driver holds, then the manifest, and return what completes the checkpoint."""
    graph, run = context.graph, context.run
    written = {name: _save(context, name, stream, epoch=snapshot.epoch) for name, stream in snapshot.unsaved.items()}
    carried = {**snapshot.saved, **written}
    is_finished = {
        operator.operator_id: bool(snapshot.outputs) or operator.name in snapshot.finished
        for operator in graph.operators
    }
    manifest = Manifest(
        run_id=run.run_id,
        run_key=run.run_key,
        reference=run.reference,
        checkpoint_id=snapshot.checkpoint_id,
        epoch=snapshot.epoch,
        fencing_token=context.attempt.fencing_token,
        max_buckets=run.max_buckets,
        variables={graph.operator(name).operator_id: carried[name] for name in graph.feedback},
        states={graph.operator(name).operator_id: carried[name] for name in graph.states},
        finished={graph.operator(name).operator_id: saved for name, saved in snapshot.finished.items()},
        operators={
            operator_id: (OperatorStatus.FINISHED if finished else OperatorStatus.RUNNING).value
            for operator_id, finished in is_finished.items()
        },
        outputs=snapshot.outputs,
    )
    path = f"{context.attempt.folder}/checkpoint-{snapshot.checkpoint_id:06d}.json"
    sha256 = write_bytes(context.location, path, manifest.to_bytes()).sha256
    return CheckpointAcknowledged(
        **context.attempt.guard,
        checkpoint_id=snapshot.checkpoint_id,
        acknowledgements={name: tuple(range(count)) for name, count in snapshot.participants.items()},
        manifest_path=path,
        manifest_sha256=sha256,
        size_bytes=manifest.size_bytes,
    )


def _save(context: RunContext, variable: str, stream: Stream, *, epoch: int) -> SavedStream:
    """Write a carried stream into the folder of its tail's epoch."""
    written = context.runner.materialise(stream, folder=context.epoch_folder(context.tail(variable), epoch)).saved
    return cast("SavedStream", written)  # a folder was given
