"""Which rows does a bucket hold, and which buckets does a subtask own?

The number of buckets is fixed when a run starts. Rows belong to buckets and buckets to subtasks by contiguous ranges,
so that a row's bucket never depends on the parallelism, and a stream saved with three subtasks restores with two.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """The bucket that an operator on buckets is called for; an operator that takes `bucket` gets one."""

    index: int
    count: int


def bucket_rows(index: int, *, count: int, rows: int) -> range:
    """Return the row numbers that bucket `index` of `count` holds, of a stream of `rows` rows."""
    return range(_ceil_div(rows * index, count), _ceil_div(rows * (index + 1), count))


def subtask_buckets(subtask: int, *, parallelism: int, count: int) -> range:
    """Return the buckets that one of `parallelism` subtasks owns, of `count` buckets."""
    return range(_ceil_div(subtask * count, parallelism), _ceil_div((subtask + 1) * count, parallelism))


def subtask_count(declared: int | None, *, default: int, count: int) -> int:
    """Return how many subtasks share `count` buckets: what the operator declares, else the default; never more."""
    return min(count, declared if declared is not None else default)


def subtask_ranges(*, parallelism: int, count: int) -> tuple[range, ...]:
    """Return every subtask's buckets, in order."""
    return tuple(subtask_buckets(subtask, parallelism=parallelism, count=count) for subtask in range(parallelism))


def _ceil_div(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)
