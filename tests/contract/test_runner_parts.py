"""Is a stream made part by part, each part told as it is durable, and none made twice? See `Runner.materialise`.

Also: streams of which nothing has to be computed, streams without rows, and folders for operators' own files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iteration_lib.errors import OperatorFailedError, OperatorResultError, StateCorruptedError
from iteration_lib.model.operator import Function, Kind
from iteration_lib.runner.seam import Stream
from iteration_lib.state.saved import FileFormat, SavedFile, SavedStream
from tests import runner_cases as cases
from tests.runner_cases import BUCKETS, Harness, MakeHarness, products_of


def numbers(harness: Harness, *, consumers: int = 1) -> Stream:
    return harness.buckets(cases.numbers, consumers=consumers, points=harness.open(cases.thousand))


def only(saved: SavedStream | None, *chosen: int) -> SavedStream:
    """Return some of a stream's files."""
    assert saved is not None
    return replace(saved, files=tuple(saved.files[number] for number in chosen))


def uneven(make: MakeHarness, compute: Callable[[Harness], Stream], **options: Any) -> SavedStream:
    """Return the buckets 0 to 5 and 10 to 12 of a stream, as two attempts of other parallelism left them."""
    first, second = (
        only(harness.write(compute(harness), f"attempt-{number}", **options).saved, number)
        for number, harness in ((0, make(parallelism=3)), (3, make(parallelism=5)))
    )
    assert [range(6), range(10, 13)] == [first.files[0].buckets, second.files[0].buckets]
    return replace(first, files=first.files + second.files)


def ranges(files: tuple[SavedFile, ...]) -> list[tuple[int, int]]:
    return [(file.buckets.start, file.buckets.stop) for file in files]


LEFT = [*range(6, 10), *range(13, 16)]


# Parts that are done


@pytest.mark.parametrize("file_format", FileFormat)
@pytest.mark.parametrize(
    ("parallelism", "made"),
    [
        (1, [(6, 10), (13, 16)]),
        (2, [(6, 10), (13, 16)]),
        (3, [(6, 9), (9, 10), (13, 14), (14, 16)]),
        (16, [(bucket, bucket + 1) for bucket in LEFT]),
    ],
)
def test_buckets_that_are_done_are_kept_and_the_others_divided_among_the_subtasks_of_now(
    make: MakeHarness, oracle: Harness, file_format: FileFormat, parallelism: int, made: list[tuple[int, int]]
) -> None:
    done = uneven(make, products_of, file_format=file_format)
    harness = make(parallelism=parallelism)

    written = harness.write(products_of(harness), "now", file_format=file_format, done=done)
    assert written.saved

    expected = oracle.runner.materialise(products_of(oracle), folder=None)
    assert sorted([(0, 6), (10, 13), *made]) == ranges(written.saved.files)
    assert set(done.files) <= set(written.saved.files)
    assert oracle.rows(expected.stream) == harness.rows(written.stream)
    assert oracle.rows(expected.stream) == harness.rows(make(parallelism=2).runner.restore(written.saved))


def test_operators_are_called_for_the_buckets_that_are_not_done(make: MakeHarness, tmp_path: Path) -> None:
    done = uneven(make, lambda harness: harness.buckets(cases.doubled, given=sums(harness)))
    harness = make(log=str(tmp_path / "log"))

    written = harness.write(harness.buckets(cases.doubled, given=sums(harness)), "now", done=done)
    harness.rows(written.stream)

    assert (LEFT, LEFT) == (harness.noted_by("sums"), harness.noted_by("doubled"))


def sums(harness: Harness, *, consumers: int = 1) -> Stream:
    return harness.buckets(cases.sums, consumers=consumers, points=harness.open(cases.thousand))


def test_what_others_use_too_is_computed_whole_beside_what_is_left(make: MakeHarness, tmp_path: Path) -> None:
    done = uneven(make, lambda harness: harness.buckets(cases.doubled, given=sums(harness)))
    harness = make(log=str(tmp_path / "log"))
    shared = sums(harness, consumers=2)

    harness.write(harness.buckets(cases.doubled, given=shared), "now", done=done)
    rows = harness.rows(shared)

    assert (list(range(BUCKETS)), LEFT) == (harness.noted_by("sums"), harness.noted_by("doubled"))
    assert BUCKETS == len(rows["rows"])


