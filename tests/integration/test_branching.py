"""What becomes of a run that starts from another one's checkpoint? On a real store, with real files."""

from __future__ import annotations

import shutil
from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iteration_lib.branching import BranchRequest, branch_run
from iteration_lib.config import Settings
from iteration_lib.continuation import read_continuation
from iteration_lib.coordinator import Coordinator
from iteration_lib.crash_point import CrashPoint
from iteration_lib.driver.background import Job
from iteration_lib.driver.restore import read_completed_manifest
from iteration_lib.errors import IllegalBranchError, RunMismatchError, RunNotFoundError, StateCorruptedError, UsageError
from iteration_lib.explanation import explain_run, read_history
from iteration_lib.garbage import collect_garbage
from iteration_lib.lineage import lineage_of
from iteration_lib.planning import plan_run
from iteration_lib.protocol.event import RunDeleted
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.resume import Action
from iteration_lib.protocol.status import CheckpointStatus, RestoreMode, RunStatus
from iteration_lib.runner.pins import pinned_from_json
from iteration_lib.savepoint import Savepoint, write_savepoint
from iteration_lib.saving import save_run
from iteration_lib.state.location import StateLocation
from iteration_lib.store.postgres import PostgresStore
from iteration_lib.verification import verify_run
from tests.driven_here import DEADLINE_SECONDS, KILL, Here, Killed, Latch
from tests.iterations.steered import steered, wired

pytestmark = pytest.mark.postgres

EPOCHS = 4  # 0 to 3, each with its checkpoint 1 to 4
ONCE = ("scaled", "size")  # what finishes for good


@pytest.fixture
def origin(store: PostgresStore, tmp_path: Path) -> Here:
    """A finished run of four epochs."""
    here = Here.begin(store, tmp_path, steered)
    here.drive()
    return here


def branched(here: Here, checkpoint_id: int, number: int = 0, **changes: object) -> Here:
    """Branch from a checkpoint of a run."""
    request = BranchRequest(
        checkpoint=f"{here.run.run_key}@{checkpoint_id}",
        run_key=f"{here.run.run_key}-{checkpoint_id}-{number}",
        branched_by="ann",
        **changes,  # type: ignore[arg-type]  # fields of a request
    )
    settings = Settings(store_url=None, state_uri=str(here.desk.parent / "elsewhere"))
    return replace(here, run=branch_run(here.store, settings, request))


def said(here: Here) -> list[str]:
    """Return which bodies have run since the log was looked at last."""
    log = here.desk / "log"
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return lines


def delete(here: Here) -> None:
    """Delete a run, and remove its files as far as nobody needs them."""
    coordinator = Coordinator(here.store)
    coordinator.apply(here.run.run_id, RunDeleted(deleted_by="ann"))
    collect(here)


def collect(here: Here) -> None:
    """Do what `iteration gc` does."""
    Coordinator(here.store).discard(here.run.run_id, CheckpointPolicy())
    collect_garbage(here.store, here.found, is_deleted=here.found.status is RunStatus.DELETED)


def problems(here: Here) -> list[str]:
    return [str(file.problem) for file in verify_run(here.store, here.found) if file.problem is not None]


@pytest.mark.parametrize("checkpoint_id", [1, 2, 3])
def test_branch_with_equal_parameters_comes_to_the_same_bits(origin: Here, checkpoint_id: int) -> None:
    """It runs the epochs behind its checkpoint, and nothing that was computed once and for all."""
    said(origin)

    branch = branched(origin, checkpoint_id)
    finished = branch.drive()

    assert origin.found.state_digest == finished.state_digest
    epochs = {int(line.split()[1]) for line in said(origin)}
    assert set(range(checkpoint_id, EPOCHS)) == epochs
    assert [] == problems(branch)


def test_branch_goes_on_from_a_finished_run_with_more_epochs(
    origin: Here, store: PostgresStore, tmp_path: Path
) -> None:
    longer = Here.begin(store, tmp_path / "longer", steered, epochs=6)
    longer.drive()

    branch = branched(origin, EPOCHS, params={"epochs": 6})

    assert longer.found.state_digest == branch.drive().state_digest
    assert [4, 5] == [epoch.epoch for epoch in branch.epochs]


