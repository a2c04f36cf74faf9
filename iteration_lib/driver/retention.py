"""What goes when a checkpoint is completed? What the policy lets go, row first, then its files, one removal at a time.

The files of the discarded checkpoint's carried streams lie in folders of their epoch, which no other checkpoint names;
what finished operators and pins left is needed by rows of their own, and stays. Whatever cannot be removed now, or was
not because the process died in between, is named by nothing that counts: `iteration gc` finds it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from iteration_lib.crash_point import CrashPoint
from iteration_lib.driver.restore import read_manifest
from iteration_lib.errors import IterationError

if TYPE_CHECKING:
    from iteration_lib.driver.context import RunContext
    from iteration_lib.store.record import CheckpointRecord

_logger = logging.getLogger(__name__)


class Retention:
    """What one attempt lets go beside its epochs."""

    def __init__(self, context: RunContext) -> None:
        """Discard by the policy of the attempt."""
        self._context = context
        self._lock = context.background.lock()
        self._is_removing = False
        self._is_asked = False

    def discard(self) -> None:
        """Discard what the policy does not keep; where that is going on, it is left to whoever does it, behind it.

        So a store of files that removes slowly has one removal at work, however many checkpoints are completed.
        """
        if not self._context.policy.discards:
            return
        with self._lock:
            self._is_asked = True
            if self._is_removing:
                return
            self._is_removing = True
        while self._goes_on():
            _discard_checkpoints(self._context)

    def _goes_on(self) -> bool:
        with self._lock:
            self._is_removing, self._is_asked = self._is_asked, False
            return self._is_removing


def _discard_checkpoints(context: RunContext) -> None:
    """Discard checkpoints; no error of it is worth the attempt."""
    run_id = context.run.run_id
    try:
        attempt = context.attempt
        discarded = attempt.coordinator.discard(run_id, context.policy, attempt_id=attempt.attempt_id)
        context.crash_plan.reach(CrashPoint.CHECKPOINTS_DISCARDED)
        for checkpoint in context.store.list_checkpoints(run_id, discarded):
            _remove_files(context, checkpoint)
    except IterationError as err:
        _logger.warning("event=not_discarded run_id=%s error=%s", run_id, err)


def _remove_files(context: RunContext, checkpoint: CheckpointRecord) -> None:
    """Remove what a checkpoint alone names, its manifest last: without it nobody would find the rest by it."""
    manifest = read_manifest(context.location, checkpoint)
    for stream in (*manifest.variables.values(), *manifest.states.values()):
        for file in stream.files:
            context.location.remove(file.path)
    context.location.remove(str(checkpoint.manifest_path))
    _logger.info("event=checkpoint_discarded run_id=%s checkpoint_id=%s", manifest.run_id, checkpoint.checkpoint_id)
