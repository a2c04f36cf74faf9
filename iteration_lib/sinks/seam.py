"""What does the driver ask of whatever publishes the rows of an epoch?

Two phases. `prepare` makes the rows durable at the target, where nobody sees them yet, and returns what it takes to
find them again, the committable; the protocol stores it in the very transaction that makes the epoch durable. Then, and
not before, `commit` shows them. Whoever takes the run over commits again what was stored, because nobody knows whether
it was, and aborts what was prepared and never stored. Of a run, an output and an epoch one transaction at most is ever
committed: so a commit only has to be repeatable. A store that was restored from an older copy breaks that, and where a
sink can see what another transaction published, it raises `published_already` rather than pass it for its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import pyarrow as pa

from iteration_lib.errors import SinkTargetError
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import SavedFile, SavedStream
from iteration_lib.state.streams import iterate_file, load_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkTransaction:
    """What one attempt publishes of one epoch into one sink. `run_created_at` orders the runs, and has a time zone."""

    run_id: str
    run_key: str
    run_created_at: datetime
    output: str
    epoch: int
    fencing_token: int

    def __post_init__(self) -> None:
        if self.run_created_at.tzinfo is None:  # it would be another instant on every machine
            raise ValueError(f"{self.run_created_at} has no time zone")

    @property
    def transaction_id(self) -> str:
        """A name that no other transaction has, of letters, digits, `-` and whatever the output's name is made of."""
        return f"{self.run_id}-{self.epoch:010d}-{self.output}-{self.fencing_token:06d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """Rows in Parquet files that are durable at `location`; `stream` names them, with their digests."""

    location: StateLocation
    stream: SavedStream

    @property
    def schema(self) -> pa.Schema:
        """The rows' Arrow schema."""
        return load_schema(self.stream)

    @property
    def files(self) -> tuple[SavedFile, ...]:
        """The files, in order; their paths are relative to `location`."""
        return self.stream.files

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.stream.rows

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, in order, each file verified before its first; raises StateCorruptedError that names it."""
        for file in self.files:
            yield from iterate_file(self.location, self.stream, file)


class Sink(Protocol):
    """What publishes an output. Each method may be called by several processes at once, and again after a crash.

    A sink may also have `describe() -> str`, one line without secrets in it that is its target's identity: the same in
    every process, and no other target's. And `check() -> None`, which is called before a run's first epoch and raises a
    UsageError that names the target and says what to do.
    """

    def prepare(self, transaction: SinkTransaction, publication: Publication) -> Mapping[str, object]:
        """Make the rows durable where nobody sees them, and return what `commit` needs to find them: JSON.

        The publication's files go once this has returned; several epochs may be prepared before the first is committed.
        Repeatable: what an earlier call of the same transaction left, torn or whole, is replaced. An attempt that was
        superseded may still be in here after the abort; what it leaves then must never show.
        """
        ...

    def commit(self, transaction: SinkTransaction, committable: Mapping[str, object]) -> None:
        """Show all rows of a prepared transaction at once; readers see either none of them or all.

        Repeatable for ever: two processes may do it at once, and one that was stopped for a week may do it once more,
        after newer epochs were committed and readers have moved on. Then it changes nothing that a reader sees.
        """
        ...

    def abort(self, transaction: SinkTransaction) -> None:
        """Drop what `prepare` left, all, half or none, of a transaction that will never be committed. Repeatable."""
        ...


def published_already(target: str, transaction: SinkTransaction, *, publisher: str, way_out: str) -> SinkTargetError:
    """Return the error of an epoch that somebody else published there, of whom the store that commits knows nothing."""
    whose = f"output {transaction.output!r} of epoch {transaction.epoch}"
    return SinkTargetError(
        target,
        f"shows {whose} already, published by {publisher}, and this is another one's, by attempt "
        f"{transaction.fencing_token}: the store was restored from an older copy, or two copies of it drive the run",
        way_out=f"where what was computed now is to be shown instead, {way_out}",
    )


def describe_sink(sink: Sink) -> str:
    """Return one line that tells people where a sink publishes."""
    describe = getattr(sink, "describe", None)
    return type(sink).__name__ if describe is None else str(describe())


def check_sink(sink: Sink) -> None:
    """Raise a UsageError where a sink knows already that it cannot be used."""
    check = getattr(sink, "check", None)
    if check is not None:
        check()
