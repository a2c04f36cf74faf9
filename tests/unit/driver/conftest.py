"""A run in memory, and the context of an attempt at it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from iteration_lib.config import Settings
from iteration_lib.driver.context import RunContext
from iteration_lib.engine import Engine, EngineKind
from iteration_lib.launch import Drive, open_context
from iteration_lib.model.definition import load_iteration
from iteration_lib.process import this_holder
from tests.driven_in_memory import InMemory


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InMemory:
    monkeypatch.syspath_prepend(str(tmp_path))
    return InMemory.begin(tmp_path)


@pytest.fixture
def context(bench: InMemory) -> Iterator[RunContext]:
    graph = load_iteration(bench.run.reference).graph()
    settings = Settings(store_url=None, state_uri=bench.run.state_uri)
    drive = Drive(holder=this_holder(), open_runner=Engine(kind=EngineKind.LOCAL).open_runner, parallelism=1)
    with open_context(bench.store, settings, bench.run, drive, graph=graph, params=None) as opened:
        yield opened
