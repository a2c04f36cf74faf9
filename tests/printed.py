"""What do the pages print? Programs, and commands that a reader types."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).parents[1]
README = PROJECT / "README.md"
FIRST_DAG = PROJECT / "docs" / "first-dag.md"


def program(page: Path, holds: str) -> str:
    """Return the one Python program of a page that holds a text."""
    [found] = [block for block in _blocks(page, "python") if holds in block]
    return found


def commands(page: Path, name: str) -> list[str]:
    """Return what a reader types that begins with a program's name, in order."""
    lines = [line for block in _blocks(page, "sh") for line in block.splitlines()]
    return [line for line in lines if line.startswith(f"{name} ")]


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)
