"""Why is a run where it is, and who drove it?"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import pytest

from iteration_lib.errors import UsageError
from iteration_lib.explanation import RunHistory, explain_run
from iteration_lib.process import this_holder
from iteration_lib.protocol import Event
from iteration_lib.protocol.state import NO_EPOCH, RunId
from iteration_lib.protocol.status import RestoreMode
from iteration_lib.state.saved import FileFormat, SavedFile, SavedStream
from iteration_lib.store.record import BranchRecord
from tests.protocol_script import FIRST, SECOND, Sender, claim, drains, part, resumes, stops
from tests.told_history import NOON, at, told

WHO = "process 7 on here"
ALL_DONE = "it had reached the last of the epochs that it was asked for"
SLOWLY = "at least 2.5 s apart, up to 2 at once, each within 60 s, up to 1 failures in a row"
ENDED = (claim(), *FIRST.passes(0, 1, records=0))


def because(history: RunHistory) -> list[str]:
    return cast("list[str]", explain_run(history)["because"])


def listed(history: RunHistory, name: str) -> list[dict[str, Any]]:  # Any: JSON
    return cast("list[dict[str, Any]]", explain_run(history)[name])


@pytest.mark.parametrize(
    ("batches", "said"),
    [
        ((), "nobody has driven it yet"),
        (
            ((claim(),),),
            f"attempt 1, {WHO} drives it; its lease runs out {at(30)} unless it is renewed",
        ),
        (
            ((claim(),), (FIRST.ends(),)),
            f"nobody drives it: attempt 1 ended {at(1)} as RELEASED: {ALL_DONE}",
        ),
        (
            ((claim(),), (FIRST.ends(reason="interrupted"),)),
            f"nobody drives it: attempt 1 ended {at(1)} as RELEASED: interrupted",
        ),
        (
            ((claim(),), (FIRST.fails("disk full"),)),
            f"nobody drives it: attempt 1 ended {at(1)} as FAILED: disk full",
        ),
    ],
)
def test_run_that_goes_on_says_who_drives_it_or_why_nobody_does(
    batches: tuple[tuple[Event, ...], ...], said: str
) -> None:
    assert [said] == because(told(*batches))


def test_run_whose_attempt_is_dead_says_that_nobody_drives_it() -> None:
    """Its process is proved to be gone on this machine; of one elsewhere the lease tells."""
    history = told((claim(),))
    (attempt,) = history.attempts
    gone = replace(this_holder(), process_started=this_holder().process_started + "0")

    silent = because(replace(history, attempts=(replace(attempt, is_lease_over=True),)))
    dead = because(replace(history, attempts=(replace(attempt, holder=gone),)))

    over = f"the lease of attempt 1, {WHO} ran out {at(30)}"
    assert [f"nobody is known to drive it: {over}, and any attempt may take the run over"] == silent
    taken = f"attempt 1, {gone.describe()} is gone without a word, and the next attempt takes the run over"
    assert [f"nobody drives it: {taken}"] == dead


def test_branch_says_from_what_it_began() -> None:
    history = told((claim(), FIRST.finishes("scaled")))
    origin = BranchRecord(
        run_id=history.run.run_id,
        origin_run_id=RunId("the-origin"),
        origin_checkpoint_id=2,
        epoch=1,
        uri="/runs/the-origin",
        manifest_path="checkpoint.json",
        manifest_sha256="0" * 64,
        mode=RestoreMode.NO_CLAIM,
        keeps=("scaled",),
        branched_by="ann",
        branched_at=NOON,
        released_at=None,
    )
    branch = replace(history, branch=origin)
    savepoint = replace(origin, origin_run_id=None, origin_checkpoint_id=None)

    assert f"ann had it begin behind epoch 1, from checkpoint 2 of run the-origin, {at(0)}" == because(branch)[0]
    said = because(replace(history, branch=savepoint))[0]
    assert f"ann had it begin behind epoch 1, from a savepoint in /runs/the-origin, {at(0)}" == said


@pytest.mark.parametrize(
    ("path", "is_copied"),
    [
        ("000001-aa/origin/000002-bb/finished/scaled/part.arrow", True),
        ("000001-aa/finished/scaled/part.arrow", False),
        ("000001-aa/finished/origin/part.arrow", False),
    ],
    ids=["copied", "computed", "computed by an operator of that name"],
)
def test_operator_whose_output_a_branch_has_copied_says_that_it_was_not_run(
    path: str,
    is_copied: bool,  # noqa: FBT001 - a case
) -> None:
    history = told((claim(), FIRST.finishes("scaled")))
    file = SavedFile(path=path, size_bytes=1, sha256="0" * 64, rows=1)
    output = SavedStream(kind="value", format=FileFormat.ARROW, schema="", files=(file,)).to_json()
    (operator,) = [known for known in history.operators if known.operator_id == "scaled"]

    found = replace(history, operators=(replace(operator, output=output),))

    said = "was not run: it had finished in the checkpoint that the run began from, and its output was copied"
    assert is_copied is (said in listed(found, "operators")[0]["because"])


def test_operator_that_an_attempt_finished_for_another_says_what_was_left_to_it() -> None:
    left = part("scaled", 0, 2, total=4)
    history = told(
        (claim(), FIRST.marks(NO_EPOCH, left)),
        (claim(2, takeover=True), SECOND.marks(NO_EPOCH, part("scaled", 2, 4, total=4)), SECOND.finishes("scaled")),
    )

    assert [
        f"finished for good before epoch 0 was durable, marked by attempt 2, {WHO}",
        "attempt 1 had left a durable edge of it, buckets 0 to 1 of 4, which was not run again",
    ] == listed(history, "operators")[0]["because"]


def test_run_that_terminates_says_by_which_rule_and_what_is_left() -> None:
    decided = (
        f"after epoch 0, attempt 1, {WHO} decided that the run terminates, because nothing was fed back "
        "(from centroids=0)"
    )

    assert [decided, "its outputs are still to be published"] == because(told(ENDED))[:2]
    assert [decided, f"its outputs were published {at(1)}"] == because(told(ENDED, (FIRST.publishes(),)))


STOPPING = ((claim(), *FIRST.passes(0, 1), FIRST.opens(1)), (stops(),), (FIRST.ends(),))


def test_run_that_is_asked_to_stop_says_by_whom() -> None:
    said = because(told(*STOPPING[:2]))

    assert f"ann asked it to stop {at(1)}" == said[0]
    assert said[1].startswith("attempt 1, ")


def test_run_that_stopped_says_who_asked_where_it_stopped_and_who_let_it_go_on() -> None:
    stopped = because(told(*STOPPING))
    resumed = because(told(*STOPPING, (resumes(),)))

    assert [f"ann asked it to stop {at(1)}; stopped {at(2)}, after epoch 0, until somebody resumes it"] == stopped
    assert [
        f"ann asked it to stop {at(1)}; stopped {at(2)}; bob resumed it {at(3)}",
        f"nobody drives it: attempt 1 ended {at(2)} as RELEASED: its run was asked to stop",
    ] == resumed


def test_run_that_was_drained_says_who_asked() -> None:
    decided = (
        f"after epoch 0, attempt 1, {WHO} decided that the run terminates, because ann asked it to drain "
        "(from centroids=3)"
    )

    said = because(told((claim(), FIRST.opens(0), drains()), (FIRST.reports(0), FIRST.triggers(0), FIRST.completes(1))))

    assert [
        f"ann asked it to drain {at(0)}",
        decided,
    ] == said[:2]


def test_attempts_say_what_they_drove_how_they_pace_and_how_they_ended() -> None:
    policy = {
        "every_epochs": 3,
        "min_pause_seconds": 2.5,
        "max_pending": 2,
        "timeout_seconds": 60.0,
        "tolerable_failures": 1,
    }
    history = told(
        (claim(), *FIRST.passes(0, 1), FIRST.opens(1)),
        (claim(2, takeover=True, **policy), SECOND.changes("x", "y")),
    )

    assert [
        [
            "opened epochs 0 to 1",
            "takes a checkpoint every epoch",
            f"attempt 1 ended {at(1)} as SUPERSEDED: taken over",
            f"superseded by attempt 2, {WHO}",
        ],
        [
            "opened no epoch",
            f"takes a checkpoint every 3 epochs, {SLOWLY}",
            "its iteration is another: operators: x, y",
        ],
    ] == [attempt["because"] for attempt in listed(history, "attempts")]


def test_attempt_that_a_stop_ended_was_not_superseded_by_the_next_one() -> None:
    """Its process was gone: whoever stopped the run found nobody who drives it."""
    history = told(
        (claim(), *FIRST.passes(0, 1)),
        (stops(gone=1),),
        (resumes(),),
        (claim(2), *SECOND.passes(1, 2)),
    )

    first, _ = listed(history, "attempts")
    assert f"attempt 1 ended {at(1)} as SUPERSEDED: its run was stopped by ann" == first["because"][-1]


def test_operators_that_finished_for_good_say_whose_marker_it_is_and_who_skipped_them() -> None:
    """An attempt that opened no epoch read nothing."""
    third = Sender(3, 3)
    history = told(
        (claim(), FIRST.finishes("scaled")),
        (claim(2, takeover=True), SECOND.opens(0)),
        (claim(3, takeover=True), *third.passes(0, 1), *third.passes(1, 2)),
        (claim(4, takeover=True),),
    )

    assert [
        {
            "operator_id": "scaled",
            "epoch": 0,
            "because": [
                f"finished for good before epoch 0 was durable, marked by attempt 1, {WHO}",
                "skipped by attempts 2 and 3: its output is read from its files",
            ],
        }
    ] == listed(history, "operators")
    assert 1 == len(listed(told((claim(), FIRST.finishes("scaled"))), "operators")[0]["because"])


def test_one_epoch_is_explained_with_its_attempts_and_checkpoints() -> None:
    history = told((claim(), *FIRST.passes(0, 1)), (claim(2, takeover=True), *SECOND.passes(1, 2)))

    answer = explain_run(history, 1)

    assert ([(1, 2)], [2], [2]) == (
        [(known["epoch"], known["attempt"]) for known in cast("list[dict[str, Any]]", answer["epochs"])],
        [known["attempt"] for known in cast("list[dict[str, Any]]", answer["attempts"])],
        [known["checkpoint_id"] for known in cast("list[dict[str, Any]]", answer["checkpoints"])],
    )
    assert [0, 1] == [known["epoch"] for known in listed(history, "epochs")]


def test_one_epoch_is_explained_with_the_checkpoints_that_held_it_and_made_it_durable() -> None:
    history = told(
        (claim(every_epochs=2), FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0), FIRST.opens(1)),
        (FIRST.reports(1), FIRST.triggers(1), FIRST.opens(2)),
        (FIRST.reports(2),),
        (FIRST.completes(1), FIRST.opens(3)),
        (FIRST.reports(3), FIRST.triggers(3), FIRST.completes(2)),
    )

    ids = [
        [known["checkpoint_id"] for known in cast("list[dict[str, Any]]", explain_run(history, epoch)["checkpoints"])]
        for epoch in range(4)
    ]

    assert [[1], [1], [1, 2], [2]] == ids


@pytest.mark.parametrize(
    ("batches", "there"), [((), "nobody has begun one"), (((claim(), *FIRST.passes(0, 1)),), "its epochs are 0 to 0")]
)
def test_epoch_that_is_not_there_is_refused_with_those_that_are(
    batches: tuple[tuple[Event, ...], ...], there: str
) -> None:
    history = told(*batches)

    with pytest.raises(UsageError) as caught:
        explain_run(history, 7)

    assert f"run {history.run.run_key!r} has no epoch 7; {there}" == str(caught.value)


def test_epoch_before_a_branchs_first_is_refused_with_those_that_are_its_own() -> None:
    history = told((claim(), *FIRST.passes(0, 1), *FIRST.passes(1, 2), *FIRST.passes(2, 3)))
    branch = replace(history, epochs=history.epochs[1:])

    with pytest.raises(UsageError) as caught:
        explain_run(branch, 0)

    assert f"run {history.run.run_key!r} has no epoch 0; its epochs are 1 to 2" == str(caught.value)


def test_explanation_is_json() -> None:
    answer = explain_run(told((claim(), *FIRST.passes(0, 1), FIRST.finishes("scaled"))))

    assert answer == json.loads(json.dumps(answer, allow_nan=False))
