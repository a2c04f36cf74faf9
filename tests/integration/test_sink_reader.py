"""Does the reader that the tests of sinks rest on notice what is not whole? It looks from a thread of its own."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from iteration_lib.sinks import ParquetSink
from iteration_lib.sinks.trial import publication_of, transaction_of
from tests.sink_reader import Reader

pytestmark = pytest.mark.postgres
pytest.importorskip("adbc_driver_postgresql", reason="adbc-driver-postgresql is not installed")


def read_until_told(uri: Path, url: str) -> None:
    """Let a reader poll until it has seen enough of what is there."""
    with Reader(uri=str(uri), url=url) as reader:
        reader._thread.join()


def test_reader_fails_where_a_pointer_is_shown_without_its_data(tmp_path: Path, empty_store: str) -> None:
    transaction, sink = replace(transaction_of(0), output="rows"), ParquetSink(tmp_path)
    sink.commit(transaction, sink.prepare(transaction, publication_of(0)))
    shutil.rmtree(tmp_path / "_data")

    with pytest.raises(AssertionError, match=r"StateCorruptedError.*is missing"):
        read_until_told(tmp_path, empty_store)


def test_reader_fails_where_an_epoch_is_published_twice(tmp_path: Path, empty_store: str) -> None:
    sink = ParquetSink(tmp_path)
    for run_id in ("one", "other"):
        transaction = replace(transaction_of(0), output="rows", run_id=run_id)
        sink.commit(transaction, sink.prepare(transaction, publication_of(0)))

    with pytest.raises(AssertionError, match=r"epoch 0 of .* is published twice"):
        read_until_told(tmp_path, empty_store)


def test_reader_fails_where_a_target_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="OperationalError"):
        read_until_told(tmp_path, "postgresql://nobody@127.0.0.1:1/nowhere")
