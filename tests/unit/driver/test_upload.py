"""When does what waits for a checkpoint go on, and how long does a process that is told to end wait for that?"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest

from iteration_lib.driver import upload
from iteration_lib.driver.checkpoint import Snapshot
from iteration_lib.driver.context import RunContext
from iteration_lib.driver.edge import Edges
from iteration_lib.driver.sinks import Sinks
from iteration_lib.driver.upload import Uploads
from iteration_lib.errors import CheckpointFailedError, CommitLostError, OutcomeUnknownError, SupersededError
from iteration_lib.protocol import RunState
from tests.driven_in_memory import InMemory


class Waiting:
    """Edges that only say by which durable epochs they were released."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.released: list[int] = []

    def release(self, state: RunState) -> None:
        """See Edges."""
        self.released.append(state.last_durable_epoch)


@pytest.mark.parametrize("order", [(1, 2), (2, 1)], ids=["in order", "the older one last"])
def test_edges_that_come_after_two_completions_are_released_by_the_newer_one(
    context: RunContext, order: tuple[int, int]
) -> None:
    """Each is told by a thread of its own."""
    uploads, state, edges = Uploads(context, Sinks(context)), context.attempt.look(), Waiting(3)
    for epoch in order:
        uploads._release(replace(state, last_durable_epoch=epoch))

    uploads.release_when_durable(cast(Edges, edges))

    assert [2] == edges.released


def test_checkpoint_counts_as_completed_once_what_waited_for_it_is_marked(
    bench: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[int]] = []
    release = Uploads._release

    def note(uploads: Uploads, state: RunState) -> None:
        seen.append(set(uploads._released))
        release(uploads, state)

    monkeypatch.setattr(Uploads, "_release", note)

    bench.drive(until_epoch=2)

    assert [set(), {1}] == seen


def test_process_that_is_told_to_end_waits_until_what_a_completion_releases_is_marked(
    context: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only until the checkpoint has completed, and not until its sinks have committed."""
    monkeypatch.setattr(upload, "_SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(upload, "_POLL_SECONDS", 0.01)
    uploads, state, ended = Uploads(context, Sinks(context)), context.attempt.look(), threading.Event()

    def hang() -> RunState:
        ended.wait()
        return state

    uploads._uploads.append(_upload(context, 1, hang))
    settling = threading.Thread(
        target=lambda: uploads.settle(told_seconds=context.clock.monotonic_seconds()), daemon=True
    )
    settling.start()
    settling.join(0.3)
    waits = settling.is_alive()
    uploads._released.add(1)
    settling.join(5.0)
    ended.set()

    assert (True, False) == (waits, settling.is_alive())


@pytest.mark.parametrize(
    ("err", "is_over"),
    [
        (SupersededError(run_id="sizes", held=1, current=2), True),
        (OutcomeUnknownError("the store stays away"), True),
        (CommitLostError("sizes", "the run was changed in between"), True),
        (CheckpointFailedError("sizes", 2, "it was aborted"), False),
    ],
)
def test_pending_checkpoints_are_waited_for_unless_none_can_complete_any_more(
    context: RunContext, monkeypatch: pytest.MonkeyPatch, err: Exception, *, is_over: bool
) -> None:
    """One hangs, another ends with an error; the store has both as pending."""
    monkeypatch.setattr(upload, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(Uploads, "check", lambda *_: None)
    uploads, state, ended = Uploads(context, Sinks(context)), context.attempt.look(), threading.Event()

    def hang() -> RunState:
        ended.wait()
        return state

    def fail() -> RunState:
        raise err

    uploads._uploads += [_upload(context, 1, hang), _upload(context, 2, fail)]
    waiting = threading.Thread(target=uploads.wait_for_pending, daemon=True)
    waiting.start()
    waiting.join(5.0 if is_over else 0.3)
    is_let_go = not waiting.is_alive()
    ended.set()
    waiting.join(5.0)

    assert (is_over, False) == (is_let_go, waiting.is_alive())


def _upload(context: RunContext, checkpoint_id: int, job: Callable[[], RunState]) -> upload._Upload:
    return upload._Upload(
        snapshot=Snapshot(
            checkpoint_id=checkpoint_id,
            epoch=0,
            participants={},
            saved={},
            unsaved={},
            finished={},
            outputs={},
            written={},
        ),
        job=context.background.start("upload", job),
        started_seconds=context.clock.monotonic_seconds(),
        stop_timing=lambda: None,
    )
