"""What becomes of an attempt when the synchronous part of a checkpoint fails, before anything is written beside it?"""

from __future__ import annotations

import pytest

from iteration_lib.driver import boundary, checkpoint
from iteration_lib.driver.checkpoint import Snapshot
from iteration_lib.driver.context import RunContext
from iteration_lib.driver.epoch import EpochResult
from iteration_lib.errors import StateLocationError
from iteration_lib.protocol.state import CheckpointState
from iteration_lib.protocol.status import RunStatus
from tests.driven_in_memory import InMemory


@pytest.mark.timeout(60)  # where nobody hears of it, the run waits for ever
def test_failure_of_the_synchronous_part_ends_the_attempt_and_the_checkpoint_that_it_had_begun(
    bench: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many failed checkpoints are tolerable: nobody would write it."""
    full = StateLocationError("disk", "is full")

    def fail_once(context: RunContext, pending: CheckpointState, result: EpochResult, **streams: object) -> Snapshot:
        if result.epoch == 1:
            raise full
        return checkpoint.take_snapshot(context, pending, result, **streams)  # type: ignore[arg-type]  # as it is given

    monkeypatch.setattr(boundary, "take_snapshot", fail_once)
    with pytest.raises(StateLocationError, match="is full"):
        bench.drive(checkpointing={"tolerable_failures": 9})

    failed, ended = bench.run, ends(bench)
    assert (RunStatus.FAILED, 0, str(full)) == (failed.status, failed.last_durable_epoch, failed.failure)
    assert [("COMPLETED", None), ("ABORTED", "ATTEMPT_ENDED")] == ended

    monkeypatch.undo()
    monkeypatch.syspath_prepend(str(bench.folder))
    assert RunStatus.FINISHED is bench.drive().status


def ends(bench: InMemory) -> list[tuple[str, str | None]]:
    found = bench.store.list_checkpoints(bench.run.run_id)
    return [(known.status.value, known.failure.value if known.failure is not None else None) for known in found]
