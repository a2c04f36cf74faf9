"""How does a person ask for a checkpoint, from another process, and find the one that answers?

The driver hears of the request at the boundary of its epoch. Nobody waits here: whoever asked looks again.
"""

from __future__ import annotations

import uuid

from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import IterationError
from iteration_lib.protocol.event import CheckpointRequested
from iteration_lib.protocol.status import CheckpointStatus
from iteration_lib.store.record import CheckpointRecord, RequestRecord, RunRecord
from iteration_lib.store.seam import History, StoreWithHistory


def request_checkpoint(store: StoreWithHistory, run: RunRecord, *, by: str, request_id: str | None = None) -> str:
    """Ask for a checkpoint of the next epoch that aligns, and return the request's id; the same id asks once.

    Raises RunFinishedError, RunStoppedError or RunDeletedError for a run of which no epoch aligns any more.
    """
    asked = request_id or str(uuid.uuid4())
    if _find_request(store, run, asked) is None:
        Coordinator(store).apply(run.run_id, CheckpointRequested(request_id=asked, requested_by=by))
    return asked


def find_answer(store: History, run: RunRecord, request_id: str) -> CheckpointRecord | None:
    """Return the checkpoint that a request got, which may be pending; None before it was begun.

    None, too, where the store's server has crashed since the request was read, and lost that it was begun.

    Raises IterationError where it was aborted.
    """
    asked = _find_request(store, run, request_id)
    if asked is None or asked.checkpoint_id is None:
        return None
    found = next(iter(store.list_checkpoints(run.run_id, [asked.checkpoint_id])), None)
    if found is not None and found.status is CheckpointStatus.ABORTED:
        raise IterationError(f"checkpoint {found.checkpoint_id} was aborted: {found.reason}; ask for another one")
    return found


def _find_request(store: History, run: RunRecord, request_id: str) -> RequestRecord | None:
    return next((known for known in store.list_requests(run.run_id) if known.request_id == request_id), None)
