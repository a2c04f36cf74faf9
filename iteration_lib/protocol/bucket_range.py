"""Which buckets are in both sets, which are missing, and how are they said?

A set of buckets is disjoint ranges (first, end), sorted, none touching the next: as an EdgeState holds them.
"""

from __future__ import annotations

from typing import TypeAlias

Ranges: TypeAlias = tuple[tuple[int, int], ...]


def all_buckets(total: int) -> Ranges:
    """Return every bucket of `total`, of which there is one at least."""
    return ((0, total),)


def common_buckets(one: Ranges, other: Ranges) -> Ranges:
    """Return the buckets that are in both."""
    found = [(max(first, other_first), min(end, other_end)) for first, end in one for other_first, other_end in other]
    return tuple(sorted((first, end) for first, end in found if first < end))


def missing_buckets(ranges: Ranges, of: Ranges) -> Ranges:
    """Return the buckets of `of` that are not in `ranges`."""
    missing: list[tuple[int, int]] = []
    for first, end in of:
        start = first
        for known_first, known_end in common_buckets(ranges, ((first, end),)):
            if start < known_first:
                missing.append((start, known_first))
            start = known_end
        if start < end:
            missing.append((start, end))
    return tuple(missing)


def count_buckets(ranges: Ranges) -> int:
    """Return how many buckets there are."""
    return sum(end - first for first, end in ranges)


def show_buckets(ranges: Ranges) -> str:
    """Return them in words, both ends named: `0 to 3, 7`."""
    return ", ".join(str(first) if end == first + 1 else f"{first} to {end - 1}" for first, end in ranges) or "none"


def show_share(ranges: Ranges, total: int) -> str:
    """Return in words which buckets of a stream there are: `all of it`, or `buckets 0 to 3 of 16`."""
    return "all of it" if ranges == all_buckets(total) else f"buckets {show_buckets(ranges)} of {total}"
