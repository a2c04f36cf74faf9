"""When is an operator's code another, and when is it only written otherwise?"""

from __future__ import annotations

import linecache
from string import Template
from types import ModuleType
from typing import Any

import pytest

from iteration_lib.model.definition import describe
from iteration_lib.model.evolution import compare_definitions
from tests.unit.model.conftest import Write

BODY = """
    from iteration_lib import Iteration
    from team import helper

    FACTOR = 2.0

    km = Iteration("km")

    def shrink(value):
        return value / FACTOR

    @km.variable
    def centroids():
        return {"c": [1.0]}

    @km.operator
    def moved(centroids):
        return {"c": shrink(centroids["c"])}

    km.feedback(centroids=moved)
"""


def definition(module: ModuleType) -> dict[str, Any]:
    return describe(module.km.graph())


def sentences(before: dict[str, Any], after: dict[str, Any]) -> tuple[str, ...]:
    return compare_definitions(before, after).sentences


def differences(write: Write, before: str, after: str) -> tuple[str, ...]:
    old = definition(write(before))
    return sentences(old, definition(write(after)))


CODE_OF_MOVED_CHANGED = ("operator 'moved': its code changed",)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return value / FACTOR", "return value / FACTOR  # halves it"),
        ("def shrink(value):", 'def shrink(value):\n        """Halve it."""'),
        ("def moved(centroids):", 'def moved(centroids):\n        """Move."""\n'),
        ('{"c": shrink(centroids["c"])}', "{\n            'c': shrink(\n                centroids['c'])}"),
        ("FACTOR = 2.0", "FACTOR = 4.0 / 2"),
        ("FACTOR = 2.0", "FACTOR = 2.0\n    UNUSED = 3"),
        ("@km.operator", "@km.operator()"),
    ],
    ids=[
        "comment",
        "docstring of a helper",
        "docstring",
        "formatting",
        "same constant",
        "unused constant",
        "decorator",
    ],
)
def test_change_that_means_nothing_is_no_difference(write: Write, old: str, new: str) -> None:
    assert old in BODY

    assert () == differences(write, BODY, BODY.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("shrink(centroids", "shrink(2 * centroids"),
        ("return value / FACTOR", "return value * FACTOR"),
        ("FACTOR = 2.0", "FACTOR = 3.0"),
        ("FACTOR = 2.0", "FACTOR = 2"),
    ],
    ids=["code", "helper", "constant of a helper", "type of a constant"],
)
def test_change_of_code_or_helper_or_constant_is_a_difference_of_its_operator_alone(
    write: Write, old: str, new: str
) -> None:
    assert old in BODY

    assert CODE_OF_MOVED_CHANGED == differences(write, BODY, BODY.replace(old, new))


BEHIND = {
    "a cache": "@functools.lru_cache(None)\n    def shrink(value):\n        return value / FACTOR",
    "numpy's vectorize": "@np.vectorize\n    def shrink(value):\n        return value / FACTOR",
    "a partial": "def over(by, value):\n        return value / by\n\n    shrink = functools.partial(over, FACTOR)",
    "a method": (
        "class By:\n        def over(self, value):\n            return value / FACTOR\n\n    shrink = By().over"
    ),
    "an object that is called": (
        "class By:\n        def __call__(self, value):\n            return value / FACTOR\n\n    shrink = By()"
    ),
    "a cached property": (
        "class By:\n        @functools.cached_property\n        def factor(self):\n            return FACTOR\n\n"
        "    def shrink(value):\n        return value / By().factor"
    ),
    "an attribute of a class": (
        "class By:\n        factor = FACTOR\n\n    def shrink(value):\n        return value / By.factor"
    ),
    "a single dispatch": (
        "@functools.singledispatch\n    def shrink(value):\n        return value\n\n    @shrink.register\n"
        "    def _(value: list):\n        return value / FACTOR"
    ),
    "a decorator": (
        "def over(by):\n        def decorate(function):\n            @functools.wraps(function)\n"
        "            def decorated(value):\n                return function(value) / by\n\n"
        "            return decorated\n\n        return decorate\n\n    @over(FACTOR)\n    def shrink(value):\n"
        "        return value"
    ),
}


