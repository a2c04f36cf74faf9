"""Which parts of a stream are still to be made, by whom, and what becomes of one that is?"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from iteration_lib.errors import OperatorResultError
from iteration_lib.model.bucket import subtask_ranges
from iteration_lib.model.operator import Kind
from iteration_lib.runner.pair import describe_result
from iteration_lib.runner.seam import PartListener
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import FileFormat, SavedStream
from iteration_lib.state.streams import (
    dump_schema,
    load_schema,
    missing_buckets,
    new_part_path,
    read_schema,
    save_batches,
)

# The buckets that each subtask makes: ranges, which follow one another over all subtasks.
Ranges: TypeAlias = tuple[tuple[range, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a stream is written, what of it is done, and who is told of the rest; see Runner.materialise."""

    location: StateLocation
    folder: str
    file_format: FileFormat
    done: SavedStream | None = None
    on_part: PartListener | None = None

    @property
    def is_in_parts(self) -> bool:
        """Whether parts count by themselves: some are done, or each is told."""
        return self.done is not None or self.on_part is not None

    def ranges(self, *, parallelism: int, count: int) -> Ranges:
        """Divide the buckets that are not done among at most `parallelism` subtasks, in equal shares.

        A share is cut where a part that is done lies inside it. Raises StateCorruptedError for files that are done and
        not in the order of their buckets.
        """
        done = self.done
        missing = (range(count),) if done is None else missing_buckets(self.location, done, count=count)
        buckets = list(itertools.chain.from_iterable(missing))
        shares = subtask_ranges(parallelism=min(parallelism, len(buckets)), count=len(buckets))
        return tuple(tuple(_runs(buckets[share.start : share.stop])) for share in shares)

    def check_columns(self, schema: str, *, bucket: int, operator_id: str) -> None:
        """Raise OperatorResultError where a bucket has other columns than what is done."""
        if self.done is None:
            return
        known, found = load_schema(self.done), read_schema(schema)
        if not found.equals(known, check_metadata=True):
            raise OperatorResultError(
                operator_id=operator_id,
                problem=f"returned ({describe_result(found)}) for bucket {bucket}, but ({describe_result(known)}) for "
                f"bucket {self.done.files[0].buckets.start}, which is durable; return the same columns for every "
                "bucket, or compute all of them anew with --ignore-edges",
            )

    def write(
        self, kind: Kind, batches: Sequence[pa.RecordBatch], *, subtask: int = 0, buckets: range | None = None
    ) -> SavedStream:
        """Write a part into a new file, tell of it and return it."""
        path = new_part_path(self.folder, subtask, self.file_format)
        file = save_batches(self.location, path, batches, file_format=self.file_format, buckets=buckets)
        schema = dump_schema(batches[0].schema)
        part = SavedStream(kind=kind.value, format=self.file_format, schema=schema, files=(file,))
        self.tell(part)
        return part

    def tell(self, part: SavedStream) -> None:
        """Tell of a new part, if anybody wants to know."""
        if self.on_part is not None:
            self.on_part(part)


def target_of(
    kind: Kind,
    location: StateLocation,
    folder: str | None,
    file_format: FileFormat,
    *,
    done: SavedStream | None,
    on_part: PartListener | None,
) -> Target | None:
    """Return where a stream of this kind is written, if it is; raises ValueError where parts cannot be kept."""
    if done is not None and (kind is not Kind.BUCKETS or folder is None or done.format is not file_format):
        raise ValueError("what is done is part of a stream of buckets, which is written in the same format")
    if folder is None:
        return None
    kept = done if done is not None and done.files else None
    return Target(location=location, folder=folder, file_format=file_format, done=kept, on_part=on_part)


def rows_of_subtasks(rows: Sequence[int], *, parallelism: int) -> tuple[int, ...]:
    """Return each subtask's rows, from those of every bucket."""
    ranges = subtask_ranges(parallelism=parallelism, count=len(rows))
    return tuple(sum(rows[buckets.start : buckets.stop]) for buckets in ranges)


def _runs(buckets: Sequence[int]) -> Iterator[range]:
    """Yield the ranges of numbers that follow one another."""
    for _, run in itertools.groupby(enumerate(buckets), key=lambda found: found[1] - found[0]):
        found = [bucket for _, bucket in run]
        yield range(found[0], found[-1] + 1)
