"""Is a state file there whole or not at all, is no other file taken for it, and can no path leave the root?

The same on a local disk, on a store that knows neither rename nor fsync, and on S3.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iteration_lib.errors import StateCorruptedError, StateLocationError
from iteration_lib.state import files
from iteration_lib.state.block import batch_of
from iteration_lib.state.digest import RowDigest, row_digest
from iteration_lib.state.files import copy_file, create_file, open_verified, read_bytes, verify_file, write_bytes
from iteration_lib.state.location import StateLocation, filesystem_of
from iteration_lib.state.saved import FileFormat, SavedFile, SavedStream
from iteration_lib.state.streams import (
    BucketReader,
    dump_schema,
    iterate_file,
    load_buckets,
    load_whole,
    save_batches,
    save_table,
    verify_rows,
)


@pytest.fixture(params=["local", "memory", "s3"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> StateLocation:
    if request.param == "local":
        return StateLocation(str(tmp_path / "state"))
    root = "memory:/" if request.param == "memory" else request.getfixturevalue("s3")
    return StateLocation(f"{root}/{secrets.token_hex(8)}/run")


def overwrite(location: StateLocation, path: str, content: bytes) -> None:
    filesystem, full = filesystem_of(location.path(path))
    filesystem.pipe_file(full, content)


def test_file_holds_what_was_written_and_its_digest_is_known(location: StateLocation) -> None:
    written = write_bytes(location, "a/b.bin", b"hello")

    assert ("a/b.bin", 5) == (written.path, written.size_bytes)
    assert b"hello" == read_bytes(location, "a/b.bin", size_bytes=5, sha256=written.sha256)
    assert ("a/b.bin",) == location.list_files()
    assert ("a/b.bin",) == location.list_files("a")


def test_bytes_of_a_file_that_was_fetched_are_arrows_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of Arrow's that drops what is Python's while the interpreter ends aborts the process."""
    content = secrets.token_bytes(64)
    before = sys.getrefcount(content)
    monkeypatch.setattr(files, "read_bytes", lambda *_, **__: content)

    opened = open_verified(StateLocation("memory://run"), "part", size_bytes=64, sha256="")

    assert before == sys.getrefcount(content)
    assert content == opened.read()


def test_files_are_listed_with_their_sizes(location: StateLocation) -> None:
    write_bytes(location, "a/b.bin", b"hello")
    write_bytes(location, "a/c/d.bin", b"")
    write_bytes(location, "e.bin", b"seven b")

    assert {"a/b.bin": 5, "a/c/d.bin": 0, "e.bin": 7} == location.list_sizes()
    assert {"a/b.bin": 5, "a/c/d.bin": 0} == location.list_sizes("a")
    assert {} == location.list_sizes("nowhere")


def test_place_that_is_away_is_no_corrupted_copy(
    location: StateLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, away = write_bytes(location, "a.bin", b"hello"), StateLocation(str(tmp_path / "away"))
    refused = ConnectionError("cannot connect")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", _refusing(Path.stat, str(tmp_path / "away" / "a.bin"), refused))
        with pytest.raises(StateLocationError, match=r"cannot read a\.bin .*cannot connect") as caught:
            copy_file(location, written, away, "a.bin")

    assert caught.value.is_passing


@pytest.mark.parametrize("act", [os.scandir, os.stat], ids=["listed", "looked at"])
@pytest.mark.parametrize("closed", ["", "a", "a/c"], ids=["root", "folder", "folder inside"])
def test_folder_that_cannot_be_listed_is_named_and_not_taken_for_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[object], object], closed: str
) -> None:
    location, folder = StateLocation(str(tmp_path)), str(tmp_path / closed)
    write_bytes(location, "a/c/d.bin", b"x")

    with monkeypatch.context() as patched:
        patched.setattr(os, act.__name__, _refusing(act, folder, PermissionError(13, "Permission denied", folder)))
        with pytest.raises(StateLocationError, match="Permission denied") as caught:
            location.list_sizes()

    assert (True, True) == (repr(folder) in str(caught.value), caught.value.is_passing)


