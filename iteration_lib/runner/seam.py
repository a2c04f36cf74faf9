"""What does the driver ask of whatever runs the operators?

A Stream is a handle that its runner made and that only that runner looks into. A runner knows nothing of runs, stores
or checkpoints: it computes, writes files where it is told to, and says exactly what it wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from iteration_lib.model.metrics import Metrics
from iteration_lib.model.operator import Kind, Operator
from iteration_lib.state.saved import FileFormat, SavedStream


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedFile:
    """One input file as it was when the run started. `version` changes when its bytes may have changed.

    `content` says whether they did, of a user's file where that is known.
    """

    path: str
    size_bytes: int
    version: str
    rows: int
    content: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedData:
    """A data stream, pinned: its rows are those of `files`, in order. `fingerprint` tells two pins apart."""

    files: tuple[PinnedFile, ...]
    columns: tuple[str, ...] | None
    fingerprint: str

    @property
    def rows(self) -> int:
        """The stream's records."""
        return sum(file.rows for file in self.files)

    def without_rows(self) -> PinnedData:
        """Return a pin of no files: what is left of a stream whose rows were seen, and whose columns are known."""
        return replace(self, files=())


# Is told of new files of a stream; see Runner.materialise.
PartListener: TypeAlias = Callable[[SavedStream], None]


class Stream(Protocol):
    """A stream as its runner holds it."""

    @property
    def kind(self) -> Kind:
        """What it holds: VALUE, BUCKETS or FRAME (DATA for a data stream)."""
        ...

    @property
    def schema(self) -> str | None:
        """The columns and their types, readable, such as `centroid: fixed_size_list<double>[64]`.

        None for DATA, and for BUCKETS that are still to be computed; a materialised stream has one.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One operator in one epoch. `epoch` is None before epoch 0 (variables, operators that finish for good).

    `consumers` is how many will use the result: operators, and one for each feedback, criteria and output. A result
    with one consumer may be computed inside it; a result with several is computed once and kept for them.

    `scratch` is a folder, relative to the run's, for an operator that asks for one: below it every call gets an empty
    folder of its own, which is there on local disks. Whoever names it removes it.
    """

    operator: Operator
    inputs: Mapping[str, Stream]
    params: object
    epoch: int | None
    metrics: Metrics
    description: str
    consumers: int = 1
    scratch: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Materialised:
    """A stream computed once. `records` counts each subtask's rows; `saved` says what was written, if anything."""

    stream: Stream
    records: tuple[int, ...]
    saved: SavedStream | None


class Runner(Protocol):
    """Runs operators. Every method may raise OperatorFailedError, OperatorResultError or ExecutionLostError."""

    def pin(self, operator: Operator, params: object, *, folder: str) -> PinnedData:
        """Ask a data stream for its source and pin it: list its files and count their rows.

        What has no files of its own (RecordsSource, a DataFrame) is written once into `folder`. Raises InputError that
        names the path when it is missing, empty or lacks a column. Repeatable.
        """
        ...

    def open_data(self, pinned: PinnedData) -> Stream:
        """Return a pinned data stream; reads no rows yet. Raises InputError when a file is not as it was pinned."""
        ...

    def without_rows(self, stream: Stream) -> Stream:
        """Return what later epochs see of a data stream that comes once: its columns.

        They are known once something was computed from the stream; its files may then be replaced. Before that they are
        read from the pinned files: raises InputError, here or where it is used, when these are others.
        """
        ...

    def compute(self, invocation: Invocation) -> Stream:
        """Run an operator on its inputs; BUCKETS and FRAME results may be computed later, when they are used."""
        ...

    def hold(self, value: object, *, operator: Operator, epoch: int | None, description: str) -> Stream:
        """Return a stream of what was computed elsewhere: a record batch, or on Spark a DataFrame, still lazy.

        `operator` is the one whose result it stands for. Raises ValueNotKeptError for a DataFrame without Spark.
        """
        ...

    def give(self, stream: Stream) -> object:
        """Return what a stream of whole values, or of a DataFrame, holds: a record batch, or the DataFrame."""
        ...

    def is_computed(self, stream: Stream) -> bool:
        """Whether a stream's rows are there, so that materialising it calls no operator. May be asked by any thread."""
        ...

    def materialise(
        self,
        stream: Stream,
        *,
        folder: str | None,
        file_format: FileFormat = FileFormat.ARROW,
        done: SavedStream | None = None,
        on_part: PartListener | None = None,
    ) -> Materialised:
        """Compute a stream exactly once, cut its lineage, count it and, with a folder, write it there.

        The stream handed in may still be used, and is not computed again either. The files are new (never replaced),
        fsynced where the location can, and named in `saved`; files that a failed or repeated Spark task left behind are
        named by nothing. `folder` is relative to the run's folder.

        `done` names files of this very stream of buckets, in this format, that are durable: an earlier attempt's, or an
        earlier call's. They are verified and kept; the buckets that they lack are divided among the subtasks of now and
        computed, no others. Raises StateCorruptedError that names one of them, OperatorResultError when the others have
        other columns.

        `on_part` is told of the files that this call wrote as soon as they are durable, of each once before it returns:
        part by part while a stream of buckets is computed, at the end and whole otherwise. It is called by one thread
        at a time, not always the caller's, and may not call the runner. What it raises ends the call, and passes
        through. `saved` names what was told, and what was told stays so when the call fails.
        """
        ...

    def restore(self, saved: SavedStream) -> Stream:
        """Return a stream that was materialised before. Raises StateCorruptedError that names the file."""
        ...

    def cancel(self) -> None:
        """Stop what is running, from any thread; the call in progress raises ExecutionLostError. Repeatable."""
        ...

    def close(self) -> None:
        """Release everything: sessions, caches, processes. Repeatable."""
        ...
