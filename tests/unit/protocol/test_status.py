"""Which statuses are there, and which may follow which?"""

from __future__ import annotations

import itertools
import re

import pytest

from iteration_lib.errors import ProtocolViolationError
from iteration_lib.protocol.status import (
    CHECKPOINT_TRANSITIONS,
    EPOCH_TRANSITIONS,
    RUN_TRANSITIONS,
    CheckpointStatus,
    EpochStatus,
    RunStatus,
    check_transition,
)
from iteration_lib.store.query import sql_folder

LEGAL = RUN_TRANSITIONS | EPOCH_TRANSITIONS | CHECKPOINT_TRANSITIONS
PAIRS = [
    pair for statuses in (RunStatus, EpochStatus, CheckpointStatus) for pair in itertools.product(statuses, statuses)
]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0]} to {pair[1]}")
def test_transition_passes_only_if_it_is_in_the_table(pair: tuple[RunStatus, RunStatus]) -> None:
    if pair in LEGAL:
        check_transition(*pair)
        return

    with pytest.raises(ProtocolViolationError) as caught:
        check_transition(*pair)

    assert f"{pair[0]} cannot become {pair[1]}; this is a bug, please report it" == str(caught.value)


@pytest.mark.parametrize(
    ("guard", "transitions"),
    [("runs_row", RUN_TRANSITIONS), ("epochs", EPOCH_TRANSITIONS), ("checkpoints", CHECKPOINT_TRANSITIONS)],
)
def test_database_knows_the_same_transitions(guard: str, transitions: frozenset[tuple[RunStatus, RunStatus]]) -> None:
    schema = (sql_folder() / "schema.sql").read_text(encoding="utf-8")
    source = schema[schema.index(f"CREATE FUNCTION {guard}_guard()") :].partition("END $$;")[0]

    listed = {
        (before, after)
        for before, then in re.findall(r"WHEN '([A-Z]+)' THEN NEW\.status (.+)", source)
        for after in re.findall(r"'([A-Z]+)'", then)
    }
    by_condition = re.findall(r"IF OLD\.status = '([A-Z]+)' AND NEW\.status = '([A-Z]+)' THEN", source)
    of_pairs = re.findall(r"\('([A-Z]+)', '([A-Z]+)'\)", source)

    assert {(before.value, after.value) for before, after in transitions} == {*listed, *by_condition, *of_pairs}


def test_nothing_follows_what_is_final() -> None:
    final = {RunStatus.DELETED, EpochStatus.VOIDED, CheckpointStatus.ABORTED}

    assert set() == {before for before, _ in LEGAL} & (final | {CheckpointStatus.DISCARDED})
