"""What may a listener return, and under which id does it hear?"""

from __future__ import annotations

import math
import uuid

import pytest

from iteration_lib.driver.listener import _checked, effect_id
from iteration_lib.errors import OperatorResultError
from iteration_lib.model.listener import ListenerEvent, listener_of

RUN_ID = "00000000-0000-4000-8000-0000000000aa"
OTHER_RUN_ID = "00000000-0000-4000-8000-0000000000bb"


def heard(epoch: int) -> None:
    """Hear."""


LISTENER = listener_of("iteration", heard, ListenerEvent.EPOCH_DURABLE)


def test_id_of_an_effect_is_a_uuid_that_is_the_same_whenever_it_is_asked_for() -> None:
    assert (
        effect_id(RUN_ID, "heard", 3) == effect_id(RUN_ID, "heard", 3) == str(uuid.UUID(effect_id(RUN_ID, "heard", 3)))
    )


def test_two_effects_have_two_ids() -> None:
    ids = {
        effect_id(run_id, listener_id, epoch)
        for run_id in (RUN_ID, OTHER_RUN_ID)
        for listener_id in ("heard", "overheard")
        for epoch in range(3)
    }

    assert 12 == len(ids)


@pytest.mark.parametrize(
    "effect", [None, {}, {"loss": 0.5, "files": ["a"], "nested": {"x": None}}, {r"\u0000": r"\\u0000"}], ids=str
)
def test_mapping_of_plain_values_or_nothing_is_kept_as_it_is(effect: object) -> None:
    assert effect == _checked(LISTENER, effect)


@pytest.mark.parametrize(
    "effect",
    [
        3,
        "text",
        ["list"],
        {"x": object()},
        {"x": math.nan},
        {"x": math.inf},
        {"x": "NUL \0"},
        {"\\\0": 1},
        {"x": "caf\udce9"},
    ],
    ids=["a number", "a text", "a list", "an object", "NaN", "infinity", "NUL", "NUL in a name", "half of a pair"],
)
def test_what_no_database_keeps_is_refused_with_the_listeners_name(effect: object) -> None:
    with pytest.raises(OperatorResultError, match="'heard' returned"):
        _checked(LISTENER, effect)
