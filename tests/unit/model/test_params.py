"""Which parameters does an iteration take, and is this value one of them?"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any, Optional, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iteration_lib.errors import ParameterError
from iteration_lib.model.params import NoParams, Scalar, params_json, parse_params


@dataclasses.dataclass(frozen=True)
class Every:
    """One field of each type."""

    number: int
    ratio: float = 0.5
    name: str = "x"
    deep: bool = False
    limit: int | None = None
    share: Optional[float] = None  # noqa: UP045 - users write it so
    title: str | None = None
    mixed: Union[int, str] = 0  # noqa: UP007 - users write it so


def parsed(**given: object) -> Any:
    return parse_params(Every, {"number": 1, **given})


def refused(declared: type, **given: object) -> ParameterError:
    with pytest.raises(ParameterError) as caught:
        parse_params(declared, given)
    return caught.value


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("number", "3", 3),
        ("number", " 3 ", 3),
        ("number", "-3", -3),
        ("number", 3, 3),
        ("number", 3.0, 3),
        ("ratio", "3", 3.0),
        ("ratio", "1e-4", 1e-4),
        ("ratio", 3, 3.0),
        ("name", "3", "3"),
        ("name", "", ""),
        ("name", "none", "none"),
        ("deep", "true", True),
        ("deep", "No", False),
        ("deep", "1", True),
        ("deep", "0", False),
        ("deep", True, True),
        ("limit", "7", 7),
        ("limit", "", None),
        ("limit", "None", None),
        ("limit", "null", None),
        ("limit", None, None),
        ("share", "none", None),
        ("share", "0.25", 0.25),
        ("title", "", None),
        ("title", "a title", "a title"),
        ("mixed", "5", 5),
        ("mixed", "five", "five"),
    ],
)
def test_value_is_read_by_the_type_of_its_field(name: str, given: object, expected: Scalar) -> None:
    found = getattr(parsed(**{name: given}), name)

    assert (type(expected), expected) == (type(found), found)


@pytest.mark.parametrize(
    ("name", "given", "wanted"),
    [
        ("number", "three", "int"),
        ("number", "3.5", "int"),
        ("number", 3.5, "int"),
        ("number", True, "int"),
        ("number", None, "int"),
        ("number", "", "int"),
        ("number", math.inf, "int"),
        ("number", math.nan, "int"),
        ("number", [3], "int"),
        ("ratio", "nan", "float"),
        ("ratio", "inf", "float"),
        ("ratio", "-Infinity", "float"),
        ("ratio", "1e999", "float"),
        ("ratio", 10**400, "float"),
        ("ratio", math.nan, "float"),
        ("ratio", False, "float"),
        ("ratio", "", "float"),
        ("name", 3, "str"),
        ("name", None, "str"),
        ("deep", "maybe", "bool"),
        ("deep", 1, "bool"),
        ("deep", None, "bool"),
        ("limit", "many", "int"),
        ("limit", True, "int"),
        ("share", "nan", "float"),
        ("title", 3, "str"),
        ("mixed", 1.5, "int or str"),
    ],
)
def test_value_that_its_field_cannot_hold_is_refused_by_name(name: str, given: object, wanted: str) -> None:
    error = refused(Every, **{"number": 1, name: given})

    assert (name, f"parameter {name!r} is {given!r}, which is no {wanted}") == (error.name, str(error))


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_text_that_no_store_can_keep_is_refused(text: str) -> None:
    assert "name" == refused(Every, number=1, name=text).name


def test_unknown_parameter_is_refused_with_what_there_is() -> None:
    error = refused(Every, number=1, nubmer=2)

    assert (
        "nubmer",
        "unknown parameter 'nubmer'; there are: number, ratio, name, deep, limit, share, title, mixed",
    ) == (
        error.name,
        str(error),
    )


def test_unknown_parameter_of_an_iteration_without_any_is_refused() -> None:
    assert "unknown parameter 'k'; there are: none" == str(refused(NoParams, k=3))


def test_missing_parameter_is_refused_with_how_to_give_it() -> None:
    error = refused(Every, ratio=1.0)

    assert ("number", "parameter 'number' is missing; give --param number=...") == (error.name, str(error))


def test_defaults_are_part_of_the_parameters() -> None:
    assert {
        "number": 1,
        "ratio": 0.5,
        "name": "x",
        "deep": False,
        "limit": None,
        "share": None,
        "title": None,
        "mixed": 0,
    } == params_json(parsed())


def test_default_made_by_a_factory_is_no_missing_parameter() -> None:
    @dataclasses.dataclass
    class Made:
        name: str = dataclasses.field(default_factory=lambda: "made")

    assert {"name": "made"} == params_json(parse_params(Made, {}))


@pytest.mark.parametrize("params", [{"k": 3}, Every, None], ids=["a dict", "the class itself", "none"])
def test_only_an_instance_of_a_dataclass_holds_parameters(params: object) -> None:
    with pytest.raises(ParameterError, match="parameters are an instance of a dataclass, not "):
        params_json(params)


@dataclasses.dataclass(frozen=True)
class Checked:
    """Checks its own fields."""

    k: int = 2

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if self.k < 1:
            raise ValueError(f"k is {self.k}, and needs to be at least 1")


def test_what_the_dataclass_itself_refuses_is_a_parameter_error() -> None:
    assert "k is 0, and needs to be at least 1" == str(refused(Checked, k="0"))


@pytest.mark.parametrize("default", [math.inf, math.nan, (1, 2), [1], {"a": 1}, b"x", object], ids=repr)
def test_default_that_no_store_can_keep_is_refused_by_name(default: object) -> None:
    """It never went through a parser, and would fail, or come back as something else, in the store."""
    declared = dataclasses.make_dataclass("Odd", [("odd", float, dataclasses.field(default_factory=lambda: default))])

    with pytest.raises(ParameterError) as caught:
        params_json(parse_params(declared, {}))

    assert "odd" == caught.value.name


@pytest.mark.parametrize("hint", [list[int], tuple[int, ...], dict[str, int], bytes])
def test_field_of_a_type_that_no_text_can_give_is_refused_by_name(hint: object) -> None:
    declared = dataclasses.make_dataclass("Odd", [("odd", hint, dataclasses.field(default=1))])

    assert "odd" == refused(declared, odd="1").name


@given(number=st.integers(-(2**53), 2**53), ratio=st.floats(allow_nan=False, allow_infinity=False))
def test_parameters_are_the_same_after_they_were_texts(number: int, ratio: float) -> None:
    once = parsed(number=str(number), ratio=repr(ratio))

    assert once == parse_params(Every, json.loads(json.dumps(params_json(once))))
    assert (number, ratio) == (once.number, once.ratio)
