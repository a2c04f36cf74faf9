"""What does the contract suite of sinks play with: rows that a run left, crashes at a line, rivals at the same time?"""

from __future__ import annotations

import secrets
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType
from typing import Protocol, TypeVar

import pyarrow as pa

from iteration_lib.sinks.seam import Publication, SinkTransaction
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import FileFormat, SavedStream
from iteration_lib.state.streams import dump_schema, save_batches

T = TypeVar("T")

_CREATED_AT = datetime(2026, 1, 1, tzinfo=UTC)
_FILES, _ROWS_OF_A_FILE = 2, 3
_OUTPUTS = ("scores", "words")
SCHEMA = pa.schema({"pass_number": pa.int64(), "word": pa.string(), "weight": pa.float64()})


class Crash(BaseException):
    """What a process does not survive: no handler of errors is meant to see it."""


class TraceFunction(Protocol):
    """What `sys.settrace` takes."""

    def __call__(self, frame: FrameType, event: str, argument: object, /) -> TraceFunction | None:
        """Hear of an event of a frame, and return who hears of its next ones."""
        ...


def transaction_of(epoch: int, *, token: int = 1, run: int = 0, output: str = _OUTPUTS[0]) -> SinkTransaction:
    """Return the transaction of an attempt and an epoch; two of the same numbers are the same."""
    return SinkTransaction(
        run_id=f"00000000-0000-4000-8000-{run:012d}",
        run_key=f"run-{run}",
        run_created_at=_CREATED_AT,
        output=output,
        epoch=epoch,
        fencing_token=token,
    )


def outputs_of(epoch: int) -> list[SinkTransaction]:
    """Return the transactions of two outputs of one epoch, which differ in nothing else."""
    return [transaction_of(epoch, output=output) for output in _OUTPUTS]


def number_of(transaction: SinkTransaction) -> int:
    """Return which rows a transaction has: those of its epoch, or for the other output those of one that nobody has."""
    return transaction.epoch + 1000 * _OUTPUTS.index(transaction.output)


def rows_of(epoch: int, *, files: int = _FILES) -> list[tuple[object, ...]]:
    """Return the rows of an epoch, which no other epoch has; each is there once."""
    return [(epoch, f"{epoch} {number}", number / 7) for number in range(files * _ROWS_OF_A_FILE)]


def publication_of(epoch: int, *, files: int = _FILES) -> Publication:
    """Return an epoch's rows in files of a location of their own, as a run leaves them."""
    location = StateLocation(f"memory://{new_name()}")
    columns = zip(*rows_of(epoch, files=files), strict=True) if files else ([] for _ in SCHEMA)
    batch = pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )
    saved = [
        save_batches(
            location,
            f"outputs/part-{number:05d}.parquet",
            [batch.slice(number * _ROWS_OF_A_FILE, _ROWS_OF_A_FILE)],
            file_format=FileFormat.PARQUET,
        )
        for number in range(max(files, 1))  # an output without rows has a file, for its columns
    ]
    stream = SavedStream(kind="value", format=FileFormat.PARQUET, schema=dump_schema(SCHEMA), files=tuple(saved))
    return Publication(location=location, stream=stream)


@contextmanager
def at_every_line(files: frozenset[str], act: Callable[[], None]) -> Iterator[None]:
    """Act before every line of these files that this thread comes to inside the block, but those of comprehensions."""

    def trace(frame: FrameType, event: str, _argument: object) -> TraceFunction | None:
        if frame.f_code.co_filename not in files or frame.f_code.co_name.startswith("<"):
            return None
        if event == "line":
            act()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Make calls at the same time, each in a thread, and return what they do; raises the first error of any of them."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], T]) -> T:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [done.result() for done in [pool.submit(run, call) for call in calls]]


def new_name() -> str:
    """Return a name of letters and digits that was never used."""
    return f"t{secrets.token_hex(8)}"
