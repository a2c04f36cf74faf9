"""What do attempts leave behind that nothing names, and who removes it? The next attempt.

Only what lies in the scratch folders of attempts that have ended is removed: no manifest and no edge ever names a file
there, so whatever an ended attempt still writes is garbage, and is removed by the next sweep.
"""

from __future__ import annotations

import logging

from iteration_lib.driver.attempt import attempt_folder
from iteration_lib.driver.context import RunContext
from iteration_lib.errors import StateLocationError

_logger = logging.getLogger(__name__)

RUNNER_SCRATCH = "scratch"
FRESH_STATE = "fresh"


def sweep_scratch(context: RunContext) -> None:
    """Remove the scratch folders of attempts that were cut short; what cannot be removed now is left to the next.

    Any other has removed its own, or has said in the log what it could not remove.
    """
    for attempt in context.store.list_attempts(context.run.run_id):
        if not attempt.was_cut_short:
            continue
        for name in (RUNNER_SCRATCH, FRESH_STATE):
            folder = f"{attempt_folder(attempt.fencing_token, attempt.attempt_id)}/{name}"
            try:
                context.location.remove(folder)
            except StateLocationError as err:
                _logger.warning("event=scratch_left folder=%s error=%s", folder, err)
