"""What the page of all runs shows, from records alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from iteration_lib.protocol.state import RunId
from iteration_lib.protocol.status import RunStatus, StopKind
from iteration_lib.store.listing import ListedRun, Listing, RunMetricSpan
from iteration_ui.answer import answer_page
from iteration_ui.runs_page import RunRow, make_runs_page
from iteration_ui.runs_reading import PAGE_SIZE, RunsQuery, RunsReading

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
RUN = ListedRun(
    run_id=RunId("0b5c"),
    run_key="kmeans/manual__1",
    reference="team.km:km",
    status=RunStatus.RUNNING,
    asked_to=None,
    epochs=12,
    max_epochs=50,
    created_at=NOW,
    finished_at=None,
    depth=0,
    origin_checkpoint_id=None,
    from_savepoint=False,
    metrics={"inertia": 12.54321, "shift": 0.1},
)


def page_of(*runs: ListedRun, total: int | None = None, query: RunsQuery | None = None) -> tuple[RunRow, ...]:
    reading = RunsReading(listing=Listing(runs=runs, total=total if total is not None else len(runs)))
    return make_runs_page(query or RunsQuery(), reading).rows


def test_row_says_what_a_run_is_and_how_far_it_has_come() -> None:
    rows = page_of(RUN)

    assert (
        RunRow(
            run_id=RunId("0b5c"),
            link="dags/kmeans/runs/manual__1",
            name="manual__1",
            dag_id="kmeans",
            depth=0,
            origin="",
            reference="team.km:km",
            status="RUNNING",
            asked_to="",
            epochs="12 of 50",
            metrics="inertia 12.54, shift 0.1",
            started="2026-03-01 12:00:00 UTC",
            lasted="",
            is_compared=False,
        ),
    ) == rows


def test_run_that_no_dag_started_has_a_page_of_its_own() -> None:
    (row,) = page_of(replace(RUN, run_key="first", max_epochs=None))

    assert ("runs/0b5c", "first", "", "12") == (row.link, row.name, row.dag_id, row.epochs)


def test_deleted_run_has_no_page() -> None:
    (row,) = page_of(replace(RUN, status=RunStatus.DELETED))

    assert ("", "manual__1") == (row.link, row.name)


@pytest.mark.parametrize(
    ("run_key", "link"),
    [
        ("k m/a?b", "dags/k%20m/runs/a%3Fb"),
        ("kmeans/manual__1/train", "dags/kmeans/runs/manual__1/train"),
        ("k/a/c#d", "dags/k/runs/a/c%23d"),
        ("k/a/b/c", ""),
        ("k/../c", ""),
        ("k//c", ""),
        ("/a", ""),
    ],
)
def test_run_has_a_page_where_an_address_can_say_its_key(run_key: str, link: str) -> None:
    (row,) = page_of(replace(RUN, run_key=run_key))

    assert (link, run_key.partition("/")[2]) == (row.link, row.name)


@pytest.mark.parametrize(
    ("changes", "origin"),
    [
        ({"origin_checkpoint_id": 3, "depth": 1}, "from checkpoint 3"),
        ({"origin_checkpoint_id": 3}, "from checkpoint 3 of a run that is not listed"),
        ({"from_savepoint": True}, "from a savepoint"),
    ],
)
def test_branch_says_where_it_began(changes: dict[str, object], origin: str) -> None:
    (row,) = page_of(replace(RUN, **changes))

    assert origin == row.origin


def test_run_that_was_asked_to_stop_says_so_until_it_has() -> None:
    asked = replace(RUN, asked_to=StopKind.STOP)

    rows = page_of(asked, replace(asked, status=RunStatus.STOPPED, finished_at=NOW + timedelta(seconds=90)))

    assert [("asked to stop", ""), ("", "1 min 30 s")] == [(row.asked_to, row.lasted) for row in rows]


@pytest.mark.parametrize(
    ("page", "newer", "older"),
    [(1, "", "2"), (2, "1", "3"), (3, "2", "")],
)
def test_pages_lead_to_their_neighbours_and_keep_what_was_asked_for(page: int, newer: str, older: str) -> None:
    query = RunsQuery(dag_id="k&m", status=RunStatus.FAILED, name="a b", page=page, compare=(RunId("1"), RunId("2")))

    shown = make_runs_page(query, RunsReading(listing=Listing(runs=(), total=2 * PAGE_SIZE + 1)))

    asked = "?dag_id=k%26m&status=FAILED&name=a+b&compare=1&compare=2&page="
    assert (3, newer and asked + newer, older and asked + older) == (shown.pages, shown.newer, shown.older)


def test_page_behind_the_last_is_shown_as_the_last() -> None:
    shown = make_runs_page(RunsQuery(page=9), RunsReading(listing=Listing(runs=(RUN,), total=PAGE_SIZE + 1)))

    text = bytes(answer_page("runs.html", page=shown, title="t").body).decode()
    assert (2, "?page=1", "") == (shown.number, shown.newer, shown.older)
    assert "page 2 of 2" in text


def test_chart_has_a_line_for_each_run_that_is_compared_and_a_gap_for_none() -> None:
    other = replace(RUN, run_id=RunId("1c6d"), run_key="kmeans/other")
    spans = [
        RunMetricSpan(run_id=run_id, name=name, first_epoch=epoch, last_epoch=epoch, least=1, greatest=1, last=epoch)
        for run_id, name, epoch in ((RUN.run_id, "inertia", 0), (RUN.run_id, "inertia", 1), (other.run_id, "shift", 0))
    ]
    reading = RunsReading(listing=Listing(runs=(RUN,), total=1), compared=(other, RUN), spans=spans)

    page = make_runs_page(RunsQuery(), reading)

    drawn = [(chart.name, [(line.name, len(line.dots)) for line in chart.lines]) for chart in page.charts]
    assert [
        ("inertia", [("kmeans/other", 0), ("kmeans/manual__1", 2)]),
        ("shift", [("kmeans/other", 1), ("kmeans/manual__1", 0)]),
    ] == drawn
    assert ([True, True], [True]) == (
        [row.is_compared for row in page.compared],
        [row.is_compared for row in page.rows],
    )


@pytest.mark.parametrize(("chosen", "said"), [(8, ""), (9, "1 more is not compared"), (11, "3 more are not compared")])
def test_page_says_how_many_runs_it_has_no_colour_for(chosen: int, said: str) -> None:
    reading = RunsReading(
        listing=Listing(runs=(), total=0), compared=[RUN] * min(chosen, 8), too_many=max(0, chosen - 8)
    )

    page = make_runs_page(RunsQuery(), reading)

    text = bytes(answer_page("runs.html", page=page, title="t").body).decode()
    assert (max(0, chosen - 8), said != "") == (page.too_many, "not compared" in text)
    assert said in text
    assert (said != "") == ("there are colours for 8." in text)


def test_page_escapes_what_users_chose() -> None:
    mischief = "<script>alert(1)</script>"
    page = make_runs_page(
        RunsQuery(name=f'"{mischief}'),
        RunsReading(
            listing=Listing(runs=(replace(RUN, run_key=f"k/{mischief}", metrics={mischief: 1.0}),), total=1),
            dag_ids=[mischief],
            compared=(replace(RUN, run_key=mischief),),
        ),
    )

    text = bytes(answer_page("runs.html", page=page, title=mischief, refresh=None).body).decode()

    assert mischief not in text
    assert 'value="&#34;&lt;script&gt;' in text
