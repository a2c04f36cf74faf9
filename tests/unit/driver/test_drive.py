"""How does one attempt drive a run of an iteration?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from iteration_lib.engine import Engine, EngineKind
from iteration_lib.errors import InputError
from iteration_lib.launch import RunnerFactory
from iteration_lib.protocol.status import AttemptOutcome, RunStatus
from iteration_lib.runner.seam import Runner
from iteration_lib.state.location import StateLocation
from iteration_lib.store.record import RunRecord
from tests.driven_in_memory import SOURCE, InMemory


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


def watching(bench: InMemory, seen: dict[str, tuple[int, int, int]]) -> RunnerFactory:
    """Return what opens a runner that is watched, and notes in `seen`."""

    @contextmanager
    def open_watched(run: RunRecord, location: StateLocation, scratch: str) -> Iterator[Any]:
        with Engine(kind=EngineKind.LOCAL).open_runner(run, location, scratch) as runner:
            watched = Watched(runner, bench, seen)
            watched.note("opened")
            yield watched
            watched.note("closed")

    return open_watched


def test_attempt_opens_restores_runs_commits_and_releases_in_this_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    bench = InMemory.begin(tmp_path)
    bench.drive(until_epoch=1)
    seen: dict[str, tuple[int, int, int]] = {}

    bench.drive(until_epoch=2, open_runner=watching(bench, seen))

    live = 1
    assert [
        ("opened", (live, 1, 1)),
        ("restore", (live, 1, 1)),
        ("compute", (live, 2, 1)),
        ("closed", (live, 2, 2)),
    ] == [(what, at) for what, at in seen.items() if what in ("opened", "restore", "compute", "closed")]
    assert [AttemptOutcome.RELEASED] * 2 == [a.outcome for a in bench.store.list_attempts(bench.run.run_id)]


def test_resumed_epoch_0_uses_none_of_its_edges_before_the_pins_were_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that read the input is durable by then, so that nothing else would look at it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    bench = InMemory.begin(tmp_path, SOURCE.replace("epoch == 1", "epoch == 0"))
    bench.drive_until_broken()
    bench.mend()
    bench.write_input(rows=9)
    seen: dict[str, tuple[int, int, int]] = {}

    with pytest.raises(InputError, match=r"points\.parquet has changed"):
        bench.drive(open_runner=watching(bench, seen))

    parts = bench.store.list_parts(bench.run.run_id)
    assert {"centre", "sums"} == {part.operator_id for part in parts if part.epoch == 0}
    assert not {"restore", "compute"} & set(seen)


def test_run_whose_driver_died_while_it_terminated_is_published_and_runs_no_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    bench = InMemory.begin(tmp_path)
    terminating = bench.drive(publish=False)
    epochs = bench.store.list_epochs(terminating.run_id)
    bench.be_killed()
    seen: dict[str, tuple[int, int, int]] = {}

    finished = bench.drive(open_runner=watching(bench, seen))

    assert (RunStatus.TERMINATING, RunStatus.FINISHED) == (terminating.status, finished.status)
    assert epochs == bench.store.list_epochs(finished.run_id)
    assert "compute" not in seen
