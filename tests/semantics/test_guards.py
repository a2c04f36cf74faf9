"""Is every behaviour that is owed guarded by a test that was seen to fail, as docs/semantics.md says?

Every night each guard's patch is applied to a copy of the project, where its test has to fail; and in one that nothing
was done to, each of these tests has to pass.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.semantics.catalogue import GUARDS, UNGUARDED
from tests.semantics.guard import ROOT, Guard, is_caught, pass_unbroken
from tests.size import nightly

_DOCUMENT = ROOT / "docs" / "semantics.md"
_ROW = re.compile(r"\| (B\d\.\d+) \|")
_NAME = re.compile(r"`(\w+)`")
_ROWS = {1: 20, 2: 17, 3: 6, 4: 10, 5: 9, 6: 7}  # of each part
_OWED = [f"B{part}.{number}" for part, last in _ROWS.items() for number in range(1, last + 1)]


def test_every_row_is_guarded_or_says_why_not() -> None:
    guarded = {guard.row for guard in GUARDS}

    assert [] == [row for row in _OWED if row not in guarded and row not in UNGUARDED]
    assert set() == guarded & set(UNGUARDED)


def test_document_names_the_tests_and_the_breaks_of_every_row_and_no_others() -> None:
    """A test that no break was seen to fail would prove nothing of its row."""
    rows = [_cells(line) for line in _DOCUMENT.read_text().splitlines() if _ROW.match(line)]

    guards = {row: [guard for guard in GUARDS if guard.row == row] for row in _OWED}
    assert {row: {_named(guard) for guard in guards[row]} for row in _OWED} == {
        row: set(_tests(tests)) for row, _, tests, _ in rows
    }
    assert {row: sorted(guard.slip for guard in guards[row]) for row in _OWED} == {
        row: sorted(filter(None, breaks.split("; "))) for row, _, _, breaks in rows
    }


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def _tests(cell: str) -> Iterator[tuple[str, str]]:
    """Yield the file and the name of each test that a cell lists, as `file: one, two; file: three`."""
    for of_file in cell.split("; "):
        file, _, names = of_file.partition(": ")
        yield from ((file, name) for name in _NAME.findall(names))


def _named(guard: Guard) -> tuple[str, str]:
    return guard.test.partition(".py::")[0], guard.test_name.removeprefix("test_")


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: f"{guard.row} {guard.test_name}")
def test_guard_names_a_test_and_a_break_that_fits(guard: Guard) -> None:
    tree = ast.parse(guard.test_file.read_text())

    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}

    assert guard.test_name in names
    assert 1 == (ROOT / guard.file).read_text().count(guard.old)
    if guard.file.endswith(".py"):
        compile(guard.patched(), guard.file, "exec")


def test_break_that_a_fixture_does_not_survive_is_not_caught_by_the_test() -> None:
    guard = Guard(
        row="B1.1",
        slip="the test's fixture fails",
        test="unit/test_fallback.py::test_whole_newest_checkpoint_is_not_given_up",
        file="tests/unit/test_fallback.py",
        old="    return all_but_one_durable(tmp_path, monkeypatch, epochs=3)\n",
        new="    raise RuntimeError\n",
    )

    caught, said = is_caught(guard)

    assert not caught
    assert "ERROR at setup of" in said
    assert "RuntimeError" in said


def test_break_that_names_what_is_not_there_is_not_caught_by_the_test() -> None:
    """A type checker would stop it: it is no slip, and any test of that line fails."""
    guard = Guard(
        row="B1.1",
        slip="the newest checkpoint is given up",
        test="unit/test_fallback.py::test_whole_newest_checkpoint_is_not_given_up",
        file="iteration_lib/fallback.py",
        old="        newest = store.find_completed(opened.run_id)\n",
        new="        newest = store.find_completed(opened.run_id) if is_damaged else None\n",
    )

    caught, said = is_caught(guard)

    assert not caught
    assert "is_damaged is not there" in said


def test_test_that_is_skipped_in_the_copy_does_not_pass_there() -> None:
    """It would catch nothing."""
    passed, said = pass_unbroken(["semantics/test_guards.py::test_tests_that_guard_rows_pass_where_nothing_is_broken"])

    assert not passed
    assert "1 skipped" in said


@nightly("runs every test that guards a row")
@pytest.mark.timeout(3600)
def test_tests_that_guard_rows_pass_where_nothing_is_broken() -> None:
    """Else one of them could seem to catch a break, and would fail there anyway."""
    passed, said = pass_unbroken(guard.test for guard in GUARDS)

    assert passed, said


@nightly("applies every break")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: f"{guard.row} {guard.test_name}")
def test_test_fails_when_its_row_is_broken(guard: Guard) -> None:
    caught, said = is_caught(guard)

    assert caught, said
