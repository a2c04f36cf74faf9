"""Do seeded schedules of crashes, pauses and lost answers keep every invariant, and does every run end once healed?

20,000 of them on every change, a million at the nightly size; of those in which a person edits the program on the way
800 and 50,000. A violation names its seed, and `python -m tests.simulation.replay SEED` shows it step by step.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.simulation import illegal, illegal_parts
from tests.simulation.counts import EVOLVING, EVOLVING_SELDOM, probes_of, too_rare
from tests.simulation.explore import explore
from tests.simulation.fiber import Call, Fate
from tests.simulation.programs import programs
from tests.simulation.reference import reference
from tests.simulation.schedule import Outcome, run_schedule
from tests.simulation.swarm import FATE_RATES, undisturbed
from tests.size import IS_NIGHTLY

_SCHEDULES = 1_000_000 if IS_NIGHTLY else 20_000
_AT_LEAST = 1_001 if IS_NIGHTLY else 1
_EVOLVING_SCHEDULES = 50_000 if IS_NIGHTLY else 800
_EVOLVING_AT_LEAST = 51 if IS_NIGHTLY else 1
_EVOLVING_SELDOM_AT_LEAST = 10  # of 50,000; 800 need not meet them
_ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.long


@pytest.mark.timeout(24 * 3600 if IS_NIGHTLY else 3600)
def test_schedules_keep_every_invariant_and_meet_every_event() -> None:
    found = explore(0, _SCHEDULES, workers=os.cpu_count() or 1)

    assert (_SCHEDULES, {}) == (found.schedules, found.violations), found.report()
    assert {} == too_rare(found.counters, at_least=_AT_LEAST), found.report()


@pytest.mark.timeout(2 * 3600 if IS_NIGHTLY else 1200)
def test_schedules_in_which_the_file_changes_keep_every_invariant_and_meet_every_change() -> None:
    found = explore(0, _EVOLVING_SCHEDULES, workers=os.cpu_count() or 1, is_evolving=True)

    assert (_EVOLVING_SCHEDULES, {}) == (found.schedules, found.violations), found.report()
    assert {} == too_rare(found.counters, at_least=_EVOLVING_AT_LEAST, names=EVOLVING), found.report()
    if IS_NIGHTLY:
        seldom = too_rare(found.counters, at_least=_EVOLVING_SELDOM_AT_LEAST, names=EVOLVING_SELDOM)
        assert {} == seldom, found.report()


def test_schedule_without_faults_gives_what_the_reference_gives() -> None:
    outcomes = [run_schedule(seed, swarm=undisturbed()) for seed in range(40)]

    assert [None] * 40 == [outcome.violation for outcome in outcomes]


def test_programs_end_by_every_rule() -> None:
    ends = {reference(program.name).terminated_by for program in programs()}

    assert {"criteria", "empty_feedback", "max_epochs"} == ends


@pytest.mark.parametrize("options", [(), ("--evolving",)], ids=["one program", "an evolving one"])
def test_seed_gives_the_same_schedule_whatever_the_hash_seed(options: tuple[str, ...]) -> None:
    asked = [*options, *(str(seed) for seed in range(20))]

    first, second = (_replayed(asked, hash_seed) for hash_seed in ("1", "2"))

    assert first == second
    assert len(first.splitlines()) > 1_000


@pytest.mark.parametrize("is_evolving", [False, True], ids=["one program", "an evolving one"])
def test_seed_in_a_chunk_gives_what_it_gives_alone_and_traced(*, is_evolving: bool) -> None:
    """What a schedule leaves behind in its process is nothing to the next one; nor is it to be watched."""
    late = (83, 91, 99)

    in_a_chunk = [run_schedule(seed, is_evolving=is_evolving) for seed in range(max(late) + 1)]

    traced = partial(run_schedule, is_traced=True, is_evolving=is_evolving)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as alone:
        for outcome in alone.map(traced, late):
            assert _told(in_a_chunk[outcome.seed]) == _told(outcome)


def _told(outcome: Outcome) -> tuple[str | None, int, Counter[str]]:
    return outcome.violation, outcome.steps, outcome.counters


def test_every_fate_and_every_call_of_a_port_is_drawn() -> None:
    """Of those that are, counts.py asks that each one happens."""
    inside = {Call.BEGIN, Call.POINT, Call.WAIT, Call.AWAIT, Call.JOIN, Call.DIE}

    assert set(Fate) - {Fate.GO} == {fate for fate, _ in FATE_RATES}
    assert set(Call) - inside == {call for _, calls in FATE_RATES for call in calls}


def test_probes_are_found_by_their_names() -> None:
    assert {"leaves a gap", "opens while it is asked to stop"} <= set(probes_of(illegal))
    assert "marks no bucket" in probes_of(illegal_parts)


def _replayed(asked: list[str], hash_seed: str) -> str:
    """Return what another process prints of these schedules."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.simulation.replay", *asked],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return ended.stdout
