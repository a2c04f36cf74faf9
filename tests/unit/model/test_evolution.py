"""Which changes of the user's file may a run go on with, and what is said of the others?"""

from __future__ import annotations

from collections.abc import Callable
from string import Template
from typing import Any

import pytest

from iteration_lib.model.definition import describe
from iteration_lib.model.evolution import (
    Evolution,
    check_evolution,
    compare_definitions,
    evolution_of,
    find_unfit_edges,
)
from iteration_lib.model.graph import Graph
from tests.unit.model.conftest import Write

BODY = """
    from iteration_lib import Iteration

    km = Iteration("km")

    @km.data(operator_id="points")
    def $points(): ...

    @km.operator(operator_id="scaled", finishes=True)
    def $scaled($points): return 2

    @km.operator(operator_id="table", finishes=True)
    def table($scaled): return 3

    @km.variable(operator_id="first")
    def $centroids($scaled): ...

    @km.variable
    def weights(): ...

    @km.operator(operator_id="summed", state="carry")
    def $sums($scaled, $centroids, state): return 1, 2

    @km.operator
    def moved($sums, table, weights): return 4

    @km.operator
    def still_moving(moved): return 5

    @km.operator
    def weighed(weights, $sums): return 6

    km.feedback($centroids=moved, weights=weighed)
    km.criteria(still_moving)
    km.output(model=moved)
"""
NAMES = {"points": "points", "scaled": "scaled", "centroids": "centroids", "sums": "sums"}
FINISHED = {"scaled", "table"}
STATEFUL = {"first", "weights", "summed", *FINISHED}

# Each of these is put before the feedback, and adds an operator.
LESS = "@km.operator(finishes=True)\n    def cleaned($points): return 7\n\n    km.feedback"
MORE = "@km.operator\n    def clipped(moved): return 7\n\n    km.feedback"
BIAS = (
    "@km.variable\n    def bias(): ...\n\n    @km.operator\n    def biased(bias): ...\n\n    "
    "km.feedback(bias=biased)\n    km.feedback"
)
ONCE = "@km.data(replays=False)\n    def seeds(): ...\n\n    @km.operator\n    def grown(seeds): ...\n\n    km.feedback"
COUNT = "@km.operator(state='carry')\n    def counted(moved, state): ...\n\n    km.feedback"

Evolve = Callable[..., Evolution]


@pytest.fixture
def evolve(write: Write) -> Evolve:
    """Return what compares BODY with what becomes of it by replacing texts and calling operators otherwise."""

    def evolution(*replaced: tuple[str, str], before: str = BODY, **names: str) -> Evolution:
        return changed(write, before, *replaced, **names)[0]

    return evolution


def refusals(
    evolution: Evolution, *, finished: Any = FINISHED, stateful: Any = STATEFUL, **how: Any
) -> tuple[str, ...]:
    return check_evolution(evolution, finished=finished, stateful=stateful, **how)


def test_same_file_is_no_evolution(evolve: Evolve) -> None:
    found = evolve()

    assert ((), (), {}, {}, {}, ()) == (
        found.added,
        found.removed,
        found.renamed,
        found.moved,
        found.changed,
        found.sentences,
    )
    assert () == refusals(found)


def test_operators_that_stand_in_another_order_are_no_evolution(evolve: Evolve) -> None:
    middle = BODY[BODY.index("    @km.operator\n    def moved") : BODY.index("    km.feedback")]
    reversed_middle = "".join(f"    @km.operator{part}" for part in reversed(middle.split("    @km.operator")[1:]))

    assert () == evolve((middle, reversed_middle)).sentences


HEARD = "@km.operator\n    def heard(moved): return 7\n\n    km.feedback"
IDLE = (
    "@km.operator\n    def idle(weights): return 7\n\n    "
    "@km.operator\n    def idler(idle): return 8\n\n    km.feedback"
)


BEHIND_SUMS = {
    "summed.result": "its input 'summed' runs again",
    "summed.state-next": "its input 'summed' runs again",
    "moved": "its input 'summed.result' runs again",
    "still_moving": "its input 'moved' runs again",
    "weighed": "its input 'summed.result' runs again",
}


