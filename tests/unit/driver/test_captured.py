"""What becomes of the files of a durable edge when its epoch gets a checkpoint?"""

from __future__ import annotations

from pathlib import Path

import pytest

from iteration_lib.driver.restore import read_manifest
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import SavedStream
from tests.driven_in_memory import SOURCE, InMemory

# What is fed back is durable when an operator behind it fails; that one on buckets is fed back in `shared`.
BROKEN = """    if epoch == 1 and Path(params.broken).exists():
        raise RuntimeError("broken")
"""
WHOLE = (
    SOURCE.replace(BROKEN, "")
    + f"""

@planned.operator
def seen(moved, params, epoch):
{BROKEN}    return {{"at": moved["at"]}}
"""
)
SHARED = WHOLE.replace("sums, params", "sums, shares, params").replace(
    "planned.feedback(centre=moved)",
    """
@planned.variable
def shares(scaled):
    return {"sum": np.zeros(1)}


planned.feedback(centre=moved, shares=sums)
""",
)


@pytest.mark.parametrize("source", [WHOLE, SHARED], ids=["on the whole", "on buckets"])
def test_checkpoint_names_the_very_files_that_were_captured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    bench = InMemory.begin(tmp_path, source)
    bench.drive_until_broken()
    parts = [part for part in bench.store.list_parts(bench.run.run_id) if part.epoch == 1]
    captured = {file.path for part in parts for file in SavedStream.from_json(part.output).files}
    bench.mend()

    bench.drive(until_epoch=2)

    record = bench.store.find_completed(bench.run.run_id)
    assert record is not None
    manifest = read_manifest(StateLocation(str(bench.state)), record)
    named = {file.path for saved in manifest.variables.values() for file in saved.files}
    assert (1, True, True) == (record.epoch, bool(named), named <= captured)
