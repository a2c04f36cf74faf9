"""Do sinks that publish files pass the suite that a user's own has to pass? (The Postgres sink: test_postgres_sink.)"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest

from iteration_lib.sinks import (
    ParquetSink,
    parquet,
    pointer,
    published,
)
from iteration_lib.sinks.contract import Row, SinkContract
from iteration_lib.sinks.trial import publication_of, rows_of, transaction_of
from iteration_lib.state import files
from tests.fixture.object_store import object_store, without_conditions, write_once
from tests.json_lines_sink import JsonLinesSink, read_lines


@pytest.fixture(scope="module")
def store_with_rules() -> Iterator[str]:
    with object_store(lambda server: without_conditions(write_once(server))) as address:
        yield address


class TestJsonLinesSink(SinkContract):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def sink(self, target: str) -> JsonLinesSink:
        return JsonLinesSink(self.folder / target)

    def read(self, target: str) -> Sequence[Row]:
        return read_lines(self.folder / target)


class TestParquetSink(SinkContract):
    modules: ClassVar[Sequence[ModuleType]] = (parquet, pointer, files)

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.root = str(tmp_path)

    def sink(self, target: str) -> ParquetSink:
        return ParquetSink(f"{self.root}/{target}/out")

    def read(self, target: str) -> Sequence[Row]:
        return [
            row
            for one in published(f"{self.root}/{target}/out")
            for batch in one.publication.batches()
            for row in batch.to_pylist()
        ]


class TestParquetSinkInMemory(TestParquetSink):
    """It puts an object piece by piece, in the sight of others, as no object store does."""

    test_commits_at_the_same_time_show_rows_once = None  # type: ignore[assignment]  # each would see half of another's
    test_prepares_at_the_same_time_are_one = None  # type: ignore[assignment]  # as above

    @pytest.fixture(autouse=True)
    def _place(self) -> None:
        self.root = "memory://sinks"


class TestParquetSinkOnS3(TestParquetSink):
    """It asks for no conditional put and puts nothing twice: it works where the one or the other is refused."""

    modules: ClassVar[Sequence[ModuleType]] = (parquet,)

    @pytest.fixture(autouse=True)
    def _place(self, store_with_rules: str) -> None:
        self.root = store_with_rules


def test_sink_in_the_docs_is_for_any_run_key_and_for_several_outputs(tmp_path: Path) -> None:
    one = replace(transaction_of(0), run_key="nightly/2026")
    sink = JsonLinesSink(tmp_path)

    for transaction in (one, replace(one, output="words")):
        sink.commit(transaction, sink.prepare(transaction, publication_of(0)))

    assert 2 * len(rows_of(0)) == len(read_lines(tmp_path))


def test_sink_in_the_docs_syncs_its_folder_before_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the names of files may be lost with the power, after the store has recorded them."""
    sink, synced = JsonLinesSink(tmp_path), []
    folder = tmp_path.stat().st_ino
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_ino == folder))

    committable = sink.prepare(transaction_of(0), publication_of(0))
    sink.commit(transaction_of(0), committable)

    assert [False, True, True] == synced


def test_sink_in_the_docs_is_the_one_that_passes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "sinks.md").read_text()

    assert inspect.getsource(JsonLinesSink) in page
