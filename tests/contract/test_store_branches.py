"""Does a branch begin behind its origin, pin it, and let it go? In both stores."""

from __future__ import annotations

import dataclasses

import pytest

from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import OriginGoneError, ProtocolViolationError
from iteration_lib.protocol.command import DiscardCheckpoints, ReleaseOrigin
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.retention import RetainedCheckpoint
from iteration_lib.protocol.state import RunId
from iteration_lib.protocol.status import CheckpointStatus, RestoreMode, RunStatus
from iteration_lib.store.record import BranchRecord, NewRun
from iteration_lib.store.seam import StoreWithHistory
from tests.protocol_script import Sender, claim, deletes, discards
from tests.store_script import SOME_TIME, a_run, an_origin, history, new_family, origin_of, read_state, timeless

pytestmark = pytest.mark.postgres

LAST_ONE = CheckpointPolicy(retain_last=1)


@pytest.fixture
def ran(store: StoreWithHistory) -> NewRun:
    """A run with checkpoints 1 to 3 of the epochs 0 to 2, driven still."""
    run = a_run()
    an_origin(store, run, epoch=2)
    return run


def branched(store: StoreWithHistory, origin: NewRun, checkpoint_id: int, **changes: RestoreMode) -> RunId:
    """Add a branch of a checkpoint."""
    run = a_run()
    assert store.add_run(run, origin_of(origin, checkpoint_id=checkpoint_id, epoch=checkpoint_id - 1, **changes))
    return run.run_id


def goes_on(store: StoreWithHistory, branch: RunId, epoch: int) -> None:
    """Drive a branch until an epoch of its own is durable."""
    family = new_family()
    Coordinator(store).apply(branch, claim(family=family), *Sender(1, 1, family).passes(epoch, 1))


def needs(store: StoreWithHistory, run_id: RunId) -> list[tuple[int, CheckpointStatus, tuple[RunId, ...], bool]]:
    return [
        (known.checkpoint_id, known.status, known.by_branches, known.safe_to_delete)
        for known in store.list_checkpoints(run_id)
    ]


def test_branch_begins_behind_its_origin_and_says_where_it_comes_from(store: StoreWithHistory, ran: NewRun) -> None:
    branch = branched(store, ran, 2)

    goes_on(store, branch, 2)

    expected = BranchRecord(
        **dataclasses.asdict(origin_of(ran, checkpoint_id=2, epoch=1)) | {"mode": RestoreMode.NO_CLAIM},
        run_id=branch,
        branched_at=SOME_TIME,
        released_at=SOME_TIME,
    )
    found = store.find_branch(branch)
    assert found is not None
    assert expected == timeless(found) == timeless(store.list_branches(ran.run_id)[0])
    assert [2] == [epoch.epoch for epoch in store.list_epochs(branch)]
    assert None is store.find_branch(ran.run_id)


def test_pinned_checkpoint_is_not_safe_to_delete_until_the_branch_has_its_own(
    store: StoreWithHistory, ran: NewRun
) -> None:
    subsumed, completed = CheckpointStatus.SUBSUMED, CheckpointStatus.COMPLETED
    branch = branched(store, ran, 2)
    before = needs(store, ran.run_id)

    goes_on(store, branch, 2)

    assert [(1, subsumed, (), True), (2, subsumed, (branch,), False), (3, completed, (), False)] == before
    assert [(1, subsumed, (), True), (2, subsumed, (), True), (3, completed, (), False)] == needs(store, ran.run_id)


def test_discarding_by_a_policy_passes_over_what_branches_pin_until_they_let_it_go(
    store: StoreWithHistory, ran: NewRun
) -> None:
    """Who lets it go has the branch locked, and counts no change of the run that it came from."""
    coordinator = Coordinator(store)
    coordinator.apply(ran.run_id)  # it knows the run as it was before the branch
    branch = branched(store, ran, 2)

    first = coordinator.discard(ran.run_id, LAST_ONE)
    goes_on(store, branch, 2)
    then = coordinator.discard(ran.run_id, LAST_ONE)

    assert ((1,), (2,)) == (first, then)


def test_claimed_checkpoint_goes_when_its_branch_has_its_own(store: StoreWithHistory, ran: NewRun) -> None:
    branch = branched(store, ran, 2, mode=RestoreMode.CLAIM)
    keeps_all = CheckpointPolicy()

    before = Coordinator(store).discard(ran.run_id, keeps_all)
    goes_on(store, branch, 2)

    assert ((), (2,)) == (before, Coordinator(store).discard(ran.run_id, keeps_all))


def test_store_itself_refuses_to_discard_what_a_branch_pins(store: StoreWithHistory, ran: NewRun) -> None:
    branched(store, ran, 2)
    before = history(store, ran.run_id)

    with pytest.raises(ProtocolViolationError), store.transaction(ran.run_id) as transaction:
        transaction.write([DiscardCheckpoints(checkpoint_ids=(1, 2))], 1)

    assert before == history(store, ran.run_id)


