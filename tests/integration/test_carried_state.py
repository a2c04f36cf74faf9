"""Does what an operator keeps survive everything, and does nothing else? Plain-Python runs on a real store.

Carried state on whole values and on buckets, scratch folders of one epoch, and data that only epoch 0 sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from iteration_lib.protocol.status import RunStatus, UnalignedBy
from iteration_lib.store.postgres import PostgresStore
from tests.driven_here import KILL, MAX_BUCKETS, Here, be_told_to_end
from tests.failover.driven import wait_until
from tests.iterations.remembering import remembering

pytestmark = pytest.mark.postgres

EPOCHS = 4
AT_ONCE: Mapping[str, Any] = {"alignment_timeout_seconds": 0.0}


@pytest.fixture
def here(store: PostgresStore, tmp_path: Path) -> Here:
    return Here.begin(store, tmp_path, remembering)


@pytest.fixture(scope="module")
def undisturbed(store: PostgresStore, tmp_path_factory: pytest.TempPathFactory) -> Here:
    here = Here.begin(store, tmp_path_factory.mktemp("undisturbed"), remembering)
    assert RunStatus.FINISHED is here.drive().status
    return here


def said(here: Here, word: str) -> list[str]:
    """Return what bodies said behind a word, in order."""
    found = (line.split(maxsplit=1) for line in (here.desk / "log").read_text().splitlines())
    return [words[1] for words in found if words[0] == word]


def durable_up_to(here: Here, epoch: int) -> dict[str, Any]:
    """Return a script in which an epoch is durable before the next one begins."""
    return {
        f"epoch_opened@{epoch + 1}": lambda: wait_until(
            lambda: here.found.last_durable_epoch >= epoch, f"epoch {epoch} to be durable"
        )
    }


def test_state_is_none_in_the_first_epoch_and_then_what_was_returned(undisturbed: Here) -> None:
    assert ["0 none", "1 1", "2 2", "3 3"] == said(undisturbed, "state")


def test_data_that_comes_once_has_its_rows_in_epoch_0_and_only_its_columns_later(undisturbed: Here) -> None:
    assert [f"{epoch} {3 if epoch == 0 else 0} name,x float64" for epoch in range(EPOCHS)] == said(undisturbed, "once")


ENDS = (
    "fail hoarded 2 0",
    "epoch_written@2",
    "epoch_aligned@2",
    "fail hoarded 2 2",
    "fail counted 2 -",
    "fail raised 0 -",
)


@pytest.mark.parametrize(
    ("place", "parallelism", "options"),
    [
        pytest.param(place, 1 + number % 3, options, id=f"{place.replace(' ', '-')} {name}")
        for name, options in {"": {}, "with edges": AT_ONCE}.items()
        for number, place in enumerate(ENDS)
    ],
)
def test_run_that_is_resumed_anywhere_on_other_subtasks_ends_with_the_same_bits(
    here: Here, undisturbed: Here, place: str, parallelism: int, options: dict[str, Any]
) -> None:
    """The state of an operator whose edge is kept is kept with it."""
    script = durable_up_to(here, 1)
    if place.startswith("fail "):
        here.order("fail", place.removeprefix("fail "))
    else:
        script[place] = KILL
    here.drive_and_fail(script=script, **options)
    (here.desk / "fail").unlink(missing_ok=True)
    first = here.found.last_durable_epoch + 1
    marked = {
        (part.operator_id, bucket)
        for part in here.parts
        if part.epoch == first
        for bucket in range(part.first_bucket, part.end_bucket)
    }
    here.log()

    run = here.drive(parallelism=parallelism, **options)

    ran = here.log()
    assert undisturbed.found.state_digest == run.state_digest
    for name in ("hoarded", "drafted"):
        again = {bucket for bucket in range(MAX_BUCKETS) if ran[f"{name} {first} {bucket}"]}
        assert {bucket for bucket in range(MAX_BUCKETS) if (name, bucket) not in marked} == again
    assert (0 if ("counted", 0) in marked else 1) == ran[f"counted {first} -"]
    assert (bool(options) and place != ENDS[0]) == bool(marked)


def test_state_that_a_told_end_captured_is_the_state_that_the_retry_goes_on_with(here: Here, undisturbed: Here) -> None:
    here.order("end", "raised 1 -")
    here.drive_and_fail(script=durable_up_to(here, 0))
    here.clear("end")
    by = here.epochs[1].unaligned_by
    here.log()

    run = here.drive(parallelism=3)

    ran = here.log()
    assert UnalignedBy.PREEMPTION is by
    assert (0, 0, 1) == (ran["hoarded 1 0"], ran["counted 1 -"], ran["raised 1 -"])
    assert undisturbed.found.state_digest == run.state_digest


def test_resume_in_the_middle_sees_no_rows_of_what_came_once(here: Here) -> None:
    here.drive_and_fail(script={"epoch_aligned@2": KILL})

    here.drive()

    rows = {line.split()[0]: line.split(maxsplit=1)[1] for line in said(here, "once")}
    assert {"0": "3 name,x float64"} | dict.fromkeys(("1", "2", "3"), "0 name,x float64") == rows


def test_resume_within_epoch_0_sees_the_rows_again(here: Here, undisturbed: Here) -> None:
    here.order("fail", "raised 0 -")
    here.drive_and_fail()
    here.clear("fail")

    run = here.drive()

    assert ["0 3 name,x float64"] * 2 == said(here, "once")[:2]
    assert undisturbed.found.state_digest == run.state_digest


# Scratch


def scratch_folders(here: Here) -> set[Path]:
    """Return every folder that an operator was given."""
    return {
        Path(found.removeprefix("in ")) for word in ("drafted", "raised") for found in said(here, word) if "/" in found
    }


def test_scratch_is_there_while_the_operator_runs_and_gone_when_its_epoch_has_aligned(here: Here) -> None:
    """Every call has a new folder of its own; the body says that it found it empty, and read back what it wrote."""
    there: dict[str, int] = {}

    def look(what: str) -> None:
        there[what] = sum(folder.exists() for folder in scratch_folders(here) if "epoch-000001" in str(folder))

    here.drive(script={"epoch_written@1": lambda: look("computed"), "epoch_written@2": lambda: look("aligned")})

    assert {"computed": MAX_BUCKETS + 1, "aligned": 0} == there
    assert EPOCHS * (MAX_BUCKETS + 1) == len(scratch_folders(here))
    assert [] == [folder for folder in scratch_folders(here) if folder.exists()]


def test_scratch_that_a_killed_attempt_left_is_swept_by_the_next_one(here: Here) -> None:
    here.drive_and_fail(script={"epoch_written@1": KILL})
    left = [folder for folder in scratch_folders(here) if folder.exists()]
    gone: list[bool] = []

    here.drive(script={"epoch_opened@1": lambda: gone.extend(not folder.exists() for folder in left)})

    assert MAX_BUCKETS + 1 <= len(left)
    assert [True] * len(left) == gone
    assert [] == [str(path) for path in here.folder.glob("*/fresh/*")]


def test_scratch_of_an_attempt_that_failed_is_swept_by_the_next_one(here: Here, undisturbed: Here) -> None:
    here.order("fail", "raised 1 -")
    here.drive_and_fail()
    here.clear("fail")
    left = [folder for folder in scratch_folders(here) if folder.exists()]

    run = here.drive()

    assert MAX_BUCKETS + 1 == len(left)
    assert [] == [folder for folder in scratch_folders(here) if folder.exists()]
    assert undisturbed.found.state_digest == run.state_digest


def test_attempt_that_was_released_is_not_swept(here: Here) -> None:
    """It has removed its own scratch: what attempts leave costs nothing for each attempt that there ever was."""
    here.drive(until_epoch=1)
    (attempt,) = here.folder.glob("000001-*")
    (attempt / "fresh" / "epoch-000007").mkdir(parents=True)

    here.drive()

    assert (attempt / "fresh" / "epoch-000007").exists()


def test_told_end_leaves_a_scratch_that_the_next_attempt_sweeps(here: Here) -> None:
    here.drive_and_fail(script={"epoch_written@1": be_told_to_end})

    here.drive()

    assert [] == [str(path) for path in here.folder.glob("*/fresh/*")]
