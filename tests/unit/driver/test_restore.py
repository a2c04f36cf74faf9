"""Is the completed checkpoint found, and what is said where there is none any more?"""

from __future__ import annotations

from pathlib import Path

import pytest

from iteration_lib.coordinator import Coordinator
from iteration_lib.driver.restore import read_completed_manifest
from iteration_lib.errors import RunDeletedError
from iteration_lib.protocol.event import RunDeleted
from iteration_lib.protocol.policy import CheckpointPolicy
from tests.kept_checkpoints import FreshRun


def test_run_that_is_deleted_while_it_is_resumed_is_said_to_be_deleted_and_no_bug(tmp_path: Path) -> None:
    fresh = FreshRun.begin(tmp_path)
    fresh.drive(until_epoch=1)
    run, location, coordinator = fresh.run, fresh.location, Coordinator(fresh.store)
    coordinator.apply(run.run_id, RunDeleted(deleted_by="ann"))

    assert 0 == read_completed_manifest(fresh.store, run, location).epoch  # whose files are there yet

    coordinator.discard(run.run_id, CheckpointPolicy())
    with pytest.raises(RunDeletedError):
        read_completed_manifest(fresh.store, run, location)