@pytest.mark.parametrize("gone", [FileNotFoundError(2, "gone"), NotADirectoryError(20, "a file by now")], ids=type)
def test_folder_that_goes_while_files_are_listed_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: OSError
) -> None:
    location = StateLocation(str(tmp_path))
    write_bytes(location, "a/b.bin", b"x")
    write_bytes(location, "a/c/d.bin", b"x")

    monkeypatch.setattr(os, "scandir", _refusing(os.scandir, str(tmp_path / "a/c"), gone))

    assert ("a/b.bin",) == location.list_files()


def _refusing(act: Callable[..., object], refused: str, error: OSError) -> Callable[..., object]:
    """Return a call of the system that fails for one path: permissions bind everybody but root."""

    def refuse(path: object, *arguments: object, **options: object) -> object:
        if str(path) == refused:
            raise error
        return act(path, *arguments, **options)

    return refuse


def test_empty_folders_are_removed_and_files_stay(location: StateLocation) -> None:
    write_bytes(location, "a/b/c.bin", b"c")
    location.make_folder("a/d/e")

    location.remove_empty_folders("a")
    location.remove_empty_folders("nowhere")

    assert ("a/b/c.bin",) == location.list_files()
    if location.is_local:
        assert ["b"] == [path.name for path in Path(location.path("a")).iterdir()]


def test_file_is_never_replaced(location: StateLocation) -> None:
    written = write_bytes(location, "a.bin", b"first")

    with pytest.raises(StateLocationError, match="there already"):
        write_bytes(location, "a.bin", b"second")
    assert b"first" == read_bytes(location, "a.bin", size_bytes=5, sha256=written.sha256)


def test_file_is_not_there_when_writing_it_failed(location: StateLocation) -> None:
    def fail() -> None:
        with create_file(location, "a.bin") as new:
            new.write(b"half of ")
            raise OSError(28, "no space")

    with pytest.raises(StateLocationError, match="no space"):
        fail()
    assert () == location.list_files()


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda content: content[:-1], "has 9999 bytes, but 10000 were written"),
        (lambda content: content + b"x", "has 10001 bytes"),
        (lambda _: b"", "has 0 bytes"),
        (lambda content: content[:500] + bytes([content[500] ^ 1]) + content[501:], "has the SHA-256"),
    ],
)
def test_damaged_file_is_detected_and_named(
    location: StateLocation, damage: Callable[[bytes], bytes], problem: str
) -> None:
    content = bytes(range(250)) * 40
    written = write_bytes(location, "a.bin", content)
    verify_file(location, "a.bin", size_bytes=10_000, sha256=written.sha256)
    overwrite(location, "a.bin", damage(content))

    for read in (read_bytes, open_verified, verify_file):
        with pytest.raises(StateCorruptedError, match=problem) as caught:
            read(location, "a.bin", size_bytes=10_000, sha256=written.sha256)
        assert location.path("a.bin") == caught.value.uri


def test_missing_file_is_named(location: StateLocation) -> None:
    with pytest.raises(StateCorruptedError, match="is missing"):
        verify_file(location, "gone.bin", size_bytes=1, sha256="")


ESCAPES = [
    *("", "/", "/etc/passwd", "..", "../x", "a/../x", "a/./b", "a//b", "a/", "a\0b", "a\\..\\b", "~/x", "a\nb", "a b"),
    *("a%2e%2e/b", "%2e%2e/x", "a?b", "a*b", "a[b", "file:///etc/passwd", "s3://bucket/x"),
]


@pytest.mark.parametrize("path", ESCAPES)
def test_path_that_could_leave_the_root_is_refused(location: StateLocation, path: str) -> None:
    with pytest.raises(StateLocationError):
        location.path(path)


def test_link_that_leads_out_of_the_root_is_refused(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "link").symlink_to(outside)

    with pytest.raises(StateLocationError, match="a link leads out"):
        StateLocation(str(root)).path("link/x")


def test_removing_a_folder_twice_is_harmless(location: StateLocation) -> None:
    write_bytes(location, "a/b/c.bin", b"x")
    write_bytes(location, "d.bin", b"x")

    location.remove("a")
    location.remove("a")

    assert ("d.bin",) == location.list_files()


