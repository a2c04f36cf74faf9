"""Why did a checkpoint begin, and what became of it?"""

from __future__ import annotations

from typing import Any, cast

import pytest

from iteration_lib.explanation import RunHistory, explain_run
from iteration_lib.protocol import Event
from tests.protocol_script import FIRST, SECOND, Sender, aborts, asks, claim, discards, resumes, stops
from tests.told_history import FELL_BACK, at, older, told

WHO = "process 7 on here"
AT_PACE = "begun at its attempt's pace"


def because(history: RunHistory) -> list[list[str]]:
    told_of = cast("list[dict[str, Any]]", explain_run(history)["checkpoints"])
    return [known["because"] for known in told_of]


def test_checkpoints_say_why_they_began_and_what_became_of_them() -> None:
    history = told(
        (claim(max_pending=9, tolerable_failures=9), FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0)),
        (FIRST.opens(1), FIRST.reports(1), asks(), FIRST.triggers(1)),
        (aborts(2),),
        (FIRST.opens(2), FIRST.reports(2), FIRST.triggers(2), FIRST.lets_expire(3)),
        (FIRST.opens(3), FIRST.reports(3), FIRST.triggers(3), FIRST.completes(4)),
        (FIRST.opens(4), FIRST.reports(4, {"centroids": {0: 0}}), FIRST.triggers(4), FIRST.completes(5)),
    )

    assert [
        [AT_PACE, f"aborted {at(2)}, ABORTED_BY_USER: aborted by ann"],
        [f"asked for by ann {at(1)}", f"aborted {at(2)}, ABORTED_BY_USER: aborted by ann"],
        [AT_PACE, f"aborted {at(3)}, EXPIRED: took longer than 600 s"],
        [AT_PACE, f"completed {at(4)}", "subsumed by checkpoint 5 of epoch 4"],
        ["begun because epoch 4 terminates the run", f"completed {at(5)}"],
    ] == because(history)


def test_checkpoint_that_is_pending_says_since_when() -> None:
    history = told((claim(), FIRST.opens(0)), (FIRST.reports(0), FIRST.triggers(0)))

    assert [[AT_PACE, f"pending since {at(1)}"]] == because(history)


def test_checkpoint_that_begins_because_of_a_stop_says_whose_it_was() -> None:
    """Also beside somebody's request for a checkpoint; a stop that is over, or a later one, is no reason."""
    begun = (claim(every_epochs=9), FIRST.opens(0))
    passed = (FIRST.reports(0), FIRST.triggers(0), FIRST.completes(1))
    resumed = ((FIRST.ends(),), (resumes(),), (claim(2, every_epochs=9), asks(2), *SECOND.passes(1, 2)), (stops(2),))

    stopped = because(told(begun, (stops(),), passed, *resumed))
    asked = because(told(begun, (stops(), asks()), passed))

    because_of_it = f"begun because ann asked the run to stop {at(1)}"
    assert [
        [because_of_it, f"completed {at(2)}", "subsumed by checkpoint 2 of epoch 1"],
        [f"asked for by ann {at(5)}", f"completed {at(5)}"],
    ] == stopped
    assert [[because_of_it, f"asked for by ann {at(1)}", f"completed {at(2)}"]] == asked


def aligned(epoch: int) -> tuple[Event, ...]:
    return FIRST.opens(epoch), FIRST.reports(epoch)


SECOND_EPOCH = (*aligned(1), FIRST.triggers_last(1))
ABORTED = (*aligned(0), *aligned(1), FIRST.triggers(1), aborts(1))


