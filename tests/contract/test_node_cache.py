"""Does the node's cache give the rows of the source, whatever is in its folder?"""

from __future__ import annotations

import os
import stat
import struct
import subprocess
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iteration_lib.errors import InputError
from iteration_lib.model.operator import Kind
from iteration_lib.model.source import parquet
from iteration_lib.runner.local import LocalRunner
from iteration_lib.runner.node_cache import (
    IDLE_SECONDS,
    SHARED,
    BucketCache,
    CachedData,
    new_scope,
    remove_scope,
    scope_of_run,
)
from iteration_lib.runner.pins import pin_parquet
from iteration_lib.runner.rows import schema_of_data
from iteration_lib.state.location import StateLocation
from tests import runner_cases as cases
from tests.runner_cases import Params


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the cache lies, in a temporary folder of the test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"iteration-cache-{os.geteuid()}"


@pytest.fixture
def data(tmp_path: Path) -> CachedData:
    location = StateLocation(str(tmp_path / "run"))
    runner = LocalRunner(location, max_buckets=16, parallelism=1)
    pinned = runner.pin(cases.operator_of(cases.thousand, Kind.DATA), Params(), folder="pins")
    schema = schema_of_data(location, pinned)
    return CachedData(location=location, pinned=pinned, schema=schema, count=16, scope=new_scope())


def numbers(data: CachedData, index: int = 5) -> list[int]:
    found: list[int] = BucketCache(data).bucket(index).column(0).to_pylist()
    return found


EXPECTED = list(range(313, 375))


def test_bucket_is_read_once_and_then_mapped(root: Path, data: CachedData, tmp_path: Path) -> None:
    first = numbers(data)
    (tmp_path / "run").rename(tmp_path / "gone")

    assert EXPECTED == first == numbers(data)
    assert 1 == len(list(root.glob("*/bucket-000005.arrow")))


def test_what_a_replaced_file_holds_is_not_kept_under_the_pin_of_the_old_one(root: Path, tmp_path: Path) -> None:
    file, location = tmp_path / "points.parquet", StateLocation(str(tmp_path / "run"))
    pq.write_table(pa.table({"x": [1.0, 2.0]}), file)
    old = (file.read_bytes(), file.stat().st_mtime_ns)
    pinned = pin_parquet(parquet(str(file)))
    schema = schema_of_data(location, pinned)
    data = CachedData(location=location, pinned=pinned, schema=schema, count=1, scope=SHARED)
    pq.write_table(pa.table({"x": [3.0, 4.0]}), file)

    with pytest.raises(InputError, match="has changed"):
        numbers(data, 0)

    file.write_bytes(old[0])
    os.utime(file, ns=(0, old[1]))
    assert [1.0, 2.0] == numbers(data, 0)


def test_folder_is_closed_to_others(root: Path, data: CachedData) -> None:
    numbers(data)

    for folder in (root, *root.iterdir()):
        assert 0o700 == stat.S_IMODE(folder.stat().st_mode)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b""),
        lambda path: path.unlink(),
        lambda path: path.write_bytes(path.with_name("bucket-000006.arrow").read_bytes()),
        lambda path: path.write_bytes(path.read_bytes().replace(struct.pack("<q", 313), bytes(8))),
    ],
)
def test_damaged_file_is_built_again(root: Path, data: CachedData, damage: Callable[[Path], None]) -> None:
    numbers(data, 5)
    numbers(data, 6)
    path = next(root.glob("*/bucket-000005.arrow"))
    good = path.read_bytes()
    damage(path)

    assert EXPECTED == numbers(data)
    assert good == path.read_bytes()


def test_folder_that_others_can_enter_is_not_used(root: Path, data: CachedData) -> None:
    root.mkdir(mode=0o700)
    root.chmod(0o770)

    assert EXPECTED == numbers(data)
    assert [] == list(root.iterdir())


def test_link_in_the_place_of_the_folder_is_not_followed(root: Path, data: CachedData, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    root.symlink_to(tmp_path / "elsewhere")

    assert EXPECTED == numbers(data)
    assert [] == list((tmp_path / "elsewhere").iterdir())


def test_file_in_the_place_of_the_folder_is_no_obstacle(root: Path, data: CachedData) -> None:
    root.write_text("in the way")

    assert EXPECTED == numbers(data)


def test_many_readers_at_once_see_the_same_rows(root: Path, data: CachedData) -> None:
    seen: list[list[int]] = []
    threads = [threading.Thread(target=lambda: seen.append(numbers(data))) for _ in range(8)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [EXPECTED] * 8 == seen
    assert 1 == len(list(root.glob("*/*")))


def test_bucket_without_rows_takes_no_place_of_one_with_rows(root: Path, data: CachedData) -> None:
    numbers(data)
    path = next(root.glob("*/bucket-000005.arrow"))
    kept = path.stat().st_ino

    assert [] == numbers(replace(data, pinned=data.pinned.without_rows()))
    assert kept == path.stat().st_ino


def test_scope_is_removed_alone(root: Path, data: CachedData) -> None:
    other = replace(data, scope=SHARED)
    numbers(data)
    numbers(other)

    remove_scope(data.scope)
    remove_scope(data.scope)

    assert [SHARED] == [folder.name.partition("-")[0] for folder in root.iterdir()]


def test_what_nobody_used_for_long_is_removed_when_another_folder_is_made(root: Path, data: CachedData) -> None:
    numbers(data)
    old = next(root.iterdir())
    long_ago = old.stat().st_mtime - IDLE_SECONDS - 60
    os.utime(old, (long_ago, long_ago))

    numbers(replace(data, count=8), 0)

    assert not old.exists()


def test_what_a_killed_runner_left_is_removed_when_another_folder_is_made(root: Path, data: CachedData) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = replace(data, scope=f"{gone.pid}.abc")
    numbers(left)

    numbers(data)

    assert [data.scope] == [folder.name.partition("-")[0] for folder in root.iterdir()]


def test_what_is_kept_for_a_run_outlives_the_process_that_made_it(root: Path, data: CachedData) -> None:
    kept = replace(data, scope=scope_of_run("12345678-1234-4234-8234-123456789012"))
    numbers(kept)

    numbers(data)

    assert {kept.scope, data.scope} == {folder.name.partition("-")[0] for folder in root.iterdir()}


def test_bucket_in_use_survives_the_removal_of_its_file(root: Path, data: CachedData) -> None:
    numbers(data)
    batch = BucketCache(data).bucket(5)

    remove_scope(data.scope)

    assert EXPECTED == batch.column(0).to_pylist()