def test_operator_that_takes_a_parameter_that_is_another_one_is_computed_anew(origin: Here) -> None:
    """As soon as anybody asks for it; the data stream, which takes none, is taken over."""
    said(origin)

    branch = branched(origin, 2, params={"seed": "9"})
    finished = branch.drive()

    assert origin.found.state_digest != finished.state_digest
    assert "scaled" in {line.split()[0] for line in said(origin)}
    found = branch.store.find_branch(branch.run.run_id)
    assert found is not None
    assert ("rows",) == found.keeps
    assert 9 == branch.found.params["seed"]


@pytest.mark.parametrize("point", [CrashPoint.ORIGIN_KEPT, CrashPoint.EPOCH_WRITTEN, CrashPoint.MANIFEST_WRITTEN])
def test_branch_that_is_killed_before_its_first_checkpoint_starts_from_its_origin_again(
    origin: Here, point: CrashPoint
) -> None:
    branch = branched(origin, 2)
    said(origin)

    ended = branch.drive_and_fail(script={point.value: KILL})
    pinned = branch.store.find_branch(branch.run.run_id)
    finished = branch.drive()

    assert isinstance(ended, Killed)
    assert pinned is not None
    assert pinned.released_at is None
    assert origin.found.state_digest == finished.state_digest
    assert set(ONCE).isdisjoint(line.split()[0] for line in said(origin))


def test_ten_branches_outlive_the_run_that_they_started_from(origin: Here) -> None:
    """Its run is deleted and collected while three have begun, three were killed and four have not begun."""
    branches = [branched(origin, 2, number) for number in range(10)]
    digest = origin.found.state_digest
    for branch in branches[:3]:
        branch.drive(until_epoch=3)
    for branch in branches[3:6]:
        branch.drive_and_fail(script={CrashPoint.EPOCH_WRITTEN.value: KILL})

    delete(origin)
    left = list(origin.folder.rglob("*.arrow"))
    for branch in branches:
        collect(branch)
        assert [] == problems(branch)
    ended = [branch.drive() for branch in branches]
    collect(origin)

    assert left
    assert [digest] * 10 == [run.state_digest for run in ended]
    assert [[]] * 10 == [problems(branch) for branch in branches]
    assert [] == [path for path in origin.folder.rglob("*") if path.is_file()]
    assert {CheckpointStatus.DISCARDED} == {known.status for known in origin.checkpoints}


def test_branch_on_an_object_store_outlives_the_run_that_it_started_from(
    store: PostgresStore, tmp_path: Path, s3: str
) -> None:
    """Its run is deleted and collected; the branch is killed before its first checkpoint, and collected, too."""
    origin = Here.begin(store, tmp_path, steered, state_uri=f"{s3}/state", epochs=2)
    digest = origin.drive().state_digest
    branch = branched(origin, 1, state_uri=f"{s3}/branches")

    delete(origin)
    left = files_of(origin)
    branch.drive_and_fail(script={CrashPoint.EPOCH_WRITTEN.value: KILL})
    collect(branch)
    found = problems(branch)
    run = branch.drive()
    for here in (origin, branch):
        collect(here)

    assert left
    assert ([], digest, []) == (found, run.state_digest, problems(branch))
    assert () == files_of(origin)
    assert {CheckpointStatus.DISCARDED} == {known.status for known in origin.checkpoints}


def files_of(here: Here) -> tuple[str, ...]:
    return StateLocation(here.run.state_uri).list_files(here.run.run_id)


def test_claimed_checkpoint_goes_once_its_branch_has_its_own(origin: Here) -> None:
    branch = branched(origin, 2, mode=RestoreMode.CLAIM)
    collect(origin)
    before = [known.status for known in origin.checkpoints][1]

    branch.drive(until_epoch=3)
    collect(origin)

    assert (CheckpointStatus.SUBSUMED, CheckpointStatus.DISCARDED) == (before, origin.checkpoints[1].status)
    assert [] == problems(origin)


def test_newest_checkpoint_of_a_run_is_not_claimed(origin: Here) -> None:
    with pytest.raises(IllegalBranchError) as caught:
        branched(origin, EPOCHS, mode=RestoreMode.CLAIM)

    assert (
        "it is the newest of its run, which needs it, so nobody can claim it; branch with --mode no-claim",
    ) == caught.value.reasons


