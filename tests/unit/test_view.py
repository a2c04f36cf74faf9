"""How are a run and its history shown? Records in, plain JSON out."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from iteration_lib import view
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.state import NO_EPOCH, FailedOperator, RunId
from iteration_lib.protocol.status import (
    AttemptOutcome,
    CheckpointFailure,
    CheckpointKind,
    CheckpointStatus,
    EpochStatus,
    RunStatus,
    TerminatedBy,
    UnalignedBy,
)
from iteration_lib.store.record import (
    AttemptRecord,
    CheckpointRecord,
    EpochRecord,
    OperatorRecord,
    PartRecord,
    RunRecord,
)
from tests.protocol_script import DIGEST, HOLDER, attempt_id

NOON = datetime(2026, 1, 2, 12, 0, 0, 123_456, tzinfo=UTC)
NOON_TEXT = "2026-01-02T12:00:00.123+00:00"
LATER = NOON + timedelta(seconds=2.5)
LATER_TEXT = "2026-01-02T12:00:02.623+00:00"
RUN = RunRecord(
    run_id=RunId("id"),
    run_key="key",
    reference="team.km:km",
    definition={},
    params={"k": 3},
    state_uri="/state",
    max_buckets=16,
    max_epochs=None,
    status=RunStatus.RUNNING,
    created_at=NOON,
)
FINISHED = replace(
    RUN,
    status=RunStatus.FINISHED,
    last_durable_epoch=4,
    terminated_by=TerminatedBy.CRITERIA,
    outputs={"model": "/state/model"},
    state_digest="d",
    finished_at=LATER,
)
EPOCH = EpochRecord(
    epoch=2,
    fencing_token=3,
    status=EpochStatus.DURABLE,
    terminated_by=TerminatedBy.MAX_EPOCHS,
    records={"centroids": (1, 2), "criteria": (0,)},
    metrics={"loss": 0.5},
    seconds=1.25,
    opened_at=NOON,
    aligned_at=NOON,
    durable_at=LATER,
)
CHECKPOINT = CheckpointRecord(
    checkpoint_id=4,
    epoch=2,
    fencing_token=3,
    kind=CheckpointKind.FINAL,
    status=CheckpointStatus.COMPLETED,
    manifest_path="000003-x/checkpoint-000004.json",
    manifest_sha256=DIGEST,
    size_bytes=64,
    reason=None,
    triggered_at=NOON,
    ended_at=LATER,
)


def part(operator_id: str, *, epoch: int, first: int = 0, end: int = 4) -> PartRecord:
    return PartRecord(
        epoch=epoch,
        operator_id=operator_id,
        first_bucket=first,
        end_bucket=end,
        total=4,
        fencing_token=3,
        output={},
        metrics={},
        finished_at=NOON,
        voided_at=None,
    )


def operator(operator_id: str, *, role: str = "operator", finished_epoch: int | None = None) -> OperatorRecord:
    return OperatorRecord(
        operator_id=operator_id, name=operator_id, role=role, kind="value", finished_epoch=finished_epoch, output=None
    )


def test_result_of_a_finished_run() -> None:
    assert {
        "run_id": "id",
        "run_key": "key",
        "status": "FINISHED",
        "epochs": 5,
        "terminated_by": "criteria",
        "outputs": {"model": "/state/model"},
        "state_digest": "d",
    } == view.result_json(FINISHED)


def test_result_of_a_run_that_has_just_begun() -> None:
    assert {
        "run_id": "id",
        "run_key": "key",
        "status": "RUNNING",
        "epochs": 0,
        "terminated_by": None,
        "outputs": {},
        "state_digest": None,
    } == view.result_json(RUN)


def test_run_is_its_result_and_what_it_was_asked_for() -> None:
    assert {
        **view.result_json(FINISHED),
        "reference": "team.km:km",
        "params": {"k": 3},
        "state_uri": "/state",
        "max_buckets": 16,
        "failure": None,
        "asked_to": None,
        "created_at": NOON_TEXT,
        "finished_at": LATER_TEXT,
    } == view.run_json(FINISHED)
    assert (None, "why") == (
        view.run_json(RUN)["finished_at"],
        view.run_json(replace(RUN, status=RunStatus.FAILED, failure="why"))["failure"],
    )


def test_attempt_says_which_operator_failed() -> None:
    attempt = AttemptRecord(
        fencing_token=3,
        attempt_id=attempt_id(7),
        holder=HOLDER,
        started_at=NOON,
        lease_expires_at=LATER,
        ended_at=LATER,
        outcome=AttemptOutcome.FAILED,
        reason="no space",
        failed=FailedOperator(operator_id="sums", epoch=4),
    )

    assert {"operator_id": "sums", "epoch": 4} == view.attempt_json(attempt)["failed"]


@pytest.mark.parametrize("outcome", [None, AttemptOutcome.SUPERSEDED])
def test_attempt_has_no_outcome_while_it_is_live(outcome: AttemptOutcome | None) -> None:
    attempt = AttemptRecord(
        fencing_token=3,
        attempt_id=attempt_id(7),
        holder=HOLDER,
        started_at=NOON,
        lease_expires_at=LATER,
        ended_at=LATER if outcome else None,
        outcome=outcome,
        reason="taken over" if outcome else None,
        policy=CheckpointPolicy(every_epochs=2),
        definition_changes=("operator 'sums' is new",),
    )

    assert {
        "attempt": 3,
        "attempt_id": attempt_id(7),
        "holder": "process 7 on here",
        "started_at": NOON_TEXT,
        "lease_expires_at": LATER_TEXT,
        "ended_at": LATER_TEXT if outcome else None,
        "outcome": "SUPERSEDED" if outcome else None,
        "reason": "taken over" if outcome else None,
        "failed": None,
        "policy": {
            "every_epochs": 2,
            "min_pause_seconds": 0.0,
            "max_pending": 1,
            "timeout_seconds": 600.0,
            "tolerable_failures": 0,
            "retain_last": None,
            "retain_best": 0,
            "retain_metric": None,
            "retain_mode": "min",
        },
        "definition_changes": ["operator 'sums' is new"],
    } == view.attempt_json(attempt)


def test_epoch_counts_the_records_of_each_head() -> None:
    assert {
        "epoch": 2,
        "status": "DURABLE",
        "attempt": 3,
        "seconds": 1.25,
        "records": {"centroids": 3, "criteria": 0},
        "metrics": {"loss": 0.5},
        "unaligned_by": None,
        "terminated_by": "max_epochs",
    } == view.epoch_json(EPOCH)


def test_epoch_that_is_open_counts_what_it_has_heard() -> None:
    still_open = replace(
        EPOCH,
        status=EpochStatus.OPEN,
        terminated_by=None,
        records={"centroids": (None, 2)},
        metrics={},
        seconds=None,
        unaligned_by=UnalignedBy.TIMEOUT,
    )

    assert {
        "epoch": 2,
        "status": "OPEN",
        "attempt": 3,
        "seconds": None,
        "records": {"centroids": 2},
        "metrics": {},
        "unaligned_by": "timeout",
        "terminated_by": None,
    } == view.epoch_json(still_open)


def test_operators_are_shown_with_the_epoch_that_they_are_at() -> None:
    """Those that finished for good with theirs, the others with the last epoch that aligned; voided ones are over."""
    epochs = [
        replace(EPOCH, epoch=1),
        replace(EPOCH, epoch=2, status=EpochStatus.ALIGNED),
        replace(EPOCH, epoch=3, status=EpochStatus.VOIDED),
    ]
    operators = [
        operator("points", role="data"),
        operator("scaled", finished_epoch=0),
        operator("centroids", role="variable"),
        operator("moved"),
    ]

    assert [
        {"operator_id": "scaled", "role": "operator", "epoch": 0, "status": "FINISHED"},
        {"operator_id": "moved", "role": "operator", "epoch": 2, "status": "RUNNING"},
    ] == view.operators_json(RUN, operators, epochs, [part("moved", epoch=3)])


def test_operators_of_an_open_epoch_are_shown_as_far_as_they_are_durable() -> None:
    """Also one that is on its way to finish for good; what was voided counts for nothing."""
    epochs = [replace(EPOCH, epoch=2), replace(EPOCH, epoch=3, status=EpochStatus.OPEN)]
    names = ("scaled", "cleaned", "sums", "shares", "moved", "late")
    operators = [operator("scaled", finished_epoch=0), *map(operator, names[1:])]
    parts = [
        part("cleaned", epoch=NO_EPOCH, end=2),
        part("sums", epoch=3, end=2),
        part("sums", epoch=3, first=2, end=4),
        part("shares", epoch=3, first=1, end=2),
        replace(part("moved", epoch=3), voided_at=LATER),
        part("late", epoch=2),
    ]

    shown = view.operators_json(RUN, operators, epochs, parts)

    assert [0, 3, 3, 3, 3, 3] == [row["epoch"] for row in shown]
    assert ["FINISHED", "PARTIALLY_FINISHED", "FINISHED", "PARTIALLY_FINISHED", "RUNNING", "RUNNING"] == [
        row["status"] for row in shown
    ]


def test_operators_of_a_run_that_has_begun_no_epoch_are_at_none() -> None:
    assert [{"operator_id": "moved", "role": "operator", "epoch": None, "status": "RUNNING"}] == view.operators_json(
        RUN, [operator("moved")], []
    )


def test_operators_of_a_finished_run_are_finished() -> None:
    assert [{"operator_id": "moved", "role": "operator", "epoch": 2, "status": "FINISHED"}] == view.operators_json(
        FINISHED, [operator("moved")], [EPOCH]
    )


def test_checkpoint_shows_how_long_it_was_pending() -> None:
    assert {
        "checkpoint_id": 4,
        "epoch": 2,
        "attempt": 3,
        "kind": "FINAL",
        "status": "COMPLETED",
        "size_bytes": 64,
        "seconds": 2.5,
        "manifest": "000003-x/checkpoint-000004.json",
        "failure": None,
        "reason": None,
        "safe_to_delete": False,
        "pinned_by": [],
        "pinned_by_person": None,
        "triggered_at": NOON_TEXT,
    } == view.checkpoint_json(CHECKPOINT)
    pending = view.checkpoint_json(replace(CHECKPOINT, status=CheckpointStatus.PENDING, ended_at=None))
    assert (None, "PENDING") == (pending["seconds"], pending["status"])


def test_checkpoint_shows_why_it_failed() -> None:
    failed = replace(
        CHECKPOINT, status=CheckpointStatus.ABORTED, failure=CheckpointFailure.EXPIRED, reason="not complete in 600 s"
    )

    shown = view.checkpoint_json(failed)

    assert ("ABORTED", "EXPIRED", "not complete in 600 s") == tuple(
        shown[name] for name in ("status", "failure", "reason")
    )


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [([7], "checkpoint 7"), ([1, 2], "checkpoints 1 and 2"), ([1, 2, 4], "checkpoints 1, 2 and 4")],
)
def test_one_or_several_are_named_as_in_a_sentence(numbers: list[int], shown: str) -> None:
    assert shown == view.show_numbered("checkpoint", numbers)


def test_everything_that_is_shown_is_json() -> None:
    shown = [view.run_json(FINISHED), view.epoch_json(EPOCH), view.checkpoint_json(CHECKPOINT)]

    assert shown == json.loads(json.dumps(shown, allow_nan=False))