@pytest.mark.parametrize(
    ("batches", "is_paced"),
    [
        ([(claim(every_epochs=2), *aligned(0), FIRST.triggers_last(0))], False),
        ([(claim(every_epochs=2), *aligned(0), *SECOND_EPOCH)], True),
        ([(claim(every_epochs=2), *ABORTED), (*aligned(2), FIRST.triggers_last(2))], True),
        ([(claim(min_pause_seconds=2.0), *FIRST.passes(0, 1)), SECOND_EPOCH], False),
        ([(claim(min_pause_seconds=2.0), *FIRST.passes(0, 1)), (), SECOND_EPOCH], True),
        ([(claim(min_pause_seconds=2.0, max_pending=2), *aligned(0), FIRST.triggers(0)), SECOND_EPOCH], False),
    ],
    ids=["too few epochs", "enough epochs", "one was aborted", "too soon", "late enough", "beside a pending one"],
)
def test_checkpoint_of_its_attempts_last_epoch_says_so_where_the_pace_asks_for_none(
    batches: list[tuple[Event, ...]], *, is_paced: bool
) -> None:
    history = told(*batches)

    epoch = history.checkpoints[-1].epoch
    why = AT_PACE if is_paced else f"begun because epoch {epoch} is the last that its attempt was asked for"
    assert why == because(history)[-1][0]


def test_checkpoint_that_is_completed_late_subsumes_none_and_is_subsumed_itself() -> None:
    """What a person asked for outlives a newer one, which has made its epoch durable."""
    history = told(
        (claim(max_pending=2), *FIRST.passes(0, 1), FIRST.opens(1), FIRST.reports(1), asks(), FIRST.triggers(1)),
        (FIRST.opens(2), FIRST.reports(2), FIRST.triggers(2)),
        (FIRST.completes(3),),
        (FIRST.completes(2),),
    )

    assert [
        [AT_PACE, f"completed {at(0)}", "subsumed by checkpoint 3 of epoch 2"],
        [f"asked for by ann {at(0)}", f"completed {at(3)}", "subsumed by checkpoint 3 of epoch 2"],
        [AT_PACE, f"completed {at(2)}"],
    ] == because(history)


def given_up(broken: int = 3, *, attempt: int = 4, is_newest: bool = False) -> list[str]:
    """Nobody knows when one that was not the newest was discarded."""
    before = "" if is_newest else ", unless it was discarded before"
    behind = f"fell back to checkpoint 1{before}: checkpoint {broken} was broken, a file is missing"
    return [
        f"given up by attempt {attempt}, {WHO}, which {behind}",
        "its files are gone, or `iteration gc` removes them",
    ]


def test_checkpoints_that_were_given_up_say_so_and_subsume_nothing() -> None:
    fallen, gone_on = told(*FELL_BACK[:4]), told(*FELL_BACK)

    assert [
        [AT_PACE, f"completed {at(0)}"],
        [AT_PACE, f"completed {at(0)}", *given_up()],
        [AT_PACE, f"completed {at(2)}", *given_up(is_newest=True)],
    ] == because(fallen)
    assert [
        [AT_PACE, f"completed {at(0)}", "subsumed by checkpoint 4 of epoch 1"],
        [AT_PACE, f"completed {at(0)}", *given_up()],
        [AT_PACE, f"completed {at(2)}", *given_up(is_newest=True)],
        [AT_PACE, f"completed {at(4)}", "subsumed by checkpoint 5 of epoch 2"],
        [AT_PACE, f"completed {at(5)}"],
    ] == because(gone_on)


def test_checkpoint_is_given_up_once_however_often_its_run_falls_back() -> None:
    history = told(*FELL_BACK, (claim(5, takeover=True), Sender(5, 5).falls_back(older(1, 0))))

    assert [
        [],
        given_up(),
        given_up(is_newest=True),
        given_up(5, attempt=5),
        given_up(5, attempt=5, is_newest=True),
    ] == [said[2:] for said in because(history)]


def test_checkpoint_that_retention_discarded_says_what_subsumed_it() -> None:
    history = told((claim(), *FIRST.passes(0, 1), *FIRST.passes(1, 2), *FIRST.passes(2, 3)), (discards(1),))

    gone = "its files are gone, or `iteration gc` removes them"
    assert [AT_PACE, f"completed {at(0)}", "subsumed by checkpoint 2 of epoch 1", gone] == because(history)[0]
