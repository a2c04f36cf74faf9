"""How is an answer printed? As JSON for programs, as a table for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from iteration_lib.view import Json

_ANSWERS = f"{__name__}.answers"
_UNFOLDED = 10_000  # characters, more than a row of ours has


@contextmanager
def answering_alone() -> Iterator[None]:
    """Keep standard output to the answer: what a user's code prints goes to standard error."""
    click.get_current_context().meta[_ANSWERS] = sys.stdout
    with redirect_stdout(sys.stderr):
        yield


def print_json(answer: object) -> None:
    """Print JSON to standard output."""
    click.echo(json.dumps(answer, indent=2), file=click.get_current_context().meta[_ANSWERS])


def print_table(title: str, rows: Sequence[Json], columns: Sequence[str]) -> None:
    """Print some columns of some rows to standard output."""
    table = Table(title=Text(title), title_justify="left", show_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(row.get(column))) for column in columns))
    console = Console()
    if not console.is_terminal:  # a pipe or a file has no edge, and whoever searches it wants whole words
        console = Console(width=_UNFOLDED)
    console.print(table)


def print_fields(fields: Json) -> None:
    """Print names and values, a line each; values that are empty are left out."""
    width = max(len(name) for name in fields)
    for name, value in fields.items():
        if value not in (None, {}, ()):
            click.echo(f"{name.replace('_', ' '):<{width}}  {_cell(value)}")


def print_sentences(title: str, sentences: object) -> None:
    """Print a title and what is said under it, a line each; nothing where nothing is said."""
    said = [str(sentence) for sentence in sentences] if isinstance(sentences, Iterable) else []
    if said:
        click.echo(f"\n{title}")
    for sentence in said:
        click.echo(f"  {sentence}")


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return "  ".join(f"{key}={_cell(item)}" for key, item in value.items() if item is not None)
    return str(value)