@pytest.mark.parametrize(
    "changes",
    [{"checkpoint_id": 9}, {"epoch": 0}, {"manifest_sha256": "cd" * 32}, {"checkpoint_id": 1, "epoch": 0}],
    ids=["never was", "of another epoch", "another manifest", "discarded"],
)
def test_branch_of_a_checkpoint_that_is_not_there_is_refused_and_leaves_nothing(
    store: StoreWithHistory, ran: NewRun, changes: dict[str, object]
) -> None:
    Coordinator(store).apply(ran.run_id, discards(1))
    fields = {name: value for name, value in changes.items() if name != "checkpoint_id"}
    origin = origin_of(ran, checkpoint_id=2, epoch=1)
    meant = dataclasses.replace(
        origin,
        origin_checkpoint_id=changes.get("checkpoint_id", 2),
        **fields,  # type: ignore[arg-type]  # as above
    )
    run = a_run()

    with pytest.raises(OriginGoneError) as caught:
        store.add_run(run, meant)

    assert f"checkpoint {meant.origin_checkpoint_id} of run {ran.run_id} is not there" == caught.value.problem
    assert None is store.find_run(run.run_id)


def test_branch_of_a_savepoint_pins_nothing(store: StoreWithHistory, ran: NewRun) -> None:
    run, origin = a_run(), origin_of(ran, checkpoint_id=2, epoch=1)
    moved = dataclasses.replace(origin, origin_run_id=None, origin_checkpoint_id=None, uri="/savepoints/7")

    assert store.add_run(run, moved)

    assert () == store.list_branches(ran.run_id)
    assert (True, frozenset()) == (read_state(store, run.run_id).holds_origin, read_state(store, ran.run_id).pinned)


def test_origin_is_released_under_the_branchs_own_token_alone(store: StoreWithHistory, ran: NewRun) -> None:
    branch = branched(store, ran, 2)
    goes_on(store, branched(store, ran, 2), 2)

    for token in (0, 1):
        with pytest.raises(ProtocolViolationError), store.transaction(branch) as transaction:
            transaction.write([ReleaseOrigin()], token)

    assert read_state(store, branch).holds_origin


def test_key_of_a_deleted_run_is_free_and_the_run_is_found_by_its_id(store: StoreWithHistory, ran: NewRun) -> None:
    Coordinator(store).apply(ran.run_id, *ended(store, ran))
    again = a_run(ran.run_key)

    assert store.add_run(again)

    by_key, by_id = store.find_run(ran.run_key), store.find_run(ran.run_id)
    assert by_key is not None
    assert by_id is not None
    assert (again.run_id, RunStatus.RUNNING) == (by_key.run_id, by_key.status)
    assert (ran.run_id, RunStatus.DELETED, "ann") == (by_id.run_id, by_id.status, by_id.deleted_by)
    assert by_id.deleted_at is not None


def ended(store: StoreWithHistory, run: NewRun) -> tuple[object, ...]:
    """Return what deletes a run whose attempt is live."""
    live = store.list_attempts(run.run_id)[-1]
    return (dataclasses.replace(deletes(), gone_attempt_id=live.attempt_id),)


def test_deleted_origin_keeps_what_its_branches_pin(store: StoreWithHistory, ran: NewRun) -> None:
    branches = [branched(store, ran, 2) for _ in range(3)]
    Coordinator(store).apply(ran.run_id, *ended(store, ran))

    gone = Coordinator(store).discard(ran.run_id, LAST_ONE)
    for branch in branches[:2]:
        goes_on(store, branch, 2)
    still = Coordinator(store).discard(ran.run_id, LAST_ONE)
    goes_on(store, branches[2], 2)

    assert ((1, 3), (), (2,)) == (gone, still, Coordinator(store).discard(ran.run_id, LAST_ONE))
    assert {CheckpointStatus.DISCARDED} == {known.status for known in store.list_checkpoints(ran.run_id)}


def test_finished_run_lets_old_checkpoints_go(store: StoreWithHistory, family: int) -> None:
    run = a_run()
    store.add_run(run)
    one = Sender(1, 1, family)
    events = (claim(family=family), *one.passes(0, 1), *one.passes(1, 2, records=0), one.publishes())
    Coordinator(store).apply(run.run_id, *events)

    assert (1,) == Coordinator(store).discard(run.run_id, LAST_ONE)
    found = store.find_run(run.run_id)
    assert found is not None
    assert RunStatus.FINISHED is found.status


def test_retained_checkpoints_tell_what_their_epochs_measured(store: StoreWithHistory, family: int) -> None:
    run, one = a_run(), Sender(1, 1, family)
    store.add_run(run)
    opened = (claim(family=family), one.opens(0), one.reports(0, loss=0.5), one.triggers(0), one.completes(1))
    Coordinator(store).apply(run.run_id, *opened, *one.passes(1, 2))

    with store.transaction(run.run_id) as transaction:
        found = transaction.read_retained("loss"), transaction.read_retained(None)

    first = RetainedCheckpoint(checkpoint_id=1, epoch=0, metric=0.5)
    second = RetainedCheckpoint(checkpoint_id=2, epoch=1)
    assert ((first, second), (dataclasses.replace(first, metric=None), second)) == found
