"""Which rows has a bucket, and which buckets a subtask?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iteration_lib.model.bucket import bucket_rows, subtask_buckets, subtask_count, subtask_ranges


@given(st.integers(1, 200), st.integers(0, 10_000))
def test_every_row_has_one_bucket_and_buckets_are_in_order(count: int, rows: int) -> None:
    ranges = [bucket_rows(index, count=count, rows=rows) for index in range(count)]

    assert list(range(rows)) == [row for found in ranges for row in found]
    assert max(map(len, ranges)) - min(map(len, ranges)) <= 1


@given(st.integers(1, 200).flatmap(lambda count: st.tuples(st.just(count), st.integers(1, count))))
def test_every_bucket_has_one_subtask_and_no_subtask_is_idle(sizes: tuple[int, int]) -> None:
    count, parallelism = sizes

    ranges = subtask_ranges(parallelism=parallelism, count=count)

    assert list(range(count)) == [bucket for found in ranges for bucket in found]
    assert min(map(len, ranges)) >= 1


@pytest.mark.parametrize(("subtask", "buckets"), [(0, range(6)), (1, range(6, 11)), (2, range(11, 16))])
def test_three_subtasks_share_sixteen_buckets_as_key_groups_are_shared(subtask: int, buckets: range) -> None:
    assert buckets == subtask_buckets(subtask, parallelism=3, count=16)


@pytest.mark.parametrize(("declared", "expected"), [(None, 4), (2, 2), (99, 16)])
def test_operator_has_the_parallelism_that_it_declares_but_no_idle_subtask(declared: int | None, expected: int) -> None:
    assert expected == subtask_count(declared, default=4, count=16)