def test_stream_that_is_done_calls_no_operator(make: MakeHarness, oracle: Harness, tmp_path: Path) -> None:
    done = make(parallelism=3).write(numbers(make())).saved
    harness = make(parallelism=2, log=str(tmp_path / "log"))
    told: list[SavedStream] = []

    written = harness.write(numbers(harness), "now", done=done, on_part=told.append)

    assert (done, (500, 500), []) == (written.saved, written.records, told)
    assert oracle.rows(numbers(oracle)) == harness.rows(written.stream)
    assert [] == harness.calls()


def test_stream_of_which_nothing_is_done_is_made_as_always(make: MakeHarness) -> None:
    harness = make(parallelism=2)
    nothing = only(harness.write(numbers(harness)).saved)

    written = harness.write(numbers(harness), "now", done=nothing)

    assert written.saved
    assert [(0, 8), (8, 16)] == ranges(written.saved.files)


def test_records_of_uneven_parts_are_counted_for_the_subtasks_of_now(make: MakeHarness) -> None:
    done = uneven(make, numbers)
    written = make(parallelism=3).write(numbers(make(parallelism=3)), "now", done=done)
    assert written.saved

    for parallelism, records in [(1, (1000,)), (2, (500, 500)), (3, (375, 313, 312))]:
        harness = make(parallelism=parallelism)
        restored = harness.runner.restore(written.saved)
        assert records == harness.runner.materialise(restored, folder=None).records
    assert (375, 313, 312) == written.records


def test_computed_stream_is_written_beside_what_is_done(make: MakeHarness, oracle: Harness, tmp_path: Path) -> None:
    done = uneven(make, numbers)
    harness = make(log=str(tmp_path / "log"))
    stream = harness.runner.materialise(numbers(harness), folder=None).stream

    written = harness.write(stream, "now", done=done)
    assert written.saved

    assert [(0, 6), (6, 10), (10, 13), (13, 16)] == ranges(written.saved.files)
    assert oracle.rows(numbers(oracle)) == harness.rows(harness.runner.restore(written.saved))
    assert BUCKETS == len(harness.calls())


@pytest.mark.parametrize("is_computed", [False, True])
def test_other_columns_than_those_that_are_done_are_refused_and_not_told(
    make: MakeHarness, *, is_computed: bool
) -> None:
    done = uneven(make, numbers)
    harness = make()
    stream = harness.buckets(cases.other_columns, points=harness.open(cases.thousand))
    if is_computed:
        harness.runner.materialise(stream, folder=None)
    told: list[SavedStream] = []

    with pytest.raises(
        OperatorResultError,
        match=r"returned \(number: double\) for bucket 6, but \(number: int64\) for bucket 0, .* --ignore-edges",
    ):
        harness.write(stream, "now", done=done, on_part=told.append)

    assert [] == told


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("break_file", [damage, Path.unlink])
def test_damaged_part_is_detected_before_anything_is_computed(
    make: MakeHarness, tmp_path: Path, break_file: Callable[[Path], None]
) -> None:
    done = uneven(make, numbers)
    harness = make(log=str(tmp_path / "log"))
    break_file(tmp_path / "run" / done.files[1].path)

    with pytest.raises(StateCorruptedError) as caught:
        harness.write(numbers(harness), "now", done=done)

    assert done.files[1].path in caught.value.uri
    assert [] == harness.calls()


def test_parts_that_overlap_are_refused(make: MakeHarness, tmp_path: Path) -> None:
    harness = make(log=str(tmp_path / "log"))
    one, other = (make(parallelism=parallelism) for parallelism in (3, 2))
    first, second = only(one.write(numbers(one)).saved, 0, 1), only(other.write(numbers(other)).saved, 1)

    with pytest.raises(StateCorruptedError, match="holds the buckets 8 to 15, where some of 11 to 15 are to come"):
        harness.write(numbers(harness), "now", done=replace(first, files=first.files + second.files))

    assert [] == harness.calls()


def test_parts_of_what_has_none_are_refused(make: MakeHarness) -> None:
    harness = make()
    done = only(harness.write(numbers(harness)).saved, 0)

    for stream, options in [
        (harness.value(cases.weights), {"folder": "now"}),
        (numbers(harness), {"folder": None}),
        (numbers(harness), {"folder": "now", "file_format": FileFormat.PARQUET}),
    ]:
        with pytest.raises(ValueError, match="part of a stream of buckets"):
            harness.runner.materialise(stream, done=done, **options)  # type: ignore[arg-type]


# Being told


