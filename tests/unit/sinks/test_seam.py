"""What identifies what a sink publishes, and what if a sink says nothing of itself?"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest

from iteration_lib.errors import SinkTargetError
from iteration_lib.sinks import ParquetSink
from iteration_lib.sinks.seam import Publication, Sink, check_sink, describe_sink
from iteration_lib.sinks.trial import SCHEMA, publication_of, rows_of, transaction_of
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import FileFormat, SavedStream
from iteration_lib.state.streams import dump_schema, save_batches


def test_transactions_that_differ_have_different_ids() -> None:
    one = transaction_of(0)
    others = [
        *(one, replace(one, run_id="other"), replace(one, output="other"), replace(one, epoch=1)),
        *(
            replace(one, fencing_token=2),
            replace(one, output="scores-000001"),
            replace(one, output="0000000000-scores"),
        ),
    ]

    assert len(others) == len({other.transaction_id for other in others})


def test_run_that_was_created_at_no_certain_instant_is_refused() -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        replace(transaction_of(0), run_created_at=datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point


def test_publication_gives_its_rows_in_order() -> None:
    publication = publication_of(3)

    assert SCHEMA == publication.schema
    assert 6 == publication.rows
    assert rows_of(3) == [tuple(row.values()) for row in pa.Table.from_batches(publication.batches()).to_pylist()]


@pytest.mark.parametrize("values", [["a", "b", None], [3, None, 1], [1.5, 1.5]])
def test_publication_gives_dictionaries_as_they_were(tmp_path: Path, values: list[object]) -> None:
    """What pandas calls a categorical; Parquet knows dictionaries of texts alone."""
    kind = pa.dictionary(pa.int8(), pa.array(values).type, ordered=True)
    rows = pa.RecordBatch.from_pydict({"x": pa.array(values).dictionary_encode().cast(kind)})
    location = StateLocation(str(tmp_path))
    file = save_batches(location, "part.parquet", [rows], file_format=FileFormat.PARQUET)
    stream = SavedStream(kind="value", format=FileFormat.PARQUET, schema=dump_schema(rows.schema), files=(file,))

    (found,) = Publication(location=location, stream=stream).batches()

    assert rows.schema == found.schema
    assert rows.to_pylist() == found.to_pylist()


def test_sink_may_say_nothing_of_itself() -> None:
    class Silent:
        """Of its three methods none is called here."""

    sink = cast("Sink", Silent())

    check_sink(sink)

    assert "Silent" == describe_sink(sink)


def test_sink_that_says_something_is_heard() -> None:
    sink = ParquetSink("/proc/nowhere")

    with pytest.raises(SinkTargetError):
        check_sink(sink)

    assert "the Parquet folder /proc/nowhere" == describe_sink(sink)
