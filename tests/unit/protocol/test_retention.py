"""Which checkpoints may go: by the policy, by who needs them, and with their run?"""

from __future__ import annotations

import dataclasses

import pytest

from iteration_lib.errors import LeaseHeldError, ParameterError, RunDeletedError, SupersededError
from iteration_lib.protocol import RunState
from iteration_lib.protocol.command import (
    AbortCheckpoint,
    DeleteRun,
    DiscardCheckpoints,
    EndAttempt,
    PinCheckpoint,
    ReleaseCheckpoint,
    ReleaseOrigin,
    VoidEpochs,
)
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.retention import RetainedCheckpoint, discardable
from iteration_lib.protocol.status import AttemptOutcome, CheckpointFailure, CheckpointStatus, RunStatus
from tests.protocol_script import (
    FIRST,
    LATER,
    NOW,
    SECOND,
    aborts,
    asks,
    assert_harmless_again,
    claim,
    commands_of,
    deletes,
    discards,
    keeps,
    new_run,
    play,
    refusal,
    releases,
    started,
)

LOSSES = (0.9, 0.3, 0.5, 0.3, 0.7)  # of the epochs 0 to 4, whose checkpoints are 1 to 5


def five_epochs() -> RunState:
    """A run whose checkpoints 1 to 5 were completed, the last of them not subsumed."""
    return started(*(event for epoch in range(5) for event in FIRST.passes(epoch, epoch + 1)))


def retained(*, claimed: tuple[int, ...] = ()) -> list[RetainedCheckpoint]:
    return [
        RetainedCheckpoint(checkpoint_id=epoch + 1, epoch=epoch, metric=loss, is_claimed=epoch + 1 in claimed)
        for epoch, loss in enumerate(LOSSES)
    ]


@pytest.mark.parametrize(
    ("policy", "gone"),
    [
        (CheckpointPolicy(), ()),
        (CheckpointPolicy(retain_last=1), (1, 2, 3, 4)),
        (CheckpointPolicy(retain_last=2), (1, 2, 3)),
        (CheckpointPolicy(retain_last=9), ()),
        (CheckpointPolicy(retain_best=1, retain_metric="loss"), (1, 2, 3)),
        (CheckpointPolicy(retain_best=3, retain_metric="loss"), (1,)),
        (CheckpointPolicy(retain_best=1, retain_metric="loss", retain_mode="max"), (2, 3, 4)),
        (CheckpointPolicy(retain_last=2, retain_best=1, retain_metric="loss", retain_mode="max"), (2, 3)),
    ],
    ids=["all", "last one", "last two", "more than there are", "best", "best three", "greatest", "last and best"],
)
def test_policy_keeps_the_last_and_the_best(policy: CheckpointPolicy, gone: tuple[int, ...]) -> None:
    """Of two that are equally good the newer one; the newest checkpoint stays whatever it measured."""
    assert gone == discardable(five_epochs(), retained(), policy)
    assert policy.discards == (policy != CheckpointPolicy())


def test_what_measured_nothing_is_never_among_the_best() -> None:
    *silent, last = [dataclasses.replace(known, metric=None) for known in retained()]
    measured = dataclasses.replace(last, metric=0.5)

    gone = discardable(five_epochs(), [*silent, measured], CheckpointPolicy(retain_best=4, retain_metric="loss"))

    assert (1, 2, 3, 4) == gone


def test_nothing_goes_where_no_checkpoint_measured_the_metric() -> None:
    """Its name is mistyped, as likely as not, and what goes never comes back."""
    silent = [dataclasses.replace(known, metric=None) for known in retained()]

    for last in (None, 1):
        policy = CheckpointPolicy(retain_last=last, retain_best=1, retain_metric="lost")
        assert () == discardable(five_epochs(), silent, policy)


def test_pinned_checkpoint_stays_and_a_claimed_one_goes_though_the_policy_says_otherwise() -> None:
    pinned = dataclasses.replace(five_epochs(), pinned=frozenset({1, 2}))

    assert (3, 4) == discardable(pinned, retained(), CheckpointPolicy(retain_last=1))
    assert (3,) == discardable(pinned, retained(claimed=(2, 3)), CheckpointPolicy())