@pytest.mark.parametrize("is_done_in_part", [False, True])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_every_new_file_is_told_once(make: MakeHarness, parallelism: int, *, is_done_in_part: bool) -> None:
    done = uneven(make, products_of) if is_done_in_part else None
    harness = make(parallelism=parallelism)
    told: list[SavedStream] = []

    saved = harness.write(products_of(harness), "now", done=done, on_part=told.append).saved
    assert saved

    new = [file for file in saved.files if done is None or file not in done.files]
    assert new == sorted((file for part in told for file in part.files), key=lambda file: file.buckets.start)
    assert {(saved.kind, saved.format, saved.schema)} == {(part.kind, part.format, part.schema) for part in told}


def test_computed_stream_is_told_part_by_part(make: MakeHarness) -> None:
    harness = make(parallelism=3)
    told: list[SavedStream] = []
    stream = numbers(harness)
    harness.rows(stream)

    saved = harness.write(stream, "now", on_part=told.append).saved
    assert saved

    assert list(saved.files) == [file for part in told for file in part.files]
    assert 3 == len(told)


def test_value_is_told_once_and_whole(make: MakeHarness) -> None:
    harness = make()
    told: list[SavedStream] = []

    saved = harness.write(harness.value(cases.weights), on_part=told.append).saved

    assert [saved] == told


def test_nothing_is_told_of_what_is_not_written(make: MakeHarness) -> None:
    harness = make()
    told: list[SavedStream] = []

    harness.runner.materialise(numbers(harness), folder=None, on_part=told.append)

    assert [] == told


def test_part_is_told_and_can_be_read_while_the_others_are_computed(make: MakeHarness, tmp_path: Path) -> None:
    harness = make(parallelism=2, log=str(tmp_path / "log"))
    points = harness.open(cases.thousand)
    sizes: list[int] = []

    def note(part: SavedStream) -> None:
        sizes.append((tmp_path / "run" / part.files[0].path).stat().st_size - part.files[0].size_bytes)
        cases.sign(harness.params).touch()  # without which the last bucket never ends

    written = harness.write(harness.buckets(cases.awaits_a_sign, points=points), on_part=note)

    assert [0, 0] == sizes
    assert (500, 500) == written.records


class NotedError(Exception):
    """What whoever is told may raise."""


def test_error_of_who_is_told_ends_the_job_and_passes_through(make: MakeHarness, tmp_path: Path) -> None:
    harness = make(parallelism=2, log=str(tmp_path / "log"))
    points = harness.open(cases.thousand)
    told: list[SavedStream] = []

    def refuse(part: SavedStream) -> None:
        told.append(part)
        raise NotedError("no more")

    with pytest.raises(NotedError, match="no more"):
        harness.write(harness.buckets(cases.awaits_a_sign, points=points), on_part=refuse)

    assert [] == harness.calls(), "the job went on to its end"
    assert 1 == len(told)
    assert 1000 == len(harness.rows(numbers(harness))["number"])  # the runner goes on
    cases.sign(harness.params).touch()


def test_what_was_complete_when_an_operator_failed_has_been_told(make: MakeHarness, tmp_path: Path) -> None:
    harness = make(parallelism=4, log=str(tmp_path / "log"))
    told: list[SavedStream] = []

    def failing(harness: Harness) -> Stream:
        return harness.buckets(cases.fails_last, points=harness.open(cases.thousand))

    with pytest.raises(OperatorFailedError, match="not yet"):
        harness.write(failing(harness), on_part=told.append)
    cases.sign(harness.params).touch()
    Path(harness.params.log).unlink()
    files = sorted((file for part in told for file in part.files), key=lambda file: file.buckets.start)
    written = harness.write(failing(harness), "again", done=replace(told[0], files=tuple(files)))

    assert [(0, 4), (4, 8), (8, 12)] == ranges(tuple(files))
    assert [12, 13, 14, 15] == harness.noted_by("fails")
    assert (250, 250, 250, 250) == written.records


# What has to be computed


def test_stream_is_computed_when_its_rows_are_there(make: MakeHarness, tmp_path: Path) -> None:
    harness = make(log=str(tmp_path / "log"))
    data, value, used, written = (
        harness.open(cases.thousand),
        harness.value(cases.weights),
        numbers(harness),
        numbers(harness),
    )
    is_computed = harness.runner.is_computed

    assert [True, True, False] == [is_computed(stream) for stream in (data, value, used)]
    assert [] == harness.calls()
    harness.rows(used)
    harness.write(written)
    calls = harness.calls()
    restored = harness.runner.restore(harness.write(written, "again").saved)  # type: ignore[arg-type]
    assert [True, True, True] == [is_computed(stream) for stream in (used, written, restored)]
    for number, stream in enumerate((value, used, written, restored)):
        harness.write(stream, f"at-the-end-{number}")
    assert 2 * BUCKETS == len(calls) == len(harness.calls())


