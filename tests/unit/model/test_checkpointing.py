"""Which settings of the checkpoints make sense? Every other is refused by its name."""

from __future__ import annotations

import math
from typing import Any

import pytest

from iteration_lib import Checkpointing, Iteration
from iteration_lib.errors import ParameterError
from iteration_lib.protocol.policy import CheckpointPolicy

COUNT = "a whole number from {} to 2147483647"
SECONDS = "a number of seconds from 0 to 31622400 (366 days)"


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        *[("every_epochs", value, COUNT.format(1)) for value in (0, -1, 1.0, True, "1", None, 2**31)],
        *[("max_pending", value, COUNT.format(1)) for value in (0, -1, 2.5, False)],
        *[("tolerable_failures", value, COUNT.format(0)) for value in (-1, 1.0, True)],
        *[("min_pause_seconds", value, SECONDS) for value in (-1, -0.5, math.nan, math.inf, True, "3", None, 1e9)],
        *[("timeout_seconds", value, SECONDS) for value in (-1.0, math.nan, None, 366 * 86400 + 1)],
        ("timeout_seconds", 0, "more than 0, or every checkpoint fails"),
        *[("alignment_timeout_seconds", value, SECONDS) for value in (-1, math.inf, True, "none")],
    ],
)
def test_setting_that_makes_no_sense_is_refused_by_its_name(name: str, value: Any, wanted: str) -> None:
    with pytest.raises(ParameterError) as caught:
        Checkpointing(**{name: value})

    assert (name, f"Checkpointing({name}={value!r}): give {wanted}") == (caught.value.name, str(caught.value))


@pytest.mark.parametrize(("name", "value"), [("every_epochs", 0), ("max_pending", 0), ("timeout_seconds", math.nan)])
def test_policy_of_an_attempt_is_refused_in_the_same_words(name: str, value: Any) -> None:
    with pytest.raises(ParameterError) as caught:
        CheckpointPolicy(**{name: value})

    assert (name, True) == (caught.value.name, str(caught.value).startswith(f"Checkpointing({name}={value!r}): give"))


def test_attempt_keeps_all_but_the_timeout_of_the_alignment() -> None:
    fields: dict[str, Any] = {
        "every_epochs": 2,
        "min_pause_seconds": 3.0,
        "max_pending": 4,
        "timeout_seconds": 5.0,
        "tolerable_failures": 6,
    }

    assert CheckpointPolicy(**fields) == Checkpointing(**fields, alignment_timeout_seconds=7.0).policy


def test_smallest_and_largest_settings_are_taken() -> None:
    smallest = Checkpointing(
        every_epochs=1, min_pause_seconds=0, max_pending=1, timeout_seconds=0.001, alignment_timeout_seconds=0
    )
    largest = Checkpointing(every_epochs=2**31 - 1, min_pause_seconds=366 * 86400, tolerable_failures=2**31 - 1)

    assert (0, 2**31 - 1) == (smallest.alignment_timeout_seconds, largest.every_epochs)


def test_iteration_hands_its_settings_to_its_graph() -> None:
    wanted = Checkpointing(every_epochs=5)

    assert (wanted, Checkpointing()) == (
        one_variable(wanted).graph().checkpointing,
        one_variable().graph().checkpointing,
    )


def one_variable(checkpointing: Checkpointing | None = None) -> Iteration:
    iteration = Iteration("km", checkpointing=checkpointing)

    @iteration.variable
    def centroids() -> None: ...

    @iteration.operator
    def moved(centroids: Any) -> None: ...

    iteration.feedback(centroids=moved)
    return iteration