@pytest.mark.parametrize("factor", ["3.0", "np.float64(3.0)", "np.int64(2)"])
@pytest.mark.parametrize("helper", BEHIND.values(), ids=BEHIND)
def test_change_behind_whatever_is_called_is_a_difference(write: Write, helper: str, factor: str) -> None:
    body = BODY.replace("def shrink(value):\n        return value / FACTOR", helper)
    body = body.replace("FACTOR =", "import functools\n\n    import numpy as np\n\n    FACTOR =")

    assert () == differences(write, body, body)
    assert CODE_OF_MOVED_CHANGED == differences(write, body, body.replace("FACTOR = 2.0", f"FACTOR = {factor}"))


@pytest.mark.parametrize(
    ("old", "new"),
    [("@twice(2)", "@twice(3)"), ("* by", "+ by"), ("    @twice(2)\n", "")],
    ids=["its argument", "its body", "none any more"],
)
def test_changed_decorator_of_an_operator_is_a_difference(write: Write, old: str, new: str) -> None:
    decorator = (
        "import functools\n\n    def twice(by):\n        def decorate(function):\n"
        "            @functools.wraps(function)\n            def decorated(centroids):\n"
        "                return {'c': function(centroids)['c'] * by}\n\n            return decorated\n\n"
        "        return decorate\n\n    FACTOR ="
    )
    body = BODY.replace("FACTOR =", decorator, 1).replace("@km.operator", "@km.operator\n    @twice(2)")

    assert CODE_OF_MOVED_CHANGED == differences(write, body, body.replace(old, new))


def test_place_of_the_checkout_is_no_difference(write: Write) -> None:
    """What a laptop has begun another machine may go on with."""
    body = BODY.replace("value / FACTOR", "value / FACTOR, __file__")
    module = write(body)
    before = definition(module)
    module.__file__ = "/elsewhere/km.py"

    assert () == sentences(before, definition(module))


@pytest.mark.parametrize(
    "call", ["scale(centroids)", "helper.scale(centroids)", "team.helper.scale(1)", "[scale(c) for c in centroids]"]
)
def test_changed_helper_of_another_module_of_the_package_is_a_difference(write: Write, call: str) -> None:
    """Whether it is named itself or through its module."""
    imported = "import team.helper" if call.startswith("team.") else "from team.helper import scale"
    body = BODY.replace('shrink(centroids["c"])', call)
    if not call.startswith("helper."):
        body = body.replace("FACTOR =", f"{imported}\n    F =")
    before = definition(write(body))

    write("def scale(value): return value * 4", "team.helper")

    assert CODE_OF_MOVED_CHANGED == sentences(before, definition(write(body)))


def test_changed_constant_of_another_module_of_the_package_is_a_difference(write: Write) -> None:
    body = BODY.replace('shrink(centroids["c"])', "helper.RATE")
    write("RATE = 0.5", "team.helper")
    before = definition(write(body))

    write("RATE = 0.25", "team.helper")

    assert CODE_OF_MOVED_CHANGED == sentences(before, definition(write(body)))


def test_changed_code_of_another_package_is_no_difference(write: Write) -> None:
    body = BODY.replace('shrink(centroids["c"])', "far(1)").replace("FACTOR =", "from far import far\n    F =")
    write("def far(value): return value", "far")
    before = definition(write(body))

    write("def far(value): return value + 1", "far")

    assert () == sentences(before, definition(write(body)))


def test_changed_helper_of_a_method_is_a_difference(write: Write) -> None:
    body = BODY.replace('shrink(centroids["c"])', 'Shrinker().run(centroids["c"])') + (
        "\n    class Shrinker:\n        def run(self, value):\n            return shrink(value)\n"
    )

    assert CODE_OF_MOVED_CHANGED == differences(write, body, body.replace("/ FACTOR", "* FACTOR"))


def test_changed_base_class_is_a_difference(write: Write) -> None:
    body = BODY.replace('shrink(centroids["c"])', "Shrinker().rate") + (
        "\n    class Base:\n        rate = 1\n\n    class Shrinker(Base):\n        pass\n"
    )

    assert CODE_OF_MOVED_CHANGED == differences(write, body, body.replace("rate = 1", "rate = 2"))


