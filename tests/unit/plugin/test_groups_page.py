"""What the tab shows of a DAG run whose iterations are task groups, from records alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from iteration_lib.protocol.status import RunStatus
from iteration_ui.answer import answer_page
from iteration_ui.groups_page import make_groups_page
from tests.unit.plugin.test_runs_page import NOW, RUN


def test_groups_are_listed_by_their_names_as_they_began() -> None:
    runs = [
        replace(RUN, run_key="kmeans/manual__1/fine", created_at=NOW + timedelta(seconds=1)),
        replace(RUN, run_key="kmeans/manual__1/coarse"),
    ]

    page = make_groups_page("kmeans", "manual__1", runs)

    assert [
        ("coarse", "dags/kmeans/runs/manual__1/coarse"),
        ("fine", "dags/kmeans/runs/manual__1/fine"),
    ] == [(row.name, row.link) for row in page.rows]


@pytest.mark.parametrize(
    ("statuses", "refresh_seconds"),
    [((), 10), (("FINISHED",), 10), (("FINISHED", "FAILED"), 10), (("FINISHED", "RUNNING"), 3)],
)
def test_page_is_looked_at_again_for_another_group_may_begin(statuses: tuple[str, ...], refresh_seconds: int) -> None:
    runs = [replace(RUN, run_key=f"k/1/{status}", status=RunStatus(status)) for status in statuses]

    assert refresh_seconds == make_groups_page("k", "1", runs).refresh_seconds


def test_link_to_a_group_is_compared_with_its_name_as_it_is_written_and_not_as_an_address_is() -> None:
    """A browser shows the fragment of an address with all but ASCII in percents, and Airflow takes any letter."""
    page = make_groups_page("k", "1", [replace(RUN, run_key="k/1/größe")])

    text = bytes(answer_page("groups.html", page=page, title="t", refresh=None).body).decode()

    assert 'href="/iterations/dags/k/runs/1/gr%C3%B6%C3%9Fe" data-group="größe"' in text
    assert "decodeURIComponent(location.hash || parent.location.hash)" in text
    assert "link.dataset.group === group" in text


def test_page_escapes_what_users_chose() -> None:
    mischief = "<script>alert(1)"
    page = make_groups_page(mischief, mischief, [replace(RUN, run_key=f"{mischief}/{mischief}/{mischief}")])

    text = bytes(answer_page("groups.html", page=page, title=mischief, refresh=None).body).decode()

    assert mischief not in text
    assert 'data-group="&lt;script&gt;alert(1)"' in text
