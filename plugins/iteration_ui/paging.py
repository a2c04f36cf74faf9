"""Which rows of a long table does a page show? Pure: rows have numbers, and a page shows a window of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from urllib.parse import urlencode

ROWS_SHOWN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQuery:
    """With which row each table of a run's page ends, as a viewer asked for it; None for the newest."""

    epochs_to: int | None = None
    checkpoints_to: int | None = None
    attempts_to: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The rows from `first` to `last`, of those from `least` to `greatest`; by default there are none."""

    least: int = 0
    greatest: int = -1
    first: int = 0
    last: int = -1

    @property
    def numbers(self) -> range:
        """The numbers of the rows that are shown."""
        return range(self.first, self.last + 1)


NEWEST = TableQuery()
NO_ROWS = Window()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """A window as the page tells it; `older` and `newer` are addresses relative to it, empty where nothing is there."""

    window: Window
    older: str
    newer: str


def window_of(least: int, greatest: int, wanted: int | None) -> Window:
    """Return the window that ends with a wanted row, or with the newest; a full one, if there are so many rows."""
    last = greatest if wanted is None else min(greatest, max(wanted, least + ROWS_SHOWN - 1))
    return Window(least=least, greatest=greatest, first=max(least, last - ROWS_SHOWN + 1), last=last)


def pages_of(window: Window, query: TableQuery, name: str) -> Pages:
    """Return the way from a window of the table of this name to its neighbours; the newest one moves with the run."""
    later = window.last + ROWS_SHOWN
    return Pages(
        window=window,
        older=_address(query, name, window.first - 1) if window.first > window.least else "",
        newer=_address(query, name, later if later < window.greatest else None)
        if window.last < window.greatest
        else "",
    )


def _address(query: TableQuery, name: str, last: int | None) -> str:
    asked = asdict(replace(query, **{f"{name}_to": last}))
    return f"?{urlencode({key: value for key, value in asked.items() if value is not None})}#{name}"
