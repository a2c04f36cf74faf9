"""Which parameters does an iteration take, and is this value one of them?

Parameters are the fields of a user's dataclass: bool, int, float, str, or one of these `| None`. A field without a
default is required. Texts (from a command line or a form) are read by the field's type, never guessed.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping

from iteration_lib.errors import ParameterError

Scalar: typing.TypeAlias = bool | int | float | str | None


@dataclasses.dataclass(frozen=True, slots=True)
class NoParams:
    """The parameters of an iteration that takes none."""


def parse_params(declared: type, given: Mapping[str, object]) -> object:
    """Return an instance of the dataclass `declared`, made from `given` values or texts.

    Raises ParameterError for an unknown or missing name and for a value that the field's type cannot hold.
    """
    fields = {field.name: field for field in dataclasses.fields(declared)}
    unknown = [name for name in given if name not in fields]
    if unknown:
        raise ParameterError(
            f"unknown parameter {unknown[0]!r}; there are: {', '.join(fields) or 'none'}", name=unknown[0]
        )
    missing = [name for name, field in fields.items() if _is_required(field) and name not in given]
    if missing:
        raise ParameterError(f"parameter {missing[0]!r} is missing; give --param {missing[0]}=...", name=missing[0])
    hints = typing.get_type_hints(declared)
    values = {name: _parse(name, value, hints[name]) for name, value in given.items()}
    try:
        return declared(**values)
    except (TypeError, ValueError) as err:  # a dataclass may check its own fields in __post_init__
        raise ParameterError(str(err)) from err


def params_json(params: object) -> dict[str, Scalar]:
    """Return every parameter by name, defaults included, as JSON scalars.

    Raises ParameterError for a default that is none: no parser has seen it.
    """
    if not dataclasses.is_dataclass(params) or isinstance(params, type):
        raise ParameterError(f"parameters are an instance of a dataclass, not {type(params).__name__}")
    return {field.name: _scalar(field.name, getattr(params, field.name)) for field in dataclasses.fields(params)}


def check_scalars(params: Mapping[str, object]) -> dict[str, Scalar]:
    """Return parameters that no dataclass declares, by name; raises ParameterError for one that is no JSON scalar."""
    found = {name: _scalar(name, value) for name, value in params.items()}
    return {name: _parse(name, value, str) if isinstance(value, str) else value for name, value in found.items()}


def _scalar(name: str, value: object) -> Scalar:
    if isinstance(value, float) and not math.isfinite(value):
        raise ParameterError(f"parameter {name!r} is {value!r}; it has to be a finite number", name=name)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ParameterError(f"parameter {name!r} is {value!r}; it has to be a bool, an int, a float or a text", name=name)


def _is_required(field: dataclasses.Field[object]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _parse(name: str, value: object, hint: object) -> Scalar:
    is_union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    options = typing.get_args(hint) if is_union else (hint,)
    if type(None) in options and (value is None or value in ("", "null", "none", "None")):
        return None
    for kind in options:
        if kind in _PARSERS:
            try:
                return _PARSERS[kind](value)
            except (TypeError, ValueError, OverflowError):
                continue
    wanted = " or ".join(getattr(kind, "__name__", str(kind)) for kind in options if kind is not type(None))
    raise ParameterError(f"parameter {name!r} is {value!r}, which is no {wanted}", name=name)


def _parse_bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    texts = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if isinstance(value, str) and value.lower() in texts:
        return texts[value.lower()]
    raise ValueError(value)


def _parse_int(value: object) -> int:
    if isinstance(value, bool):
        raise TypeError(value)
    if isinstance(value, str):
        return int(value)
    if isinstance(value, int | float) and value == int(value):
        return int(value)
    raise TypeError(value)


def _parse_float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError(value)
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(value)
    return number


def _parse_str(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    if "\0" in value:  # no database keeps it, nor a lone surrogate, which does not encode
        raise ValueError(value)
    value.encode()
    return value


_PARSERS: dict[object, typing.Callable[[object], Scalar]] = {
    bool: _parse_bool,
    int: _parse_int,
    float: _parse_float,
    str: _parse_str,
}


def show(value: object) -> str:
    """Return a parameter's value as it is shown to a person."""
    return json.dumps(value)