def test_folder_is_removed_whole_though_somebody_else_removes_a_file_of_it_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location, goes = StateLocation(str(tmp_path)), iter(range(3))
    for name in ("a", "b", "c", "d/e"):
        write_bytes(location, f"folder/{name}", b"x")
    unlink = os.unlink

    def unlink_second(path: str, *, dir_fd: int | None = None) -> None:
        unlink(path, dir_fd=dir_fd)
        if next(goes, None) is not None:
            unlink(path, dir_fd=dir_fd)  # as who comes second finds it

    monkeypatch.setattr(os, "unlink", unlink_second)
    location.remove("folder")

    assert [] == list(tmp_path.iterdir())


def test_folder_whose_files_always_go_before_they_are_removed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = StateLocation(str(tmp_path))
    write_bytes(location, "folder/a", b"x")

    monkeypatch.setattr(os, "unlink", _refusing(os.unlink, "a", FileNotFoundError(2, "gone")))

    with pytest.raises(StateLocationError, match="cannot remove folder"):
        location.remove("folder")


def test_folder_may_be_asked_for_twice_and_holds_no_file(location: StateLocation) -> None:
    asked = [location.make_folder("attempt/scratch") for _ in range(2)]

    assert [location.path("attempt/scratch")] * 2 == asked
    assert Path(asked[0]).is_dir() is location.is_local
    assert () == location.list_files()


def test_location_below_another_names_the_same_files(location: StateLocation) -> None:
    write_bytes(location.below("runs/1"), "a.bin", b"x")

    assert ("runs/1/a.bin",) == location.list_files()


def test_writable_location_passes_and_keeps_nothing(location: StateLocation) -> None:
    location.check_writable()

    assert () == location.list_files()


def test_bucket_that_is_not_there_is_refused_and_not_made(s3: str) -> None:
    filesystem, bucket = filesystem_of(s3)

    with pytest.raises(StateLocationError, match="does not exist"):
        StateLocation("s3://mistyped/run").check_writable()
    assert [bucket] == filesystem.ls("", refresh=True)


@pytest.mark.parametrize("uri", ["", "nosuch://x", "/proc/nowhere", "a\0b"])
def test_unusable_location_is_refused_by_name(uri: str) -> None:
    with pytest.raises(StateLocationError) as caught:
        StateLocation(uri).check_writable()

    assert repr(uri) in str(caught.value)


def test_local_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    write_bytes(StateLocation(str(tmp_path)), "a/b.bin", b"x")

    assert [tmp_path / "a" / "b.bin"] == list((tmp_path / "a").iterdir())


def stream_of(files: list[SavedFile], schema: pa.Schema, file_format: FileFormat) -> SavedStream:
    return SavedStream(kind="buckets", format=file_format, schema=dump_schema(schema), files=tuple(files))


@pytest.mark.parametrize("file_format", FileFormat)
def test_each_bucket_comes_back_from_its_file(location: StateLocation, file_format: FileFormat) -> None:
    nans = np.array([0x7FF8000000000001, 0x7FF8000000000000, 0x8000000000000000], np.uint64).view(np.float64)
    block = {"x": nans, "m": np.arange(12.0).reshape(3, 2, 2), "s": np.array(["a", "", "ü"])}
    whole = batch_of(block)
    buckets = [whole, whole.slice(0, 0), whole.slice(1)]
    files = [
        save_batches(location, "0", buckets[:2], file_format=file_format, buckets=range(2)),
        save_batches(location, "1", buckets[2:], file_format=file_format, buckets=range(2, 3)),
    ]
    stream = stream_of(files, whole.schema, file_format)

    reader = BucketReader(location, stream)
    for index, bucket in enumerate(buckets):
        assert bucket.serialize() == reader.bucket(index).serialize()
    together = [bucket for file in files for bucket in load_buckets(location, stream, file)]
    assert [bucket.serialize() for bucket in buckets] == [bucket.serialize() for bucket in together]
    assert 5 == stream.rows == load_whole(location, stream).num_rows


FAR = pa.timestamp("ms")  # beyond what Python's datetime holds


