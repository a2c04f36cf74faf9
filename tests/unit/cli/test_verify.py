"""What is said to do about bad files?"""

from __future__ import annotations

from pathlib import Path

import pytest

from iteration_lib.cli.verify import way_out
from iteration_lib.verification import CheckedFile
from tests.driven_in_memory import InMemory

MISSING = CheckedFile(owner="checkpoint 2", path="a.arrow", size_bytes=1, problem="is missing")
UNREADABLE = CheckedFile(
    owner="checkpoint 2", path="b.arrow", size_bytes=1, problem="cannot be read: timed out", is_unreadable=True
)


def test_file_that_cannot_be_read_is_not_taken_for_a_bad_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    run = InMemory.begin(tmp_path).run

    unreadable, both = (way_out(run, "s3://models", bad) for bad in ([UNREADABLE], [UNREADABLE, MISSING]))

    assert unreadable == "What cannot be read may be whole: verify again when it can be read."
    assert both.startswith("Put back what is bad (paths are below s3://models); `iteration plan ")
