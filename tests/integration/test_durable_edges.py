"""What does an operator that finished inside an open epoch spare the next attempt? Plain-Python runs on a real store.

With `alignment_timeout_seconds` an operator's output becomes a durable edge: whatever is marked never runs again,
counted by a file that every body appends to, and the run ends with the same bits on any number of subtasks.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from iteration_lib.coordinator import Publish
from iteration_lib.errors import OperatorFailedError, StateCorruptedError
from iteration_lib.protocol import Event, RunState
from iteration_lib.protocol.event import CheckpointAcknowledged
from iteration_lib.protocol.state import NO_EPOCH, FailedOperator, RunId
from iteration_lib.protocol.status import RunStatus, UnalignedBy
from iteration_lib.store.postgres import PostgresStore
from tests.command_line import CommandLine
from tests.driven_here import DEADLINE_SECONDS, KILL, MAX_BUCKETS, Here, Killed, Latch, MortalCoordinator
from tests.failover.driven import wait_until
from tests.iterations.steered import CHECKPOINTING_VARIABLE, PER_EPOCH, steered, uncaptured
from tests.size import IS_NIGHTLY

pytestmark = pytest.mark.postgres

REFERENCE = "tests.iterations.steered:steered"
EPOCHS = 3
AT_ONCE: Mapping[str, Any] = {"alignment_timeout_seconds": 0.0}
VARIABLES = ("ranks", "drifts", "pace")
WHOLE = ("pace", "total", "paced", "going")  # operators on whole values: one part
AFTER = {"more": 4, "fewer": 1, "the same": 2}  # subtasks of the attempt that resumes
Ranges = list[tuple[int, int]]


@pytest.fixture
def here(store: PostgresStore, tmp_path: Path) -> Here:
    return Here.begin(store, tmp_path, steered, epochs=EPOCHS)


@pytest.fixture(scope="module")
def undisturbed(store: PostgresStore, tmp_path_factory: pytest.TempPathFactory) -> Here:
    """A run that nothing happened to, and that leaves no edges."""
    here = Here.begin(store, tmp_path_factory.mktemp("undisturbed"), steered, epochs=EPOCHS)
    assert RunStatus.FINISHED is here.drive().status
    return here


def marked_lines(here: Here) -> set[str]:
    """Return the lines of the bodies that may not run again: those that the next attempt's edges stand for."""
    epoch = here.found.last_durable_epoch + 1
    lines = set()
    for part in here.parts:
        place = "-" if part.epoch == NO_EPOCH or part.operator_id in VARIABLES else str(epoch)
        buckets = ["-"] if part.total == 1 else range(part.first_bucket, part.end_bucket)
        if part.epoch in (NO_EPOCH, epoch):
            lines |= {f"{part.operator_id} {place} {bucket}" for bucket in buckets}
    return lines


def whole(*names: str) -> dict[str, Ranges]:
    """Return operators all of whose buckets are marked."""
    return {name: [(0, 1 if name in WHOLE else MAX_BUCKETS)] for name in names}


def joined(marked: Mapping[str, Ranges]) -> dict[str, Ranges]:
    """Return ranges as one where they touch."""
    found: dict[str, Ranges] = {}
    for name, ranges in marked.items():
        found[name] = []
        for first, end in ranges:
            if found[name] and found[name][-1][1] == first:
                found[name][-1] = (found[name][-1][0], end)
            else:
                found[name].append((first, end))
    return found


def measured(here: Here) -> list[tuple[int, dict[str, float], dict[str, int]]]:
    """Return each epoch's metrics and records by head, whoever computed them."""
    return [
        (epoch.epoch, dict(epoch.metrics), {head: sum(counts) for head, counts in epoch.records.items()})
        for epoch in here.epochs
    ]


