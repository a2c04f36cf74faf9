"""Is each comparison of the core noticed when it is turned round? By the simulation, or by a test that is named."""

from __future__ import annotations

import os

import pytest

from tests.semantics.guard import copied, pass_unbroken, run_in
from tests.simulation.mutants.comparison import compared
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.mutants.trial import try_mutants
from tests.simulation.mutants.unmet import EQUIVALENT, TESTED, is_meant, noticed_by
from tests.size import nightly

COMPARED = compared()
_MET = [mutant for mutant in COMPARED if mutant.equivalent is None and not noticed_by(mutant.name)]
_UNMET = [mutant for mutant in COMPARED if noticed_by(mutant.name)]


def test_each_comparison_is_turned_once_and_into_code() -> None:
    assert len(COMPARED) == len({mutant.name for mutant in COMPARED})
    for mutant in COMPARED:
        assert mutant.new != mutant.old
        compile(mutant.new, mutant.file, "exec")


def test_what_is_said_to_be_unmet_is_there() -> None:
    names = [mutant.name for mutant in COMPARED]

    assert [] == [key for key in TESTED if not any(is_meant(name, key) for name in names)]
    assert [] == [key for key in EQUIVALENT if key not in names]


@nightly("tries some hundred mutants")
@pytest.mark.timeout(6 * 3600)
def test_comparison_that_is_turned_is_noticed_by_the_simulation() -> None:
    trials = list(try_mutants(_MET, workers=os.cpu_count() or 1))

    missed = [trial.line() for trial in trials if trial.violation is None]
    assert not missed, "\n".join(missed)


@nightly("runs the tests of each")
@pytest.mark.timeout(3600)
def test_tests_that_notice_a_comparison_pass_where_none_is_turned() -> None:
    passed, said = pass_unbroken(TESTED.values())

    assert passed, said


@nightly("applies each of them")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", _UNMET, ids=lambda mutant: mutant.name)
def test_comparison_that_the_simulation_does_not_meet_is_noticed_by_its_test_when_it_is_turned(mutant: Mutant) -> None:
    """A test that cannot even begin has noticed it, too."""
    test = str(noticed_by(mutant.name))

    with copied() as copy:
        (copy / "iteration_lib" / mutant.file).write_text(mutant.new)
        found, said = run_in(copy, [test], "-x")

    assert found & {"failure", "error"}, said[-2_500:]
