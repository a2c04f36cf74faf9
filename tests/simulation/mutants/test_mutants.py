"""Does the simulation notice mistakes in the core? A part of the mutants on every change, all of them every night."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

import iteration_lib
from tests.simulation.mutants.catalogue import MUTANTS, SHORT
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.mutants.trial import try_mutants
from tests.size import IS_NIGHTLY

_PACKAGE = Path(iteration_lib.__file__).parent


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_patch_fits_the_code_as_it_is(mutant: Mutant) -> None:
    for file, old, new in ((mutant.file, mutant.old, mutant.new), *mutant.also):
        source = (_PACKAGE / file).read_text()

        assert 1 == source.count(old)
        compile(source.replace(old, new), file, "exec")


def test_names_are_unique_and_the_short_list_has_ten_that_can_be_noticed() -> None:
    assert [] == [name for name, count in Counter(mutant.name for mutant in MUTANTS).items() if count > 1]
    assert len(SHORT) >= 10
    assert all(mutant.equivalent is None for mutant in SHORT)
    assert sum(mutant.equivalent is None for mutant in MUTANTS) >= 30


@pytest.mark.timeout(12 * 3600 if IS_NIGHTLY else 1800)
def test_every_mutant_is_noticed() -> None:
    chosen = [mutant for mutant in (MUTANTS if IS_NIGHTLY else SHORT) if mutant.equivalent is None]

    trials = list(try_mutants(chosen, workers=os.cpu_count() or 1))

    missed = [trial.line() for trial in trials if trial.violation is None]
    assert not missed, "\n".join(missed)