def write_saved(origin: Here, path: Path) -> None:
    """Write a savepoint of a run's newest checkpoint into a folder."""
    folder = StateLocation(str(origin.folder))
    manifest = read_completed_manifest(origin.store, origin.found, folder)
    pins = {pin.name: pinned_from_json(pin.pin) for pin in origin.store.list_pins(origin.run.run_id)}
    saved = Savepoint(
        location=folder,
        manifest=manifest,
        definition=origin.found.definition,
        params=origin.found.params,
        pins=pins,
    )
    write_savepoint(saved, StateLocation(str(path)))


def test_branch_starts_from_a_savepoint_that_was_moved(origin: Here, tmp_path: Path) -> None:
    """Its run's folder is gone, and so is the place where the savepoint was written."""
    write_saved(origin, tmp_path / "saved")
    (tmp_path / "saved").rename(tmp_path / "moved")
    shutil.rmtree(origin.folder)
    request = BranchRequest(
        checkpoint=str(tmp_path / "moved"), run_key=f"{origin.run.run_key}-s", branched_by="ann", params={"epochs": 6}
    )

    run = branch_run(origin.store, Settings(store_url=None, state_uri=str(tmp_path / "new")), request)
    branch = replace(origin, run=run)
    finished = branch.drive()

    assert (RunStatus.FINISHED, 6) == (finished.status, finished.epochs)
    assert str(tmp_path / "new") == run.state_uri
    assert [] == problems(branch)


def test_file_of_a_savepoint_that_is_bad_is_the_refusal_that_the_attempt_would_give(
    origin: Here, tmp_path: Path
) -> None:
    write_saved(origin, tmp_path / "saved")
    request = BranchRequest(
        checkpoint=str(tmp_path / "saved"), run_key=f"{origin.run.run_key}-b", branched_by="ann", params={"epochs": 6}
    )
    run = branch_run(origin.store, Settings(store_url=None, state_uri=str(tmp_path / "new")), request)
    branch = replace(origin, run=run)
    broken = min(path for path in (tmp_path / "saved").glob("*/pins/**/*") if path.is_file())
    broken.write_bytes(b"nonsense")

    planned = plan_run(branch.store, branch.found)
    ended = branch.drive_and_fail()

    assert str(broken) in str(ended)
    assert (str(ended),) == planned.refusals


def test_asking_for_the_same_branch_again_gives_the_same_run_and_for_another_one_is_refused(origin: Here) -> None:
    branch = branched(origin, 2)

    again = branched(origin, 2)
    with pytest.raises(RunMismatchError) as caught:
        branched(origin, 2, params={"seed": 9})

    assert branch.run.run_id == again.run.run_id
    assert ("parameter 'seed' was 3, now 9",) == caught.value.differences


def test_claim_that_is_asked_for_again_is_answered_when_its_checkpoint_is_gone(origin: Here) -> None:
    branch = branched(origin, 2, mode=RestoreMode.CLAIM)
    branch.drive(until_epoch=3)
    collect(origin)

    again = branched(origin, 2, mode=RestoreMode.CLAIM)

    assert CheckpointStatus.DISCARDED == origin.checkpoints[1].status
    assert branch.run.run_id == again.run.run_id


def test_branch_from_the_newest_checkpoint_is_the_same_when_its_origin_has_gone_on(
    store: PostgresStore, tmp_path: Path
) -> None:
    begun = Here.begin(store, tmp_path, steered, epochs=EPOCHS)
    begun.drive(until_epoch=2)
    request = BranchRequest(checkpoint=begun.run.run_key, run_key=f"{begun.run.run_key}-b", branched_by="ann")
    settings = Settings(store_url=None, state_uri=str(tmp_path / "elsewhere"))
    branch = branch_run(store, settings, request)
    begun.drive()

    again = branch_run(store, settings, request)
    with pytest.raises(RunMismatchError) as caught:
        branch_run(store, settings, replace(request, epoch=EPOCHS - 1))

    assert branch.run_id == again.run_id
    assert "it did not start from this checkpoint" == caught.value.differences[0]


