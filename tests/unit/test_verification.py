"""Are the files of a run still the bytes that were written? All of them, whatever is wrong with the first."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from iteration_lib.branching import BranchRequest, branch_run
from iteration_lib.config import Settings
from iteration_lib.coordinator import Coordinator
from iteration_lib.engine import Engine, EngineKind
from iteration_lib.errors import CheckpointNotFoundError, StateCorruptedError, UsageError
from iteration_lib.launch import Drive, drive_run
from iteration_lib.process import this_holder
from iteration_lib.runner.pins import pinned_from_json
from iteration_lib.saving import save_run
from iteration_lib.verification import CheckedFile, verify_run
from tests.driven_in_memory import SOURCE, InMemory
from tests.overtaken_store import Overtaken
from tests.protocol_script import Sender, aborts, claim

LOCAL = Engine(kind=EngineKind.LOCAL)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InMemory:
    """A run that nobody has driven yet."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return InMemory.begin(tmp_path)


@pytest.fixture
def finished(bench: InMemory) -> InMemory:
    """A run of three epochs, driven to its end."""
    bench.drive()
    return bench


def verify(bench: InMemory, *, checkpoint_id: int | None = None) -> tuple[CheckedFile, ...]:
    return verify_run(bench.store, bench.run, checkpoint_id=checkpoint_id)


def bad(bench: InMemory, *, checkpoint_id: int | None = None) -> dict[str, tuple[str, str | None]]:
    """Return the bad files: whose each is, and what is wrong with it."""
    files = verify(bench, checkpoint_id=checkpoint_id)
    return {file.path: (file.owner, file.problem) for file in files if file.problem is not None}


def spoil(path: Path) -> str:
    """Change one byte of a file, and return what is said of it."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    return "has the SHA-256 "


def cut(path: Path) -> str:
    """Take a file's last byte, and return what is said of it."""
    path.write_bytes(path.read_bytes()[:-1])
    return "has "


def remove(path: Path) -> str:
    """Remove a file, and return what is said of it."""
    path.unlink()
    return "is missing"


def test_every_file_of_a_run_is_verified_once_and_found_good(finished: InMemory) -> None:
    """Only what a pointer leads to: what edges of durable epochs left beside it is nobody's any more."""
    files = verify(finished)

    assert {} == bad(finished)
    named = [file.path for file in files]
    assert len(set(named)) == len(named)
    assert {
        "operator 'scaled'",
        "data stream 'made'",
        "checkpoint 1",
        "checkpoint 2",
        "checkpoint 3",
        "outputs",
    } == {file.owner for file in files}
    manifests = {str(path.relative_to(finished.state)) for path in finished.state.glob("*/checkpoint-*.json")}
    assert 3 == len(manifests)
    assert {"outputs.json", *manifests} <= set(named)
    sizes = {file.path: (finished.state / file.path).stat().st_size for file in files}
    assert sizes == {file.path: file.size_bytes for file in files}


@pytest.mark.parametrize("harm", [spoil, cut, remove])
@pytest.mark.parametrize(
    ("owner", "pattern"),
    [
        ("operator 'scaled'", "*/finished/scaled/*"),
        ("data stream 'made'", "*/pins/made/*"),
        ("checkpoint 1", "*/epoch-000000/moved/*"),
        ("checkpoint 2", "*/checkpoint-000002.json"),
        ("outputs", "outputs/centre/*/*"),
        ("outputs", "outputs.json"),
    ],
)
def test_bad_file_is_named_with_what_is_wrong(
    finished: InMemory, owner: str, pattern: str, harm: Callable[[Path], str]
) -> None:
    path = min(finished.state.glob(pattern))

    said = harm(path)

    (found,) = bad(finished).items()
    assert (str(path.relative_to(finished.state)), owner) == (found[0], found[1][0])
    assert str(found[1][1]).startswith(said)


def test_every_bad_file_is_named(finished: InMemory) -> None:
    paths = [*finished.state.glob("*/finished/scaled/*"), *finished.state.glob("*/checkpoint-*.json")]
    for path in paths:
        spoil(path)

    assert {str(path.relative_to(finished.state)) for path in paths} == set(bad(finished))


def test_file_that_lies_among_the_published_ones_is_named(finished: InMemory) -> None:
    """Whoever reads the folder would read it too."""
    folder = next(finished.state.glob("outputs/centre/*"))
    (folder / "part-99999.parquet").write_bytes(b"PAR1")

    stray = str((folder / "part-99999.parquet").relative_to(finished.state))
    assert {stray: ("outputs", "lies among the published files, but was not published")} == bad(finished)


