"""Who runs the operators of a simulated run? A runner on tuples, with files of JSON, that fails when it is told to.

Results on buckets are computed when they are used, once, as Spark does it. Files have the same name in every attempt,
so that attempts that shared a folder would meet.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from iteration_lib.errors import (
    ExecutionLostError,
    InputError,
    OperatorFailedError,
    StateCorruptedError,
    StateLocationError,
)
from iteration_lib.model.bucket import subtask_count, subtask_ranges
from iteration_lib.model.operator import Kind, Operator
from iteration_lib.runner.seam import Invocation, Materialised, PinnedData, PinnedFile, Stream
from iteration_lib.state.files import read_bytes
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import FileFormat, SavedFile, SavedStream
from iteration_lib.state.streams import dump_schema
from tests.simulation.fiber import Call, Fate, ask
from tests.simulation.programs import BUCKETS, Buckets, buckets_of, call, flat

if TYPE_CHECKING:
    from tests.simulation.attempt import SimulatedAttempt
    from tests.simulation.world import World

_SCHEMA = "row: int64"
_SCHEMA_HEX = dump_schema(pa.schema([("row", pa.int64())]))


class SimulatedStream:
    """A stream: its buckets, or how to compute them."""

    schema = _SCHEMA

    def __init__(self, kind: Kind, compute: Callable[[], Buckets], *, parallelism: int = 1) -> None:
        self.kind = kind
        self.parallelism = parallelism
        self._compute = compute
        self._buckets: Buckets | None = None

    def buckets(self) -> Buckets:
        """Return the rows, computed once."""
        if self._buckets is None:
            self._buckets = self._compute()
        return self._buckets


class SimulatedRunner:
    """See iteration_lib.runner.seam.Runner for what each method guarantees."""

    def __init__(self, world: World, attempt: SimulatedAttempt, location: StateLocation) -> None:
        self._world = world
        self._attempt = attempt
        self._location = location
        self._cancelled = False

    def pin(self, operator: Operator, params: object, *, folder: str) -> PinnedData:  # noqa: ARG002 - the seam's
        """Ask a data stream for its rows and write them into the folder."""
        self._run(operator, None)
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
        return self._stream(Kind.DATA, lambda: decode(content))

    def compute(self, invocation: Invocation) -> Stream:
        """Run an operator, at once if it is on values."""
        operator = invocation.operator
        inputs = {name: cast("SimulatedStream", stream) for name, stream in invocation.inputs.items()}

        def computed() -> Buckets:
            given = {name: stream.buckets() for name, stream in inputs.items()}
            self._run(operator, invocation.epoch)
            return call(operator, given, epoch=invocation.epoch, metrics=invocation.metrics)

        parallelism = 1
        if operator.kind is Kind.BUCKETS:
            parallelism = subtask_count(operator.parallelism, default=self._attempt.parallelism, count=BUCKETS)
        stream = SimulatedStream(operator.kind, computed, parallelism=parallelism)
        if operator.kind is Kind.VALUE:
            stream.buckets()
        return cast("Stream", stream)

    def materialise(
        self, stream: Stream, *, folder: str | None, file_format: FileFormat = FileFormat.ARROW
    ) -> Materialised:
        """Count a stream, and with a folder write a file per subtask."""
        found = cast("SimulatedStream", stream)
        buckets = found.buckets()
        ranges = subtask_ranges(parallelism=found.parallelism, count=len(buckets))
        parts = [buckets[owned.start : owned.stop] for owned in ranges]
        records = tuple(len(flat(part)) for part in parts)
        if folder is None:
            return Materialised(stream=stream, records=records, saved=None)
        in_buckets = found.kind is Kind.BUCKETS
        files = tuple(
            self._write(
                f"{folder}/part-{subtask:05d}.{file_format.value}",
                part,
                owned if in_buckets else None,
                is_published=file_format is FileFormat.PARQUET,
            )
            for subtask, (part, owned) in enumerate(zip(parts, ranges, strict=True))
        )
        saved = SavedStream(kind=found.kind.value, format=file_format, schema=_SCHEMA_HEX, files=files)
        return Materialised(stream=stream, records=records, saved=saved)

    def restore(self, saved: SavedStream) -> Stream:
        """Return a stream that was materialised before."""
        buckets: Buckets = ()
        for file in saved.files:
            buckets += decode(read_bytes(self._location, file.path, size_bytes=file.size_bytes, sha256=file.sha256))
        parallelism = min(self._attempt.parallelism, BUCKETS) if saved.kind == Kind.BUCKETS.value else 1
        return cast("Stream", SimulatedStream(Kind(saved.kind), lambda: buckets, parallelism=parallelism))

    def cancel(self) -> None:
        """Have the next operator raise."""
        self._cancelled = True

    def close(self) -> None:
        """Release nothing."""

    def _run(self, operator: Operator, epoch: int | None) -> None:
        fate = ask(Call.RUN, (operator.operator_id, epoch))
        if self._cancelled:
            self._world.counters["operator cancelled by the heartbeat"] += 1
            raise ExecutionLostError("the run was cancelled")
        if fate is not Fate.GO:
            self._attempt.hurt.add("run")
        if fate is Fate.LOST:
            raise ExecutionLostError("Spark's JVM is gone")
        if fate is Fate.FAIL:
            raise OperatorFailedError(operator_id=operator.operator_id, epoch=epoch, cause="injected")
        self._world.oracle.operator_ran(self._attempt, operator, epoch)

    def _stream(self, kind: Kind, compute: Callable[[], Buckets]) -> Stream:
        return cast("Stream", SimulatedStream(kind, compute))

    def _write(self, path: str, part: Buckets, owned: range | None, *, is_published: bool = False) -> SavedFile:
        content = encode(part)
        try:
            self._world.disk.put(path, content)
        except OSError as err:
            raise StateLocationError(self._location.uri, f"cannot hold {path} ({err})") from err
        if self._world.disk.size(path) != len(content):
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


def encode(part: Buckets) -> bytes:
    """Return a file's bytes."""
    return json.dumps(part, separators=(",", ":")).encode()


def decode(content: bytes) -> Buckets:
    """Return what a file's bytes hold."""
    return tuple(tuple(bucket) for bucket in cast("list[Any]", json.loads(content)))  # Any: JSON that encode made


def row_digest(part: Buckets) -> str:
    """Return a digest of rows that adds up over files."""
    return f"{sum(int(hashlib.sha256(str(row).encode()).hexdigest(), 16) for row in flat(part)) % 2**256:064x}"
