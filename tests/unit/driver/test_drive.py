"""How does one attempt drive a run of an iteration?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from iteration_lib.engine import Engine, EngineKind
from iteration_lib.protocol.status import AttemptOutcome
from iteration_lib.runner.seam import Runner
from iteration_lib.state.location import StateLocation
from iteration_lib.store.record import RunRecord
from tests.driven_in_memory import InMemory


@dataclass(frozen=True, slots=True)
class Watched:
    """A runner that notes how far the run is when each of its methods is first called."""

    runner: Runner
    bench: InMemory
    seen: dict[str, tuple[int, int, int]]

    def __getattr__(self, name: str) -> Any:  # Any: whatever a runner has
        self.note(name)
        return getattr(self.runner, name)

    def note(self, what: str) -> None:
        """Note how many attempts are live, how many epochs the run has begun, and how many are durable."""
        run = self.bench.run
        live = [known for known in self.bench.store.list_attempts(run.run_id) if known.ended_at is None]
        self.seen.setdefault(what, (len(live), len(self.bench.store.list_epochs(run.run_id)), run.epochs))


def test_attempt_opens_restores_runs_commits_and_releases_in_this_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    bench = InMemory.begin(tmp_path)
    bench.drive(until_epoch=1)
    seen: dict[str, tuple[int, int, int]] = {}

    @contextmanager
    def open_watched(run: RunRecord, location: StateLocation, scratch: str) -> Iterator[Any]:
        with Engine(kind=EngineKind.LOCAL).open_runner(run, location, scratch) as runner:
            watched = Watched(runner, bench, seen)
            watched.note("opened")
            yield watched
            watched.note("closed")

    bench.drive(until_epoch=2, open_runner=open_watched)

    live = 1
    assert [
        ("opened", (live, 1, 1)),
        ("restore", (live, 1, 1)),
        ("compute", (live, 2, 1)),
        ("closed", (live, 2, 2)),
    ] == [(what, at) for what, at in seen.items() if what in ("opened", "restore", "compute", "closed")]
    assert [AttemptOutcome.RELEASED] * 2 == [a.outcome for a in bench.store.list_attempts(bench.run.run_id)]