@pytest.mark.parametrize(
    ("name", "said_so", "kind"),
    [
        ("{key}@9", "has no such checkpoint; it has: 1 (epoch 0), 2 (epoch 1), 3 (epoch 2), 4 (epoch 3)", UsageError),
        ("nobody@1", "no run has the id or the key 'nobody'", RunNotFoundError),
        (
            "/no/such/folder",
            "no run has the id or the key '/no/such/folder', and it is no folder with a savepoint.json",
            RunNotFoundError,
        ),
    ],
)
def test_checkpoint_that_is_not_there_is_refused_by_name(
    origin: Here, name: str, said_so: str, kind: type[UsageError]
) -> None:
    request = BranchRequest(checkpoint=name.format(key=origin.run.run_key), run_key="never", branched_by="ann")

    with pytest.raises(kind) as caught:
        branch_run(origin.store, Settings(store_url=None, state_uri=str(origin.desk)), request)

    assert said_so in str(caught.value)
    assert None is origin.store.find_run("never")


def test_checkpoint_is_named_by_its_epoch_or_is_the_newest(origin: Here) -> None:
    requests = [
        BranchRequest(checkpoint=origin.run.run_key, run_key=f"{origin.run.run_key}-e", branched_by="ann", epoch=1),
        BranchRequest(checkpoint=origin.run.run_key, run_key=f"{origin.run.run_key}-n", branched_by="ann"),
    ]
    settings = Settings(store_url=None, state_uri=str(origin.desk))

    epochs = [branch_run(origin.store, settings, request).last_durable_epoch for request in requests]

    assert [1, 3] == epochs


def test_file_of_the_origin_that_is_not_what_was_written_is_named(origin: Here) -> None:
    branch = branched(origin, 2)
    manifest = read_completed_manifest(origin.store, origin.found, StateLocation(str(origin.folder)))
    broken = origin.folder / next(iter(manifest.finished.values())).files[0].path
    broken.write_bytes(b"nonsense")

    planned = plan_run(branch.store, branch.found)
    ended = branch.drive_and_fail()

    assert isinstance(ended, StateCorruptedError)
    assert str(broken) in str(ended)
    assert (str(ended),) == planned.refusals
    assert [f"has 8 bytes, but {next(iter(manifest.finished.values())).files[0].size_bytes} were written"] == problems(
        branch
    )


def test_plan_of_a_branch_names_the_checkpoint_that_it_begins_with(origin: Here) -> None:
    branch = branched(origin, 2)

    planned = plan_run(branch.store, branch.found)

    assert planned.checkpoint is not None
    assert (2, 1, origin.run.run_id, ()) == (
        planned.checkpoint.checkpoint_id,
        planned.checkpoint.epoch,
        planned.checkpoint.origin,
        planned.refusals,
    )
    assert planned.resume is not None
    assert 2 == planned.resume.epoch


def test_lineage_shows_every_relative_also_a_deleted_one(origin: Here) -> None:
    child = branched(origin, 2)
    child.drive(until_epoch=3)
    grandchild = branched(child, 1)
    sibling = branched(origin, 3)
    delete(origin)

    lineage = lineage_of(child.store, child.found)

    relatives = [origin, child, grandchild, sibling]
    assert [(here.run.run_id, depth) for here, depth in zip(relatives, (0, 1, 2, 1), strict=True)] == [
        (descent.run.run_id, descent.depth) for descent in lineage
    ]
    assert RunStatus.DELETED is lineage[0].run.status
    assert lineage == lineage_of(child.store, grandchild.found)


def test_policy_lets_old_checkpoints_go_as_the_run_goes_on(tmp_path: Path, origin: Here) -> None:
    here = Here.begin(origin.store, tmp_path / "keeps", steered)

    here.drive_to_rest(retain_last=2)

    assert origin.found.state_digest == here.found.state_digest
    assert_two_are_left(here)


def test_files_that_a_kill_between_the_row_and_the_removal_leaves_go_as_garbage(tmp_path: Path, origin: Here) -> None:
    """The third checkpoint, which is the second attempt's first, lets the first one go."""
    here, jobs = Here.begin(origin.store, tmp_path / "keeps", steered), list[Job]()
    here.drive_to_rest(until_epoch=2, retain_last=2)
    script = {
        CrashPoint.CHECKPOINTS_DISCARDED.value: KILL,
        "epoch_opened@3": lambda: wait(jobs, timeout=DEADLINE_SECONDS),
    }

    assert isinstance(here.drive_and_fail(jobs=jobs, retain_last=2, script=script), Killed)
    discarded = here.checkpoints[0]
    is_left = (here.folder / str(discarded.manifest_path)).exists()
    here.drive_to_rest(retain_last=2)
    collect(here)

    assert (CheckpointStatus.DISCARDED, True) == (discarded.status, is_left)
    assert origin.found.state_digest == here.found.state_digest
    assert_two_are_left(here)


