"""What may a person let go with --allow-dropped-state and --ignore-edges? In processes of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.command_line import Answer, CommandLine
from tests.driven_in_memory import MODULE, SOURCE, InMemory

pytestmark = pytest.mark.postgres

REFERENCE = f"{MODULE}:planned"
COUNT = """

@planned.operator(state="carry")
def count(moved, state):
    before = state["n"] if state else np.zeros(1)
    return {"total": before + 1}, {"n": before + 1}


planned.output(count=count)
"""
STANDS_IN_THE_WAY = "operator 'count' is gone, and has state"


@pytest.fixture
def desk(tmp_path: Path) -> InMemory:
    """Write the user's file and what it reads; its store is not used."""
    desk = InMemory(tmp_path)
    desk.write_input()
    (tmp_path / "broken").touch()
    return desk


@pytest.fixture
def shell(store_url: str, tmp_path: Path) -> CommandLine:
    return CommandLine(store_url=store_url, folder=tmp_path, cwd=tmp_path)


def write(shell: CommandLine, source: str) -> None:
    (shell.folder / f"{MODULE}.py").write_text(source)


def run(shell: CommandLine, key: str, *options: str) -> Answer:
    params = ("--param", f"input={shell.folder / 'points.parquet'}", "--param", f"broken={shell.folder / 'broken'}")
    return shell.run(REFERENCE, f"{shell.folder.name}-{key}", *params, *options)


def told(shell: CommandLine, verb: str, key: str, *options: str) -> Any:
    return shell.call(verb, f"{shell.folder.name}-{key}", *options, "--json").json


@pytest.mark.usefixtures("desk")
def test_state_of_an_operator_that_is_gone_is_dropped_only_where_a_person_says_so(shell: CommandLine) -> None:
    write(shell, SOURCE + COUNT)
    failed = run(shell, "dropped")
    (shell.folder / "broken").unlink()
    write(shell, SOURCE)

    refused = run(shell, "dropped")
    planned = [told(shell, "plan", "dropped", *flags)["refusals"] for flags in ((), ("--allow-dropped-state",))]
    let = run(shell, "dropped", "--allow-dropped-state")

    assert (1, 2, 0) == (failed.code, refused.code, let.code), let.err
    assert STANDS_IN_THE_WAY in refused.err
    assert [[STANDS_IN_THE_WAY], []] == [[said.partition(";")[0] for said in refusals] for refusals in planned]
    assert ("FINISHED", 3) == (let.json["status"], let.json["epochs"])


@pytest.mark.usefixtures("desk")
def test_branch_without_an_operator_that_has_state_is_made_only_where_a_person_says_so(shell: CommandLine) -> None:
    write(shell, SOURCE + COUNT)
    run(shell, "origin")
    write(shell, SOURCE)
    branch = ("branch", f"{shell.folder.name}-origin", "--run-key", f"{shell.folder.name}-branch", "--json")

    refused, let = shell.call(*branch), shell.call(*branch, "--allow-dropped-state")

    assert (2, 0) == (refused.code, let.code), let.err
    assert STANDS_IN_THE_WAY in refused.err


@pytest.mark.usefixtures("desk")
def test_open_epoch_begins_anew_where_a_person_ignores_its_edges(shell: CommandLine) -> None:
    write(shell, SOURCE)
    for key in ("behind", "anew"):
        assert 1 == run(shell, key, "--alignment-timeout", "0").code
    planned = [told(shell, "plan", "anew", *flags) for flags in ((), ("--ignore-edges",))]
    (shell.folder / "broken").unlink()

    behind, anew = run(shell, "behind"), run(shell, "anew", "--ignore-edges")

    assert (0, 0) == (behind.code, anew.code), anew.err
    assert behind.json["state_digest"] == anew.json["state_digest"]
    actions = [{step["operator_id"]: step["action"] for step in plan["operators"]}["sums"] for plan in planned]
    assert ["RESTORED", "RUN"] == actions
    skipped = [told(shell, "explain", key)["epochs"][-2]["skipped"] for key in ("behind", "anew")]
    assert [["sums"], []] == [[edge["operator_id"] for edge in edges] for edges in skipped]