# Where an attempt ends, and what is an edge of the epoch by then; a body that fails is named by its line.
ENDS: Mapping[str, dict[str, Ranges]] = {
    "edge_marked@0": whole("pace"),
    "fail total 0 -": whole(*VARIABLES, "shares"),
    "epoch_written@0": whole(*VARIABLES, *PER_EPOCH),
    "edge_marked@1": {"shares": [(0, 2)]},
    "fail shares 1 3": {"shares": [(0, 2)]},
    "fail ranked 1 2": {**whole("shares", "total"), "ranked": [(0, 2)]},
    "fail going 1 -": whole("shares", "total", "ranked", "paced"),
    "fail drifted 1 3": {**whole("shares", "total", "ranked", "paced", "going"), "drifted": [(0, 2)]},
    "epoch_written@1": whole(*PER_EPOCH),
    "epoch_aligned@1": whole(*PER_EPOCH),
    "outputs_written@2": whole(*PER_EPOCH),
}


def end(here: Here, place: str, *, every_epochs: int = 1, **options: Any) -> BaseException:
    """Drive until the attempt ends in a place: killed at a crash point, or by a body that fails.

    What is due is durable before an epoch begins, so that there is one answer to what the attempt leaves.
    """
    script = {
        f"epoch_opened@{epoch}": lambda durable=epoch - 1: wait_until(
            lambda: here.found.last_durable_epoch >= durable, f"epoch {durable} to be durable"
        )
        for epoch in range(every_epochs, EPOCHS, every_epochs)
    }
    if place.startswith("fail "):
        here.order("fail", place.removeprefix("fail "))
    else:
        script[place] = KILL
    error = here.drive_and_fail(script=script, every_epochs=every_epochs, **options)
    (here.desk / "fail").unlink(missing_ok=True)
    return error


def cases() -> Iterator[Any]:
    """Return every place with as many subtasks after it as before, with more, with fewer: one of them, or all."""
    for number, (place, edges) in enumerate(ENDS.items()):
        for what in AFTER if IS_NIGHTLY else [tuple(AFTER)[number % len(AFTER)]]:
            yield pytest.param(place, edges, AFTER[what], id=f"{place.replace(' ', '-')} and {what}")


@pytest.mark.parametrize(("place", "edges", "parallelism"), list(cases()))
def test_nothing_that_was_marked_runs_again_and_the_run_ends_with_the_same_bits(
    here: Here, undisturbed: Here, place: str, edges: dict[str, Ranges], parallelism: int
) -> None:
    end(here, place, **AT_ONCE)
    before, marked = here.log(), marked_lines(here)
    left = joined(here.marked(here.found.last_durable_epoch + 1))

    run = here.drive(parallelism=parallelism, **AT_ONCE)
    after = here.log()

    assert edges == left
    assert set() == marked & set(after)
    assert {1} == set(before.values()) | set(after.values())
    assert undisturbed_lines() == set(before) | set(after)
    assert undisturbed.found.state_digest == run.state_digest
    assert measured(undisturbed) == measured(here)


def undisturbed_lines() -> set[str]:
    """Return the lines of all bodies of a run."""
    calls = [(name, "-") for name in ("scaled", "size", *VARIABLES)]
    calls += [(name, str(epoch)) for name in PER_EPOCH for epoch in range(EPOCHS)]
    buckets = [str(bucket) for bucket in range(MAX_BUCKETS)]
    return {
        f"{name} {epoch} {bucket}"
        for name, epoch in calls
        for bucket in (["-"] if name in (*WHOLE, "size") else buckets)
    }


def test_only_the_buckets_that_are_not_marked_run_again_on_as_many_subtasks_as_there_are_now(here: Here) -> None:
    end(here, "fail ranked 1 2", **AT_ONCE)
    here.log()

    here.drive(parallelism=1, **AT_ONCE)

    ran = here.log()
    assert [0, 0, 1, 1] == [ran[f"ranked 1 {bucket}"] for bucket in range(MAX_BUCKETS)]
    assert (0, 0) == (ran["total 1 -"], ran["shares 1 0"])


def test_attempt_without_a_timeout_starts_behind_the_edges_too(here: Here, undisturbed: Here) -> None:
    end(here, "fail ranked 1 2", **AT_ONCE)
    here.log()
    marked = marked_lines(here)

    run = here.drive()

    assert set() == marked & set(here.log())
    assert undisturbed.found.state_digest == run.state_digest