@pytest.mark.parametrize(
    ("replaced", "names", "unfit"),
    [
        ((), NAMES | {"points": "rows", "sums": "totals", "centroids": "centres"}, {}),
        ((("km.criteria(still_moving)", ""), ("model=moved", "model=moved, sums=$sums")), {}, {}),
        ((("km.feedback", HEARD),), {}, {"heard": "it is new"}),
        (
            (("def still_moving(moved)", "def still_moving(weighed)"),),
            {},
            {"still_moving": "its inputs are weighed now"},
        ),
        (
            (("def moved($sums, table, weights)", "def moved($sums, table)"),),
            {},
            {"moved": "it has changed", "still_moving": "its input 'moved' runs again"},
        ),
        (
            (("@km.operator\n    def still_moving", "@km.operator(operator_id='s')\n    def still_moving"),),
            {},
            {"s": "it is new"},
        ),
        (
            (("def $sums($scaled, $centroids, state)", "def $sums($scaled, weights, state)"),),
            {},
            {"summed": "its inputs are scaled, weights now", **BEHIND_SUMS},
        ),
        ((("def $centroids($scaled)", "def $centroids(table)"),), {}, {}),
    ],
    ids=[
        "others' names",
        "other outputs",
        "one is added behind",
        "one takes another",
        "one is another",
        "one has another id",
        "one with state takes another",
        "a first value, long ago",
    ],
)
def test_open_epoch_goes_on_with_edges_of_what_and_of_what_is_before_it_is_as_it_was(
    write: Write, replaced: tuple[tuple[str, str], ...], names: dict[str, str], unfit: dict[str, str]
) -> None:
    evolution, graph = changed(write, BODY, *replaced, **names)

    found = find_unfit_edges(evolution, graph, has_values=True, used_up=())

    assert unfit == found


def test_first_value_that_is_computed_from_something_else_is_before_epoch_0_alone(write: Write) -> None:
    evolution, graph = changed(write, BODY, ("def $centroids($scaled)", "def $centroids(table)"))

    found = find_unfit_edges(evolution, graph, has_values=False, used_up=())

    expected = {"first": "its inputs are table now", "summed": "its input 'first' runs again", **BEHIND_SUMS}
    assert expected == found


@pytest.mark.parametrize(
    ("replaced", "unfit"),
    [
        ((), {}),
        ((("def idler(idle)", "def idler(weights)"),), {"idler": "its inputs are weights now"}),
        (
            (("km.output(", "@km.operator\n    def other(idle): return 9\n\n    km.output("),),
            {
                "other": "it is new",
                "idle": "it left no files, and 'other' asks for them",
                "idler": "its input 'idle' runs again",
            },
        ),
        (
            (("model=moved", "model=moved, idle=idle"),),
            {
                "idle": "it left no files, and its result is asked for now",
                "idler": "its input 'idle' runs again",
            },
        ),
    ],
    ids=["nothing else", "its user takes another", "another user comes", "it is an output"],
)
def test_operator_without_files_is_kept_while_nobody_asks_for_them(
    write: Write, replaced: tuple[tuple[str, str], ...], unfit: dict[str, str]
) -> None:
    """Its user has finished, and would see another result of it, were that computed again (P1)."""
    evolution, graph = changed(write, BODY.replace("km.feedback", IDLE), *replaced)

    assert unfit == find_unfit_edges(evolution, graph, has_values=True, used_up={"idle"})


def changed(write: Write, before: str, *replaced: tuple[str, str], **names: str) -> tuple[Evolution, Graph]:
    """Return what becomes of a body by replacing texts and calling operators otherwise, and how that differs."""
    after = before
    for old, new in replaced:
        assert old in after
        after = after.replace(old, new)
    stored = describe(write(Template(before).substitute(NAMES)).km.graph())
    graph = write(Template(after).substitute(NAMES | names)).km.graph()
    return evolution_of(stored, graph), graph


def test_renamed_operators_may_go_on(evolve: Evolve) -> None:
    """Data, an operator that finished for good, a variable and an operator that carries state."""
    found = evolve(points="rows", scaled="scaled_rows", centroids="centres", sums="totals")

    assert {
        "points": ("points", "rows"),
        "scaled": ("scaled", "scaled_rows"),
        "first": ("centroids", "centres"),
        "summed": ("sums", "totals"),
    } == found.renamed
    assert sorted(f"operator {i!r}: name was {a}, now {b}" for i, (a, b) in found.renamed.items()) == sorted(
        found.sentences
    )
    assert () == refusals(found)


def test_moved_operator_may_go_on(evolve: Evolve) -> None:
    """A new operator comes before it, and another tail feeds back."""
    found = evolve(
        ("km.feedback", MORE), ("def still_moving(moved)", "def still_moving(clipped)"), ("=moved, ", "=clipped, ")
    )

    assert (
        "operator 'clipped' is new",
        "operator 'still_moving': inputs was moved, now clipped",
        "feedback was {'first': 'moved', 'weights': 'weighed'}, now {'first': 'clipped', 'weights': 'weighed'}",
    ) == found.sentences
    assert {"still_moving": (("moved",), ("clipped",))} == found.moved
    assert () == refusals(found)


