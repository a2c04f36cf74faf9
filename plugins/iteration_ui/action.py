"""What may a viewer have done to a run from its page? Each action says in a sentence what has become of it.

Nothing here waits for a run: what its driver has to do is asked of it, and the page shows when it is done.
"""

from __future__ import annotations

from contextlib import suppress

from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import RunFinishedError, RunStoppedError
from iteration_lib.protocol.event import CheckpointReleased
from iteration_lib.protocol.status import CheckpointStatus, RunStatus, StopKind
from iteration_lib.requesting import find_answer, request_checkpoint
from iteration_lib.saving import Saved, save_run
from iteration_lib.stopping import is_driven, request_stop, resume_run
from iteration_lib.store.record import RunRecord
from iteration_lib.store.seam import StoreWithHistory


def stop(store: StoreWithHistory, run: RunRecord, *, by: str) -> str:
    """Ask a run to stop after the epoch in progress; one that nobody drives is stopped at once."""
    asked = request_stop(store, run, kind=StopKind.STOP, by=by)
    found = store.find_run(run.run_id) or run
    if found.status is RunStatus.STOPPED:
        return f"The run is stopped; {found.epochs} epochs are durable. Resume lets it go on."
    return f"The run stops after the epoch in progress, as {asked.requested_by} has asked."


def resume(store: StoreWithHistory, run: RunRecord, *, by: str) -> str:
    """Let a stopped run go on."""
    found = resume_run(store, run, by=by)
    return f"The run may go on with epoch {found.epochs}: clear the skipped tasks of its DAG run."


def checkpoint(store: StoreWithHistory, run: RunRecord, *, by: str) -> str:
    """Ask for a checkpoint of the next epoch that aligns."""
    request_checkpoint(store, run, by=by)
    when = "" if is_driven(store, run) else ", once somebody drives the run"
    return f"The next epoch that aligns gets a checkpoint{when}."


def savepoint_now(store: StoreWithHistory, run: RunRecord, *, by: str, request_id: str) -> str | None:
    """Copy a checkpoint of the next epoch that aligns, or the newest one of a run that nobody drives.

    None while that checkpoint is not complete: call again, with the same `request_id`.
    """
    checkpoint_id = None
    if is_driven(store, run):
        with suppress(RunFinishedError, RunStoppedError):  # it goes no further: its newest one is its last
            request_checkpoint(store, run, by=by, request_id=request_id)
            answer = find_answer(store, run, request_id)
            if answer is None or answer.status is CheckpointStatus.PENDING:
                return None
            checkpoint_id = answer.checkpoint_id
    return _say(save_run(store, run, checkpoint_id=checkpoint_id, or_newest=True))


def savepoint(store: StoreWithHistory, run: RunRecord, checkpoint_id: int) -> str:
    """Copy a checkpoint to a folder of its own, which nothing here ever removes."""
    return _say(save_run(store, run, checkpoint_id=checkpoint_id))


def _say(saved: Saved) -> str:
    return f"Checkpoint {saved.checkpoint.checkpoint_id} is saved in {saved.savepoint.location.uri}"


def pin(store: StoreWithHistory, run: RunRecord, checkpoint_id: int, *, by: str) -> str:
    """Keep a checkpoint, whatever retention lets go."""
    Coordinator(store).pin(run.run_id, checkpoint_id, pinned_by=by)
    return f"Checkpoint {checkpoint_id} is kept until somebody releases it."


def release(store: StoreWithHistory, run: RunRecord, checkpoint_id: int) -> str:
    """Let a checkpoint go that was pinned."""
    Coordinator(store).apply(run.run_id, CheckpointReleased(checkpoint_id=checkpoint_id))
    return f"Checkpoint {checkpoint_id} is released: retention decides on it again."