def assert_two_are_left(here: Here) -> None:
    """Of four checkpoints, whose files and no others are there."""
    gone, kept = CheckpointStatus.DISCARDED, CheckpointStatus.SUBSUMED
    assert [gone, gone, kept, CheckpointStatus.COMPLETED] == [
        known.status for known in here.checkpoints if known.status is not CheckpointStatus.ABORTED
    ]
    assert [] == problems(here)
    named = {file.path for file in verify_run(here.store, here.found)}
    there = {str(path.relative_to(here.folder)) for path in here.folder.rglob("*") if path.is_file()}
    assert there == named


def test_removal_that_is_slow_is_the_only_one_and_what_goes_meanwhile_goes_behind_it(
    store: PostgresStore, tmp_path: Path
) -> None:
    here, removal = Here.begin(store, tmp_path, steered), Latch()

    script = {CrashPoint.CHECKPOINTS_DISCARDED.value: removal, "epoch_opened@1": removal.wait_for_arrival}
    with here.driving(retain_last=1, script=script) as driving, removal:
        driving.result(DEADLINE_SECONDS)
        before = [known.status for known in here.checkpoints]

    waits, gone, newest = CheckpointStatus.SUBSUMED, CheckpointStatus.DISCARDED, CheckpointStatus.COMPLETED
    assert [waits, waits, waits, newest] == before
    assert [gone, gone, gone, newest] == [known.status for known in here.checkpoints]
    assert [] == problems(here)


def test_attempt_that_was_superseded_discards_nothing_by_its_own_policy(store: PostgresStore, tmp_path: Path) -> None:
    """It stood still behind its checkpoint, as on a laptop that sleeps; the newer one keeps them all."""
    here, sleep, jobs = Here.begin(store, tmp_path, steered), Latch(), list[Job]()

    script = {"epoch_opened@1": lambda: wait(jobs, timeout=DEADLINE_SECONDS), "checkpoint_completed@1": sleep}
    with here.driving(until_epoch=2, retain_last=1, jobs=jobs, script=script) as driving, sleep:
        driving.result(DEADLINE_SECONDS)
        here.drive()

    kept = CheckpointStatus.SUBSUMED
    assert [kept, kept, kept, CheckpointStatus.COMPLETED] == [known.status for known in here.checkpoints]
    assert [] == problems(here)


def test_policy_keeps_the_best_by_a_metric(store: PostgresStore, tmp_path: Path) -> None:
    """`pace` grows in every epoch: the least is that of the first."""
    here = Here.begin(store, tmp_path, steered)

    here.drive_to_rest(retain_last=1, retain_best=1, retain_metric="pace")

    assert [1, 4] == kept(here)


def test_what_is_not_among_the_best_stays_for_a_branch_until_that_has_a_checkpoint_of_its_own(
    store: PostgresStore, tmp_path: Path
) -> None:
    """The policy keeps the first, which is the best, and the newest one; the branch starts from the second."""
    policy: dict[str, Any] = {"retain_last": 1, "retain_best": 1, "retain_metric": "pace"}
    here = Here.begin(store, tmp_path, steered)

    def may_go() -> tuple[int, ...]:
        return Coordinator(store).discardable(here.run.run_id, CheckpointPolicy(**policy))

    here.drive_to_rest(until_epoch=2, **policy)
    branch = branched(here, 2)
    here.drive_to_rest(until_epoch=3, **policy)
    pinned = kept(here), may_go()
    begun = branch.drive(until_epoch=3)
    released = kept(here), may_go()
    finished = here.drive_to_rest(**policy)

    assert (([1, 2, 3], ()), ([1, 2, 3], (2,)), [1, 4]) == (pinned, released, kept(here))
    assert (3, []) == (begun.epochs, problems(here))
    assert finished.state_digest == branch.drive().state_digest