def test_run_killed_again_and_again_on_other_numbers_of_subtasks_never_repeats_what_was_marked(
    here: Here, undisturbed: Here
) -> None:
    """Each attempt begins where the one before ended, and its checkpoints name files of all of them."""
    places = ["edge_marked@0", "epoch_written@0", "fail ranked 1 1", "fail ranked 1 3", "epoch_aligned@1"]
    places += ["edge_marked@2", "outputs_written@2"]
    ran: Counter[str] = Counter()

    for number, place in enumerate(places):
        marked = marked_lines(here)
        end(here, place, parallelism=1 + number % 4, **AT_ONCE)
        lines = here.log()
        assert set() == marked & set(lines), place
        ran += lines
    marked = marked_lines(here)
    run = here.drive(**AT_ONCE)
    lines = here.log()

    assert set() == marked & set(lines)
    assert undisturbed_lines() == set(ran + lines)
    assert undisturbed.found.state_digest == run.state_digest
    assert measured(undisturbed) == measured(here)


def test_epoch_that_leaves_edges_says_why_and_since_when(here: Here) -> None:
    end(here, "fail total 1 -", **AT_ONCE)

    epoch = here.epochs[1]

    assert UnalignedBy.TIMEOUT is epoch.unaligned_by
    assert epoch.opened_at < epoch.unaligned_at
    assert {"shares": 2} == Counter(part.operator_id for part in here.parts if part.epoch == 1)


def test_metrics_of_an_operator_that_is_skipped_are_those_of_its_epoch(here: Here, undisturbed: Here) -> None:
    end(here, "fail paced 1 -", **AT_ONCE)
    here.log()

    here.drive()

    assert 0 == here.log()["total 1 -"]
    assert undisturbed.epochs[1].metrics == here.epochs[1].metrics
    assert {"total", "pace"} == set(here.epochs[1].metrics)


# Operators that finish for good


def test_operator_that_finishes_for_good_goes_on_behind_its_finished_parts(here: Here, undisturbed: Here) -> None:
    end(here, "fail scaled - 3", **AT_ONCE)
    left, before = here.marked(NO_EPOCH), here.log()

    run = here.drive(parallelism=4, **AT_ONCE)

    ran = here.log()
    assert {"scaled": [(0, 2)]} == left
    assert {"scaled - 0", "scaled - 1", "scaled - 2", "scaled - 3"} == set(before) - {"pace - -"}
    assert [0, 0, 1, 1] == [ran[f"scaled - {bucket}"] for bucket in range(MAX_BUCKETS)]
    assert undisturbed.found.state_digest == run.state_digest


def test_operator_all_of_whose_parts_are_durable_needs_only_its_marker(here: Here, undisturbed: Here) -> None:
    """One on buckets, and one on the whole."""
    ran: Counter[str] = Counter()
    for place in ("operator_written", "operator_finished", "operator_written"):
        end(here, place, **AT_ONCE)
        ran += here.log()

    run = here.drive(**AT_ONCE)
    ran += here.log()

    assert {1} == {ran[line] for line in ("scaled - 0", "scaled - 3", "size - -")}
    assert undisturbed.found.state_digest == run.state_digest


# What is not captured


def test_operator_that_may_not_be_captured_holds_back_itself_and_everything_behind_it(
    store: PostgresStore, tmp_path: Path, undisturbed: Here
) -> None:
    here = Here.begin(store, tmp_path, uncaptured, epochs=EPOCHS)
    end(here, "fail drifted 1 3", **AT_ONCE)
    left, written = joined(here.marked(1)), operators_with_files(here, 1)
    here.log()

    run = here.drive(**AT_ONCE)

    ran = here.log()
    assert whole("shares") == left
    assert {"shares", "ranked", "drifted"} == written  # the latter two for the checkpoint, as far as they came
    assert (0, 1, 1, 1) == (ran["shares 1 0"], ran["total 1 -"], ran["ranked 1 0"], ran["paced 1 -"])
    assert undisturbed.found.state_digest == run.state_digest