def test_changed_value_that_a_closure_holds_is_a_difference(write: Write) -> None:
    """A factory's operators have one text and many meanings."""
    body = BODY.replace(
        """    @km.operator
    def moved(centroids):
        return {"c": shrink(centroids["c"])}
""",
        """    def make(k, hook):
        @km.operator
        def moved(centroids):
            return {"c": hook(k)}
        return moved

    moved = make(1, shrink)
""",
    )
    assert "make(1, shrink)" in body

    assert CODE_OF_MOVED_CHANGED == differences(write, body, body.replace("make(1, shrink)", "make(2, shrink)"))
    assert CODE_OF_MOVED_CHANGED == differences(write, body, body.replace("/ FACTOR", "* FACTOR"))


def test_changed_value_of_a_default_is_a_difference(write: Write) -> None:
    body = BODY.replace("def moved(centroids):", "def moved(centroids, factor=FACTOR):").replace("/ FACTOR", "/ 2")

    assert CODE_OF_MOVED_CHANGED == differences(write, body, body.replace("FACTOR = 2.0", "FACTOR = 3.0"))


def test_order_in_which_a_set_happens_to_lie_is_no_difference(write: Write) -> None:
    """Texts lie in another order in every process; these numbers do here, by the order in which they came."""
    body = BODY.replace("FACTOR = 2.0", "FACTOR = frozenset([0, 8, 16])")
    other = body.replace("[0, 8, 16]", "[16, 8, 0]")
    assert repr(frozenset([0, 8, 16])) != repr(frozenset([16, 8, 0]))

    assert () == differences(write, body, other)
    assert CODE_OF_MOVED_CHANGED == differences(write, body, body.replace("16", "24"))


def test_address_of_an_object_in_a_constant_is_no_difference(write: Write) -> None:
    """It is another one in every process."""
    body = BODY.replace("FACTOR = 2.0", "FACTOR = (object(), 1)")

    assert () == differences(write, body, body)


def test_function_whose_text_is_gone_still_has_a_digest(write: Write) -> None:
    module = write(BODY)
    linecache.cache.pop(str(module.__file__))
    before = definition(module)
    other = write(BODY.replace("return value / FACTOR", "return value * FACTOR"))
    linecache.cache.pop(str(other.__file__))

    assert CODE_OF_MOVED_CHANGED == sentences(before, definition(other))


# An operator that takes two others, and uses their names for other things too. With $, a name stands for the operator.
NAMES = """
    from iteration_lib import Iteration
    import team.helper as tools

    FACTOR = 2.0

    km = Iteration("km")

    def shrink(value, points=1):
        return value / FACTOR

    @km.data(operator_id="points")
    def $points(): ...

    @km.variable(operator_id="centroids")
    def $centroids($points): ...

    @km.operator(operator_id="moved")
    def $moved($points, epoch, *, $centroids, scale=FACTOR):
        near = [$points[c] for c in $centroids]
        later = lambda: ($centroids, epoch, scale)
        if near.points:
            return $moved($points, epoch)
        return {"points": shrink($points, points=tools.scale($centroids)), "later": later}

    km.feedback($centroids=$moved)
"""


def called(body: str = NAMES, **names: str) -> str:
    """Return the module with some operators called otherwise, each still with its id."""
    return Template(body).substitute({"points": "points", "centroids": "centroids", "moved": "moved"} | names)


def code_of_moved(module: ModuleType) -> str:
    code: str = definition(module)["operators"]["moved"]["code"]
    return code


