"""Which code is a run made of, and how do two definitions differ?"""

from __future__ import annotations

import linecache
import sys
import textwrap
from collections.abc import Callable, Iterator
from decimal import Decimal
from types import ModuleType
from typing import Any

import pytest

from iteration_lib.errors import IterationNotFoundError
from iteration_lib.model.definition import (
    definition_differences,
    describe,
    load_iteration,
    params_differences,
)
from iteration_lib.model.iteration import Iteration
from iteration_lib.model.params import Scalar

Write = Callable[..., ModuleType]

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


@pytest.fixture
def write() -> Iterator[Write]:
    """Make modules that lie nowhere: their text is where inspect looks for it."""
    written: dict[str, ModuleType | None] = {}

    def make(source: str, name: str = "team.km") -> ModuleType:
        written.setdefault(name, sys.modules.get(name))
        text = textwrap.dedent(source)
        path = f"/nowhere/{name.replace('.', '/')}.py"
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
        module = ModuleType(name)
        module.__file__ = path
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
        exec(compile(text, path, "exec"), module.__dict__)  # noqa: S102 - the test's own text
        return module

    make("", "team")
    make("def scale(value): return value * 3", "team.helper")
    yield make
    for name, before in written.items():
        linecache.cache.pop(f"/nowhere/{name.replace('.', '/')}.py", None)
        if before is None:
            del sys.modules[name]


def definition(module: ModuleType) -> dict[str, Any]:
    return describe(module.km.graph())


def differences(write: Write, before: str, after: str) -> tuple[str, ...]:
    old = definition(write(before))
    return definition_differences(old, definition(write(after)))


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

    assert CODE_OF_MOVED_CHANGED == definition_differences(before, definition(write(body)))


def test_changed_constant_of_another_module_of_the_package_is_a_difference(write: Write) -> None:
    body = BODY.replace('shrink(centroids["c"])', "helper.RATE")
    write("RATE = 0.5", "team.helper")
    before = definition(write(body))

    write("RATE = 0.25", "team.helper")

    assert CODE_OF_MOVED_CHANGED == definition_differences(before, definition(write(body)))


def test_changed_code_of_another_package_is_no_difference(write: Write) -> None:
    body = BODY.replace('shrink(centroids["c"])', "far(1)").replace("FACTOR =", "from far import far\n    F =")
    write("def far(value): return value", "far")
    before = definition(write(body))

    write("def far(value): return value + 1", "far")

    assert () == definition_differences(before, definition(write(body)))


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

    assert CODE_OF_MOVED_CHANGED == definition_differences(before, definition(other))


def test_every_difference_of_the_wiring_is_a_sentence(write: Write) -> None:
    after = """
        from iteration_lib import Iteration

        km = Iteration("km2")

        @km.data
        def points():
            return None

        @km.variable
        def centroids(points):
            return {"c": [1.0]}

        @km.map_buckets(operator_id="moved")
        def next_centroids(centroids, points):
            return {"c": centroids["c"]}

        @km.operator(finishes=True)
        def scaled(points):
            return points

        km.feedback(centroids=next_centroids)
        km.criteria(next_centroids)
        km.output(model=next_centroids)
    """
    before = BODY.replace("km.feedback", "@km.operator\n    def scaled(centroids): ...\n\n    km.feedback")

    assert (
        "operator 'points' is new",
        "operator 'centroids': kind was value, now buckets",
        "operator 'centroids': inputs was [], now ['points']",
        "operator 'centroids': its code changed",
        "operator 'moved': name was moved, now next_centroids",
        "operator 'moved': kind was value, now buckets",
        "operator 'moved': inputs was ['centroids'], now ['centroids', 'points']",
        "operator 'moved': its code changed",
        "operator 'scaled': inputs was ['centroids'], now ['points']",
        "operator 'scaled': finishes was False, now True",
        "operator 'scaled': its code changed",
        "iteration was km, now km2",
        "feedback was {'centroids': 'moved'}, now {'centroids': 'next_centroids'}",
        "criteria was None, now next_centroids",
        "outputs was {'centroids': 'moved'}, now {'model': 'next_centroids'}",
    ) == differences(write, before, after)
    assert ("operator 'points' is gone",) == differences(write, after, before)[:1]


def test_parameters_that_differ_are_named_with_both_values() -> None:
    before: dict[str, Scalar] = {"k": 3, "name": "a", "limit": None, "old": 1, "same": 0.5}

    assert (
        "parameter 'k' was 3, now 4",
        'parameter \'name\' was "a", now "b"',
        "parameter 'limit' was null, now 7",
        "parameter 'new' was null, now true",
        "parameter 'old' was 1, now null",
    ) == params_differences(before, {"k": 4, "name": "b", "limit": 7, "same": 0.5, "new": True})


@pytest.mark.parametrize("value", [1e23, 1.7976931348623157e308, 0.1, -0.0, 5e-324, 2.0**70])
def test_float_that_comes_back_from_the_store_as_a_whole_number_is_no_difference(value: float) -> None:
    """Postgres writes the digits of a large number out, and JSON then reads an int."""
    digits: float = int(Decimal(repr(value))) if value > 2**53 else value

    assert () == params_differences({"x": digits}, {"x": value})
    assert () == params_differences({"x": value}, {"x": digits})


@pytest.mark.parametrize(("before", "after"), [(True, 1), (0, False), (1, "1"), (2**53, 2**53 + 1)])
def test_values_that_only_look_alike_are_a_difference(before: Any, after: Any) -> None:
    assert 1 == len(params_differences({"x": before}, {"x": after}))


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("team.km", "write it as module:object, for example my_team.kmeans:kmeans"),
        (":km", "write it as module:object, for example my_team.kmeans:kmeans"),
        ("team.km:", "write it as module:object, for example my_team.kmeans:kmeans"),
        ("", "write it as module:object, for example my_team.kmeans:kmeans"),
        (
            "nowhere_at_all:km",
            "there is no module 'nowhere_at_all' on the Python path; check the name, or set PYTHONPATH",
        ),
        ("team.km:kn", "module 'team.km' has no 'kn'; its iterations are: km"),
        ("team.helper:kn", "module 'team.helper' has no 'kn'; its iterations are: none"),
        ("team.km:FACTOR", "'FACTOR' is a float, not an Iteration"),
        (".km:km", "write it as module:object, for example my_team.kmeans:kmeans"),
        ("team..km:km", "write it as module:object, for example my_team.kmeans:kmeans"),
    ],
)
def test_reference_that_leads_nowhere_says_why(write: Write, reference: str, said: str) -> None:
    write(BODY)

    with pytest.raises(IterationNotFoundError) as caught:
        load_iteration(reference)

    assert f"{reference!r}: {said}" == str(caught.value)


def test_reference_leads_to_its_iteration(write: Write) -> None:
    module = write(BODY)

    found = load_iteration("team.km:km")

    assert isinstance(found, Iteration)
    assert module.km is found