def test_other_criteria_and_outputs_may_go_on(evolve: Evolve) -> None:
    found = evolve(("km.criteria(still_moving)", ""), ("model=moved", "model=moved, sums=$sums"))

    assert (
        "criteria was still_moving, now None",
        "outputs was {'model': 'moved'}, now {'model': 'moved', 'sums': 'summed'}",
    ) == found.sentences
    assert () == refusals(found)


def test_operator_put_before_one_that_finished_for_good_is_refused_by_both_names(evolve: Evolve) -> None:
    found = evolve(("km.feedback", LESS), ("def $scaled($points)", "def $scaled(cleaned)"))

    (sentence,) = refusals(found)
    assert (
        "operator 'scaled' finished for good with the inputs points, now they are cleaned; put the change behind it, "
        "or start another run, or branch this one"
    ) == sentence


def test_operator_that_finished_for_good_cannot_take_another_that_did_so_either(evolve: Evolve) -> None:
    """What it left was computed from what it took before."""
    found = evolve(("def table($scaled)", "def table($points)"))

    assert ("operator 'table' finished for good with the inputs scaled, now they are points;",) == tuple(
        sentence[: sentence.index(";") + 1] for sentence in refusals(found)
    )


def test_operator_put_before_one_that_did_not_finish_yet_may_go_on(evolve: Evolve) -> None:
    found = evolve(("km.feedback", LESS), ("def $scaled($points)", "def $scaled(cleaned)"))

    assert () == refusals(found, finished=set(), stateful=set())


def test_stateless_operators_may_be_added_and_removed(evolve: Evolve) -> None:
    added = evolve(("km.feedback", MORE))
    removed = evolve((MORE, "km.feedback"), before=BODY.replace("km.feedback", MORE))

    assert (("clipped",), (), ("operator 'clipped' is new",)) == (added.added, added.removed, added.sentences)
    assert ((), ("clipped",), ("operator 'clipped' is gone",)) == (removed.added, removed.removed, removed.sentences)
    assert ((), ()) == (refusals(added), refusals(removed))


def test_variable_may_be_added_only_before_there_is_a_checkpoint(evolve: Evolve) -> None:
    """No checkpoint holds what it would go on with."""
    found = evolve(("km.feedback", BIAS))

    (sentence,) = refusals(found)
    assert ("variable 'bias' is new, and has no value to go on with; start another run") == sentence
    assert () == refusals(found, stateful=FINISHED)


def test_data_stream_that_comes_once_may_be_added_only_while_epoch_0_is_not_over(evolve: Evolve) -> None:
    """No epoch would see a record of it, and nobody would be told."""
    found = evolve(("km.feedback", ONCE))

    (sentence,) = refusals(found)
    assert sentence == (
        "data stream 'seeds' is new, and comes once, in epoch 0, which is over; leave out replays=False, or start "
        "another run"
    )
    assert () == refusals(found, stateful=FINISHED)
    assert () == refusals(evolve(("km.feedback", ONCE.replace("replays=False", "replays=True"))))
    assert () == refusals(evolve(("km.feedback", ONCE.replace("@km.operator", "@km.operator(finishes=True)"))))


def test_operator_that_carries_state_may_be_added_at_any_time(evolve: Evolve) -> None:
    """In its first epoch it has none, whichever epoch of the run that is."""
    found = evolve(("km.feedback", COUNT))

    assert (("counted",), ()) == (found.added, refusals(found))


@pytest.mark.parametrize(
    ("new", "operator_id"),
    [(BIAS, "bias"), (COUNT, "counted"), (LESS, "cleaned")],
    ids=["variable", "carry", "finished"],
)
def test_operator_with_state_may_be_removed_only_where_a_person_drops_its_state(
    evolve: Evolve, new: str, operator_id: str
) -> None:
    found = evolve((new, "km.feedback"), before=BODY.replace("km.feedback", new, 1))
    asked = {"finished": {*FINISHED, "cleaned"}, "stateful": {*STATEFUL, "bias", "counted"}}

    (sentence,) = refusals(found, **asked)
    assert (
        f"operator {operator_id!r} is gone, and has state; give it back (under another name with "
        f"operator_id={operator_id!r}), or drop its state with --allow-dropped-state"
    ) == sentence
    assert () == refusals(found, **asked, allow_dropped_state=True)
    assert () == refusals(found, finished=set(), stateful=set())