def test_checkpoint_that_a_person_pins_stays_until_it_is_released() -> None:
    keeping = assert_harmless_again(five_epochs(), keeps(2))
    released = assert_harmless_again(keeping, releases(2))

    assert (PinCheckpoint(checkpoint_id=2, pinned_by="ann"),) == commands_of(five_epochs(), keeps(2))
    assert (1, 3, 4) == discardable(keeping, retained(claimed=(2,)), CheckpointPolicy(retain_last=1))
    assert "checkpoint 2 cannot be discarded: it is needed (I18)" == str(refusal(keeping, discards(1, 2)))
    assert (ReleaseCheckpoint(checkpoint_id=2),) == commands_of(keeping, releases(2))
    assert five_epochs() == released


def test_deleted_run_keeps_what_a_person_pins() -> None:
    deleted = play(five_epochs(), keeps(5, CheckpointStatus.COMPLETED), FIRST.ends(), deletes())

    assert (1, 2, 3, 4) == discardable(deleted, retained(), CheckpointPolicy())
    assert (1, 2, 3, 4, 5) == discardable(play(deleted, releases(5)), retained(), CheckpointPolicy())


@pytest.mark.parametrize("status", [CheckpointStatus.PENDING, CheckpointStatus.ABORTED, CheckpointStatus.DISCARDED])
def test_checkpoint_that_is_not_there_is_not_pinned(status: CheckpointStatus) -> None:
    found = refusal(five_epochs(), keeps(2, status))

    assert "checkpoint 2 cannot be pinned: it is not there (I18)" == str(found)


def test_deleted_run_keeps_what_is_pinned_alone() -> None:
    deleted = play(dataclasses.replace(five_epochs(), pinned=frozenset({4})), FIRST.ends(), deletes())

    assert (1, 2, 3, 5) == discardable(deleted, retained(), CheckpointPolicy())
    assert (DiscardCheckpoints(checkpoint_ids=(5,)),) == commands_of(deleted, discards(5))
    assert play(deleted, discards(5)).completed is None


@pytest.mark.parametrize("checkpoint_id", [0, 5, 6])
def test_newest_checkpoint_and_one_that_never_was_are_not_discarded(checkpoint_id: int) -> None:
    found = refusal(five_epochs(), discards(1, checkpoint_id))

    assert f"checkpoint {checkpoint_id} cannot be discarded: it is needed (I18)" == str(found)


def test_attempt_discards_until_another_one_begins() -> None:
    """By then its policy is not that of the run any more; who says nothing of an attempt is a person."""
    ended = play(five_epochs(), FIRST.ends())
    superseded = play(five_epochs(), claim(2, takeover=True))
    goes = (DiscardCheckpoints(checkpoint_ids=(1,)),)

    for state in (five_epochs(), ended):
        assert goes == commands_of(state, discards(1, sender=FIRST))
    for state in (superseded, play(superseded, SECOND.ends())):
        assert goes == commands_of(state, discards(1, sender=SECOND)) == commands_of(state, discards(1))
        for refused in (discards(1, sender=FIRST), discards(sender=FIRST)):
            assert isinstance(refusal(state, refused), SupersededError)


def test_discarding_nothing_writes_nothing() -> None:
    assert () == commands_of(five_epochs(), discards())


def test_run_that_nobody_drives_is_deleted_whatever_became_of_it() -> None:
    idle, failed = play(five_epochs(), FIRST.ends()), play(five_epochs(), FIRST.fails())
    finished = started(*FIRST.passes(0, 1, records=0), FIRST.publishes())

    for state in (new_run(), idle, failed, finished):
        deleted = assert_harmless_again(state, deletes())

        assert RunStatus.DELETED is deleted.status
        assert (DeleteRun(deleted_by="ann"),) == commands_of(state, deletes())