def operators_with_files(here: Here, epoch: int) -> set[str]:
    """Return the operators whose output of an epoch was written, for an edge or a checkpoint."""
    return {path.parent.name for path in here.folder.glob(f"*/epoch-{epoch:06d}/*/*")}


def test_run_without_a_timeout_leaves_no_edges_and_writes_nothing_for_them(undisturbed: Here) -> None:
    assert () == undisturbed.store.list_parts(undisturbed.run.run_id)
    assert [None] * EPOCHS == [epoch.unaligned_by for epoch in undisturbed.epochs]
    assert {"ranked", "drifted", "paced"} == operators_with_files(undisturbed, 1)


# After a while


@pytest.mark.parametrize(
    ("failing", "edges"),
    [("total 1 -", {}), ("paced 1 -", whole("shares", "total", "ranked"))],
    ids=["before the time is over", "after it"],
)
def test_epoch_that_takes_longer_than_it_may_leaves_what_it_finished_and_a_shorter_one_nothing(
    here: Here, undisturbed: Here, failing: str, edges: dict[str, Ranges]
) -> None:
    """Every operator takes a second, and an epoch may take three."""
    options: dict[str, Any] = {"alignment_timeout_seconds": 3.0, "seconds": {1: 1.0}}
    end(here, f"fail {failing}", **options)
    left, switched = joined(here.marked(1)), here.epochs[1].unaligned_by
    here.log()

    run = here.drive(**options)

    ran = here.log()
    assert edges == left
    assert (UnalignedBy.TIMEOUT if edges else None) is switched
    assert [0 if name in edges else 1 for name in PER_EPOCH] == [
        ran[f"{name} 1 {'-' if name in WHOLE else 0}"] for name in PER_EPOCH
    ]
    assert undisturbed.found.state_digest == run.state_digest


def test_epoch_after_one_that_took_too_long_starts_aligned_again(here: Here) -> None:
    here.drive(alignment_timeout_seconds=3.0, seconds={1: 1.0})

    assert [None, UnalignedBy.TIMEOUT, None] == [epoch.unaligned_by for epoch in here.epochs]
    assert {1} == {part.epoch for part in here.parts}


def test_epoch_switches_on_time_while_nothing_finishes(here: Here, undisturbed: Here) -> None:
    """The operator that holds the epoch up is still running when what it computes from is durable."""
    here.order("hold", "total 1 -")
    with here.driving(alignment_timeout_seconds=3.0) as driving:
        try:
            wait_until((here.desk / "held").exists, "the operator to run")
            before = here.marked(1)
            here.clock.seconds += 3.0
            wait_until(lambda: here.marked(1), "the epoch to switch", timeout_seconds=DEADLINE_SECONDS)
            marked, switched = joined(here.marked(1)), here.epochs[1].unaligned_by
        finally:
            here.clear("hold")
        run = driving.result(DEADLINE_SECONDS)

    assert {} == before
    assert whole("shares") == marked
    assert UnalignedBy.TIMEOUT is switched
    assert undisturbed.found.state_digest == run.state_digest


# Whose variables are not durable


def test_nothing_is_marked_behind_an_epoch_that_is_not_durable(here: Here, undisturbed: Here) -> None:
    """What waits for it is lost with it: the marker of an operator that would have to run again is never committed."""
    latch = Latch()
    script = {"manifest_written@0": latch, "epoch_written@1": KILL}
    with here.driving(script=script, **AT_ONCE) as driving, latch:
        driving.exception(DEADLINE_SECONDS)
    marked, before = marked_lines(here), {part.epoch for part in here.parts if part.epoch != NO_EPOCH}
    switched = here.epochs[1].unaligned_by
    here.log()

    run = here.drive(**AT_ONCE)

    ran = here.log()
    assert ({0}, UnalignedBy.TIMEOUT) == (before, switched)
    assert set() == marked & set(ran)
    assert (0, 1) == (ran["shares 0 0"], ran["shares 1 0"])
    assert [] == [part for part in here.store.list_parts(run.run_id) if part.voided_at is not None]
    assert undisturbed.found.state_digest == run.state_digest


