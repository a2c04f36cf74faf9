"""Which outputs of durable epochs do their sinks not show yet? Told to whoever lets a run rest, or go."""

from __future__ import annotations

from iteration_lib.store.record import RunRecord
from iteration_lib.store.seam import History


def waiting_outputs(store: History, run: RunRecord) -> str:
    """Name what is stored and not committed, in half a sentence; nothing where there is nothing."""
    waiting = [f"{known.output!r} of epoch {known.epoch}" for known in store.list_uncommitted(run.run_id)]
    if not waiting:
        return ""
    more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
    return f"output {waiting[0]}{more} is not committed to its sink"
