"""What does somebody hear who lets a checkpoint go that the store's server has lost since he found the run?"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from iteration_lib.cli import pin
from iteration_lib.errors import CheckpointNotFoundError
from tests.driven_in_memory import SOURCE, InMemory


def test_checkpoint_that_is_lost_after_its_run_was_found_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    bench = InMemory.begin(tmp_path, SOURCE)
    bench.drive()
    last = bench.run.last_checkpoint_id
    found = replace(bench.run, last_checkpoint_id=last + 1)  # as it was before the server lost its last commit
    monkeypatch.setattr(pin, "open_store", lambda _: nullcontext(bench.store))
    monkeypatch.setattr(pin, "find_run", lambda *_: found)

    with pytest.raises(CheckpointNotFoundError, match=f"has no checkpoint {last + 1}; its checkpoints are 1 to {last}"):
        pin.release.main([found.run_id, str(last + 1)], standalone_mode=False)
