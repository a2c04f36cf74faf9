"""What is said to do about bad files?"""

from __future__ import annotations

from iteration_lib.cli.verify import way_out
from iteration_lib.verification import CheckedFile

MISSING = CheckedFile(owner="checkpoint 2", path="a.arrow", size_bytes=1, problem="is missing")
UNREADABLE = CheckedFile(
    owner="checkpoint 2", path="b.arrow", size_bytes=1, problem="cannot be read: timed out", is_unreadable=True
)


def test_file_that_cannot_be_read_is_not_taken_for_a_bad_one() -> None:
    assert "may be whole: verify again when s3://models/nightly can be read" in way_out(
        "s3://models/nightly", [UNREADABLE]
    )


def test_file_that_is_bad_has_a_way_out_though_others_cannot_be_read() -> None:
    told = way_out("s3://models/nightly", [UNREADABLE, MISSING])

    assert told.startswith("Put back what is bad in s3://models/nightly; `iteration run --allow-fallback`")
