"""Which buckets do the files of a stream hold, and which do they lack?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from iteration_lib.errors import StateCorruptedError
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import FileFormat, SavedFile, SavedStream, join_parts
from iteration_lib.state.streams import check_buckets, missing_buckets

RUN = StateLocation("memory://run")


def stream_of(*ranges: tuple[int, int] | None) -> SavedStream:
    files = tuple(
        SavedFile(
            path=f"part-{number}",
            size_bytes=1,
            sha256="",
            rows=1,
            first_bucket=buckets[0] if buckets else None,
            end_bucket=buckets[1] if buckets else None,
        )
        for number, buckets in enumerate(ranges)
    )
    return SavedStream(kind="buckets", format=FileFormat.ARROW, schema="", files=files)


@pytest.mark.parametrize(
    ("held", "missing"),
    [
        ([], [(0, 16)]),
        ([(0, 16)], []),
        ([(0, 1), (1, 7), (7, 16)], []),
        ([(3, 5)], [(0, 3), (5, 16)]),
        ([(0, 3), (5, 6), (6, 9)], [(3, 5), (9, 16)]),
        ([(15, 16)], [(0, 15)]),
    ],
)
def test_missing_buckets_are_those_that_no_file_holds(
    held: list[tuple[int, int]], missing: list[tuple[int, int]]
) -> None:
    assert tuple(range(*found) for found in missing) == missing_buckets(RUN, stream_of(*held), count=16)


@pytest.mark.parametrize(
    ("held", "problem"),
    [
        ([(0, 3), (2, 5)], "part-1 holds the buckets 2 to 4, where some of 3 to 15 are to come"),
        ([(4, 8), (0, 4)], "part-1 holds the buckets 0 to 3, where some of 8 to 15 are to come"),
        ([(12, 17)], "part-0 holds the buckets 12 to 16, where some of 0 to 15 are to come"),
        ([(0, 4), (4, 4)], "part-1 holds no buckets"),
        ([None], "part-0 holds no buckets"),
    ],
)
def test_files_that_are_not_in_the_order_of_their_buckets_are_refused(
    held: list[tuple[int, int] | None], problem: str
) -> None:
    with pytest.raises(StateCorruptedError, match=problem):
        missing_buckets(RUN, stream_of(*held), count=16)


def test_stream_that_lacks_buckets_is_refused_with_their_numbers() -> None:
    check_buckets(RUN, stream_of((0, 5), (5, 6), (6, 16)), count=16)

    with pytest.raises(
        StateCorruptedError, match="lacks the buckets 5 to 5, 9 to 15 of a stream, of which the run has 16"
    ):
        check_buckets(RUN, stream_of((0, 5), (6, 9)), count=16)


def test_parts_are_joined_in_the_order_of_their_buckets() -> None:
    first, second, third = stream_of((0, 4)), stream_of((4, 5), (9, 16)), stream_of((5, 9))

    joined = join_parts([third, second, first])

    assert [range(4), range(4, 5), range(5, 9), range(9, 16)] == [file.buckets for file in joined.files]
    assert (first.kind, first.format, first.schema) == (joined.kind, joined.format, joined.schema)


def test_parts_of_several_streams_are_not_joined() -> None:
    with pytest.raises(ValueError, match="several streams"):
        join_parts([stream_of((0, 8)), replace(stream_of((8, 16)), format=FileFormat.PARQUET)])
