"""Can what is printed be read by programs such as grep, too?"""

from __future__ import annotations

import pytest

from iteration_lib.cli.output import print_fields, print_table


def test_table_is_not_folded_where_nobody_looks_at_it(capsys: pytest.CaptureFixture[str]) -> None:
    long = "word-" * 100

    print_table("words", [{"word": long, "status": "SUBSUMED"}], ("word", "status"))

    assert f" {long} │ SUBSUMED " == capsys.readouterr().out.splitlines()[-1]


def test_what_is_unknown_inside_a_field_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields({"checkpoint": {"checkpoint_id": 3, "origin": None, "files": 1}})

    assert "checkpoint  checkpoint_id=3  files=1\n" == capsys.readouterr().out