@pytest.mark.parametrize(
    "names", [{"points": "rows"}, {"moved": "shifted"}, {"centroids": "centres", "points": "p", "moved": "m"}]
)
def test_renaming_operators_and_the_parameters_that_name_them_is_no_change_of_code(
    write: Write, names: dict[str, str]
) -> None:
    before = code_of_moved(write(called()))

    assert before == code_of_moved(write(called(**names)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("near = [$points[c] for c in $centroids]", "near = [$centroids[c] for c in $points]"),
        ("$moved($points, epoch, *, $centroids,", "$moved($centroids, epoch, *, $points,"),
        ("$moved($points, epoch, *, $centroids,", "$moved($points, params, *, $centroids,"),
        ("near.points", "near.rows"),
        ('{"points":', '{"rows":'),
        (", points=tools", ", rows=tools"),
        ("return $moved(", "return shrink("),
        ("later = lambda: ($centroids,", "later = lambda: ($points,"),
        ("later = lambda: ($centroids,", "later = lambda centroids: ($centroids,"),
        ("scale=FACTOR)", "pace=FACTOR)"),
    ],
)
def test_name_that_stands_for_something_else_still_counts(write: Write, old: str, new: str) -> None:
    assert NAMES.count(old) == 1
    before = code_of_moved(write(called()))

    assert before != code_of_moved(write(called(NAMES.replace(old, new))))


@pytest.mark.parametrize(
    "binding",
    [
        "def centroids(): ...",
        "later = lambda centroids: $centroids",
        "import centroids",
        "from x import y as centroids",
        "class centroids: ...",
    ],
)
def test_input_whose_name_the_function_binds_otherwise_keeps_it(write: Write, binding: str) -> None:
    """Called otherwise, the input is no longer what the function binds: the same uses mean something else."""
    body = NAMES.replace("near = [", f"{binding}\n        near = [")
    before = code_of_moved(write(called(body)))

    assert before == code_of_moved(write(called(body, points="rows")))
    assert before != code_of_moved(write(called(body, centroids="centres")))


def test_moving_an_operator_with_its_helpers_to_another_module_is_no_change_of_code(write: Write) -> None:
    before = definition(write(called()))["operators"]

    assert before == definition(write(called(), "team.elsewhere"))["operators"]


def test_moving_a_helper_alone_to_another_module_is_no_change_of_code(write: Write) -> None:
    before = code_of_moved(write(called()))
    write("FACTOR = 2.0\ndef shrink(value, points=1):\n    return value / FACTOR", "team.shrinking")
    shrink = "    def shrink(value, points=1):\n        return value / FACTOR\n"
    assert shrink in NAMES

    assert before == code_of_moved(write(called(NAMES.replace(shrink, "    from team.shrinking import shrink\n"))))


def test_helper_of_another_module_that_has_the_operators_name_keeps_it(write: Write) -> None:
    write("def moved(value): return value * 3", "team.helper")
    body = NAMES.replace("tools.scale(", "tools.moved(")
    before = code_of_moved(write(called(body)))

    assert before == code_of_moved(write(called(body, moved="shifted")))


def test_one_name_for_two_things_in_two_modules_counts_with_its_module(write: Write) -> None:
    """Else exchanging the two would be no change."""
    body = BODY.replace('shrink(centroids["c"])', "helper.FACTOR - FACTOR")
    write("FACTOR = 3.0", "team.helper")
    before = definition(write(body))

    write("FACTOR = 2.0", "team.helper")
    after = definition(write(body.replace("FACTOR = 2.0", "FACTOR = 3.0")))

    assert CODE_OF_MOVED_CHANGED == sentences(before, after)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("make(shrink, grow)", "make(grow, shrink)"),
        ("call = shrink", "call = grow"),
        ("import loads as parse", "import dumps as parse"),
        ("class Table(One, Two)", "class Table(Two, One)"),
    ],
    ids=["functions in a closure", "another name of a function", "another name of a foreign function", "bases"],
)
def test_name_that_now_stands_for_another_function_is_a_difference(write: Write, old: str, new: str) -> None:
    """Also where the function that it stood for is still used elsewhere."""
    body = """
        from iteration_lib import Iteration
        from json import loads as parse

        km = Iteration("km")

        def shrink(value): return value / 2
        def grow(value): return value * 2

        call = shrink

        class One: pass
        class Two: pass
        class Table(One, Two): pass

        def make(first, second):
            @km.operator
            def moved(centroids):
                return first(second(shrink(grow(call(parse(Table(centroids)))))))
            return moved

        @km.variable
        def centroids(): ...

        km.feedback(centroids=make(shrink, grow))
    """
    assert old in body

    assert CODE_OF_MOVED_CHANGED == differences(write, body, body.replace(old, new))
