"""What the tab of one run shows, from records alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from iteration_lib.protocol.state import AttemptId, Holder, RunId
from iteration_lib.protocol.status import (
    AttemptOutcome,
    CheckpointKind,
    CheckpointStatus,
    EpochStatus,
    RunStatus,
    StopKind,
    TerminatedBy,
)
from iteration_lib.store.record import AttemptRecord, CheckpointRecord, EpochRecord, RunRecord
from iteration_ui.page import AttemptRow, CheckpointRow, EpochRow, make_run_page, show_bytes, show_seconds

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
RUN = RunRecord(
    run_id=RunId("0b5c"),
    run_key="kmeans/manual",
    reference="my_team.kmeans:kmeans",
    definition={},
    params={"k": 3, "input": "/data"},
    state_uri="/state",
    max_buckets=16,
    max_epochs=50,
    status=RunStatus.RUNNING,
    last_durable_epoch=1,
    created_at=NOW,
)
EPOCH = EpochRecord(
    epoch=1,
    fencing_token=2,
    status=EpochStatus.DURABLE,
    terminated_by=None,
    records={"centres": (1000, 500), "criteria": (3, None)},
    metrics={"inertia": 12.5},
    seconds=0.25,
    opened_at=NOW,
    aligned_at=NOW,
    durable_at=NOW,
)
ATTEMPT = AttemptRecord(
    fencing_token=2,
    attempt_id=AttemptId("a"),
    holder=Holder(host="node", pid=7, process_started="1", task="kmeans/manual/epochs.e000/1"),
    started_at=NOW - timedelta(seconds=75),
    lease_expires_at=NOW,
    ended_at=None,
    outcome=None,
    reason=None,
)
CHECKPOINT = CheckpointRecord(
    checkpoint_id=4,
    epoch=1,
    fencing_token=2,
    kind=CheckpointKind.PERIODIC,
    status=CheckpointStatus.COMPLETED,
    manifest_path="m",
    manifest_sha256="0",
    size_bytes=1_234_567,
    reason=None,
    triggered_at=NOW - timedelta(hours=2),
    ended_at=NOW - timedelta(hours=2) + timedelta(seconds=1.5),
)


def test_live_run_refreshes_and_says_how_far_it_is() -> None:
    page = make_run_page(RUN, epochs=[EPOCH], attempts=[ATTEMPT], checkpoints=[CHECKPOINT], now=NOW)

    assert ("RUNNING", "2 durable epochs of at most 50", 3) == (page.status, page.summary, page.refresh_seconds)
    assert (
        EpochRow(
            epoch=1,
            status="DURABLE",
            attempt=2,
            seconds="0.25 s",
            records="centres 1,500, criteria 3",
            metrics=("12.5",),
        ),
    ) == page.epochs
    assert (
        AttemptRow(
            attempt=2,
            holder="kmeans/manual/epochs.e000/1 (process 7 on node)",
            started="2026-03-01 11:58:45 UTC",
            lasted="1 min 15 s",
            outcome="LIVE",
            reason="",
        ),
    ) == page.attempts
    assert (
        CheckpointRow(
            checkpoint_id=4,
            epoch=1,
            kind="PERIODIC",
            status="COMPLETED",
            size="1.2 MB",
            seconds="1.50 s",
            age="2 h",
        ),
    ) == page.checkpoints


@pytest.mark.parametrize(
    ("terminated_by", "reason"),
    [
        (TerminatedBy.CRITERIA, "its criteria were met"),
        (TerminatedBy.EMPTY_FEEDBACK, "a variable fed back nothing"),
        (TerminatedBy.MAX_EPOCHS, "it reached max_epochs"),
        (TerminatedBy.DRAINED, "somebody asked it to drain"),
    ],
)
def test_finished_run_says_why_it_terminated_and_stays_as_it_is(terminated_by: TerminatedBy, reason: str) -> None:
    run = replace(RUN, status=RunStatus.FINISHED, terminated_by=terminated_by, last_durable_epoch=0)

    page = make_run_page(run, epochs=[], attempts=[], checkpoints=[], now=NOW)

    assert (f"1 durable epoch; terminated because {reason}", None) == (page.summary, page.refresh_seconds)


@pytest.mark.parametrize(
    ("status", "said", "refresh_seconds"),
    [
        (RunStatus.RUNNING, "asked to stop after this epoch", 3),
        (RunStatus.STOPPED, "stopped until `iteration resume`", None),
    ],
)
def test_run_that_is_asked_to_stop_or_has_stopped_says_so(
    status: RunStatus, said: str, refresh_seconds: int | None
) -> None:
    run = replace(RUN, status=status, asked_to=StopKind.STOP)

    page = make_run_page(run, epochs=[], attempts=[], checkpoints=[], now=NOW)

    assert (f"2 durable epochs of at most 50; {said}", refresh_seconds) == (page.summary, page.refresh_seconds)


def test_epochs_without_a_metric_leave_its_column_empty_and_newest_come_first() -> None:
    first = replace(EPOCH, epoch=0, metrics={})
    second = replace(EPOCH, epoch=1, metrics={"inertia": 2.0, "shift": 0.125})

    page = make_run_page(RUN, epochs=[first, second], attempts=[], checkpoints=[], now=NOW)

    assert ("inertia", "shift") == page.metric_names
    assert [(1, ("2", "0.125")), (0, ("", ""))] == [(row.epoch, row.metrics) for row in page.epochs]


def test_superseded_attempt_says_why_it_ended() -> None:
    ended = replace(ATTEMPT, ended_at=NOW, outcome=AttemptOutcome.SUPERSEDED, reason="taken over")

    page = make_run_page(RUN, epochs=[], attempts=[ended], checkpoints=[], now=NOW + timedelta(days=1))

    assert [("SUPERSEDED", "taken over", "1 min 15 s")] == [
        (row.outcome, row.reason, row.lasted) for row in page.attempts
    ]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, ""),
        (0.0, "0.00 s"),
        (9.994, "9.99 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (185, "3 min 5 s"),
        (7440, "2 h 4 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations_are_shown_in_the_two_units_that_matter(seconds: float | None, shown: str) -> None:
    assert shown == show_seconds(seconds)


@pytest.mark.parametrize(
    ("size", "shown"), [(None, ""), (0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (3_200_000_000_000_000, "3200.0 TB")]
)
def test_sizes_are_shown_in_powers_of_a_thousand(size: int | None, shown: str) -> None:
    assert shown == show_bytes(size)
