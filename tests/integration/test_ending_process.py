"""Does a process end well that ends as soon as it has read something?

Arrow's threads let go of what they read when it was long handed out. Where that is an object of Python's, a process
that is ending by then is ended with SIGABRT: some of a hundred are.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PATIENCE_SECONDS = 300

PROCESSES = """
    import os, sys
    from iteration_lib.model.source import parquet, records
    from iteration_lib.runner.pins import pin_parquet
    from iteration_lib.runner.rows import RowReader
    from iteration_lib.state.location import StateLocation, filesystem_of
    from iteration_lib.state.saved import FileFormat, SavedStream
    from iteration_lib.state.streams import dump_schema, load_whole, new_part_path, save_batches
    import pyarrow as pa
    import pyarrow.parquet as pq

    what, folder = sys.argv[1:]
    table = pa.table({name: [0.5, 1.0, 1.5] for name in "abcdef"})
    here = StateLocation(folder)
    if what == "input":
        filesystem, path = filesystem_of(f"{folder}/rows.parquet")
        filesystem.makedirs(folder, exist_ok=True)
        with filesystem.open(path, "wb") as file:
            pq.write_table(table, file)
        pinned = pin_parquet(parquet(f"{folder}/rows.parquet"))
        read = lambda: RowReader(here, pinned).read(range(2))
    else:
        batch = table.to_batches()[0]
        written = new_part_path("written", 0, FileFormat.PARQUET)
        saved = save_batches(here, written, [batch], file_format=FileFormat.PARQUET)
        schema = dump_schema(batch.schema)
        stream = SavedStream(kind="value", format=FileFormat.PARQUET, schema=schema, files=(saved,))
        read = lambda: load_whole(here, stream)

    codes = []
    for _ in range(100):
        child = os.fork()
        if not child:
            assert read().num_rows > 1
            break
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    else:
        print("CODES", sorted(set(codes)))
"""


@pytest.mark.parametrize("what", ["input", "state"])
@pytest.mark.parametrize("place", ["local", "remote"])
def test_process_that_ends_as_soon_as_it_has_read_ends_well(what: str, place: str, tmp_path: Path) -> None:
    folder = str(tmp_path) if place == "local" else "memory://ending"

    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROCESSES), what, folder],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
        cwd=Path(__file__).parents[2],
    )

    assert "CODES [0]\n" == found.stdout, found.stderr
