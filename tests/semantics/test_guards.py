"""Is every behaviour that is owed guarded by a test that was seen to fail, as docs/semantics.md says?

Every night each guard's patch is applied to a copy of the project, where its test has to fail; and in one that nothing
was done to, each of these tests has to pass.
"""

from __future__ import annotations

import ast
import re

import pytest

from tests.semantics.catalogue import GUARDS, UNGUARDED
from tests.semantics.guard import ROOT, Guard, is_caught, pass_unbroken
from tests.size import nightly

_DOCUMENT = ROOT / "docs" / "semantics.md"
_ROW = re.compile(r"^\| (B\d\.\d+) \|", re.MULTILINE)
_ROWS = {1: 20, 2: 17, 3: 6, 4: 10, 5: 9, 6: 7}  # of each part
_OWED = [f"B{part}.{number}" for part, last in _ROWS.items() for number in range(1, last + 1)]


def test_every_row_is_guarded_or_says_why_not() -> None:
    guarded = {guard.row for guard in GUARDS}

    assert [] == [row for row in _OWED if row not in guarded and row not in UNGUARDED]
    assert set() == guarded & set(UNGUARDED)


def test_document_has_every_row_with_its_tests_and_its_breaks() -> None:
    lines = {match[1]: line for line in _DOCUMENT.read_text().splitlines() if (match := _ROW.match(line))}

    assert [] == [row for row in _OWED if row not in lines]
    for guard in GUARDS:
        assert f"`{guard.test_name.removeprefix('test_')}`" in lines[guard.row]
        assert guard.slip in lines[guard.row]


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
