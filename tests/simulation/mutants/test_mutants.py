"""Does the simulation notice mistakes in the core? A part of the mutants on every change, all of them every night."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

import pytest

import iteration_lib
from tests.simulation.mutants.catalogue import MUTANTS, SHORT
from tests.simulation.mutants.comparison import compared
from tests.simulation.mutants.guard import untouched_guards
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.mutants.trial import mutated, simulate, try_mutants
from tests.size import IS_NIGHTLY, nightly

_PACKAGE = Path(iteration_lib.__file__).parent
_UNIT = Path(__file__).parents[2] / "unit"
_EQUIVALENT_SCHEDULES = 2_000
# Guards that no simulated schedule comes to, and which unit test does: settings are drawn to make sense, a program's
# operators are in order, nobody writes to the store besides, and no version of a program is drawn whose markers would
# not be legal.
_LEASE, _LEGALITY = "protocol/test_lease.py", "protocol/test_legality.py"
_UNDRIVABLE = f"{_LEASE}::test_run_whose_checkpoint_is_not_of_its_last_durable_epoch_is_not_driven"
_POLICY = "protocol/test_retention.py::test_policy_that_makes_no_sense_is_refused_by_name"
_TESTED = {
    "protocol/lease.py _check_drivable: check_restored_epoch(*": _UNDRIVABLE,
    "protocol/legality.py check_restored_epoch: *": _UNDRIVABLE,
    "protocol/legality.py _offence: *": f"{_LEGALITY}::test_every_offence_is_named",
    "protocol/legality.py _offences: *": f"{_LEGALITY}::test_global_operator_that_is_half_finished_is_refused",
    "protocol/policy.py _check_retention: *": _POLICY,
    "protocol/policy.py *": "model/test_checkpointing.py::test_setting_that_makes_no_sense_is_refused_by_its_name",
    "protocol/topology.py *": "protocol/test_topology.py::test_operator_that_comes_before_its_input_is_no_topology",
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_patch_fits_the_code_as_it_is(mutant: Mutant) -> None:
    for file, old, new in mutant.patches:
        source = (_PACKAGE / file).read_text()

        assert 1 == source.count(old)
        compile(source.replace(old, new), file, "exec")


def test_names_are_unique_and_the_short_list_has_ten_that_can_be_noticed() -> None:
    assert [] == [name for name, count in Counter(mutant.name for mutant in MUTANTS).items() if count > 1]
    assert len(SHORT) >= 10
    assert all(mutant.equivalent is None for mutant in SHORT)
    assert sum(mutant.equivalent is None for mutant in MUTANTS) >= 30


def test_guard_of_the_core_has_a_mutant_or_a_test_of_its_own() -> None:
    """What is in `_TESTED` the simulation cannot meet; the test that is named there does."""
    left = {str(guard) for guard in untouched_guards(MUTANTS)}
    tested = {guard for guard in left for pattern in _TESTED if fnmatch(guard, pattern)}

    assert set() == left - tested
    assert [] == [pattern for pattern in _TESTED if not any(fnmatch(guard, pattern) for guard in left)]


@pytest.mark.parametrize("test", sorted(set(_TESTED.values())))
def test_test_that_is_named_is_there(test: str) -> None:
    file, _, name = test.partition("::")

    assert f"def {name}(" in (_UNIT / file).read_text()


@pytest.mark.timeout(12 * 3600 if IS_NIGHTLY else 1800)
def test_every_mutant_is_noticed() -> None:
    chosen = [mutant for mutant in (MUTANTS if IS_NIGHTLY else SHORT) if mutant.equivalent is None]

    trials = list(try_mutants(chosen, workers=os.cpu_count() or 1))

    missed = [trial.line() for trial in trials if trial.violation is None]
    assert not missed, "\n".join(missed)


@pytest.mark.parametrize("is_evolving", [False, True], ids=["one program", "an evolving one"])
def test_seed_that_violates_replays_alone(*, is_evolving: bool) -> None:
    """In a process of its own it does what it did among others, and says so at its end."""
    mutant = next(known for known in SHORT if known.is_evolving == is_evolving)
    (trial,) = try_mutants([mutant])

    with mutated(mutant) as folder:
        evolving = ["--evolving"] if is_evolving else []
        alone = simulate(folder, "tests.simulation.replay", *evolving, str(trial.schedules - 1))

    assert 1 == alone.returncode, alone.stderr
    assert alone.stdout.endswith(f"violation: {trial.violation}\n")


@pytest.mark.parametrize("rule", [f"I{number}" for number in range(1, 22)])
def test_every_invariant_has_mutants_that_are_to_be_noticed(rule: str) -> None:
    assert [] != [mutant for mutant in MUTANTS if mutant.rule == rule and mutant.equivalent is None]


def test_mutant_that_names_what_is_not_there_counts_as_not_noticed() -> None:
    known = next(mutant for mutant in MUTANTS if mutant.name == "attempt that is told to end marks nothing")

    (trial,) = try_mutants([replace(known, new=known.new.replace("self.epoch", "self.epoch_number"))], schedules=50)

    assert trial.violation is None
    assert "epoch_number is not there" in trial.line()


@nightly("some minutes")
@pytest.mark.timeout(2 * 3600)
def test_mutant_that_counts_as_equivalent_is_not_noticed() -> None:
    chosen = [mutant for mutant in (*MUTANTS, *compared()) if mutant.equivalent is not None]

    trials = list(try_mutants(chosen, schedules=_EQUIVALENT_SCHEDULES, workers=os.cpu_count() or 1))

    noticed = [trial.line() for trial in trials if trial.violation is not None or trial.problem]
    assert not noticed, "\n".join(noticed)
