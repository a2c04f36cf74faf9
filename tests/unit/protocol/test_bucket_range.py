"""Are sets of buckets, which are kept as ranges, what sets of their numbers are?"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iteration_lib.protocol.bucket_range import (
    Ranges,
    all_buckets,
    common_buckets,
    count_buckets,
    missing_buckets,
    show_buckets,
    show_share,
)
from iteration_lib.protocol.edge import merge_ranges

_TOTAL = 8
_SETS = st.frozensets(st.integers(0, _TOTAL - 1))


@given(_SETS, _SETS)
def test_ranges_are_what_sets_are(one: frozenset[int], other: frozenset[int]) -> None:
    assert ranges(one & other) == common_buckets(ranges(one), ranges(other))
    assert ranges(other - one) == missing_buckets(ranges(one), ranges(other))
    assert len(one) == count_buckets(ranges(one))
    assert (frozenset(range(_TOTAL)) == one) == (all_buckets(_TOTAL) == ranges(one))


@given(_SETS)
def test_ranges_are_disjoint_and_do_not_touch(one: frozenset[int]) -> None:
    assert one == {bucket for first, end in ranges(one) for bucket in range(first, end)}
    assert all(end < first for (_, end), (first, _) in pairwise(ranges(one)))


@pytest.mark.parametrize(
    ("buckets", "shown", "share"),
    [
        ((), "none", "buckets none of 8"),
        ((7,), "7", "buckets 7 of 8"),
        ((0, 1, 2, 3, 7), "0 to 3, 7", "buckets 0 to 3, 7 of 8"),
        (range(_TOTAL), "0 to 7", "all of it"),
    ],
)
def test_buckets_are_named_by_both_ends(buckets: tuple[int, ...], shown: str, share: str) -> None:
    found = ranges(frozenset(buckets))

    assert (shown, share) == (show_buckets(found), show_share(found, _TOTAL))


def ranges(buckets: frozenset[int]) -> Ranges:
    return merge_ranges((bucket, bucket + 1) for bucket in buckets)
