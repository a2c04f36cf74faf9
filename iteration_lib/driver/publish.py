"""How do the outputs of a terminating run become public? By one pointer, written last. Starts no Spark.

The last epoch's attempt has written the outputs' files and named them in the FINAL checkpoint's manifest. Publishing
checks them, removes what failed Spark tasks left beside them, writes the pointer `outputs.json` into the run's folder,
calls the listeners of the end and then marks the run FINISHED. Each step may be repeated.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import PurePosixPath
from typing import cast

from iteration_lib.crash_point import CrashPoint
from iteration_lib.driver.context import RunContext
from iteration_lib.driver.listener import Listeners
from iteration_lib.driver.restore import read_completed_manifest
from iteration_lib.driver.sinks import Sinks
from iteration_lib.errors import StateCorruptedError
from iteration_lib.protocol import RunState
from iteration_lib.protocol.event import OutputsPublished
from iteration_lib.protocol.status import RunStatus
from iteration_lib.runner.seam import Stream
from iteration_lib.state.digest import state_digest
from iteration_lib.state.files import verify_file, write_bytes
from iteration_lib.state.location import StateLocation
from iteration_lib.state.manifest import Manifest
from iteration_lib.state.saved import FileFormat, SavedStream
from iteration_lib.state.streams import save_no_rows

POINTER = "outputs.json"


def write_output(context: RunContext, output: str, stream: Stream, *, epoch: int) -> SavedStream:
    """Write one output of an epoch as Parquet files that readers, or sinks, may have.

    One without rows gets a file too, so that readers find its folder and its columns.
    """
    folder = f"outputs/{output}/{context.attempt.folder}-epoch-{epoch:06d}"
    written = context.runner.materialise(stream, folder=folder, file_format=FileFormat.PARQUET).saved
    saved = cast("SavedStream", written)  # a folder was given
    return saved if saved.files else replace(saved, files=(save_no_rows(context.location, saved, folder),))


def publish_outputs(context: RunContext, state: RunState) -> RunState:
    """Publish the outputs of a run that is TERMINATING; a run in any other status is left as it is."""
    if state.status is not RunStatus.TERMINATING:
        return state
    state = Sinks(context).commit(state)
    manifest = read_completed_manifest(context.store, context.run, context.location)
    folders = {output: _checked_folder(context.location, saved) for output, saved in manifest.outputs.items()}
    _write_pointer(context.location, pointer_to(manifest))
    context.crash_plan.reach(CrashPoint.POINTER_WRITTEN)
    terminated = Listeners(context).notify_terminated(state)
    context.attempt.heartbeat.stop()
    state = context.attempt.apply(
        *terminated,
        OutputsPublished(
            **context.attempt.guard,
            outputs={output: context.location.path(folder) for output, folder in folders.items()},
            state_digest=state_digest(manifest.outputs),
        ),
    )
    context.crash_plan.reach(CrashPoint.RUN_FINISHED)
    return state


def pointer_to(manifest: Manifest) -> bytes:
    """Return the pointer to the outputs of a final checkpoint: these bytes and no others."""
    pointer = {
        "run_id": manifest.run_id,
        "run_key": manifest.run_key,
        "checkpoint_id": manifest.checkpoint_id,
        "epoch": manifest.epoch,
        "outputs": {output: folder_of(saved) for output, saved in manifest.outputs.items()},
        "state_digest": state_digest(manifest.outputs),
    }
    return json.dumps(pointer, indent=1, sort_keys=True).encode()


def folder_of(saved: SavedStream) -> str:
    """Return the folder of a published stream, which holds its files and no others."""
    return str(PurePosixPath(saved.files[0].path).parent)


def _checked_folder(location: StateLocation, saved: SavedStream) -> str:
    """Return an output's folder, after it holds the files of the manifest and no others."""
    for file in saved.files:
        verify_file(location, file.path, size_bytes=file.size_bytes, sha256=file.sha256)
    folder = folder_of(saved)
    named = {file.path for file in saved.files}
    for stray in location.list_files(folder):
        if stray not in named:
            location.remove(stray)
    return folder


def _write_pointer(location: StateLocation, content: bytes) -> None:
    """Write the pointer, unless it is there: the final checkpoint leaves only one content, whoever writes it.

    So an attempt that was superseded may write it at the same time, and one that crashed may have torn it.
    """
    try:
        verify_file(location, POINTER, size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    except StateCorruptedError:
        write_bytes(location, POINTER, content, replaces=True)
