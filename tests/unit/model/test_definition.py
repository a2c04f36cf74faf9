"""What does a definition say, and where does a reference lead?"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from iteration_lib.errors import IterationNotFoundError
from iteration_lib.interrupt import ToldToEnd
from iteration_lib.model.definition import FORMAT, describe, load_iteration, params_differences, read_definition
from iteration_lib.model.iteration import Iteration
from iteration_lib.model.params import Scalar
from tests.unit.model.conftest import Write

# What every version of this project has to read as it is read today.
BODY = """
    from iteration_lib import Iteration
    from team import helper

    FACTOR = 2.0

    km = Iteration("km")

    def shrink(value):
        return value / FACTOR

    @km.variable(operator_id="first")
    def centroids():
        return {"c": [1.0]}

    class Rates:
        '''How fast.'''
        def __init__(self, rate=0.5):
            self.rate = rate
        def all(self):
            return [helper.scale(self.rate)]

    def make(k, hook):
        @km.operator(finishes=True)
        def table(rates=Rates, *, by=FACTOR):
            '''Make it.'''
            return {"c": hook(k) * by * len(rates().all())}
        return table

    table = make(3, shrink)

    @km.operator
    def moved(centroids, table):
        return {"c": shrink(centroids["c"])}

    @km.operator(operator_id="enough")
    def still(moved):
        return moved

    km.feedback(centroids=moved)
    km.criteria(still)
    km.output(model=moved)
"""


def test_definition_names_every_operator_by_its_id(write: Write) -> None:
    """The digests are literals: a run that is under way has them in its store."""
    assert {
        "format": 2,
        "iteration": "km",
        "operators": {
            "first": described(
                "centroids", "a0cb74609b328a3cb3e5eb9ab7ff3dc219a18a535d84acf0cb2481ecd38c79e0", role="variable"
            ),
            "table": described(
                "table", "8581a851059264bd4db7c0244008b51c84613b64ad10f6922a6fb2ab72930af0", finishes=True
            ),
            "moved": described(
                "moved", "1cd25ff7d1c46dfff2fa67d73076428848b088b8e3447748e841518327b93b19", inputs=["first", "table"]
            ),
            "enough": described(
                "still", "a8b419010e948fb93e2ae2dc75f3282a33ef1e18f22f35601d9024a0085a266b", inputs=["moved"]
            ),
        },
        "feedback": {"first": "moved"},
        "criteria": "enough",
        "outputs": {"model": "moved"},
    } == describe(write(BODY).km.graph())


def described(name: str, code: str, **fields: Any) -> dict[str, Any]:
    same = {"role": "operator", "kind": "value", "inputs": [], "finishes": False}
    return {"name": name, **same, "replays": True, "state": None, "part_of": None, "code": code} | fields


def test_definition_of_format_1_is_described_as_it_was_written_then(write: Write) -> None:
    """Its digests, too, are those that the version before wrote."""
    described_now = describe(write(BODY).km.graph(), format_version=1)

    assert FORMAT_1 == without_new_fields(described_now)


def without_new_fields(definition: dict[str, Any]) -> dict[str, Any]:
    new = ("replays", "state", "part_of")
    return definition | {
        "operators": {
            operator_id: {name: value for name, value in operator.items() if name not in new}
            for operator_id, operator in definition["operators"].items()
        }
    }


# As the version before wrote it.
FORMAT_1 = {
    "iteration": "km",
    "operators": {
        "first": {
            "name": "centroids",
            "role": "variable",
            "kind": "value",
            "inputs": [],
            "finishes": False,
            "code": "0d863ab65cca846f939b3a9ad361b236075309e2f71f45b801f185e04c31b9ca",
        },
        "table": {
            "name": "table",
            "role": "operator",
            "kind": "value",
            "inputs": [],
            "finishes": True,
            "code": "ea66f7d28673ec80069cde4081120ebd260948a9af4dd3f18551d169dc4db556",
        },
        "moved": {
            "name": "moved",
            "role": "operator",
            "kind": "value",
            "inputs": ["centroids", "table"],
            "finishes": False,
            "code": "afc13804eecbe497225e107e2adc0e2461b522ee929b2090ae97c3ef636da728",
        },
        "enough": {
            "name": "still",
            "role": "operator",
            "kind": "value",
            "inputs": ["moved"],
            "finishes": False,
            "code": "c54776e7b26d3ef9f3ed2bcef23877bd6a42631186e3060a62126557089ad1f8",
        },
    },
    "feedback": {"centroids": "moved"},
    "criteria": "still",
    "outputs": {"model": "moved"},
}


def test_both_formats_say_the_same_of_everything_but_the_code(write: Write) -> None:
    old, new = read_definition(FORMAT_1), read_definition(describe(write(BODY).km.graph()))

    assert old == replace(new, operators={i: replace(o, code=old.operators[i].code) for i, o in new.operators.items()})
    assert (("first", "table"), {"first": "moved"}, "enough") == (
        old.operators["moved"].inputs,
        old.feedback,
        old.criteria,
    )


@pytest.mark.parametrize("format_version", [1, FORMAT])
def test_operator_that_carries_state_is_one_operator_of_a_definition(format_version: int) -> None:
    iteration = Iteration("km")

    @iteration.data(replays=False)
    def points() -> None: ...

    @iteration.variable
    def centroids() -> None: ...

    @iteration.map_buckets(operator_id="summed", state="carry")
    def sums(points: Any, state: Any, centroids: Any) -> Any: ...

    @iteration.operator(state="fresh")
    def moved(sums: Any, scratch: Any) -> None: ...

    iteration.feedback(centroids=moved)
    iteration.output(sums=sums)
    graph = iteration.graph()

    found = read_definition(describe(graph, format_version=format_version))

    assert {
        "points": ("points", (), False, None),
        "centroids": ("centroids", (), True, None),
        "summed": ("sums", ("points", "centroids"), True, "carry"),
        "moved": ("moved", ("summed",), True, "fresh"),
    } == {i: (o.name, o.inputs, o.replays, o.state) for i, o in found.operators.items()}
    assert ({"centroids": "moved"}, {"sums": "summed"}) == (found.feedback, found.outputs)
    assert (("centroids",), ("centroids", "summed")) == (found.variables, found.stateful)
    assert {o.operator_id for o in graph.operators} == set(describe(graph)["operators"])  # type: ignore[call-overload]


def test_settings_of_the_checkpoints_are_no_part_of_the_definition(write: Write) -> None:
    """They may change between two attempts, and so may parallelism and what is captured."""
    before = describe(write(BODY).km.graph())
    body = BODY.replace('Iteration("km")', 'Iteration("km", checkpointing=Checkpointing(every_epochs=9))')
    body = body.replace("import Iteration", "import Checkpointing, Iteration")
    body = body.replace("@km.operator\n", "@km.operator(capture=False)\n")

    assert before == describe(write(body).km.graph())


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


def test_signal_that_is_heard_while_a_module_is_imported_is_no_fault_of_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is told to end is to be tried again; a module that cannot be imported is to be mended."""
    (tmp_path / "slow_to_import.py").write_text("from iteration_lib.interrupt import ToldToEnd\n\nraise ToldToEnd\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(ToldToEnd):
        load_iteration("slow_to_import:km")


def test_reference_leads_to_its_iteration(write: Write) -> None:
    module = write(BODY)

    found = load_iteration("team.km:km")

    assert isinstance(found, Iteration)
    assert module.km is found