@pytest.mark.parametrize(
    ("old", "new", "problems"),
    [
        ("return 4", "return 5", ["operator 'moved': its code changed"]),
        ("return 1, 2", "return 2, 1", ["operator 'summed': its code changed"]),
        (
            '@km.operator(operator_id="table", finishes=True)',
            '@km.operator(operator_id="table")',
            ["operator 'table': finishes was True, now False"],
        ),
        (
            "@km.operator\n    def weighed(",
            "@km.transform\n    def weighed(",
            ["operator 'weights': kind was value, now frame", "operator 'weighed': kind was value, now frame"],
        ),
        (
            '@km.data(operator_id="points")',
            '@km.data(operator_id="points", replays=False)',
            ["operator 'points': replays was True, now False"],
        ),
        (
            ', state="carry")\n    def $sums($scaled, $centroids, state)',
            ")\n    def $sums($scaled, $centroids)",
            ["operator 'summed': state was carry, now None", "operator 'summed': its code changed"],
        ),
        (
            'data(operator_id="points")',
            'operator(operator_id="points", finishes=True)',
            [
                "operator 'points': role was data, now operator",
                "operator 'points': kind was data, now value",
                "operator 'points': finishes was False, now True",
            ],
        ),
        (
            "def $scaled($points)",
            "def $scaled()",
            ["operator 'scaled': its code changed"],
        ),
        ('Iteration("km")', 'Iteration("km2")', ["the iteration is called 'km2', and the run is one of 'km'"]),
    ],
    ids=["code", "code with state", "finishes", "kind", "replays", "state", "role", "inputs and code", "iteration"],
)
def test_operator_that_is_another_one_is_refused(evolve: Evolve, old: str, new: str, problems: list[str]) -> None:
    """What the run computed so far was computed by what it was."""
    found = evolve((old, new))

    refused = refusals(found, finished=set(), allow_dropped_state=True)

    branch = "put it back, start another run, or branch this one"
    ways_out = (branch if "code" in problem else "put it back, or start another run" for problem in problems)
    assert tuple(f"{problem}; {way_out}" for problem, way_out in zip(problems, ways_out, strict=True)) == refused
    assert found.sentences


def test_every_reason_is_said_at_once(evolve: Evolve) -> None:
    found = evolve(("return 4", "return 5"), ("def table($scaled)", "def table($points)"), ("km.feedback", BIAS))

    assert ["operator 'moved': its", "operator 'table' finished", "variable 'bias' is"] == [
        " ".join(sentence.split()[:3]) for sentence in refusals(found)
    ]


def test_renamed_operator_without_an_id_is_another_one_and_is_told_how_to_stay(evolve: Evolve) -> None:
    """Its name was its id."""
    found = evolve(
        ("def weights()", "def masses()"),
        ("table, weights)", "table, masses)"),
        ("weighed(weights,", "weighed(masses,"),
        ("weights=weighed", "masses=weighed"),
    )

    assert (("masses",), ("weights",)) == (found.added, found.removed)
    assert (
        "operator 'weights' is gone, and has state; give it back (under another name with operator_id='weights')"
        in (refusals(found)[-1])
    )


def test_definition_of_format_1_goes_on_with_the_same_code_alone(write: Write) -> None:
    """Its digests hold the operators' names: one that is called otherwise counts as changed."""
    body = BODY.replace(', state="carry"', "").replace("$centroids, state)", "$centroids)")

    def module(body: str, **names: str) -> Any:
        return write(Template(body).substitute(NAMES | names)).km.graph()

    stored = describe(module(body), format_version=1)

    def sentences(body: str, **names: str) -> tuple[str, ...]:
        return refusals(evolution_of(stored, module(body, **names)))

    assert () == sentences(body)
    assert () == sentences(body.replace("km.feedback", MORE))
    branch = "put it back, start another run, or branch this one"
    assert (f"operator 'moved': its code changed; {branch}",) == sentences(body.replace("return 4", "return 5"))
    assert ["operator 'points': its code changed", "operator 'scaled': its code changed"] == sorted(
        sentence.partition(";")[0] for sentence in sentences(body, points="rows")
    )
    assert ("operator 'points': replays was True, now False; put it back, or start another run",) == sentences(
        body.replace('(operator_id="points")', '(operator_id="points", replays=False)')
    )


def test_definitions_of_two_formats_are_not_compared(write: Write) -> None:
    """Their digests say nothing of each other."""
    graph = write(Template(BODY).substitute(NAMES)).km.graph()

    with pytest.raises(ValueError, match="formats 1 and 2 do not compare"):
        compare_definitions(describe(graph, format_version=1), describe(graph))
