"""Is an input that cannot be read named, whatever the library that reads it raises?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from iteration_lib.errors import InputError, without_password
from iteration_lib.model.source import parquet
from iteration_lib.runner.pins import check_pinned, pin_parquet
from iteration_lib.runner.rows import RowReader
from iteration_lib.runner.seam import PinnedData, PinnedFile
from iteration_lib.state.location import StateLocation
from tests import locked_store
from tests.hosted_store import HostedFileSystem

LOCKED = f"{locked_store.LockedFileSystem.protocol[0]}://bucket"
ADDRESS = f"{LOCKED}/a.parquet"
HOSTED_SCHEME = HostedFileSystem.protocol
HOSTED = f"{HOSTED_SCHEME}://node:1"
REASON = "NoCredentialsError: unable to locate credentials"
HERE = StateLocation("memory://run")


def pinned(path: str) -> PinnedData:
    return PinnedData(
        files=(PinnedFile(path=path, size_bytes=1, version="1", rows=1),), columns=None, fingerprint="fingerprint"
    )


@pytest.mark.parametrize(
    ("act", "problem"),
    [
        pytest.param(lambda: pin_parquet(parquet(ADDRESS)), f"input {ADDRESS} cannot be read", id="to be pinned"),
        pytest.param(lambda: check_pinned(HERE, pinned(ADDRESS)), f"input {ADDRESS} cannot be read", id="pinned"),
        pytest.param(
            lambda: RowReader(HERE, pinned(ADDRESS)).read(range(1)), f"input {ADDRESS} cannot be read", id="its rows"
        ),
        pytest.param(
            lambda: check_pinned(StateLocation(LOCKED), pinned("a.parquet")),
            f"state file {ADDRESS} cannot be read",
            id="the run's own",
        ),
    ],
)
def test_error_of_a_foreign_library_names_the_input_and_may_pass(act: Callable[[], object], problem: str) -> None:
    with pytest.raises(InputError, match=f"{problem} .{REASON}") as caught:
        act()

    assert caught.value.is_passing


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda: pin_parquet(parquet("memory://a.parquet")), id="to be pinned"),
        pytest.param(lambda: check_pinned(HERE, pinned("memory://a.parquet")), id="pinned"),
        pytest.param(lambda: RowReader(HERE, pinned("memory://a.parquet")).read(range(1)), id="its rows"),
        pytest.param(lambda: check_pinned(HERE, pinned("a.parquet")), id="the run's own"),
    ],
)
def test_input_that_is_missing_does_not_pass(act: Callable[[], object]) -> None:
    with pytest.raises(InputError, match=r"a\.parquet is (not there|missing)") as caught:
        act()

    assert not caught.value.is_passing


def test_choice_of_no_columns_is_refused() -> None:
    with pytest.raises(InputError, match=r"columns=\[\] leaves nothing of the input 'a\.parquet'"):
        parquet("a.parquet", columns=[])


def test_folder_that_spark_takes_for_a_partition_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_day=1").mkdir()
    for name in ("a.parquet", "_day=1/b.parquet"):
        pq.write_table(pa.table({"x": [1.0]}), tmp_path / name)

    with pytest.raises(InputError, match="is partitioned by folders"):
        pin_parquet(parquet(str(tmp_path)))


@pytest.mark.parametrize("name", ["_a.parquet", ".a.parquet"])
def test_file_whose_name_hides_it_from_spark_is_refused(tmp_path: Path, name: str) -> None:
    """Spark reads no rows from one, and does not say so."""
    pq.write_table(pa.table({"x": [1.0]}), tmp_path / name)

    with pytest.raises(InputError, match=f"{name} is a file that Spark takes for no data"):
        pin_parquet(parquet(str(tmp_path / name)))


def test_path_that_is_not_there_is_missing_whatever_its_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="_staging is not there; check the path"):
        pin_parquet(parquet(str(tmp_path / "_staging")))


def test_input_of_a_store_that_cannot_be_opened_is_named_with_the_reason() -> None:
    with pytest.raises(InputError, match=r"'closed://bucket' cannot be opened .unable to locate credentials"):
        pin_parquet(parquet("closed://bucket"))


@pytest.mark.parametrize("given", [f"{HOSTED}/in", f"{HOSTED}/in/", f"{HOSTED}/in/a.parquet"])
def test_file_is_pinned_with_the_host_that_its_address_names(given: str) -> None:
    filesystem = fsspec.filesystem(HOSTED_SCHEME, host="node:1")
    with filesystem.open("/in/a.parquet", "wb") as file:
        pq.write_table(pa.table({"x": [1.0]}), file)

    pinned = pin_parquet(parquet(given))

    assert [f"{HOSTED}/in/a.parquet"] == [file.path for file in pinned.files]
    check_pinned(HERE, pinned)
    assert [1.0] == RowReader(HERE, pinned).read(range(1))["x"].to_pylist()


def test_address_that_cannot_be_put_together_is_the_one_that_the_file_system_makes() -> None:
    """At the root of a store, say, or behind a query."""
    for path in ("/a.parquet", "/in/a.parquet"):
        with HostedFileSystem("node").open(path, "wb") as file:
            pq.write_table(pa.table({"x": [1.0]}), file)

    at_the_root = [[file.path for file in pin_parquet(parquet(f"hosted://node{end}")).files] for end in ("", "/", "//")]
    behind_a_query = [file.path for file in pin_parquet(parquet("hosted://node/in?user=ann")).files]

    HostedFileSystem("node").rm("/a.parquet")
    below = [["a.parquet", "in/a.parquet"]] * 3
    assert below == [[path.removeprefix("hosted://node").strip("/") for path in paths] for paths in at_the_root]
    assert ["hosted:///in/a.parquet"] == behind_a_query


@pytest.mark.parametrize("password", ["secret", "my secret", "sec:r@et"])
def test_address_with_a_password_is_refused_and_not_shown(password: str) -> None:
    with pytest.raises(InputError, match=r"input hosted://\*\*\*@node/in holds a password, which the store") as caught:
        pin_parquet(parquet(f"hosted://ann:{password}@node/in"))

    assert "et" not in str(caught.value).split("@")[0]


def test_path_is_not_taken_for_an_address_with_a_password(tmp_path: Path) -> None:
    folder = tmp_path / "a:b@c"
    folder.mkdir()
    pq.write_table(pa.table({"x": [1.0]}), folder / "a.parquet")

    found = pin_parquet(parquet(f"{tmp_path}//a:b@c")).files

    assert [f"{tmp_path}//a:b@c/a.parquet"] == [file.path for file in found]
    assert "github://apache:parquet-testing@master/data" == without_password(
        "github://apache:parquet-testing@master/data"
    )


def test_hidden_file_of_a_store_that_fails_for_a_moment_is_not_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    with fsspec.filesystem("memory").open("/hidden/_a.parquet", "wb") as file:
        pq.write_table(pa.table({"x": [1.0]}), file)
    info, failures = MemoryFileSystem.info, iter(range(2))

    def failing(self: MemoryFileSystem, path: str, **named: object) -> dict[str, object]:
        if next(failures, None) is not None:
            raise OSError("connection reset")
        found: dict[str, object] = info(self, path, **named)
        return found

    monkeypatch.setattr(MemoryFileSystem, "info", failing)

    with pytest.raises(InputError, match="connection reset") as caught:
        pin_parquet(parquet("memory://hidden/_a.parquet"))

    assert caught.value.is_passing
