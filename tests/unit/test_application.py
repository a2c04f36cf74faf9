"""What does the driver's exit code say to the task that has submitted it?"""

from __future__ import annotations

import pytest

from iteration_lib.application import exit_code_of
from iteration_lib.errors import (
    ExecutionLostError,
    InputError,
    IterationError,
    OperatorFailedError,
    StateCorruptedError,
    StoreUnavailableError,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        pytest.param(InputError("points.parquet is not there"), 2, id="a mistake"),
        pytest.param(InputError("timed out", is_passing=True), 4, id="an input whose store is away"),
        pytest.param(StateCorruptedError("x", "is gone"), 2, id="a file that was changed"),
        pytest.param(StateCorruptedError("x", "?", is_unreadable=True), 4, id="a file that cannot be read"),
        pytest.param(StoreUnavailableError("x", "refused"), 4, id="a store that restarts"),
        pytest.param(ExecutionLostError("the JVM is gone"), 4, id="lost execution"),
        pytest.param(OperatorFailedError(operator_id="moved", epoch=3, cause="ValueError"), 1, id="an operator"),
    ],
)
def test_two_is_for_what_the_next_try_would_only_find_again(error: IterationError, code: int) -> None:
    assert code == exit_code_of(error)