@pytest.mark.parametrize("rows", [2, 0])
@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2], pa.timestamp("s")),
        pa.array([1, 2], pa.time32("s")),
        pa.array([86_400_000, 0], pa.date64()),
        pa.array([5, 6]).dictionary_encode(),
        pa.array(["a", None]).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())),
        pa.ListArray.from_arrays([0, 1, 2], pa.array([5, 6]).dictionary_encode()),
        pa.LargeListArray.from_arrays([0, 1, 2], pa.array([5, 6]).dictionary_encode()),
        pa.MapArray.from_arrays([0, 1, 2], ["a", "b"], pa.array([5, 6]).dictionary_encode()),
        pa.StructArray.from_arrays(
            [
                pa.array([5, None]).dictionary_encode(),
                pa.array([1, None], pa.time64("ns")),
                pa.array([10**15, None], FAR),
            ],
            names=["x", "x", "z"],
            mask=pa.array([False, True]),
        ),
        pa.array([[1.0], [2.0]], pa.list_(pa.float64(), 1)),
    ],
    ids=lambda column: str(column.type),
)
def test_published_rows_come_back_in_the_types_that_the_stream_has(tmp_path: Path, column: pa.Array, rows: int) -> None:
    """Parquet has fewer types, and gives each field a number."""
    location, batch = StateLocation(str(tmp_path)), pa.record_batch({"x": column}).slice(0, rows)
    file = save_batches(location, "p", [batch], file_format=FileFormat.PARQUET, buckets=range(1))
    stream = stream_of([file], batch.schema, FileFormat.PARQUET)

    for read in (load_whole(location, stream), *load_buckets(location, stream, file), *iterated(location, stream)):
        assert batch.schema.equals(read.schema, check_metadata=True)
        assert batch.equals(read)


def iterated(location: StateLocation, stream: SavedStream) -> list[pa.RecordBatch]:
    return [batch for file in stream.files for batch in iterate_file(location, stream, file)]


@pytest.mark.parametrize("file_format", FileFormat)
def test_bucket_between_the_files_of_a_stream_is_missing(location: StateLocation, file_format: FileFormat) -> None:
    batch = batch_of({"x": np.arange(3)})
    files = [
        save_batches(location, str(bucket), [batch], file_format=file_format, buckets=range(bucket, bucket + 1))
        for bucket in (0, 2)
    ]

    with pytest.raises(StateCorruptedError, match="holds no bucket 1"):
        BucketReader(location, stream_of(files, batch.schema, file_format)).bucket(1)


@pytest.mark.parametrize("file_format", FileFormat)
def test_file_that_holds_other_rows_than_were_counted_is_refused_by_whoever_reads_it(
    location: StateLocation, file_format: FileFormat
) -> None:
    batch = batch_of({"x": np.arange(3)})
    file = save_batches(location, "0", [batch], file_format=file_format, buckets=range(1))
    lie = replace(file, rows=4)
    stream = stream_of([lie], batch.schema, file_format)
    readers: list[Callable[[], object]] = [
        lambda: load_whole(location, stream),
        lambda: load_buckets(location, stream, lie),
        lambda: verify_rows(location, stream, lie),
        lambda: BucketReader(location, stream).bucket(0),
    ]
    if file_format is FileFormat.PARQUET:
        readers.append(lambda: list(iterate_file(location, stream, lie)))

    for read in readers:
        with pytest.raises(StateCorruptedError, match="holds 3 rows, but 4 were written") as caught:
            read()
        assert location.path("0") == caught.value.uri


def test_published_file_carries_the_digest_of_its_rows(location: StateLocation) -> None:
    batch = batch_of({"x": np.arange(6.0).reshape(3, 2), "n": np.arange(3)})

    file = save_batches(location, "p.parquet", [batch], file_format=FileFormat.PARQUET)

    filesystem, path = filesystem_of(location.path("p.parquet"))
    with filesystem.open(path, "rb") as content:
        table = pq.read_table(content)
    assert RowDigest(rows=3, total=int(str(file.row_digest), 16)) == row_digest(table.to_batches())


def test_table_is_written_as_its_batches_come_and_not_at_all_without_rows(location: StateLocation) -> None:
    batch = batch_of({"x": np.arange(3)})

    saved = save_table(location, "a.parquet", iter([batch.slice(0, 0), batch, batch]), has_digest=True)
    nothing = save_table(location, "b.parquet", iter([batch.slice(0, 0)]), has_digest=True)

    assert saved is not None
    assert (6, row_digest([batch, batch]).hex) == (saved[0].rows, saved[0].row_digest)
    assert nothing is None
    assert ("a.parquet",) == location.list_files()