class KilledOnceCompleted(MortalCoordinator):
    """Is killed right after the commit that completes a checkpoint."""

    def apply(self, run_id: RunId, *events: Event, publish: Publish | None = None) -> RunState:
        """See Coordinator."""
        state = super().apply(run_id, *events, publish=publish)
        if any(isinstance(event, CheckpointAcknowledged) for event in events):
            self.kill()
        return state


@pytest.mark.parametrize("place", ["epoch_written@1", "waiting"], ids=["before it has aligned", "while it is held"])
def test_what_waits_for_the_epoch_before_is_marked_in_the_step_that_makes_that_one_durable(
    here: Here, undisturbed: Here, place: str
) -> None:
    """A kill right after that step finds all of it."""
    latch = Latch()
    script = {"manifest_written@0": latch, place: latch.open}
    error = here.drive_and_fail(script=script, coordinator_class=KilledOnceCompleted, **AT_ONCE)
    marked, durable = joined(here.marked(1)), here.found.last_durable_epoch
    here.log()

    run = here.drive(parallelism=4, **AT_ONCE)

    assert isinstance(error, Killed)
    assert (0, whole(*PER_EPOCH)) == (durable, marked)
    assert "1" not in here.epochs_that_ran
    assert undisturbed.found.state_digest == run.state_digest


def test_what_is_noted_while_the_epoch_before_becomes_durable_is_marked_too(here: Here, undisturbed: Here) -> None:
    latch = Latch()
    script = {"manifest_written@0": latch, "epoch_written@1": KILL}
    here.order("hold", "ranked 1 2")
    with here.driving(script=script, **AT_ONCE) as driving:
        try:
            wait_until((here.desk / "held").exists, "the third bucket to be computed")
            before = here.marked(1)
            latch.open()
            wait_until(lambda: here.marked(1), "epoch 0 to be durable", timeout_seconds=DEADLINE_SECONDS)
            behind = joined(here.marked(1))
        finally:
            here.clear("hold")
        driving.exception(DEADLINE_SECONDS)
    marked = joined(here.marked(1))
    here.log()

    run = here.drive(**AT_ONCE)

    assert {} == before
    assert {**whole("shares", "total"), "ranked": [(0, 2)]} == behind
    assert whole(*PER_EPOCH) == marked
    assert undisturbed.found.state_digest == run.state_digest


def test_epoch_leaves_edges_only_behind_one_that_a_checkpoint_holds_or_is_about_to(
    store: PostgresStore, tmp_path: Path
) -> None:
    """Checkpoints hold epochs 1 and 3: who resumes after a kill in epoch 1 begins with epoch 0."""
    here = Here.begin(store, tmp_path, steered, epochs=5)

    here.drive(every_epochs=2, **AT_ONCE)

    parts = here.store.list_parts(here.run.run_id)
    assert {NO_EPOCH, 0, 2, 4} == {part.epoch for part in parts}
    assert {"ranked", "drifted", "paced"} >= {path.parent.name for path in here.folder.glob("*/epoch-000001/*/*")}


def test_edges_of_the_epoch_after_the_last_durable_one_outlive_epochs_that_aligned_after_it(
    store: PostgresStore, tmp_path: Path
) -> None:
    """With a checkpoint every second epoch, a kill in epoch 3 leaves epoch 2 to be read back, and 3 to be run."""
    undisturbed, here = (Here.begin(store, tmp_path, steered, epochs=5) for _ in range(2))
    expected = undisturbed.drive().state_digest
    end(here, "fail total 3 -", every_epochs=2, **AT_ONCE)
    here.log()

    run = here.drive(every_epochs=2, **AT_ONCE)

    assert {"3", "4"} == here.epochs_that_ran
    assert expected == run.state_digest


