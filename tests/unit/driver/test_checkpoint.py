"""Of which operators does a checkpoint hold a stream?"""

from __future__ import annotations

from pathlib import Path

import pytest

from iteration_lib.driver.restore import read_manifest
from iteration_lib.state.location import StateLocation
from tests.driven_in_memory import SOURCE, InMemory

COUNTED = (
    SOURCE
    + """

@planned.operator(state="carry")
def count(moved, state):
    before = state["n"] if state else np.zeros(1)
    return {"total": before + 1}, {"n": before + 1}


planned.output(count=count)
"""
)


def test_checkpoint_holds_variables_states_and_what_has_finished_for_good_and_nothing_of_other_operators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though every operator left an edge, inside the epoch."""
    monkeypatch.syspath_prepend(str(tmp_path))
    bench = InMemory.begin(tmp_path, COUNTED)

    bench.drive(until_epoch=1)

    record = bench.store.find_completed(bench.run.run_id)
    assert record is not None
    manifest = read_manifest(StateLocation(str(bench.state)), record)
    assert ({"centre"}, {"count.state"}, {"scaled"}, {}) == (
        set(manifest.variables),
        set(manifest.states),
        set(manifest.finished),
        manifest.outputs,
    )
    assert {"sums", "moved"} <= {part.operator_id for part in bench.store.list_parts(bench.run.run_id)}
