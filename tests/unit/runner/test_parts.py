"""How are the buckets that are still to be made divided among subtasks?"""

from __future__ import annotations

from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iteration_lib.model.bucket import subtask_ranges
from iteration_lib.runner.parts import Target, rows_of_subtasks
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import FileFormat, SavedFile, SavedStream


def target_with(*held: range) -> Target:
    files = tuple(
        SavedFile(
            path=f"{buckets}", size_bytes=1, sha256="", rows=0, first_bucket=buckets.start, end_bucket=buckets.stop
        )
        for buckets in held
    )
    done = SavedStream(kind="buckets", format=FileFormat.ARROW, schema="", files=files)
    return Target(location=StateLocation("memory://run"), folder="now", file_format=FileFormat.ARROW, done=done)


@given(
    count=st.integers(1, 64),
    parallelism=st.integers(1, 64),
    held=st.sets(st.integers(0, 63)),
)
def test_every_missing_bucket_is_made_once_in_equal_shares_of_ranges(
    count: int, parallelism: int, held: set[int]
) -> None:
    target = target_with(*(range(bucket, bucket + 1) for bucket in sorted(held) if bucket < count))

    ranges = target.ranges(parallelism=parallelism, count=count)

    missing = [bucket for bucket in range(count) if bucket not in held]
    shares = [list(chain.from_iterable(owned)) for owned in ranges]
    assert missing == list(chain.from_iterable(shares))
    assert min(parallelism, len(missing)) == len(shares)
    assert {len(share) for share in shares} <= {
        len(missing) // len(shares),
        -(-len(missing) // len(shares)),
    } or not shares
    for owned in ranges:
        assert all(one.stop < other.start for one, other in pairwise(owned)), "a range too many"


@pytest.mark.parametrize("parallelism", [1, 3, 16])
def test_subtasks_own_what_they_always_own_where_nothing_is_done(parallelism: int) -> None:
    ranges = target_with().ranges(parallelism=parallelism, count=16)

    assert tuple((buckets,) for buckets in subtask_ranges(parallelism=parallelism, count=16)) == ranges


def test_nobody_makes_anything_where_all_is_done() -> None:
    assert () == target_with(range(7), range(7, 16)).ranges(parallelism=4, count=16)


def test_rows_of_a_subtask_are_those_of_its_buckets() -> None:
    assert (3, 7, 5) == rows_of_subtasks([1, 2, 3, 4, 5], parallelism=3)
