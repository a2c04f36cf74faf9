"""Which failures does Airflow try again?"""

from __future__ import annotations

import pytest
from airflow.sdk.exceptions import AirflowFailException

from iteration_lib.airflow.failure import without_retry_of_mistakes
from iteration_lib.errors import (
    ConnectionNotFoundError,
    ExecutionLostError,
    InputError,
    IterationError,
    StateCorruptedError,
    StateLocationError,
    StoreUnavailableError,
)


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        pytest.param(InputError("points.parquet is not there"), AirflowFailException, id="a mistake: never"),
        pytest.param(InputError("timed out", is_passing=True), InputError, id="an input whose store is away: yes"),
        pytest.param(StateLocationError("x", "cannot be"), AirflowFailException, id="a wrong address: never"),
        pytest.param(StateLocationError("x", "full", is_passing=True), StateLocationError, id="a full disk: yes"),
        pytest.param(StateCorruptedError("x", "is gone"), AirflowFailException, id="a file that was changed: never"),
        pytest.param(StateCorruptedError("x", "?", is_unreadable=True), StateCorruptedError, id="an unread file: yes"),
        pytest.param(ConnectionNotFoundError("x", "add it"), ConnectionNotFoundError, id="a silent vault: yes"),
        pytest.param(StoreUnavailableError("x", "refused"), StoreUnavailableError, id="a store that restarts: yes"),
        pytest.param(ExecutionLostError("the JVM is gone"), ExecutionLostError, id="a lost driver: yes"),
    ],
)
def test_failure_is_tried_again_unless_only_a_person_can_mend_it(
    error: IterationError, raised: type[Exception]
) -> None:
    with pytest.raises(raised), without_retry_of_mistakes():
        raise error