def test_pointer_to_other_outputs_is_named(finished: InMemory) -> None:
    pointer = finished.state / "outputs.json"
    pointer.write_text(json.dumps({**json.loads(pointer.read_text()), "epoch": 7}))

    assert ["outputs.json"] == list(bad(finished))


def test_outputs_that_are_not_those_of_the_run_are_named(finished: InMemory) -> None:
    """The store and the files were restored from different days, say."""
    other = dataclasses.replace(finished.run, state_digest="0" * 64)

    found = {file.path: file.problem for file in verify_run(finished.store, other) if file.problem is not None}

    assert ["outputs.json"] == list(found)
    assert f"but {'0' * 64} was published" in str(found["outputs.json"])


def test_run_that_has_not_published_yet_needs_no_pointer(bench: InMemory) -> None:
    bench.drive(publish=False)

    assert {} == bad(bench)
    assert "outputs" in {file.owner for file in verify(bench)}


def test_carried_state_is_verified(bench: InMemory) -> None:
    bench.write_iteration(SOURCE + SEEN)
    carrying = InMemory(bench.folder)
    carrying.open()
    carrying.drive()

    spoil(next(carrying.state.glob("*/epoch-000000/seen.state-next/*")))

    assert ["checkpoint 1"] == [owner for owner, _ in bad(carrying).values()]


SEEN = """

@planned.operator(state="carry")
def seen(sums, state):
    count = sums["sum"] if state is None else state["count"]
    return {"count": count}, {"count": count}
"""


def test_edges_in_force_are_verified(bench: InMemory) -> None:
    bench.drive_until_broken()
    path = min(bench.state.glob("*/epoch-000001/sums/*"))

    good, _ = bad(bench), spoil(path)

    assert ({}, ["edge of 'sums' of epoch 1, buckets 0 to 1"]) == (good, [owner for owner, _ in bad(bench).values()])


def test_edges_of_durable_epochs_are_not(finished: InMemory) -> None:
    for path in finished.state.glob("*/epoch-*/sums/*"):
        path.unlink()

    assert {} == bad(finished)


def test_one_checkpoint_is_verified_with_all_that_it_names(finished: InMemory) -> None:
    """Also with what the others name too; what they alone name is theirs."""
    spoil(next(finished.state.glob("*/epoch-000001/moved/*")))
    scaled = next(finished.state.glob("*/finished/scaled/*"))
    spoil(scaled)

    assert [str(scaled.relative_to(finished.state))] == list(bad(finished, checkpoint_id=1))
    assert 2 == len(bad(finished, checkpoint_id=2))


def test_checkpoint_that_is_not_there_is_refused(finished: InMemory) -> None:
    with pytest.raises(CheckpointNotFoundError, match="has no checkpoint 9; its checkpoints are 1 to 3"):
        verify(finished, checkpoint_id=9)


def test_checkpoint_without_files_is_refused_and_else_passed_over(bench: InMemory) -> None:
    bench.drive_until_broken()
    token = bench.run.fencing_token + 1
    driver = Sender(token, token)
    Coordinator(bench.store).apply(
        bench.run.run_id, claim(token), driver.opens(1), driver.reports(1), driver.triggers(1), aborts(2)
    )

    with pytest.raises(UsageError, match="checkpoint 2 is ABORTED: it has no files to verify"):
        verify(bench, checkpoint_id=2)

    assert {} == bad(bench)


def test_checkpoint_that_its_driver_discards_meanwhile_is_no_bad_one(bench: InMemory) -> None:
    bench.drive(until_epoch=1, checkpointing={"retain_last": 1})
    store = Overtaken(
        bench.store, "list_checkpoints", lambda: bench.drive(until_epoch=2, checkpointing={"retain_last": 1})
    )

    files = verify_run(store, bench.run)

    assert ["DISCARDED", "COMPLETED"] == [c.status.value for c in bench.store.list_checkpoints(bench.run.run_id)]
    assert [] == [file for file in files if file.problem is not None]


