"""Do sinks that publish files pass the suite that a user's own has to pass? (The Postgres sink: test_postgres_sink.)"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest

from iteration_lib.sinks import (
    ParquetSink,
    Publication,
    SinkTransaction,
    parquet,
    pointer,
    published,
)
from iteration_lib.sinks.contract import Row, SinkContract
from iteration_lib.state import files
from tests.fixture.object_store import object_store, without_conditions, write_once


class JsonLinesSink:
    """What a user may write: a file of JSON lines per epoch in a folder of a local disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def prepare(self, transaction: SinkTransaction, publication: Publication) -> Mapping[str, object]:
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._prepared(transaction).open("w") as file:
            for batch in publication.batches():
                file.writelines(json.dumps(row) + "\n" for row in batch.to_pylist())
        return {"name": f"{transaction.run_key}-{transaction.epoch:06d}.jsonl"}

    def commit(self, transaction: SinkTransaction, committable: Mapping[str, object]) -> None:
        with suppress(FileNotFoundError):  # it has its name already
            self._prepared(transaction).rename(self._folder / str(committable["name"]))

    def abort(self, transaction: SinkTransaction) -> None:
        self._prepared(transaction).unlink(missing_ok=True)

    def _prepared(self, transaction: SinkTransaction) -> Path:
        return self._folder / f"{transaction.transaction_id}.prepared"


@pytest.fixture(scope="module", params=[without_conditions, write_once])
def store_with_rules(request: pytest.FixtureRequest) -> Iterator[str]:
    with object_store(request.param) as address:
        yield address


class TestJsonLinesSink(SinkContract):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def sink(self, target: str) -> JsonLinesSink:
        return JsonLinesSink(self.folder / target)

    def read(self, target: str) -> list[Row]:
        return [
            json.loads(line)
            for path in sorted((self.folder / target).glob("*.jsonl"))
            for line in path.read_text().splitlines()
        ]


class TestParquetSink(SinkContract):
    modules: ClassVar[Sequence[ModuleType]] = (parquet, pointer, files)

    @pytest.fixture(autouse=True, params=["local", "memory"])
    def _place(self, request: pytest.FixtureRequest, tmp_path: Path) -> None:
        self.root = str(tmp_path) if request.param == "local" else "memory://sinks"

    def sink(self, target: str) -> ParquetSink:
        return ParquetSink(f"{self.root}/{target}/out")

    def read(self, target: str) -> Sequence[Row]:
        return [
            row
            for one in published(f"{self.root}/{target}/out")
            for batch in one.publication.batches()
            for row in batch.to_pylist()
        ]


class TestParquetSinkOnS3(TestParquetSink):
    """With conditional puts refused and with every put conditional: neither is needed, and neither is in the way."""

    modules: ClassVar[Sequence[ModuleType]] = (parquet,)

    @pytest.fixture(autouse=True)
    def _place(self, store_with_rules: str) -> None:
        self.root = store_with_rules