def test_stream_inside_another_is_computed_once_it_is_shared(make: MakeHarness) -> None:
    harness = make()
    alone, shared = sums(harness), sums(harness, consumers=2)

    harness.rows(harness.buckets(cases.both, one=alone, other=shared))

    assert harness.runner.is_computed(shared)


# Data without rows


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "input"
    folder.mkdir()
    pq.write_table(
        pa.table({"number": pa.array([], pa.int64()), "vector": pa.array([], pa.list_(pa.float64()))}),
        folder / "a.parquet",
    )
    pq.write_table(pa.table({"number": [1, 2], "vector": [[1.0, 2.0], [3.0, 4.0]]}), folder / "b.parquet")
    pq.write_table(pa.table({"number": [3], "vector": [[5.0, 6.0]]}), folder / "c.parquet")
    return folder


def test_data_without_rows_has_the_columns_for_every_kind_of_operator(make: MakeHarness, files: Path) -> None:
    harness = make(input=str(files))
    pinned = harness.runner.pin(cases.operator_of(cases.table, Kind.DATA), harness.params, folder="pins")
    full = harness.runner.open_data(pinned)

    empty = harness.runner.without_rows(full)
    widths = harness.rows(harness.buckets(cases.widths, points=empty))

    assert {"number": [], "vector": []} == harness.rows(empty)
    assert (BUCKETS, 0.0) == (len(widths["x"]), np.sum(widths["x"]))
    for _ in range(2):  # what a node keeps of the stream is not what it keeps of its columns
        assert [1, 2, 3] == harness.rows(harness.buckets(cases.places, points=full))["number"]
        assert [] == harness.rows(harness.buckets(cases.places, points=empty))["number"]


@pytest.mark.parametrize(
    "replaced",
    [{"number": [7.5], "vector": [[1.0]]}, {"other": ["x"]}, {"number": pa.array([], pa.int64())}, None],
    ids=["other types", "other columns", "no rows", "gone"],
)
def test_data_without_rows_has_the_columns_of_the_rows_that_were_seen(
    make: MakeHarness, files: Path, replaced: dict[str, Any] | None
) -> None:
    """Whoever delivers new data every day may put them where the old ones were."""
    harness = make(input=str(files))
    pinned = harness.runner.pin(cases.operator_of(cases.table, Kind.DATA), harness.params, folder="pins")
    full = harness.runner.open_data(pinned)
    seen = harness.buckets(cases.places, points=full)
    assert [1, 2, 3] == harness.rows(seen)["number"]
    for path in files.iterdir():
        if replaced is None:
            path.unlink()
        else:
            pq.write_table(pa.table(replaced), path)

    empty = harness.runner.without_rows(full)
    places = harness.buckets(cases.places, points=empty)

    assert {"number": [], "vector": []} == harness.rows(empty)
    assert [] == harness.rows(places)["number"]
    assert seen.schema == places.schema


# Folders for operators' own files


def test_every_call_gets_an_empty_folder_below_the_one_that_is_named(make: MakeHarness, tmp_path: Path) -> None:
    harness = make()
    operators: list[tuple[Function, Kind]] = [(cases.leaves_files, Kind.BUCKETS), (cases.leaves_a_file, Kind.VALUE)]

    found = [
        harness.rows(harness.call(function, kind, scratch="fresh/operator"))
        for function, kind in operators
        for _ in range(2)  # as a Spark task that is repeated
    ]

    folders = [Path(folder) for rows in found for folder in rows["scratch"]]
    assert 2 * BUCKETS + 2 == len(set(folders))
    assert {0} == {count for rows in found for count in rows["files"]}
    for folder in folders:
        assert folder.is_relative_to(tmp_path / "run" / "fresh")
        assert ["left"] == [path.name for path in folder.iterdir()]


def test_folder_is_made_for_those_alone_that_ask(make: MakeHarness, tmp_path: Path) -> None:
    harness = make()

    harness.rows(harness.call(cases.drawn, Kind.BUCKETS, scratch="fresh/0/operator"))

    assert not (tmp_path / "run" / "fresh").exists()
    with pytest.raises(ValueError, match="'leaves_a_file' asks for scratch"):
        harness.value(cases.leaves_a_file)
