"""How are the records of physical partitions counted for a head's subtasks?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iteration_lib.driver.epoch import spread


@pytest.mark.parametrize(
    ("records", "over", "reports"),
    [
        ((5, 7), 2, {0: 5, 1: 7}),
        ((1, 2, 3, 4), 2, {0: 3, 1: 7}),
        ((1, 2, 3), 2, {0: 3, 1: 3}),
        ((4,), 3, {0: 4, 1: 0, 2: 0}),
        ((), 2, {0: 0, 1: 0}),
    ],
    ids=["as many", "more partitions", "unequal shares", "fewer partitions", "none"],
)
def test_every_subtask_reports_the_records_of_its_range_of_partitions(
    records: tuple[int, ...], over: int, reports: dict[int, int]
) -> None:
    assert reports == spread(records, over=over)


@given(st.lists(st.integers(0, 1000), max_size=40).map(tuple), st.integers(1, 20))
def test_no_record_is_lost_or_counted_twice_and_every_subtask_reports(records: tuple[int, ...], over: int) -> None:
    reports = spread(records, over=over)

    assert list(range(over)) == list(reports)
    assert sum(records) == sum(reports.values())
