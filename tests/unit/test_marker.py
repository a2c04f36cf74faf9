"""Which markers of a run are in force, by its rows?"""

from __future__ import annotations

import pytest

from iteration_lib.explanation import RunHistory
from iteration_lib.marker import held_in, markers_of, parts_in_force
from iteration_lib.protocol import Event
from iteration_lib.protocol.legality import Markers
from iteration_lib.protocol.state import NO_EPOCH, EdgeState
from iteration_lib.state.manifest import Manifest
from tests.kept_checkpoints import kept_manifest
from tests.protocol_script import FIRST, SECOND, claim, part
from tests.told_history import told

UNALIGNED = (claim(), FIRST.opens(0), FIRST.switches(0))


def markers(history: RunHistory) -> Markers:
    return markers_of(history.run, history.operators, history.parts, history.epochs)


def test_parts_of_the_epoch_that_comes_next_are_joined_to_edges() -> None:
    history = told(
        UNALIGNED,
        (FIRST.marks(0, part("y", 0, 2, total=4), part("x")),),
        (claim(2, takeover=True), SECOND.opens(0), SECOND.switches(0), SECOND.marks(0, part("y", 2, 3, total=4))),
    )

    assert (
        EdgeState(epoch=0, operator_id="x", total=1, finished=((0, 1),)),
        EdgeState(epoch=0, operator_id="y", total=4, finished=((0, 3),)),
    ) == markers(history).edges


def test_parts_of_durable_epochs_are_nobodys() -> None:
    history = told(
        UNALIGNED,
        (FIRST.marks(0, part("x")), FIRST.reports(0), FIRST.triggers(0), FIRST.completes(1)),
        (FIRST.opens(1), FIRST.switches(1), FIRST.marks(1, part("y", total=4))),
    )

    assert (1, ["y"]) == (markers(history).epoch, [edge.operator_id for edge in markers(history).edges])


def test_parts_of_an_epoch_after_the_next_are_nobodys() -> None:
    """Nor does its switch say anything of the epoch that comes next."""
    history = told(
        (claim(), FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0), FIRST.opens(1), FIRST.switches(1)),
        (FIRST.marks(1, part("x")),),
    )

    assert Markers(epoch=0, was_unaligned=False) == markers(history)


def test_voided_parts_are_nobodys() -> None:
    history = told(
        (*UNALIGNED, FIRST.marks(0, part("x")), FIRST.marks(NO_EPOCH, part("scaled", 0, 1, total=4))),
        (claim(2, takeover=True), SECOND.changes("x", "y", dropped=("scaled",))),
    )

    assert ((), 2) == (markers(history).edges, len(history.parts))


def test_parts_of_an_operator_that_finishes_for_good_count_until_it_is_marked() -> None:
    begun = (claim(), FIRST.marks(NO_EPOCH, part("scaled", 0, 1, total=4)))
    edge = EdgeState(epoch=NO_EPOCH, operator_id="scaled", total=4, finished=((0, 1),))

    before, after = told(begun), told(begun, (FIRST.finishes("scaled"),))

    assert Markers(epoch=0, edges=(edge,)) == markers(before)
    assert Markers(epoch=0, finished=frozenset({"scaled"})) == markers(after)
    assert () == parts_in_force(after.run, after.operators, after.parts)


@pytest.mark.parametrize(
    ("batches", "was_unaligned"),
    [
        (((claim(),),), None),
        (((claim(), FIRST.opens(0)),), False),
        ((UNALIGNED,), True),
        ((UNALIGNED, (claim(2, takeover=True), SECOND.opens(0))), False),
    ],
)
def test_markers_say_whether_the_last_attempt_at_the_epoch_had_switched(
    batches: tuple[tuple[Event, ...], ...], *, was_unaligned: bool | None
) -> None:
    assert was_unaligned is markers(told(*batches)).was_unaligned


@pytest.mark.parametrize(("version", "held"), [(1, ("middle", "ranks", "count.state")), (2, ("middle", "ranks"))])
def test_checkpoint_that_names_no_operators_by_their_ids_is_taken_to_hold_all(
    version: int, held: tuple[str, ...]
) -> None:
    path = kept_manifest(version, 2)

    found = held_in(Manifest.from_bytes(path.read_bytes(), path=str(path)), ("middle", "ranks", "count.state"))

    assert held == found