def test_deleting_voids_what_an_attempt_that_ended_left_open() -> None:
    state = started(*FIRST.passes(0, 1), FIRST.opens(1), FIRST.ends())

    assert (VoidEpochs(after=0), DeleteRun(deleted_by="ann")) == commands_of(state, deletes())
    assert () == play(state, deletes()).epochs


def test_run_that_is_driven_is_deleted_only_when_its_holder_is_gone_or_the_lease_ran_out() -> None:
    driven = started(FIRST.opens(0), FIRST.reports(0), FIRST.triggers(0))

    assert isinstance(refusal(driven, deletes()), LeaseHeldError)
    assert isinstance(refusal(driven, deletes(gone=2)), LeaseHeldError)
    assert (
        (
            AbortCheckpoint(checkpoint_id=1, failure=CheckpointFailure.ATTEMPT_ENDED, reason="its run was deleted"),
            EndAttempt(fencing_token=1, outcome=AttemptOutcome.SUPERSEDED, reason="its run was deleted by ann"),
            VoidEpochs(after=-1),
            DeleteRun(deleted_by="ann"),
        )
        == commands_of(driven, deletes(gone=1))
        == commands_of(driven, deletes(), LATER)
    )


def test_deleted_run_is_driven_and_asked_no_more() -> None:
    deleted = play(started(FIRST.ends()), deletes())

    for event in (claim(2, takeover=True), asks(), aborts(1)):
        found = refusal(deleted, event)
        assert isinstance(found, RunDeletedError)
        assert f"run {deleted.run_id} was deleted; its key is free for a new run" == str(found)


def test_branch_releases_its_origin_with_its_first_checkpoint_or_when_it_is_deleted() -> None:
    branch = play(new_run(origin_epoch=4), claim(), FIRST.opens(5), FIRST.reports(5), FIRST.triggers(5))

    first = commands_of(branch, FIRST.completes(1))
    later = commands_of(play(branch, FIRST.completes(1), *FIRST.passes(6, 2)[:-1]), FIRST.completes(2))

    assert 1 == first.count(ReleaseOrigin())
    assert ReleaseOrigin() not in later
    assert ReleaseOrigin() == commands_of(branch, deletes(gone=1))[-1]
    assert not play(branch, deletes(gone=1)).holds_origin


def test_listeners_of_a_branch_hear_of_its_own_epochs_alone() -> None:
    state = play(new_run(origin_epoch=4), claim(), *FIRST.passes(5, 1))

    assert "listener 'log': epoch 5 comes first (I16)" == str(
        refusal(play(state, *FIRST.passes(6, 2)), FIRST.notifies(6))
    )
    assert {"log": 5} == play(state, FIRST.notifies(5)).notified


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"retain_last": 0}, "Checkpointing(retain_last=0): give a whole number from 1 to 2147483647"),
        ({"retain_best": -1}, "Checkpointing(retain_best=-1): give a whole number from 0 to 2147483647"),
        (
            {"retain_best": 1, "retain_metric": "caf\udce9"},
            "Checkpointing(retain_metric='caf\\udce9'): give a text that can be printed",
        ),
        ({"retain_best": 1}, "Checkpointing(retain_metric=None): give it together with retain_best, or neither"),
        (
            {"retain_metric": "loss"},
            "Checkpointing(retain_metric='loss'): give it together with retain_best, or neither",
        ),
        ({"retain_mode": "least"}, 'Checkpointing(retain_mode=\'least\'): give "min" or "max"'),
    ],
)
def test_policy_that_makes_no_sense_is_refused_by_name(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ParameterError) as caught:
        CheckpointPolicy(**fields)  # type: ignore[arg-type]  # what is wrong with them is the point

    assert said == str(caught.value)


def test_lease_decides_a_deletion_by_the_clock_of_the_store() -> None:
    assert isinstance(refusal(started(), deletes(), NOW), LeaseHeldError)
    assert RunStatus.DELETED is play(started(), deletes(), now=LATER).status
