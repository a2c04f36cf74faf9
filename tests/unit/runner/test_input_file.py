"""Who opens a Parquet file of a user's, and which threads read it?"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem

from iteration_lib.errors import InputError
from iteration_lib.model.source import parquet
from iteration_lib.runner.pins import pin_parquet
from iteration_lib.runner.rows import RowReader
from iteration_lib.state.location import StateLocation

HERE = StateLocation("memory://run")

THREADS = """
    import os
    import fsspec
    import pyarrow as pa
    import pyarrow.parquet as pq
    from iteration_lib.model.source import parquet
    from iteration_lib.runner.pins import pin_parquet
    from iteration_lib.runner.rows import RowReader
    from iteration_lib.state.location import StateLocation

    with fsspec.filesystem("memory").open("/rows.parquet", "wb") as file:
        pq.write_table(pa.table({name: [0.5, 1.0, 1.5] for name in "abc"}), file)
    before = os.listdir("/proc/self/task")
    rows = RowReader(StateLocation("memory://run"), pin_parquet(parquet("memory://rows.parquet"))).read(range(3))
    print(rows.num_rows, len(os.listdir("/proc/self/task")) - len(before))
"""


def test_file_of_a_store_is_read_and_decoded_in_the_thread_that_asks() -> None:
    """A thread of Arrow's that drops what is Python's while the interpreter ends aborts the process."""
    found = subprocess.run([sys.executable, "-c", textwrap.dedent(THREADS)], capture_output=True, text=True, check=True)

    assert "3 0\n" == found.stdout


def test_local_file_is_opened_by_arrow_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its threads may read it then, for nothing of it is Python's."""
    pq.write_table(pa.table({"x": [0.5, 1.0]}), tmp_path / "rows.parquet")
    monkeypatch.setattr(LocalFileSystem, "open", None)

    pinned = pin_parquet(parquet(str(tmp_path / "rows.parquet")))

    assert [0.5, 1.0] == RowReader(HERE, pinned).read(range(2))["x"].to_pylist()


@pytest.mark.parametrize("path", ["absent.parquet", "rows.parquet/within", pytest.param("a" * 300, id="too long")])
def test_local_file_that_is_not_there_is_named(tmp_path: Path, path: str) -> None:
    pq.write_table(pa.table({"x": [0.5, 1.0]}), tmp_path / "rows.parquet")

    with pytest.raises(InputError, match=f"input {tmp_path}/{path} is not there; check the path"):
        pin_parquet(parquet(str(tmp_path / path)))
