"""How long is a checkpoint waited for that somebody has asked for? Not longer than it may still come."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from iteration_lib.cli.checkpoint import wait_for
from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import IterationError, OperatorFailedError
from iteration_lib.protocol.event import RunDeleted
from iteration_lib.protocol.status import RunStatus, StopKind
from iteration_lib.requesting import request_checkpoint
from iteration_lib.stopping import request_stop
from tests.driven_in_memory import SOURCE, InMemory

WAIT_SECONDS = 5.0  # for what should not be waited for


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InMemory:
    """A run that nobody has driven yet."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return InMemory.begin(tmp_path, SOURCE.replace("epoch == 1", "epoch == 0"))


def stop(bench: InMemory) -> None:
    request_stop(bench.store, bench.run, kind=StopKind.STOP, by="ann")


def fail(bench: InMemory) -> None:
    (bench.folder / "broken").touch()
    with pytest.raises(OperatorFailedError):
        bench.drive()


def delete(bench: InMemory) -> None:
    Coordinator(bench.store).apply(bench.run.run_id, RunDeleted(deleted_by="ann", gone_attempt_id=None))


ENDS = {RunStatus.STOPPED: stop, RunStatus.FAILED: fail, RunStatus.DELETED: delete}


@pytest.mark.parametrize(("status", "end"), ENDS.items(), ids=[status.value for status in ENDS])
def test_nobody_waits_for_a_run_of_which_no_epoch_aligns(
    bench: InMemory, status: RunStatus, end: Callable[[InMemory], None]
) -> None:
    run, request_id = bench.run, request_checkpoint(bench.store, bench.run, by="ann")
    end(bench)

    taken = wait_for(bench.store, run, request_id, WAIT_SECONDS)

    found = bench.store.find_run(run.run_id)
    assert found is not None
    assert (None, status) == (taken, found.status)


def test_answer_counts_though_nobody_drives_the_run_any_more(bench: InMemory) -> None:
    request_id = request_checkpoint(bench.store, bench.run, by="ann")
    bench.drive()

    taken = wait_for(bench.store, bench.run, request_id, WAIT_SECONDS, while_driven=True)

    assert taken is not None
    assert (RunStatus.FINISHED, 1) == (bench.run.status, taken.checkpoint_id)


def test_run_that_nobody_drives_is_waited_for_only_by_who_means_to(bench: InMemory) -> None:
    """It may be between two tasks; a savepoint takes the newest checkpoint then."""
    request_id = request_checkpoint(bench.store, bench.run, by="ann")

    taken = wait_for(bench.store, bench.run, request_id, WAIT_SECONDS, while_driven=True)

    assert taken is None
    with pytest.raises(IterationError, match=r"is not completed after 0 s \(none has begun since\)"):
        wait_for(bench.store, bench.run, request_id, 0)