def test_first_values_of_variables_are_not_computed_again_where_an_operator_is_kept_that_saw_them(here: Here) -> None:
    """They come from undeterministic bodies: computed again, they would be others than those that `total` saw."""
    (here.desk / "salt").write_text("0.25")
    end(here, "fail paced 0 -", **AT_ONCE)
    first = here.log()
    (here.desk / "salt").write_text("0.75")

    here.drive(until_epoch=1, **AT_ONCE)

    again = here.log()
    assert 1 == first["pace - -"]
    assert {"paced 0 -", "going 0 -"} | {f"drifted 0 {bucket}" for bucket in range(MAX_BUCKETS)} == set(again)
    total, pace = (here.epochs[0].metrics[name] for name in ("total", "pace"))
    assert (0.5 + 0.25) * (1.0 + 0.01 * total) + 0.75 == pytest.approx(pace)


@pytest.mark.parametrize(
    ("place", "epoch", "operator_id"),
    [
        ("fail ranked 1 2", 1, "total"),
        ("fail ranked 1 2", 1, "ranked"),
        ("fail total 0 -", 0, "ranks"),
        ("fail scaled - 3", NO_EPOCH, "scaled"),
    ],
    ids=["whole", "in part", "first values", "for good"],
)
def test_edge_whose_file_is_gone_is_an_error_that_names_the_file_and_the_way_out(
    here: Here, undisturbed: Here, place: str, epoch: int, operator_id: str
) -> None:
    """What is marked is never computed again in silence; a person may say that it is."""
    end(here, place, **AT_ONCE)
    part = next(part for part in here.parts if (part.epoch, part.operator_id) == (epoch, operator_id))
    path = part.output["files"][0]["path"]
    (here.folder / path).unlink()

    error = here.drive_and_fail(**AT_ONCE)
    run = here.drive(ignore_edges=True, **AT_ONCE)

    assert isinstance(error, StateCorruptedError)
    assert path in str(error)
    assert str(error).endswith("compute anew what is durable inside the open epoch with --ignore-edges")
    assert undisturbed.found.state_digest == run.state_digest


def test_operator_that_fails_is_the_error_that_is_shown(here: Here) -> None:
    error = end(here, "fail ranked 1 2", **AT_ONCE)

    assert isinstance(error, OperatorFailedError)
    assert "told to fail: ranked 1 2" in str(error)
    assert (RunStatus.FAILED, str(error)) == (here.found.status, here.found.failure)
    assert FailedOperator(operator_id="ranked", epoch=1) == here.store.list_attempts(here.run.run_id)[-1].failed


def test_operator_that_fails_before_the_first_epoch_failed_in_none(here: Here) -> None:
    end(here, "fail scaled - 2", **AT_ONCE)

    assert FailedOperator(operator_id="scaled", epoch=NO_EPOCH) == here.store.list_attempts(here.run.run_id)[-1].failed


# In a process of its own


def test_process_killed_inside_an_operator_resumes_behind_the_parts_that_it_has_marked(
    store_url: str, tmp_path: Path, undisturbed: Here
) -> None:
    shell = CommandLine(store_url=store_url, folder=tmp_path)
    options = ("--param", f"desk={tmp_path}", "--param", f"epochs={EPOCHS}", "--max-buckets", str(MAX_BUCKETS))
    environment = {CHECKPOINTING_VARIABLE: json.dumps(AT_ONCE)}
    (tmp_path / "hold").write_text("shares 1 2")

    process = shell.start(REFERENCE, "killed", *options, **environment)
    wait_until((tmp_path / "held").exists, "the operator to be held")
    killed = dataclasses.replace(undisturbed, run=undisturbed.store.find_run("killed"))
    wait_until(lambda: joined(killed.marked(1)).get("shares") == [(0, 2)], "two of the buckets to be marked")
    process.kill()
    process.wait(DEADLINE_SECONDS)
    (tmp_path / "hold").unlink()
    (tmp_path / "log").write_text("")
    resumed = shell.run(REFERENCE, "killed", *options, **environment)

    again = set((tmp_path / "log").read_text().splitlines())
    assert (0, undisturbed.found.state_digest) == (resumed.code, resumed.json["state_digest"]), resumed.err
    assert {"shares 1 2", "shares 1 3"} == {line for line in again if line.startswith("shares 1")}
