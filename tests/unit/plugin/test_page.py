"""What the tab of one run shows, from records alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from iteration_lib.protocol.state import NO_EPOCH, AttemptId, FailedOperator, Holder, RunId
from iteration_lib.protocol.status import (
    AttemptOutcome,
    CheckpointKind,
    CheckpointStatus,
    EpochStatus,
    RestoreMode,
    RunStatus,
    StopKind,
    TerminatedBy,
)
from iteration_lib.store.overview import AttemptSpan, MetricSpan, Restart, Span
from iteration_lib.store.record import (
    AttemptRecord,
    BranchRecord,
    CheckpointRecord,
    EpochRecord,
    OperatorRecord,
    RunRecord,
    StopRecord,
)
from iteration_ui.answer import answer_page
from iteration_ui.grid import CellKind
from iteration_ui.page import Progress, make_run_page
from iteration_ui.reading import RunReading
from iteration_ui.show import show_bytes, show_rate, show_seconds
from iteration_ui.tables import AttemptRow, CheckpointRow, EpochRow

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
READING = RunReading(
    run=RUN,
    epochs=[EPOCH],
    attempts=[ATTEMPT],
    checkpoints=[CHECKPOINT],
    attempt_spans=[AttemptSpan(attempt=2, first_epoch=0, last_epoch=1, durable=2)],
)


@pytest.mark.parametrize(
    ("status", "refresh_seconds"),
    [
        (RunStatus.RUNNING, 3),
        (RunStatus.TERMINATING, 3),
        (RunStatus.FAILED, 10),  # a try that fails is followed by another one
        (RunStatus.STOPPED, 10),
        (RunStatus.FINISHED, None),
        (RunStatus.DELETED, None),
    ],
)
def test_page_is_looked_at_again_as_long_as_the_run_may_go_on(status: RunStatus, refresh_seconds: int | None) -> None:
    page = make_run_page(replace(READING, run=replace(RUN, status=status)), now=NOW)

    assert refresh_seconds == page.refresh_seconds


def test_live_run_refreshes_and_says_how_far_it_is() -> None:
    page = make_run_page(READING, now=NOW)

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
            epochs="0 to 1",
            durable=2,
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
            needed_by="its run",
            reason="",
            is_there=True,
            is_pinned=False,
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

    page = make_run_page(RunReading(run=run), now=NOW)

    assert (f"1 durable epoch; terminated because {reason}", None) == (page.summary, page.refresh_seconds)


@pytest.mark.parametrize(
    ("status", "said", "refresh_seconds"),
    [
        (RunStatus.RUNNING, "asked by ann to stop after this epoch", 3),
        (RunStatus.STOPPED, "stopped by ann until somebody resumes it", 10),
    ],
)
def test_run_that_is_asked_to_stop_or_has_stopped_says_by_whom(
    status: RunStatus, said: str, refresh_seconds: int | None
) -> None:
    run = replace(RUN, status=status, asked_to=StopKind.STOP)
    resumed = StopRecord(
        stop_id="1",
        kind=StopKind.STOP,
        requested_by="bob",
        requested_at=NOW,
        stopped_at=NOW,
        resumed_by="bob",
        resumed_at=NOW,
    )
    in_force = replace(resumed, stop_id="2", requested_by="ann", resumed_by=None, resumed_at=None)

    page = make_run_page(RunReading(run=run, stops=[resumed, in_force]), now=NOW)

    assert (f"2 durable epochs of at most 50; {said}", refresh_seconds) == (page.summary, page.refresh_seconds)


@pytest.mark.parametrize(
    ("run_key", "dag_run_page"),
    [("first", ""), ("kmeans/manual", ""), ("kmeans/manual/train", "dags/kmeans/runs/manual")],
)
def test_run_of_a_task_group_leads_back_to_its_dag_run(run_key: str, dag_run_page: str) -> None:
    page = make_run_page(RunReading(run=replace(RUN, run_key=run_key)), now=NOW)

    assert dag_run_page == page.dag_run_page


def test_epochs_without_a_metric_leave_its_column_empty_and_newest_come_first() -> None:
    first = replace(EPOCH, epoch=0, metrics={})
    second = replace(EPOCH, epoch=1, metrics={"inertia": 2.0, "shift": 0.125})

    page = make_run_page(RunReading(run=RUN, epochs=[first, second]), now=NOW)

    assert ("inertia", "shift") == page.metric_names
    assert [(1, ("2", "0.125")), (0, ("", ""))] == [(row.epoch, row.metrics) for row in page.epochs]


def test_superseded_attempt_says_why_it_ended() -> None:
    ended = replace(ATTEMPT, ended_at=NOW, outcome=AttemptOutcome.SUPERSEDED, reason="taken over")

    page = make_run_page(RunReading(run=RUN, attempts=[ended]), now=NOW + timedelta(days=1))

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


# Progress


def test_rate_is_that_of_the_newest_attempt_and_tells_how_long_the_rest_takes_at_most() -> None:
    """Two attempts, an hour between them."""
    run = replace(RUN, last_durable_epoch=4, max_epochs=14)
    epochs = [
        replace(EPOCH, epoch=epoch, fencing_token=token, aligned_at=NOW + timedelta(seconds=seconds))
        for epoch, token, seconds in ((0, 1, 0), (1, 1, 1), (2, 2, 3600), (3, 2, 3630), (4, 2, 3660))
    ]

    page = make_run_page(RunReading(run=run, newest=epochs), now=NOW)

    assert Progress(durable=5, of=14, rate="2 epochs/min", left="4 min 30 s") == page.progress


@pytest.mark.parametrize("epochs", [[], [EPOCH]], ids=["none", "one"])
def test_rate_is_not_told_before_there_are_two_epochs(epochs: list[EpochRecord]) -> None:
    page = make_run_page(RunReading(run=RUN, newest=epochs), now=NOW)

    assert ("", "") == (page.progress.rate, page.progress.left)


def test_open_ended_run_has_a_rate_and_no_end() -> None:
    epochs = [replace(EPOCH, epoch=epoch, aligned_at=NOW + timedelta(seconds=epoch / 4)) for epoch in range(5)]

    page = make_run_page(RunReading(run=replace(RUN, max_epochs=None), newest=epochs), now=NOW)

    assert Progress(durable=2, of=None, rate="4 epochs/s", left="") == page.progress


@pytest.mark.parametrize(
    ("per_second", "shown"),
    [(3.21, "3.21 epochs/s"), (0.5, "30 epochs/min"), (0.001, "3.6 epochs/h"), (1e-5, "0.864 epochs/d")],
)
def test_rate_is_shown_in_a_unit_that_gives_one_at_least(per_second: float, shown: str) -> None:
    assert shown == show_rate(per_second)


# Drawings


def span(first: int, last: int, **metrics: float) -> Span:
    return Span(
        first_epoch=first,
        last_epoch=last,
        durable=last - first + 1,
        aligned=0,
        open=0,
        voided=0,
        seconds=1.0,
        first_attempt=1,
        last_attempt=1,
        metrics={name: MetricSpan(least=value, greatest=value, last=value) for name, value in metrics.items()},
    )


def marks_of(reading: RunReading) -> list[str]:
    """Return what is marked in the chart of a metric; each metric has one, and the same marks."""
    page = make_run_page(reading, now=NOW)
    assert ["cost", "shift"] == [chart.name for chart in page.charts]
    (marks,) = {tuple(mark.label for mark in chart.marks) for chart in page.charts}
    return list(marks)


MEASURED = [span(0, 0, cost=3.0), span(1, 1, cost=2.0, shift=0.5), span(2, 2, cost=1.0)]


RESTART = Restart(attempts=1, attempt=2, epoch=1, to_checkpoint_id=None)


@pytest.mark.parametrize(
    ("restarts", "marks"),
    [
        ([], []),
        ([RESTART], ["attempt 2 began again with epoch 1"]),
        (
            [RESTART, replace(RESTART, attempt=5, epoch=2, attempts=3)],
            [
                "attempt 2 began again with epoch 1",
                "3 attempts began again near here, at last: attempt 5 began again with epoch 2",
            ],
        ),
        (
            [replace(RESTART, epoch=2, to_checkpoint_id=2)],
            ["attempt 2 began again with epoch 2, fell back to checkpoint 2"],
        ),
    ],
    ids=["none", "one", "several", "a fallback"],
)
def test_each_metrics_chart_marks_where_attempts_began_again(restarts: list[Restart], marks: list[str]) -> None:
    assert marks == marks_of(RunReading(run=RUN, spans=MEASURED, restarts=restarts))


@pytest.mark.parametrize(
    ("epoch", "spans"),
    [(2, [span(0, 0), span(1, 1), span(2, 2)]), (NO_EPOCH, [span(0, 0), span(1, 1)])],
    ids=["in an epoch", "before it was opened"],
)
def test_operator_that_ended_the_newest_attempt_is_marked_where_it_failed(epoch: int, spans: list[Span]) -> None:
    failed = FailedOperator(operator_id="a", epoch=epoch)
    attempt = replace(ATTEMPT, ended_at=NOW, outcome=AttemptOutcome.FAILED, failed=failed)
    operator = OperatorRecord(
        operator_id="a", name="a", role="operator", kind="value", finished_epoch=None, output=None
    )
    reading = RunReading(run=RUN, newest_attempt=attempt, operators=[operator], spans=spans)

    page = make_run_page(reading, now=NOW)

    assert ["a, epoch 2: failed in epoch 2"] == [c.title for c in page.grid.rows[0].cells if c.kind is CellKind.FAILED]


def test_checkpoint_that_nobody_needs_says_so_and_one_that_is_needed_says_by_whom() -> None:
    safe = replace(CHECKPOINT, checkpoint_id=2, status=CheckpointStatus.SUBSUMED, safe_to_delete=True)
    pinned = replace(
        CHECKPOINT, checkpoint_id=3, status=CheckpointStatus.SUBSUMED, by_branches=(RunId("b"), RunId("c"))
    )
    newest = replace(CHECKPOINT, by_branches=(RunId("d"),), by_person="ann")

    page = make_run_page(RunReading(run=RUN, checkpoints=[safe, pinned, newest]), now=NOW)

    assert [
        ("its run and 1 branch and ann, who pinned it", True),
        ("2 branches", False),
        ("nobody: safe to delete", False),
    ] == [(row.needed_by, row.is_pinned) for row in page.checkpoints]


BRANCH = BranchRecord(
    run_id=RUN.run_id,
    origin_run_id=RunId("0a0a"),
    origin_checkpoint_id=7,
    epoch=6,
    uri="/saved",
    manifest_path="m",
    manifest_sha256="0",
    mode=RestoreMode.NO_CLAIM,
    keeps=("scaled",),
    branched_by="ann",
    branched_at=NOW,
    released_at=None,
)


@pytest.mark.parametrize(
    ("branch", "said"),
    [
        (BRANCH, "began behind epoch 6, from checkpoint 7 of run 0a0a"),
        (
            replace(BRANCH, origin_run_id=None, origin_checkpoint_id=None),
            "began behind epoch 6, from the savepoint /saved",
        ),
    ],
)
def test_branch_says_where_it_began(branch: BranchRecord, said: str) -> None:
    page = make_run_page(RunReading(run=RUN, branch=branch), now=NOW)

    assert (said, 7) == (page.origin, page.first_epoch)


def test_operator_that_a_branch_took_over_is_skipped_in_its_first_epoch() -> None:
    scaled = OperatorRecord(
        operator_id="scaled", name="scaled", role="operator", kind="value", finished_epoch=7, output={}
    )

    page = make_run_page(RunReading(run=RUN, branch=BRANCH, operators=[scaled], spans=[span(7, 7)]), now=NOW)

    assert [CellKind.SKIPPED] == [cell.kind for cell in page.grid.rows[0].cells]


@pytest.mark.parametrize(
    ("changes", "labels"),
    [
        ({}, ["Stop after this epoch", "Checkpoint now", "Savepoint now", "Dry-run a resume"]),
        ({"asked_to": StopKind.STOP}, ["Checkpoint now", "Savepoint now", "Dry-run a resume"]),
        ({"status": RunStatus.STOPPED}, ["Resume", "Savepoint now", "Dry-run a resume"]),
        ({"status": RunStatus.FAILED}, ["Savepoint now", "Dry-run a resume"]),
        (
            {"status": RunStatus.TERMINATING, "terminated_by": TerminatedBy.CRITERIA},
            ["Savepoint now", "Dry-run a resume"],
        ),
        ({"status": RunStatus.FINISHED, "terminated_by": TerminatedBy.CRITERIA}, ["Savepoint now"]),
    ],
)
def test_page_offers_what_may_be_done_to_a_run_as_it_is(changes: dict[str, object], labels: list[str]) -> None:
    page = make_run_page(replace(READING, run=replace(RUN, **changes)), now=NOW)

    assert labels == [button.label for button in page.buttons]


def test_savepoint_is_offered_where_a_checkpoint_is_there() -> None:
    gone = replace(CHECKPOINT, checkpoint_id=5, status=CheckpointStatus.ABORTED)

    pages = [make_run_page(replace(READING, checkpoints=found), now=NOW) for found in ([CHECKPOINT, gone], [gone])]

    offered = [[button.path for button in page.buttons if button.label == "Savepoint now"] for page in pages]
    assert [["savepoint"], []] == offered
    assert [False, True] == [row.is_there for row in pages[0].checkpoints]


def test_page_escapes_what_users_and_their_errors_say() -> None:
    mischief = "<script>alert('x')</script>"
    operator = OperatorRecord(
        operator_id=mischief, name=mischief, role="operator", kind="value", finished_epoch=None, output=None
    )
    run = replace(
        RUN,
        run_key=f"dag/{mischief}",
        reference=mischief,
        params={mischief: mischief},
        outputs={mischief: mischief},
        failure=mischief,
    )
    reading = RunReading(
        run=run,
        epochs=[replace(EPOCH, records={mischief: (1,)}, metrics={mischief: 1.0})],
        attempts=[replace(ATTEMPT, holder=Holder(host=mischief, pid=1, process_started="1"), reason=mischief)],
        checkpoints=[replace(CHECKPOINT, reason=mischief)],
        operators=[operator],
        spans=[span(0, 0, **{mischief: 1.0})],
    )
    page = make_run_page(reading, now=NOW)
    may = {"may_change": True, "may_trigger": True}

    answer = answer_page("run.html", page=page, here="dags/dag/runs/1", title=mischief, **may)

    text = bytes(answer.body).decode()
    assert (False, True) == (mischief in text, text.count("&lt;script&gt;") > 10)
