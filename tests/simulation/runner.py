"""Who runs the operators of a simulated run? A runner on tuples, with files of JSON, that fails when it is told to.

Results on buckets are computed when they are used, once, as Spark does it; where somebody wants to hear of parts, one
subtask's after the other's. An attempt's files have the same names in every attempt, so that attempts that shared a
folder would meet.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from iteration_lib.errors import (
    ExecutionLostError,
    InputError,
    OperatorFailedError,
    StateCorruptedError,
    StateLocationError,
)
from iteration_lib.model.bucket import Bucket, subtask_count, subtask_ranges
from iteration_lib.model.operator import Kind, Operator
from iteration_lib.runner.seam import Invocation, Materialised, PartListener, PinnedData, PinnedFile, Stream
from iteration_lib.state.files import read_bytes
from iteration_lib.state.saved import FileFormat, SavedFile, SavedStream
from iteration_lib.state.streams import dump_schema
from tests.simulation.fiber import Call, Fate, ask
from tests.simulation.programs import BUCKETS
from tests.simulation.reference import Buckets, buckets_of, call, flat
from tests.simulation.stream import SimulatedStream

if TYPE_CHECKING:
    from tests.simulation.attempt import SimulatedAttempt
    from tests.simulation.run import SimulatedRun

_SCHEMA_HEX = dump_schema(pa.schema([("row", pa.int64())]))


class SimulatedRunner:
    """See iteration_lib.runner.seam.Runner for what each method guarantees."""

    def __init__(self, run: SimulatedRun, attempt: SimulatedAttempt) -> None:
        self._world = run.world
        self._of = run
        self._attempt = attempt
        self._location = run.location
        self._cancelled = False
        self._written: Counter[str] = Counter()

    def pin(self, operator: Operator, params: object, *, folder: str) -> PinnedData:  # noqa: ARG002 - the seam's
        """Ask a data stream for its rows and write them into the folder."""
        self._run(operator, None, (0,))
        rows = operator.function()
        file = self._write(f"{folder}/rows.json", buckets_of(rows), None)
        pinned = PinnedFile(path=file.path, size_bytes=file.size_bytes, version=file.sha256, rows=len(rows))
        fingerprint = hashlib.sha256(f"{file.path} {file.sha256}".encode()).hexdigest()
        return PinnedData(files=(pinned,), columns=None, fingerprint=fingerprint)

    def open_data(self, pinned: PinnedData) -> Stream:
        """Return a pinned data stream."""
        (file,) = pinned.files
        try:
            content = read_bytes(self._location, file.path, size_bytes=file.size_bytes, sha256=file.version)
        except StateCorruptedError as err:
            raise InputError(str(err)) from err
        return _stream(Kind.DATA, decode(content))

    def without_rows(self, stream: Stream) -> Stream:  # noqa: ARG002 - the seam's
        """Return a data stream without its rows."""
        return _stream(Kind.DATA, ((),) * BUCKETS)

    def compute(self, invocation: Invocation) -> Stream:
        """Run an operator, at once if it is on values."""
        operator = invocation.operator
        inputs = {name: cast("SimulatedStream", stream) for name, stream in invocation.inputs.items()}
        if operator.kind is Kind.VALUE:
            given = {name: stream.whole() for name, stream in inputs.items()}
            self._run(operator, invocation.epoch, (0,))
            self._leave_scratch(invocation, (0,))
            return _stream(operator.kind, (call(operator, given, epoch=invocation.epoch, metrics=invocation.metrics),))

        def computed(indexes: Sequence[int]) -> Buckets:
            given = {name: _seen(stream, indexes) for name, stream in inputs.items()}
            self._run(operator, invocation.epoch, indexes)
            self._leave_scratch(invocation, indexes)
            return tuple(
                call(
                    operator,
                    {name: buckets[place] for name, buckets in given.items()},
                    epoch=invocation.epoch,
                    metrics=invocation.metrics,
                    place=Bucket(index=index, count=BUCKETS),
                )
                for place, index in enumerate(indexes)
            )

        parallelism = subtask_count(operator.parallelism, default=self._attempt.parallelism, count=BUCKETS)
        stream = SimulatedStream(
            operator.kind, computed, count=BUCKETS, parallelism=parallelism, is_fused=self._attempt.pace.fuses
        )
        return cast("Stream", stream)

    def is_computed(self, stream: Stream) -> bool:
        """Whether every bucket is there."""
        return cast("SimulatedStream", stream).is_computed

    def materialise(
        self,
        stream: Stream,
        *,
        folder: str | None,
        file_format: FileFormat = FileFormat.ARROW,
        done: SavedStream | None = None,
        on_part: PartListener | None = None,
    ) -> Materialised:
        """Count a stream, and with a folder write a file per subtask of what is not done."""
        found = cast("SimulatedStream", stream)
        saved = SavedStream(kind=found.kind.value, format=file_format, schema=_SCHEMA_HEX, files=())
        if done is not None:
            saved = replace(saved, files=self._keep(found, done))
        if folder is not None:
            for subtask, owned in self._shares(found, saved, in_parts=on_part is not None):
                bounds = owned if found.kind is Kind.BUCKETS else None
                path = f"{folder}/part-{subtask:05d}.{file_format.value}"
                is_published = file_format is FileFormat.PARQUET
                file = self._write(path, found.buckets(owned), bounds, is_published=is_published)
                saved = replace(saved, files=tuple(sorted((*saved.files, file), key=lambda known: known.buckets.start)))
                if on_part is not None:
                    on_part(replace(saved, files=(file,)))
        buckets = found.buckets(range(found.count))
        ranges = subtask_ranges(parallelism=found.parallelism, count=found.count)
        records = tuple(len(flat(buckets[owned.start : owned.stop])) for owned in ranges)
        return Materialised(stream=stream, records=records, saved=saved if folder is not None else None)

    def restore(self, saved: SavedStream) -> Stream:
        """Return a stream that was materialised before."""
        is_bucketed = saved.kind == Kind.BUCKETS.value
        count = BUCKETS if is_bucketed else 1
        parallelism = min(self._attempt.parallelism, BUCKETS) if is_bucketed else 1
        stream = SimulatedStream(Kind(saved.kind), None, count=count, parallelism=parallelism)
        self._keep(stream, saved)
        if not stream.is_computed:
            raise StateCorruptedError(self._location.uri, "lacks buckets of a stream")
        return cast("Stream", stream)

    def cancel(self) -> None:
        """Have the next operator raise."""
        self._cancelled = self._attempt.was_cancelled = True

    def close(self) -> None:
        """Release nothing."""

    def _keep(self, stream: SimulatedStream, saved: SavedStream) -> tuple[SavedFile, ...]:
        for file in saved.files:
            content = read_bytes(self._location, file.path, size_bytes=file.size_bytes, sha256=file.sha256)
            stream.keep(file.buckets or range(1), decode(content))
        return saved.files

    def _shares(self, stream: SimulatedStream, saved: SavedStream, *, in_parts: bool) -> Iterator[tuple[int, range]]:
        """Divide the buckets that are not saved among the subtasks; a share is cut where a saved one lies in it."""
        there = {index for file in saved.files for index in file.buckets}
        missing = [index for index in range(stream.count) if index not in there]
        if not in_parts:
            stream.buckets(missing)
        for subtask, share in enumerate(
            subtask_ranges(parallelism=min(stream.parallelism, len(missing)), count=len(missing))
        ):
            numbered = enumerate(missing[share.start : share.stop])
            for _, run in groupby(numbered, key=lambda found: found[1] - found[0]):
                owned = [index for _, index in run]
                yield subtask, range(owned[0], owned[-1] + 1)

    def _run(self, operator: Operator, epoch: int | None, buckets: Sequence[int]) -> None:
        fate = ask(Call.RUN, (operator.operator_id, epoch))
        if self._cancelled:
            self._world.counters["operator cancelled by the heartbeat"] += 1
            raise ExecutionLostError("the run was cancelled")
        if fate is not Fate.GO:
            self._attempt.fail("run")
        if fate is Fate.LOST:
            raise ExecutionLostError("Spark's JVM is gone")
        if fate is Fate.FAIL:
            raise OperatorFailedError(operator_id=operator.operator_id, epoch=epoch, cause="injected")
        self._of.oracle.operator_ran(self._attempt, operator, epoch, buckets)

    def _leave_scratch(self, invocation: Invocation, buckets: Sequence[int]) -> None:
        """Leave a file in the folder of an operator that asks for one, as its calls would."""
        if "scratch" in invocation.operator.injected:
            self._put(self._new(f"{invocation.scratch}/bucket-{buckets[0]:05d}/notes"), b"notes")

    def _write(self, path: str, part: Buckets, owned: range | None, *, is_published: bool = False) -> SavedFile:
        content = encode(part)
        path = self._new(path)
        self._put(path, content)
        if len(self._of.disk.files.get(path, b"")) != len(content):
            raise StateLocationError(self._location.uri, f"cannot hold {path}: it was not put whole")
        digest = hashlib.sha256(content).hexdigest()
        return SavedFile(
            path=path,
            size_bytes=len(content),
            sha256=digest,
            rows=len(flat(part)),
            first_bucket=owned.start if owned is not None else None,
            end_bucket=owned.stop if owned is not None else None,
            row_digest=row_digest(part) if is_published else None,
        )

    def _put(self, path: str, content: bytes) -> None:
        try:
            self._of.disk.put(path, content)
        except OSError as err:
            raise StateLocationError(self._location.uri, f"cannot hold {path} ({err})") from err

    def _new(self, path: str) -> str:
        """Return a path that this attempt has not written: the same one, or a numbered one."""
        self._written[path] += 1
        count = self._written[path]
        return path if count == 1 else f"{path}-{count}"


def _stream(kind: Kind, buckets: Buckets) -> Stream:
    stream = SimulatedStream(kind, None, count=len(buckets))
    stream.keep(range(len(buckets)), buckets)
    return cast("Stream", stream)


def _seen(stream: SimulatedStream, indexes: Sequence[int]) -> Buckets:
    """Return what an operator on buckets sees of an input, for each of its buckets: the same bucket, or all."""
    if stream.kind is Kind.VALUE:
        return (stream.whole(),) * len(indexes)
    return stream.buckets(indexes)


def encode(part: Buckets) -> bytes:
    """Return a file's bytes."""
    return json.dumps(part, separators=(",", ":")).encode()


def decode(content: bytes) -> Buckets:
    """Return what a file's bytes hold."""
    return tuple(tuple(bucket) for bucket in cast("list[Any]", json.loads(content)))  # Any: JSON that encode made


def row_digest(part: Buckets) -> str:
    """Return a digest of rows that adds up over files."""
    return f"{sum(int(hashlib.sha256(str(row).encode()).hexdigest(), 16) for row in flat(part)) % 2**256:064x}"