def test_edge_whose_epoch_becomes_durable_meanwhile_is_no_bad_one(bench: InMemory) -> None:
    bench.drive_until_broken()
    bench.mend()

    def go_on() -> None:
        bench.drive(until_epoch=2)
        for path in bench.state.glob("*/epoch-000001/sums/*"):
            path.unlink()

    assert [] == [f for f in verify_run(Overtaken(bench.store, "list_live_parts", go_on), bench.run) if f.problem]


def test_file_that_is_bad_is_named_whatever_its_driver_does_meanwhile(bench: InMemory) -> None:
    bench.drive(until_epoch=1)
    scaled = next(bench.state.glob("*/finished/scaled/*"))

    def go_on() -> None:
        bench.drive(publish=False)
        spoil(scaled)

    files = verify_run(Overtaken(bench.store, "list_checkpoints", go_on), bench.run)

    assert [str(scaled.relative_to(bench.state))] == [file.path for file in files if file.problem is not None]


def test_files_of_a_manifest_that_could_not_be_read_at_first_are_verified_all_the_same(bench: InMemory) -> None:
    bench.drive(until_epoch=1)
    manifest, scaled = next(bench.state.glob("*/checkpoint-000001.json")), next(bench.state.glob("*/finished/scaled/*"))
    whole = frozenset(file.path for file in verify_run(bench.store, bench.run, checkpoint_id=1))
    spoil(scaled)
    manifest.rename(manifest.with_suffix(".away"))
    store = Overtaken(
        bench.store, "list_checkpoints", lambda: manifest.with_suffix(".away").rename(manifest), answers=2
    )

    files = verify_run(store, bench.run, checkpoint_id=1)

    assert [str(scaled.relative_to(bench.state))] == [file.path for file in files if file.problem is not None]
    assert whole == {file.path for file in files}


def test_one_checkpoint_that_is_discarded_meanwhile_is_refused(bench: InMemory) -> None:
    bench.drive(until_epoch=1, checkpointing={"retain_last": 1})
    store = Overtaken(
        bench.store, "list_checkpoints", lambda: bench.drive(until_epoch=2, checkpointing={"retain_last": 1})
    )

    with pytest.raises(UsageError, match="checkpoint 1 is DISCARDED: it has no files to verify"):
        verify_run(store, bench.run, checkpoint_id=1)


def test_verifying_changes_nothing(finished: InMemory) -> None:
    spoil(next(finished.state.glob("*/finished/scaled/*")))
    before = finished.all_files()

    verify(finished)

    assert before == finished.all_files()


@pytest.mark.parametrize("from_savepoint", [False, True], ids=["of the run", "of a savepoint"])
def test_input_that_a_branch_has_not_copied_yet_is_verified_where_it_lies(
    finished: InMemory,
    from_savepoint: bool,  # noqa: FBT001 - a case
) -> None:
    """Its first attempt copies it, and fails on a bad file."""
    (pin,) = [pin for pin in finished.store.list_pins(finished.run.run_id) if pin.name == "made"]
    (copied,) = pinned_from_json(pin.pin).files
    saved = save_run(finished.store, finished.run, checkpoint_id=1).savepoint.location
    folder = Path(saved.uri) if from_savepoint else finished.state
    asked = BranchRequest(
        checkpoint=saved.uri if from_savepoint else "planned@1", run_key="branch", branched_by="ann", data="kept"
    )
    settings = Settings(store_url=None, state_uri=str(finished.folder / "state"))
    branch = branch_run(finished.store, settings, asked)
    whole = [file for file in verify_run(finished.store, branch) if file.problem is not None]

    said = spoil(folder / copied.path)
    bad = [file for file in verify_run(finished.store, branch) if file.problem is not None]

    assert [] == whole
    assert [("origin, data stream 'made'", str(folder / copied.path))] == [(file.owner, file.path) for file in bad]
    assert str(bad[0].problem).startswith(said)
    with pytest.raises(StateCorruptedError, match=re.escape(copied.path)):
        drive_run(
            finished.store, settings, branch, Drive(holder=this_holder(), open_runner=LOCAL.open_runner, parallelism=2)
        )


def test_input_that_a_branch_reads_anew_is_not_verified_at_its_origin(finished: InMemory) -> None:
    settings = Settings(store_url=None, state_uri=str(finished.folder / "state"))
    asked = BranchRequest(checkpoint="planned@1", run_key="branch", branched_by="ann", data="new")
    branch = branch_run(finished.store, settings, asked)

    owners = {file.owner for file in verify_run(finished.store, branch)}

    assert {"origin"} == owners
