"""Is input known by what is in it, not by when it was written, on a local disk and in an object store?"""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from iteration_lib.errors import InputError
from iteration_lib.model.operator import Kind
from iteration_lib.model.source import parquet
from iteration_lib.runner import input_file
from iteration_lib.runner.pins import check_pinned, pin_source, pinned_from_json, with_digests
from iteration_lib.runner.seam import PinnedData, Stream
from iteration_lib.runner.spark import SparkRunner
from iteration_lib.state.location import StateLocation
from tests import runner_cases as cases
from tests.runner_cases import Harness, MakeHarness, Params

ROWS = [1.0, 2.0, 3.0, 4.0]
OTHER_ROWS = [1.0, 3.0, 2.0, 4.0]  # of the same range: their file has the same footer, too
LONG_AGO = datetime(2024, 2, 29, 12, 30, tzinfo=UTC)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "points.parquet", ROWS)


def write(path: Path, rows: Sequence[float]) -> Path:
    pq.write_table(pa.table({"x": rows}), path, compression="none", use_dictionary=False)
    os.utime(path, ns=(0, int(LONG_AGO.timestamp()) * 10**9 + 17))
    return path


def write_into(folder: Path, name: str) -> None:
    folder.mkdir(exist_ok=True, parents=True)
    write(folder / name, ROWS)


def pin(address: str) -> PinnedData:
    operator = cases.operator_of(cases.table, Kind.DATA)
    return pin_source(parquet(address), operator=operator, location=StateLocation("memory://run"), folder="pins")


def check(pinned: PinnedData) -> None:
    check_pinned(StateLocation("memory://run"), pinned)


def test_file_that_was_written_again_with_the_same_bytes_is_the_one_that_was_pinned(file: Path, tmp_path: Path) -> None:
    """As by a backup that is copied back, or by `touch`."""
    backup = shutil.copy(file, tmp_path / "backup")
    pinned = pin(str(file))
    file.unlink()

    shutil.copy(backup, file)

    assert LONG_AGO.timestamp() < file.stat().st_mtime
    check(pinned)


def test_other_bytes_of_the_same_size_are_refused_also_where_the_footer_is_the_same(file: Path) -> None:
    pinned, size, footer = pin(str(file)), file.stat().st_size, pq.read_metadata(file)
    write(file, OTHER_ROWS)
    file.touch()

    with pytest.raises(InputError) as caught:
        check(pinned)

    assert (size, footer) == (file.stat().st_size, pq.read_metadata(file))
    assert (
        f"input file {file} has changed (other bytes, as many as before) since the run started; put the old file back, "
        "or start another run with another run key"
    ) == str(caught.value)


def test_file_of_which_the_bytes_are_not_known_is_refused_until_its_time_is_set_back(file: Path) -> None:
    """That of a run that was started before they were pinned, or of a large input."""
    pinned = pinned_from_json(as_an_older_version_wrote_it(pin(str(file))))
    check(pinned)
    pinned_at = file.stat()
    file.touch()

    with pytest.raises(InputError) as caught:
        check(pinned)

    assert (
        f"input file {file} has changed (its time is another, and its bytes of then are not known) since the run "
        "started; put the old file back with its time, 2024-02-29T12:30:00.000000017Z, or start another run with "
        "another run key"
    ) == str(caught.value)
    os.utime(file, ns=(0, pinned_at.st_mtime_ns))
    check(pinned)


def as_an_older_version_wrote_it(pinned: PinnedData) -> dict[str, Any]:
    written = dataclasses.asdict(pinned)
    for file in written["files"]:
        del file["content"]
    return written


def test_large_input_is_not_read_for_its_digest(file: Path) -> None:
    pinned = pin(str(file))
    large = replace(pinned, files=(replace(pinned.files[0], size_bytes=2**30 + 1, content=None),))
    file.unlink()

    assert large == with_digests(large)


def test_file_that_is_written_while_it_is_pinned_is_refused(file: Path) -> None:
    """Its footer was read before, its digest would be that of other bytes."""
    pinned = pin(str(file))
    file.touch()

    with pytest.raises(InputError, match=rf"input {file} is being written; start the run when that is done"):
        with_digests(pinned)


def test_file_whose_name_is_no_text_is_named_and_not_pinned(file: Path) -> None:
    """No store could keep its name."""
    unnamable = file.rename(file.with_name("caf\udce9.parquet"))

    with pytest.raises(InputError) as caught:
        pin(str(file.parent))

    said = f"holds a file whose name is not UTF-8 ({str(unnamable)!r}); rename it"
    assert f"input {file.parent} {said}" == str(caught.value)


def test_object_that_was_put_again_is_known_by_its_etag(s3: str, file: Path) -> None:
    """What else a store says of it may change by itself, such as the class of its storage."""
    address, filesystem = f"{s3}/points.parquet", fsspec.filesystem("s3")
    filesystem.pipe_file(address, file.read_bytes())
    pinned = pin(address)

    filesystem.pipe_file(address, file.read_bytes(), StorageClass="STANDARD_IA")

    assert pinned.files[0].version != pin(address).files[0].version
    check(pinned)


def test_other_bytes_of_the_same_size_in_an_object_are_refused(s3: str, file: Path) -> None:
    address, filesystem = f"{s3}/points.parquet", fsspec.filesystem("s3")
    filesystem.pipe_file(address, file.read_bytes())
    pinned = pin(address)

    filesystem.pipe_file(address, write(file, OTHER_ROWS).read_bytes())

    with pytest.raises(
        InputError, match=r"points.parquet has changed \(its ETag is another\) since the run started; put the old"
    ):
        check(pinned)