def kept(here: Here) -> list[int]:
    """Return the checkpoints that were not let go."""
    return [known.checkpoint_id for known in here.checkpoints if known.status is not CheckpointStatus.DISCARDED]


def test_deleted_claim_that_never_had_a_checkpoint_leaves_its_origin_what_it_had(origin: Here) -> None:
    branch = branched(origin, 2, mode=RestoreMode.CLAIM)

    delete(branch)
    collect(origin)

    assert CheckpointStatus.SUBSUMED is origin.checkpoints[1].status
    assert [] == problems(origin)
    assert branched(origin, 2, 1).drive().state_digest == origin.found.state_digest


def test_operator_that_was_moved_before_the_first_attempt_does_not_get_what_its_origin_left(origin: Here) -> None:
    branch = branched(origin, 2)
    moved = wired("steered")
    operator = next(known for known in moved._operators if known.operator_id == "size")
    moved._operators[moved._operators.index(operator)] = replace(operator, inputs=("rows",))

    continuation = read_continuation(branch.store, branch.found, moved.graph())

    refusals = continuation.refusals(allow_dropped_state=False)
    said_so = "operator 'size' finished for good with the inputs scaled, now they are rows;"
    assert [said_so] == [known[: len(said_so)] for known in refusals if "finished for good" in known]


@pytest.mark.parametrize("from_savepoint", [False, True], ids=["the run", "a savepoint"])
def test_plan_of_a_branch_skips_what_it_takes_over_and_lists_its_pins(
    origin: Here,
    tmp_path: Path,
    from_savepoint: bool,  # noqa: FBT001 - a case
) -> None:
    branch = branched(origin, 2)
    if from_savepoint:
        save_run(origin.store, origin.found, uri=str(tmp_path / "saved"), checkpoint_id=2)
        key = f"{origin.run.run_key}-s"
        asked = BranchRequest(checkpoint=str(tmp_path / "saved"), run_key=key, branched_by="ann")
        settings = Settings(store_url=None, state_uri=str(tmp_path / "new"))
        branch = replace(origin, run=branch_run(origin.store, settings, asked))

    planned = plan_run(branch.store, branch.found)

    assert planned.resume is not None
    skipped = [s.vertex.operator_id for s in planned.resume.steps if s.action is Action.SKIPPED]
    assert (list(ONCE), [("rows", None)]) == (skipped, [(pin.name, pin.problem) for pin in planned.pins])


def test_explanation_of_a_deleted_run_says_who_deleted_it(origin: Here) -> None:
    delete(origin)

    because = str(explain_run(read_history(origin.store, origin.found))["because"])

    assert "it was deleted by ann" in because
    assert "still to be published" not in because


def test_checkpoint_that_is_named_twice_is_refused(origin: Here) -> None:
    with pytest.raises(UsageError, match="names a checkpoint already; give --epoch with a run's id or key alone"):
        branched(origin, 2, epoch=0)


def test_savepoint_is_not_claimed(origin: Here, tmp_path: Path) -> None:
    save_run(origin.store, origin.found, uri=str(tmp_path / "saved"), checkpoint_id=2)
    request = BranchRequest(
        checkpoint=str(tmp_path / "saved"), run_key="never", branched_by="ann", mode=RestoreMode.CLAIM
    )

    with pytest.raises(IllegalBranchError) as caught:
        branch_run(origin.store, Settings(store_url=None, state_uri=str(tmp_path)), request)

    assert ("it is a savepoint, which its owner alone removes; branch with --mode no-claim",) == caught.value.reasons


def test_savepoint_of_a_checkpoint_that_retention_let_go_is_of_the_newest_or_refused(
    origin: Here, tmp_path: Path
) -> None:
    Coordinator(origin.store).discard(origin.run.run_id, CheckpointPolicy(retain_last=1))

    newest = save_run(origin.store, origin.found, uri=str(tmp_path / "s"), checkpoint_id=2, or_newest=True)
    with pytest.raises(UsageError, match="has no such checkpoint, or has let it go; it has: 4"):
        save_run(origin.store, origin.found, uri=str(tmp_path / "t"), checkpoint_id=2)

    assert EPOCHS == newest.checkpoint.checkpoint_id
