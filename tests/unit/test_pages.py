"""Do the pages lead where they say? Every link to a page of ours, and to a heading on it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.printed import PROJECT

PAGES = [*sorted(PROJECT.glob("*.md")), *sorted((PROJECT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_page_and_a_heading_that_are_there(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", page.read_text())

    targets = [(page.parent / path if path else page, heading) for path, heading in links]

    assert [] == [str(target) for target, _ in targets if not target.exists()]
    assert [] == [(target.name, heading) for target, heading in targets if heading and heading not in headings(target)]


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    lines = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL).splitlines()
    titles = [line.lstrip("#").strip().lower() for line in lines if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}
