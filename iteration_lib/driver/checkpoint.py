"""How is a checkpoint's manifest written?"""

from __future__ import annotations

from collections.abc import Mapping

from iteration_lib.driver.context import RunContext
from iteration_lib.driver.epoch import EpochResult
from iteration_lib.driver.streams import Streams
from iteration_lib.protocol import RunState
from iteration_lib.protocol.event import CheckpointAcknowledged
from iteration_lib.state.files import write_bytes
from iteration_lib.state.manifest import Manifest
from iteration_lib.state.saved import SavedStream


def write_manifest(
    context: RunContext, state: RunState, result: EpochResult, streams: Streams, outputs: Mapping[str, SavedStream]
) -> CheckpointAcknowledged:
    """Write the pending checkpoint's manifest and return what completes it."""
    attempt, run = context.attempt, context.run
    checkpoint = next(known for known in state.pending if known.epoch == result.epoch)
    finished = {
        operator.operator_id: streams.finished[operator.name]
        for operator in context.graph.operators
        if operator.name in streams.finished
    }
    manifest = Manifest(
        run_id=run.run_id,
        run_key=run.run_key,
        reference=run.reference,
        checkpoint_id=checkpoint.checkpoint_id,
        epoch=result.epoch,
        fencing_token=attempt.fencing_token,
        max_buckets=run.max_buckets,
        variables=result.saved,
        finished=finished,
        operators={
            operator.operator_id: "FINISHED" if outputs or operator.operator_id in finished else "RUNNING"
            for operator in context.graph.operators
        },
        outputs=outputs,
    )
    path = f"{attempt.folder}/checkpoint-{checkpoint.checkpoint_id:06d}.json"
    sha256 = write_bytes(context.location, path, manifest.to_bytes()).sha256
    return CheckpointAcknowledged(
        **attempt.guard,
        checkpoint_id=checkpoint.checkpoint_id,
        acknowledgements={known.name: tuple(range(known.expected)) for known in checkpoint.participants},
        manifest_path=path,
        manifest_sha256=sha256,
        size_bytes=manifest.size_bytes,
    )
