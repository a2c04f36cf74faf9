"""What is a run that went on from an older checkpoint, to every store?"""

from __future__ import annotations

import pytest

from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import CheckpointNotFoundError, FallbackRefusedError
from iteration_lib.protocol.event import Committable
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.state import RunId
from iteration_lib.store.record import FallbackRecord
from iteration_lib.store.seam import StoreWithHistory
from tests.protocol_script import Sender, claim, part
from tests.store_script import (
    DEFINITION,
    SOME_TIME,
    a_run,
    added,
    an_origin,
    new_family,
    origin_of,
    read_state,
    timeless,
    timeless_state,
)

pytestmark = pytest.mark.postgres


@pytest.fixture
def second(family: int) -> Sender:
    """The second attempt."""
    return Sender(2, 2, family)


@pytest.fixture
def broken(store: StoreWithHistory, first: Sender) -> RunId:
    """A run with three durable epochs and an edge of the fourth, which a second attempt has taken over."""
    run_id = added(store)
    passes = [event for epoch in range(3) for event in first.passes(epoch, epoch + 1)]
    edge = (first.opens(3), first.switches(3), first.marks(3, part("x")))
    Coordinator(store).apply(run_id, claim(family=first.family), first.opens(0), first.switches(0))
    Coordinator(store).apply(run_id, first.marks(0, part("x")), *passes[1:], *edge)
    Coordinator(store).apply(run_id, claim(2, takeover=True, family=first.family))
    return run_id


def fall_back(store: StoreWithHistory, run_id: RunId, attempt: Sender, checkpoint_id: int = 1) -> None:
    guard = (attempt.attempt_id, attempt.token)
    state = Coordinator(store).fall_back(run_id, *guard, checkpoint_id=checkpoint_id, reason="a file is missing")
    assert timeless_state(state) == timeless_state(read_state(store, run_id))


def test_epochs_after_the_older_checkpoint_are_voided_and_newer_checkpoints_discarded(
    store: StoreWithHistory, broken: RunId, second: Sender
) -> None:
    fall_back(store, broken, second)

    run = store.find_run(broken)
    assert (0, 3) == ((run.last_durable_epoch, run.last_checkpoint_id) if run is not None else None)
    assert ["DURABLE", "VOIDED", "VOIDED", "VOIDED"] == [known.status.value for known in store.list_epochs(broken)]
    assert ["COMPLETED", "DISCARDED", "DISCARDED"] == [c.status.value for c in store.list_checkpoints(broken)]
    assert [True, False] == [known.voided_at is None for known in store.list_parts(broken)]
    assert () == store.list_live_parts(broken)
    assert (
        FallbackRecord(
            fencing_token=2,
            from_checkpoint_id=3,
            to_checkpoint_id=1,
            epoch=0,
            reason="a file is missing",
            fell_back_at=SOME_TIME,
        ),
    ) == tuple(timeless(known) for known in store.list_fallbacks(broken))


def test_fallback_that_is_repeated_changes_nothing_and_the_run_goes_on(
    store: StoreWithHistory, broken: RunId, second: Sender
) -> None:
    fall_back(store, broken, second)
    fall_back(store, broken, second)

    Coordinator(store).apply(broken, *second.passes(1, 4), *second.passes(2, 5))

    assert 1 == len(store.list_fallbacks(broken))
    assert [1, 4, 5] == [known.checkpoint_id for known in store.list_checkpoints(broken) if known.has_files]


def test_checkpoint_that_is_gone_cannot_be_fallen_back_to(
    store: StoreWithHistory, broken: RunId, second: Sender
) -> None:
    Coordinator(store).discard(broken, CheckpointPolicy(retain_last=2))
    before = read_state(store, broken)

    with pytest.raises(CheckpointNotFoundError, match=r"checkpoint 1 of run \S+ has no files"):
        fall_back(store, broken, second)

    assert before == read_state(store, broken)


def test_what_sinks_have_of_later_epochs_keeps_the_run_from_falling_back_behind_it(
    store: StoreWithHistory, first: Sender, second: Sender
) -> None:
    """Of a sink, too, that the run has no more: its rows say so."""
    run = a_run(definition={**DEFINITION, "sinks": {"rows": True}})
    assert store.add_run(run)
    coordinator = Coordinator(store)
    coordinator.apply(run.run_id, claim(family=first.family))
    for epoch in range(3):
        known = Committable(epoch=epoch, output="rows", target="a table", content={}, in_store=epoch > 0)
        passed = first.passes(epoch, epoch + 1)
        coordinator.apply(run.run_id, *passed[:-1], first.completes(epoch + 1, committables=(known,)))
    coordinator.apply(run.run_id, claim(2, takeover=True, family=first.family), second.changes("x"))

    for checkpoint_id, epoch in ((1, 0), (2, 1)):
        with pytest.raises(FallbackRefusedError, match=f"output 'rows' is published of epochs after {epoch}"):
            fall_back(store, run.run_id, second, checkpoint_id)
        with pytest.raises(FallbackRefusedError, match=f"output 'rows' is published of epochs after {epoch}"):
            coordinator.check_fallback(run.run_id, checkpoint_id)


def test_checkpoint_that_a_branch_pins_keeps_the_run_from_falling_back_behind_it(
    store: StoreWithHistory, family: int
) -> None:
    run = a_run()
    an_origin(store, run, epoch=2)
    second = Sender(2, 2, family)
    Coordinator(store).apply(run.run_id, claim(2, takeover=True, family=family))
    store.add_run(a_run(), origin_of(run, checkpoint_id=2, epoch=1))

    with pytest.raises(FallbackRefusedError, match="a branch needs checkpoint 2"):
        fall_back(store, run.run_id, second, checkpoint_id=1)
    fall_back(store, run.run_id, second, checkpoint_id=2)

    found = store.find_run(run.run_id)
    assert 1 == (found.last_durable_epoch if found is not None else None)


def test_checkpoint_that_a_branch_has_let_go_keeps_no_run_from_falling_back_behind_it(
    store: StoreWithHistory, second: Sender
) -> None:
    """Who lets it go has the branch locked, and counts no change of the run that it came from."""
    run, branch, of_branch = a_run(), a_run(), new_family()
    an_origin(store, run, epoch=2)
    store.add_run(branch, origin_of(run, checkpoint_id=2, epoch=1))
    coordinator = Coordinator(store)
    coordinator.apply(run.run_id, claim(2, takeover=True, family=second.family))  # it knows what the branch pins
    Coordinator(store).apply(branch.run_id, claim(family=of_branch), *Sender(1, 1, of_branch).passes(2, 1))

    guard = (second.attempt_id, second.token)
    state = coordinator.fall_back(run.run_id, *guard, checkpoint_id=1, reason="a file is missing")

    assert 0 == state.last_durable_epoch
