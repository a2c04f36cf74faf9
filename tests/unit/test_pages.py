"""Do the pages lead where they say? Every link to a page of ours, to a heading on it, and to a picture."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.printed import PROJECT

DOCS = PROJECT / "docs"
PAGES = [*sorted(PROJECT.glob("*.md")), *sorted(DOCS.glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_page_and_a_heading_that_are_there(page: Path) -> None:
    targets = [(page.parent / path if path else page, heading) for path, heading in links(page)]

    assert [] == [str(target) for target, _ in targets if not target.exists()]
    assert [] == [(target.name, heading) for target, heading in targets if heading and heading not in headings(target)]


def test_every_picture_is_shown_by_a_page() -> None:
    shown = {(page.parent / path).resolve() for page in PAGES for path, _ in links(page)}

    assert [] == [path.name for path in sorted((DOCS / "pictures").iterdir()) if path.resolve() not in shown]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_picture_is_told_in_words_as_well(page: Path) -> None:
    pictures = re.findall(r"!\[([^\]]*)\]|<img\b([^>]*)>", page.read_text())

    assert [] == [tag for words, tag in pictures if not words and not re.search(r'\balt="[^"]+"', tag)]


def links(page: Path) -> list[tuple[str, str]]:
    """Return the relative links of a page, its pictures among them: each a path and the heading there."""
    text = page.read_text()
    shown = re.findall(r'\b(?:src|srcset)="(?!https?:)([^"]+)"', text)
    return [*re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", text), *((path, "") for path in shown)]


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    lines = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL).splitlines()
    titles = [line.lstrip("#").strip().lower() for line in lines if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}
