"""Which rows of a long table a page shows, and how it leads to the others."""

from __future__ import annotations

import pytest

from iteration_ui.paging import TableQuery, Window, pages_of, window_of


@pytest.mark.parametrize(
    ("least", "greatest", "wanted", "shown"),
    [
        (0, -1, None, (0, -1)),
        (0, -1, 5, (0, -1)),
        (0, 199, None, (0, 199)),
        (0, 999, None, (800, 999)),
        (0, 999, 799, (600, 799)),
        (0, 999, 3, (0, 199)),
        (0, 999, -(10**30), (0, 199)),
        (0, 999, 10**30, (800, 999)),
        (40, 60, 50, (40, 60)),
        (40, 999, 0, (40, 239)),
    ],
)
def test_window_ends_with_the_row_that_is_wanted_and_is_full_where_it_can_be(
    least: int, greatest: int, wanted: int | None, shown: tuple[int, int]
) -> None:
    window = window_of(least, greatest, wanted)

    assert Window(least=least, greatest=greatest, first=shown[0], last=shown[1]) == window
    assert list(range(shown[0], shown[1] + 1)) == list(window.numbers)


@pytest.mark.parametrize(
    ("wanted", "older", "newer"),
    [
        (None, "?epochs_to=299&checkpoints_to=7#epochs", ""),
        (299, "?epochs_to=99&checkpoints_to=7#epochs", "?checkpoints_to=7#epochs"),
        (250, "?epochs_to=50&checkpoints_to=7#epochs", "?epochs_to=450&checkpoints_to=7#epochs"),
        (199, "", "?epochs_to=399&checkpoints_to=7#epochs"),
    ],
)
def test_window_leads_to_its_neighbours_and_leaves_the_other_table_where_it_is(
    wanted: int | None, older: str, newer: str
) -> None:
    pages = pages_of(window_of(0, 499, wanted), TableQuery(epochs_to=wanted, checkpoints_to=7), "epochs")

    assert (older, newer) == (pages.older, pages.newer)
