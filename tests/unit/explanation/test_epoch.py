"""Why did an epoch align when it did, what was skipped in it, and why did the run go on after it, or not?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from iteration_lib.explanation import RunHistory
from iteration_lib.explanation.epoch import explain_epoch
from iteration_lib.protocol import Event
from iteration_lib.protocol.status import UnalignedBy
from tests.protocol_script import FIRST, SECOND, Sender, aborts, claim, deletes, part, prepared, resumes, stops
from tests.told_history import FELL_BACK, at, older, told

WHO = "process 7 on here"


def explained(history: RunHistory, epoch: int, token: int = 1) -> dict[str, Any]:  # Any: JSON
    found = next(known for known in history.epochs if (known.epoch, known.fencing_token) == (epoch, token))
    return explain_epoch(history, found)


def because(history: RunHistory, epoch: int, token: int = 1) -> list[str]:
    return cast("list[str]", explained(history, epoch, token)["because"])


def test_epoch_says_who_opened_it_what_was_reported_what_was_decided_and_what_made_it_durable() -> None:
    history = told(
        (claim(),),
        (FIRST.opens(0, centroids=2),),
        (FIRST.reports(0, {"centroids": {0: 3}}),),
        (FIRST.reports(0, {"centroids": {1: 2}}), FIRST.triggers(0)),
        (FIRST.completes(1),),
    )

    answer = explained(history, 0)

    assert [
        f"opened {at(1)} by attempt 1, {WHO}",
        "centroids: 2 of 2 subtasks reported, 5 records fed back",
        f"aligned {at(3)}; decided that the run goes on, because records were fed back (from centroids=5)",
        f"durable {at(4)}: checkpoint 1 of epoch 0 completed",
    ] == answer["because"]
    assert {
        "epoch": 0,
        "status": "DURABLE",
        "attempt": 1,
        "holder": f"attempt 1, {WHO}",
        "heads": {"centroids": {"expected": 2, "reported": 2, "records": 5}},
        "skipped": [],
        "held_by": [],
        "held_seconds": None,
        "decided_from": {"centroids": 5},
        "terminated_by": None,
        "checkpoint_id": 1,
    }.items() <= answer.items()


def test_durable_epoch_says_what_it_published_and_where() -> None:
    history = told(
        (claim(), FIRST.changes("x", sinks={"rows": True, "losses": True}), FIRST.opens(0), FIRST.reports(0)),
        (FIRST.triggers(0), FIRST.completes(1, committables=(prepared(0, "losses"), prepared(0, "rows")))),
        (FIRST.commits((0, "rows")),),
    )

    assert [
        "output 'losses' is prepared for the folder rows, and the next attempt commits it",
        f"output 'rows' was committed to the folder rows {at(2)}",
    ] == because(history, 0)[-2:]


def test_epoch_that_is_open_says_who_has_not_reported() -> None:
    history = told((claim(), FIRST.opens(0, centroids=2), FIRST.reports(0, {"centroids": {1: 4}})))

    assert ["centroids: 1 of 2 subtasks reported, 4 records fed back"] == because(history, 0)[1:]
    assert explained(history, 0)["decided_from"] is None


@pytest.mark.parametrize(
    ("reports", "said"),
    [
        ({"centroids": {0: 0}, "criteria": {0: 0}}, "nothing was fed back (from centroids=0, criteria=0)"),
        ({"centroids": {0: 3}, "criteria": {0: 0}}, "the criteria is empty (from centroids=3, criteria=0)"),
        (
            {"centroids": {0: 3}, "criteria": {0: 1}},
            "it is the last of max_epochs=1 (from centroids=3, criteria=1)",
        ),
    ],
)
def test_decision_to_terminate_names_its_rule_and_what_it_was_made_from(
    reports: dict[str, dict[int, int]], said: str
) -> None:
    history = told((claim(), FIRST.opens(0, centroids=1, criteria=1), FIRST.reports(0, reports)), max_epochs=1)

    assert f"aligned {at(0)}; decided that the run terminates, because {said}" in because(history, 0)


def test_decision_to_go_on_names_the_criteria_where_there_is_one() -> None:
    reports = {"centroids": {0: 3}, "criteria": {0: 1}}
    history = told((claim(), FIRST.opens(0, centroids=1, criteria=1), FIRST.reports(0, reports)))

    assert (
        f"aligned {at(0)}; decided that the run goes on, because records were fed back and the criteria is not empty "
        "(from centroids=3, criteria=1)"
    ) in because(history, 0)


# Epoch 1 has reported at second 1, while checkpoint 1 was pending.
HELD = (
    (claim(), FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0), FIRST.opens(1)),
    (FIRST.reports(1),),
)


@pytest.mark.parametrize(
    ("ends", "how"), [(FIRST.completes(1), "completed"), (aborts(1), "was aborted"), (FIRST.declines(1), "was aborted")]
)
def test_epoch_that_was_held_says_by_which_checkpoint_how_long_and_what_released_it(ends: Event, how: str) -> None:
    history = told(*HELD, (), (ends,))

    answer = explained(history, 1)

    assert f"held for 2.000 s, while checkpoint 1 was pending; released when checkpoint 1 {how}" in answer["because"]
    assert ([1], 2.0) == (answer["held_by"], answer["held_seconds"])


def test_epoch_that_is_held_says_so() -> None:
    answer = explained(told(*HELD), 1)

    assert "is held: checkpoint 1 is not through" == answer["because"][-1]
    assert ([1], None) == (answer["held_by"], answer["held_seconds"])


# Epoch 2 has reported at second 1, while checkpoints 1 and 2 were pending: the first of them to end releases it.
HELD_BY_TWO = (
    (claim(max_pending=2), FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0)),
    (FIRST.opens(1), FIRST.reports(1), FIRST.triggers(1), FIRST.opens(2), FIRST.reports(2)),
)


def test_epoch_that_several_checkpoints_hold_says_so() -> None:
    answer = explained(told(*HELD_BY_TWO), 2)

    assert "is held: checkpoints 1 and 2 are not through" == answer["because"][-1]
    assert ([1, 2], None) == (answer["held_by"], answer["held_seconds"])


@pytest.mark.parametrize(
    ("first", "later", "released_by"),
    [
        (aborts(1), (FIRST.completes(2),), "checkpoint 1 was aborted"),
        (FIRST.completes(1), (aborts(2),), "checkpoint 1 completed"),
        (FIRST.declines(2), (FIRST.completes(1),), "checkpoint 2 was aborted"),
        (FIRST.completes(1), (), "checkpoint 1 completed"),
        (FIRST.completes(2), (), "checkpoint 2 completed"),
    ],
    ids=[
        "the newer one completes later",
        "the newer one is aborted later",
        "the older one completes later",
        "the newer one is pending still",
        "the older one is subsumed at once",
    ],
)
def test_epoch_that_several_checkpoints_held_names_the_first_that_ended(
    first: Event, later: tuple[Event, ...], released_by: str
) -> None:
    answer = explained(told(*HELD_BY_TWO, (), (first,), later), 2)

    said = f"held for 2.000 s, while checkpoints 1 and 2 were pending; released when {released_by}"
    assert said in answer["because"]
    assert ([1, 2], 2.0) == (answer["held_by"], answer["held_seconds"])


@pytest.mark.parametrize(
    ("ends", "status"),
    [(FIRST.ends(), "OPEN"), (FIRST.fails(), "OPEN"), (claim(2, takeover=True), "VOIDED"), (deletes(gone=1), "VOIDED")],
    ids=["let go", "failed", "taken over", "deleted"],
)
@pytest.mark.parametrize(
    ("held", "epoch", "pending"),
    [(HELD, 1, "checkpoint 1 was"), (HELD_BY_TWO, 2, "checkpoints 1 and 2 were")],
    ids=["by one", "by two"],
)
def test_epoch_that_is_held_no_more_as_its_attempt_ended_says_so(
    held: tuple[tuple[Event, ...], ...], epoch: int, pending: str, ends: Event, status: str
) -> None:
    answer = explained(told(*held, (ends,)), epoch)

    assert status == answer["status"]
    assert f"was held while {pending} pending, until its attempt ended" in answer["because"]
    assert answer["held_seconds"] is None


@pytest.mark.parametrize(("ends", "how"), [(FIRST.completes(1), "completed"), (FIRST.declines(1), "was aborted")])
def test_epoch_that_was_released_while_the_rows_were_read_is_not_said_to_be_held(ends: Event, how: str) -> None:
    """Its own row is read before those of the checkpoints."""
    history = replace(told(*HELD, (ends,)), epochs=told(*HELD).epochs)

    assert f"was held while checkpoint 1 was pending, until checkpoint 1 {how}" == because(history, 1)[-1]


def test_epoch_that_was_voided_while_it_was_held_says_so() -> None:
    history = told(*HELD, (claim(2, takeover=True),))

    assert [
        "was held while checkpoint 1 was pending, until its attempt ended",
        f"voided: no checkpoint covered it when attempt 2, {WHO} took the run",
    ] == because(history, 1)[-2:]


def test_epoch_that_was_voided_by_a_stop_says_whose_it_was() -> None:
    history = told((claim(), FIRST.opens(0)), (stops(),), (FIRST.ends(),), (resumes(),), (claim(2),))

    assert "voided: no checkpoint covered it when the run stopped, as ann had asked" == because(history, 0)[-1]


def test_epoch_that_a_takeover_voided_before_a_stop_says_so() -> None:
    history = told((claim(), FIRST.opens(0)), (claim(2, takeover=True),), (stops(),), (SECOND.ends(),))

    assert f"voided: no checkpoint covered it when attempt 2, {WHO} took the run" == because(history, 0)[-1]


def test_epoch_that_was_voided_by_a_deletion_says_whose_it_was() -> None:
    history = told((claim(), *FIRST.passes(0, 1), FIRST.opens(1)), (deletes(gone=1),))

    assert "voided: no checkpoint covered it when ann deleted the run" == because(history, 1)[-1]


def test_epoch_that_a_takeover_voided_before_a_deletion_says_so() -> None:
    history = told((claim(), FIRST.opens(0)), (claim(2, takeover=True),), (deletes(gone=2),))

    assert f"voided: no checkpoint covered it when attempt 2, {WHO} took the run" == because(history, 0)[-1]


def test_epoch_is_not_held_while_as_many_checkpoints_may_be_pending() -> None:
    (_, *others), reported = HELD

    answer = explained(told((claim(max_pending=2), *others), reported, (FIRST.completes(1),)), 1)

    assert ([], None) == (answer["held_by"], answer["held_seconds"])
    assert not [sentence for sentence in answer["because"] if "held" in sentence]


def test_epoch_is_not_held_by_a_checkpoint_that_was_through_before() -> None:
    answer = explained(told((claim(), *FIRST.passes(0, 1)), (FIRST.opens(1), FIRST.reports(1))), 1)

    assert ([], None) == (answer["held_by"], answer["held_seconds"])


def test_epoch_that_switched_says_why_and_what_it_left() -> None:
    history = told(
        (claim(), FIRST.opens(0)),
        (FIRST.switches(0, UnalignedBy.PREEMPTION),),
        (FIRST.marks(0, part("x"), part("y", 0, 2, total=4)),),
    )

    assert [
        f"switched to unaligned {at(1)}, because its process, or its task, was told to end",
        "left a durable edge of 'x', all of it",
        "left a durable edge of 'y', buckets 0 to 1 of 4",
    ] == because(history, 0)[1:4]


LEFT = (
    (claim(max_pending=2), FIRST.opens(0), FIRST.switches(0)),
    (FIRST.marks(0, part("x"), part("y", 0, 2, total=4)),),
)
VOIDED = "a durable edge of 'y', buckets 0 to 1 of 4, was voided when attempt 2 took the run, "
OF_OTHERS = f"{VOIDED}with other operators"


def of_edges(history: RunHistory, epoch: int, *, token: int) -> list[str]:
    return [said for said in explained(history, epoch, token=token)["because"] if "durable edge" in said]


def test_epoch_says_which_edges_did_not_fit_other_operators() -> None:
    history = told(*LEFT, (claim(2, takeover=True),), (SECOND.changes("x", "y", kept=("x",)),), (SECOND.opens(0),))

    assert [
        "operator 'x' was not run: attempt 1 had left a durable edge of it, all of it",
        OF_OTHERS,
    ] == of_edges(history, 0, token=2)


def test_epoch_says_so_also_where_the_attempt_with_other_operators_opened_none() -> None:
    third = Sender(3, 3)
    history = told(
        *LEFT,
        (claim(2, takeover=True),),
        (SECOND.changes("x", "y", kept=("x",)),),
        (claim(3, takeover=True),),
        (third.opens(0),),
    )

    assert OF_OTHERS == of_edges(history, 0, token=3)[-1]


def test_epoch_says_which_edges_a_person_ignored() -> None:
    history = told(*LEFT, (claim(2, takeover=True, ignore_edges=True),), (SECOND.opens(0),))

    x = VOIDED.replace("'y', buckets 0 to 1 of 4", "'x', all of it")
    assert [f"{x}by --ignore-edges", f"{VOIDED}by --ignore-edges"] == of_edges(history, 0, token=2)


def test_epoch_says_which_edges_were_voided_also_when_a_fallback_gave_up_what_was_before_it() -> None:
    history = told(
        (claim(max_pending=2), *FIRST.passes(0, 1), *FIRST.passes(1, 2), FIRST.opens(2), FIRST.switches(2)),
        (FIRST.marks(2, part("x"), part("y", 0, 2, total=4)),),
        (claim(2, takeover=True),),
        (SECOND.changes("x", "y", kept=("x",)),),
        (SECOND.opens(2),),
        (claim(3, takeover=True), Sender(3, 3).falls_back(older(1, 0))),
    )

    assert OF_OTHERS == of_edges(history, 2, token=2)[-1]


def test_edge_of_a_later_epoch_was_not_voided_for_other_operators() -> None:
    """But because its attempt had ended, and its variables were not durable."""
    history = told(
        *LEFT,
        (FIRST.reports(0), FIRST.triggers(0), FIRST.opens(1), FIRST.switches(1), FIRST.marks(1, part("x"))),
        (claim(2, takeover=True, max_pending=2),),
        (SECOND.changes("x", "y", kept=("x", "y")),),
        (SECOND.opens(0), SECOND.reports(0), SECOND.triggers(0), SECOND.opens(1)),
    )

    assert [] == of_edges(history, 1, token=2)


def test_epoch_says_what_was_skipped_in_it_and_by_whose_marker() -> None:
    """Edges of a later epoch were voided at the takeover: nobody skips anything for them."""
    history = told(
        (claim(max_pending=2), FIRST.opens(0), FIRST.switches(0)),
        (FIRST.marks(0, part("x"), part("y", 0, 2, total=4)), FIRST.reports(0), FIRST.opens(1), FIRST.switches(1)),
        (FIRST.marks(1, part("x")),),
        (claim(2, takeover=True),),
        (SECOND.opens(0), SECOND.reports(0), SECOND.opens(1)),
    )

    answer = explained(history, 0, token=2)

    assert [
        f"opened {at(4)} by attempt 2, {WHO}, after attempt 1 had begun it",
        "operator 'x' was not run: attempt 1 had left a durable edge of it, all of it",
        "operator 'y' went on: attempt 1 had left a durable edge of it, buckets 0 to 1 of 4",
    ] == answer["because"][:3]
    assert [
        {"operator_id": "x", "buckets": [[0, 1]], "of": 1, "attempts": [1]},
        {"operator_id": "y", "buckets": [[0, 2]], "of": 4, "attempts": [1]},
    ] == answer["skipped"]
    assert [] == explained(history, 1, token=2)["skipped"]
    assert because(history, 0)[1].endswith("because it took longer than the alignment timeout")


def test_epoch_says_of_an_edge_that_several_attempts_had_left_which_they_are() -> None:
    """What an attempt marks itself it had not found."""
    third = Sender(3, 3)
    history = told(
        (claim(), FIRST.opens(0), FIRST.switches(0), FIRST.marks(0, part("x"), part("y", 0, 2, total=4))),
        (claim(2, takeover=True), SECOND.opens(0), SECOND.switches(0), SECOND.marks(0, part("y", 2, 3, total=4))),
        (claim(3, takeover=True), third.opens(0), third.switches(0), third.marks(0, part("y", 3, 4, total=4))),
        (claim(4, takeover=True), Sender(4, 4).opens(0)),
    )

    assert [
        "operator 'x' was not run: attempt 1 had left a durable edge of it, all of it",
        "operator 'y' was not run: attempts 1, 2 and 3 had left a durable edge of it, all of it",
    ] == of_edges(history, 0, token=4)
    assert [
        "operator 'x' was not run: attempt 1 had left a durable edge of it, all of it",
        "operator 'y' went on: attempts 1 and 2 had left a durable edge of it, buckets 0 to 2 of 4",
        "left a durable edge of 'y', buckets 3 of 4",
    ] == of_edges(history, 0, token=3)
    assert [[1], [1, 2]] == [edge["attempts"] for edge in explained(history, 0, token=3)["skipped"]]


def test_epoch_says_what_was_skipped_in_it_also_when_nobody_skips_it_any_more() -> None:
    """Other operators have come since, and what the first attempt had left is void."""
    history = told(
        (claim(), FIRST.opens(0), FIRST.switches(0), FIRST.marks(0, part("x"))),
        (claim(2, takeover=True),),
        (SECOND.opens(0),),
        (claim(3, takeover=True), Sender(3, 3).changes("x", "y")),
        (Sender(3, 3).opens(0),),
    )

    assert [["x"], []] == [
        [edge["operator_id"] for edge in explained(history, 0, token)["skipped"]] for token in (2, 3)
    ]


def test_epoch_is_durable_by_the_first_checkpoint_that_covers_it() -> None:
    """Also by one of a later epoch; what came after it, or was aborted, made nothing durable."""
    history = told(
        (claim(every_epochs=2), FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0), FIRST.opens(1)),
        (FIRST.reports(1), FIRST.triggers(1), aborts(1)),
        (FIRST.opens(2), FIRST.reports(2), FIRST.triggers(2), FIRST.completes(2)),
        (FIRST.opens(3), FIRST.reports(3), FIRST.triggers(3), FIRST.opens(4)),
        (FIRST.reports(4), FIRST.triggers(4), FIRST.completes(3)),
    )

    assert f"durable {at(2)}: checkpoint 2 of epoch 2 completed" == because(history, 0)[-1]
    assert f"durable {at(4)}: checkpoint 3 of epoch 4 completed" == because(history, 3)[-1]
    assert [2, 3] == [explained(history, epoch)["checkpoint_id"] for epoch in (0, 3)]


def test_epoch_is_durable_by_a_checkpoint_of_its_own_attempt_whatever_was_given_up_before() -> None:
    history = told(*FELL_BACK)

    assert f"durable {at(4)}: checkpoint 4 of epoch 1 completed" == because(history, 1, token=4)[-1]
    assert [1, None, 4, None, None, 5] == [
        explained(history, known.epoch, known.fencing_token)["checkpoint_id"] for known in history.epochs
    ]


def test_epoch_that_was_durable_says_who_fell_back_behind_it_and_one_that_never_was_says_who_took_the_run() -> None:
    history = told(*FELL_BACK)

    fell_back = f"voided: attempt 4, {WHO} fell back to checkpoint 1 of epoch 0"
    assert [fell_back, fell_back] == [because(history, 1, token=1)[-1], because(history, 2, token=3)[-1]]
    assert f"voided: no checkpoint covered it when attempt 3, {WHO} took the run" == because(history, 2, token=2)[-1]


def test_epoch_that_is_aligned_says_which_checkpoint_it_waits_for() -> None:
    begun = (claim(), FIRST.opens(0), FIRST.reports(0))

    assert "not durable yet: no checkpoint" == because(told(begun), 0)[-1]
    assert "not durable yet: checkpoint 1 is pending" == because(told(begun, (FIRST.triggers(0),)), 0)[-1]
    assert "not durable yet: checkpoints 1 and 2 are pending" == because(told(*HELD_BY_TWO), 0)[-1]


def test_epoch_says_of_all_attempts_before_that_they_had_begun_it() -> None:
    history = told(
        (claim(), FIRST.opens(0)),
        (claim(2, takeover=True), SECOND.opens(0)),
        (claim(3, takeover=True), Sender(3, 3).opens(0)),
    )

    assert because(history, 0, token=3)[0].endswith(", after attempts 1 and 2 had begun it")


def test_epoch_says_who_has_heard_of_it() -> None:
    history = told(
        (claim(), *FIRST.passes(0, 1)), (FIRST.notifies(0, "log"),), (*FIRST.passes(1, 2), FIRST.notifies(1, "log"))
    )

    assert f"listener 'log' heard of it {at(1)}" == because(history, 0)[-1]


def test_edge_that_a_fallback_voided_was_not_ignored_by_a_person() -> None:
    """The attempt falls back to before the epoch of the edge, and opens that again."""
    history = told(
        (claim(), *FIRST.passes(0, 1), FIRST.opens(1), FIRST.switches(1)),
        (FIRST.marks(1, part("x")),),
        (FIRST.reports(1), FIRST.triggers(1), FIRST.completes(2)),
        (claim(2, takeover=True), SECOND.falls_back(older(1, 0))),
        (SECOND.opens(1),),
    )

    assert [] == of_edges(history, 1, token=2)
