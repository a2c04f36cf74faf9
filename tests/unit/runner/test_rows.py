"""Does a reader of rows ask no more of a store than it needs?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from iteration_lib.errors import InputError
from iteration_lib.model.source import parquet
from iteration_lib.runner.pins import check_pinned, pin_parquet
from iteration_lib.runner.rows import RowReader
from iteration_lib.runner.seam import PinnedData
from iteration_lib.state.location import StateLocation

HERE = StateLocation("memory://run")
FOLDER = "/rows-of-three-files"
ROWS_OF_FILE, ROWS_OF_GROUP = 5, 2


@pytest.fixture
def pinned() -> Iterator[PinnedData]:
    """A data stream of three files: the rows 0 to 4, 5 to 9 and 10 to 14, in three row groups each."""
    filesystem = fsspec.filesystem("memory")
    for number in range(3):
        rows = range(number * ROWS_OF_FILE, (number + 1) * ROWS_OF_FILE)
        table = pa.table({"x": list(map(float, rows))})
        with filesystem.open(f"{FOLDER}/{number}.parquet", "wb") as file:
            pq.write_table(table, file, row_group_size=ROWS_OF_GROUP)
    yield pin_parquet(parquet(f"memory:/{FOLDER}"))
    filesystem.rm(FOLDER, recursive=True)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, pinned: PinnedData) -> Counter[str]:
    """What a store is asked for each file from then on; opening one is a question too."""
    found: Counter[str] = Counter()

    def count(name: str) -> None:
        does = getattr(MemoryFileSystem, name)

        def counted(self: MemoryFileSystem, path: str, *arguments: object, **named: object) -> object:
            found[f"{name} {path.removeprefix(FOLDER)}"] += 1
            return does(self, path, *arguments, **named)

        monkeypatch.setattr(MemoryFileSystem, name, counted)

    count("_open")
    count("info")
    return found


@pytest.mark.parametrize(
    ("rows", "files"), [(range(5, 10), "1"), (range(6), "01"), (range(4, 11), "012"), (range(15), "012")]
)
def test_only_files_that_hold_the_rows_are_asked_for_and_each_once(
    pinned: PinnedData, asked: Counter[str], rows: range, files: str
) -> None:
    read = RowReader(HERE, pinned).read(rows)

    assert list(rows) == read["x"].to_pylist()
    assert {f"{what} /{file}.parquet": 1 for file in files for what in ("_open", "info")} == asked


def test_rows_of_the_row_group_that_was_read_last_need_no_store(pinned: PinnedData, asked: Counter[str]) -> None:
    reader = RowReader(HERE, pinned)
    before = reader.read(range(3)), dict(asked)

    behind = reader.read(range(3, 4))

    assert ([0.0, 1.0, 2.0], [3.0]) == (before[0]["x"].to_pylist(), behind["x"].to_pylist())
    assert before[1] == asked


def test_rows_of_every_range_are_read_whatever_was_read_before(pinned: PinnedData) -> None:
    """Also backwards, across files, and with rows of the row group that is still decoded."""
    reader = RowReader(HERE, pinned)
    ranges = [range(start, stop) for start in range(15) for stop in range(start + 1, 16)]

    for rows in [*ranges, *reversed(ranges), *ranges[::7]]:
        assert list(rows) == reader.read(rows)["x"].to_pylist()


def test_file_that_was_only_read_is_the_one_that_was_pinned(
    pinned: PinnedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some stores say when that was, SFTP and SMB, HDFS over HTTP and Azure, or where a request was led to."""
    info, reads = MemoryFileSystem.info, iter(range(1_000))

    def with_time_of_reading(self: MemoryFileSystem, path: str, **named: object) -> dict[str, object]:
        told = {name: next(reads) for name in ("time", "accessTime", "last_accessed_on", "url")}
        return {**info(self, path, **named), **told}

    monkeypatch.setattr(MemoryFileSystem, "info", with_time_of_reading)

    check_pinned(HERE, pin_parquet(parquet(f"memory:/{FOLDER}")))


def test_rows_of_a_replaced_file_are_refused_each_time(pinned: PinnedData) -> None:
    reader = RowReader(HERE, pinned)
    with fsspec.filesystem("memory").open(f"{FOLDER}/0.parquet", "wb") as file:
        pq.write_table(pa.table({"x": [9.0] * ROWS_OF_FILE}), file, row_group_size=ROWS_OF_GROUP)

    for _ in range(2):
        with pytest.raises(InputError, match=r"0\.parquet has changed"):
            reader.read(range(2))


def test_file_that_was_written_again_in_a_store_that_tells_nothing_of_its_content_cannot_be_put_back(
    pinned: PinnedData,
) -> None:
    filesystem = fsspec.filesystem("memory")
    filesystem.pipe_file(f"{FOLDER}/1.parquet", filesystem.cat_file(f"{FOLDER}/1.parquet"))

    with pytest.raises(InputError) as caught:
        check_pinned(HERE, pinned)

    said = "has changed (it was written again) since the run started; start another run with another run key"
    assert f"input file memory:/{FOLDER}/1.parquet {said}" == str(caught.value)


def test_content_is_known_by_its_etag_however_a_store_spells_it(
    pinned: PinnedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    info, changes = MemoryFileSystem.info, iter(range(1_000))

    def with_etag(self: MemoryFileSystem, path: str, **named: object) -> dict[str, object]:
        return {**info(self, path, **named), "etag": "0x8D", "class": next(changes)}

    monkeypatch.setattr(MemoryFileSystem, "info", with_etag)

    check_pinned(HERE, pin_parquet(parquet(f"memory:/{FOLDER}")))