def value_of(harness: Harness, stream: Stream) -> list[float]:
    return harness.rows(stream)["x"]


def buckets_of(harness: Harness, stream: Stream) -> list[float]:
    return harness.rows(harness.call(cases.given_back, Kind.BUCKETS, given=stream))["x"]


def frame_of(harness: Harness, stream: Stream) -> list[float]:
    return harness.rows(harness.call(cases.given_back, Kind.FRAME, given=stream))["x"]


@pytest.mark.parametrize("read", [value_of, buckets_of])
def test_file_that_is_replaced_after_an_attempt_began_is_refused_by_whoever_reads_it_next(
    make: MakeHarness, file: Path, read: Callable[[Harness, Stream], list[float]]
) -> None:
    harness = make(input=str(file), columns=("x",))
    points = harness.open(cases.table)

    write(file, [*ROWS, 5.0])

    with pytest.raises(InputError, match=r"points\.parquet has changed"):
        read(harness, points)


@pytest.mark.spark
def test_file_that_is_replaced_after_an_attempt_began_is_refused_behind_the_job_that_reads_it(
    spark: SparkSession, file: Path, tmp_path: Path
) -> None:
    runner = SparkRunner(spark, StateLocation(str(tmp_path / "run")), max_buckets=16, parallelism=2)
    with closing(runner):
        harness = Harness(runner, Params(input=str(file), columns=("x",)))
        points = harness.open(cases.table)
        assert ROWS == frame_of(harness, points)

        write(file, [*ROWS, 5.0])

        for transform in (cases.given_back, cases.counted_at_once):
            with pytest.raises(InputError, match=r"points\.parquet has changed"):
                harness.rows(harness.call(transform, Kind.FRAME, given=points))


@pytest.mark.spark
def test_file_that_nobody_reads_any_more_may_go(spark: SparkSession, file: Path, tmp_path: Path) -> None:
    """That of a stream whose records come once, or of one that only other operators take."""
    runner = SparkRunner(spark, StateLocation(str(tmp_path / "run")), max_buckets=16, parallelism=2)
    with closing(runner):
        harness = Harness(runner, Params(input=str(file), columns=("x",)))
        operator = cases.operator_of(cases.table, Kind.DATA)
        pinned = runner.pin(operator, harness.params, folder="pins/table")
        made = harness.call(cases.given_back, Kind.FRAME, given=runner.open_data(pinned))
        written = harness.write(made).stream

        file.unlink()

        assert ROWS == frame_of(harness, written)
        assert [0, 1] == harness.rows(harness.call(cases.of_two, Kind.FRAME))["id"]


def test_bytes_of_a_file_that_is_only_written_again_while_an_attempt_runs_are_compared_once(
    make: MakeHarness, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digested = []
    harness = make(input=str(file), columns=("x",))
    points = harness.open(cases.table)
    digest = input_file._sha256
    monkeypatch.setattr(input_file, "_sha256", lambda path: digested.append(path) or digest(path))
    file.touch()

    assert [ROWS, ROWS] == [value_of(harness, points), value_of(harness, points)]
    assert [str(file)] == digested


def test_folder_behind_a_link_is_part_of_the_input(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "input"
    folder.mkdir()
    write(folder / "a.parquet", ROWS)
    (tmp_path / "more").mkdir()
    write(tmp_path / "more" / "b.parquet", ROWS)
    (folder / "more").symlink_to(tmp_path / "more", target_is_directory=True)

    assert [str(folder / "a.parquet"), str(folder / "more" / "b.parquet")] == [f.path for f in pin(str(folder)).files]


def test_folder_to_which_several_links_lead_is_read_once_whoever_holds_them(file: Path) -> None:
    """Else two folders that lead to each other would never end."""
    for name, other in (("2024", "2025"), ("2025", "2024")):
        write_into(file.parent / name, "x.parquet")
        (file.parent / name / "up").symlink_to(file.parent, target_is_directory=True)
        (file.parent / name / "other").symlink_to(file.parent / other, target_is_directory=True)
    (file.parent / "a-latest").symlink_to(file.parent / "2025", target_is_directory=True)

    found = [Path(known.path).relative_to(file.parent) for known in pin(str(file.parent)).files]

    assert [Path("2024/x.parquet"), Path("2025/x.parquet"), Path(file.name)] == found


def test_hidden_folder_is_not_looked_into(file: Path) -> None:
    for name in ("_temporary", ".hidden"):
        write_into(file.parent / name, "x.parquet")
        (file.parent / name / "loop").symlink_to("loop")

    assert [str(file)] == [known.path for known in pin(str(file.parent)).files]


@pytest.mark.parametrize("address", ["{}/./input", "{}/input/.", "{}//input", "///{}/input", "file://{}/./input"])
def test_files_of_a_folder_are_the_same_however_it_is_written(tmp_path: Path, address: str) -> None:
    for name in ("0.parquet", "10.parquet"):
        write_into(tmp_path / "input", name)
    write_into(tmp_path / "input" / "_tmp", "x.parquet")

    found = [Path(known.path).name for known in pin(address.format(tmp_path)).files]

    assert ["0.parquet", "10.parquet"] == found


def test_folder_that_cannot_be_listed_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed, scan = file.parent / "closed", os.scandir
    closed.mkdir()

    def refuse(path: str) -> Any:
        if Path(path) == closed:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)

    with pytest.raises(InputError, match=rf"cannot be read .*Permission denied: '{closed}'"):
        pin(str(file.parent))
