"""What does a branch take over, and what is refused, where its parameters are others than its origin's?"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest

from iteration_lib.branching import BranchRequest, branch_run
from iteration_lib.clock import SystemClock
from iteration_lib.config import Settings
from iteration_lib.coordinator import Coordinator
from iteration_lib.driver.restore import read_manifest
from iteration_lib.engine import Engine, EngineKind
from iteration_lib.errors import IllegalBranchError, ParameterError, RunNotFoundError, StateLocationError, UsageError
from iteration_lib.launch import Drive, drive_run, read_outputs
from iteration_lib.model.definition import describe
from iteration_lib.model.iteration import Iteration
from iteration_lib.planning.plan import plan_run
from iteration_lib.process import this_holder
from iteration_lib.protocol.event import RunDeleted
from iteration_lib.runner.pins import pinned_from_json
from iteration_lib.savepoint import open_savepoint
from iteration_lib.saving import save_run
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import SavedStream
from iteration_lib.store.memory import MemoryStore
from iteration_lib.store.record import BranchRecord, RunRecord
from iteration_lib.store.seam import StoreWithHistory
from iteration_lib.verification import verify_run
from tests import locked_store
from tests.driven_here import Here
from tests.driven_in_memory import KEY, MODULE, SOURCE, InMemory
from tests.iterations.drawn import by_spark, drawn
from tests.overtaken_store import Overtaken
from tests.store_script import a_run, an_origin


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(SystemClock())


def origin_of(store: MemoryStore, folder: Path, iteration: Iteration, **params: object) -> RunRecord:
    """Return a run of two durable epochs, by its rows alone."""
    run = a_run(
        reference=f"tests.iterations.drawn:{iteration.name}",
        definition=describe(iteration.graph()),
        params={"desk": "d", "scale": 1.0, "max_epochs": 3, **params},
        state_uri=str(folder),
    )
    an_origin(store, run, epoch=1)
    found = store.find_run(run.run_id)
    assert found is not None
    return found


def branched(
    store: MemoryStore, run: RunRecord, params: Mapping[str, object], **request: Any
) -> tuple[RunRecord, BranchRecord]:
    asked = BranchRequest(
        checkpoint=f"{run.run_key}@1", run_key=f"{run.run_key}-b", branched_by="ann", params=params, **request
    )
    branch = branch_run(store, Settings(store_url=None, state_uri=run.state_uri), asked)
    found = store.find_branch(branch.run_id)
    assert found is not None
    return branch, found


@pytest.mark.parametrize(
    ("params", "request_", "level"),
    [
        ({"scale": 100}, {}, 2.5 + 2 * 250.0),
        ({"scale": 100}, {"data": "kept"}, 3 * 2.5),
        ({"max_epochs": 4}, {}, 4 * 2.5),
        ({}, {"data": "new"}, 3 * 2.5),
    ],
    ids=["other rows", "other rows, kept", "other rows or not, longer", "the same, read anew"],
)
def test_rows_that_take_a_parameter_are_those_of_the_branchs_parameters(
    store: MemoryStore, tmp_path: Path, params: dict[str, object], request_: dict[str, Any], level: float
) -> None:
    """And so is what an operator finished for good from them."""
    here = Here.begin(store, tmp_path, drawn)
    here.drive()

    run, _ = branched(store, here.found, params, **request_)
    branch = replace(here, run=run)
    branch.drive()

    folder = Path(next(iter((branch.found.outputs or {}).values())))
    assert [level] == pq.read_table(folder)["v"].to_pylist()
    assert [] == [file for file in verify_run(store, branch.found) if file.problem is not None]


def test_stream_that_reads_by_spark_is_asked_about_where_its_parameters_are_others(
    store: MemoryStore, tmp_path: Path
) -> None:
    run = origin_of(store, tmp_path, by_spark)

    with pytest.raises(IllegalBranchError) as caught:
        branched(store, run, {"scale": 7})

    assert (
        (
            "data stream 'table' reads by Spark and takes parameters, which are others now; say whether it reads anew "
            "(--new-data, in Airflow start_data: new) or what the origin read (--keep-data, start_data: kept)"
        ),
        "data stream 'seed_rows' comes once, in epoch 0: no epoch of a branch would see it anew",
    ) == caught.value.reasons


def test_longer_run_is_not_asked_about_what_it_reads(store: MemoryStore, tmp_path: Path) -> None:
    _, branch = branched(store, origin_of(store, tmp_path, by_spark), {"max_epochs": 9})

    assert ("seed_rows", "table") == branch.keeps


def test_what_comes_once_is_kept_when_a_person_says_so(store: MemoryStore, tmp_path: Path) -> None:
    run = origin_of(store, tmp_path, by_spark)

    _, branch = branched(store, run, {"scale": 7}, data="kept")

    assert ("seed_rows", "table") == branch.keeps


def test_branch_keeps_no_data_where_a_person_wants_it_read_anew(store: MemoryStore, tmp_path: Path) -> None:
    run = origin_of(store, tmp_path, drawn)

    _, branch = branched(store, run, {}, data="new")

    assert () == branch.keeps


def test_parameters_that_the_iteration_has_no_more_are_left_out_and_new_ones_can_be_given(
    store: MemoryStore, tmp_path: Path
) -> None:
    run = origin_of(store, tmp_path, drawn, gone=5)
    old = replace(run, params={name: value for name, value in run.params.items() if name != "desk"})
    store._runs[run.run_id].run["params"] = dict(old.params)

    with pytest.raises(ParameterError, match="desk"):
        branched(store, old, {})
    branch, _ = branched(store, old, {"desk": "e"})

    assert {"desk": "e", "scale": 1.0, "max_epochs": 3} == branch.params


EXTRA = """

@planned.map_buckets(finishes=True)
def extra(points):
    return {{"at": points["x"] * {factor}}}


@planned.operator
def probe(extra):
    return {{"total": extra["at"].sum(keepdims=True)}}


planned.output(probe=probe)
"""
COUNT = """

@planned.operator(state="carry")
def count(moved, state):
    return moved, moved


planned.output(count=count)
"""
LONG = SOURCE.replace("max_epochs: int = 3", "max_epochs: int = 5")


@pytest.fixture
def twice_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InMemory:
    """A run whose finishing operator `extra` was dropped after epoch 1, and is back since epoch 3 with other code."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    bench = InMemory.begin(tmp_path, LONG + EXTRA.format(factor=10.0))
    bench.drive(until_epoch=2)
    bench.write_iteration(LONG)
    bench.drive(until_epoch=3, allow_dropped_state=True)
    bench.write_iteration(LONG + EXTRA.format(factor=1000.0))
    bench.drive()
    return bench


@pytest.mark.parametrize("checkpoint_id", [2, 3, 4])
@pytest.mark.parametrize("from_savepoint", [False, True], ids=["the run", "a savepoint"])
def test_output_that_other_code_finished_with_is_computed_anew(
    twice_added: InMemory,
    checkpoint_id: int,
    from_savepoint: bool,  # noqa: FBT001 - a case
) -> None:
    """The checkpoint of then holds what the code of then left, though the code of now is the same as the run's."""
    store, folder = twice_added.store, twice_added.folder / "saved"
    origin = f"{twice_added.run.run_key}@{checkpoint_id}"
    if from_savepoint:
        save_run(store, twice_added.run, uri=str(folder), checkpoint_id=checkpoint_id)
        origin = str(folder)
    settings = Settings(store_url=None, state_uri=str(twice_added.folder / "state"))

    made = branch_run(store, settings, BranchRequest(checkpoint=origin, run_key="again", branched_by="ann"))
    drive = Drive(holder=this_holder(), open_runner=Engine(kind=EngineKind.LOCAL).open_runner, parallelism=2)
    branch = drive_run(store, settings, made, drive)

    assert [{"total": 28000.0}] == read_outputs(store, branch)["probe"].to_pylist()
    assert twice_added.run.state_digest == branch.state_digest


def test_output_that_other_code_finished_with_may_be_bad(twice_added: InMemory) -> None:
    """Nobody takes it over: neither is the plan refused because of it, nor the attempt."""
    store, run = twice_added.store, twice_added.run
    settings = Settings(store_url=None, state_uri=str(twice_added.folder / "state"))
    made = branch_run(store, settings, BranchRequest(checkpoint=f"{run.run_key}@2", run_key="again", branched_by="ann"))
    old = read_manifest(StateLocation(run.state_uri).below(run.run_id), store.list_checkpoints(run.run_id)[1])
    for file in old.finished["extra"].files:
        Path(run.state_uri, run.run_id, file.path).write_bytes(b"nonsense")

    planned = plan_run(store, made)
    drive = Drive(holder=this_holder(), open_runner=Engine(kind=EngineKind.LOCAL).open_runner, parallelism=2)
    branch = drive_run(store, settings, made, drive)

    assert () == planned.refusals
    assert [{"total": 28000.0}] == read_outputs(store, branch)["probe"].to_pylist()


def test_savepoint_holds_what_operators_have_finished_with_as_far_as_the_run_still_takes_it(
    twice_added: InMemory,
) -> None:
    store, run = twice_added.store, twice_added.run

    saved = [save_run(store, run, checkpoint_id=number).savepoint for number in (2, 4)]

    assert [["scaled"], ["extra", "scaled"]] == [sorted(known.manifest.finished) for known in saved]
    assert all(open_savepoint(known.location.uri) == known for known in saved)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InMemory:
    """A run with a durable epoch."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    bench = InMemory.begin(tmp_path)
    bench.drive(until_epoch=1)
    return bench


def test_savepoint_has_the_definition_of_now_though_the_run_was_read_before(
    bench: InMemory,
) -> None:
    """Whoever waits for a checkpoint has read the run before it: another attempt may run other code since."""
    read_before = bench.run
    bench.write_iteration(SOURCE + EXTRA.format(factor=10.0))
    bench.drive(until_epoch=2)

    saved = save_run(bench.store, read_before).savepoint

    assert read_before.definition != bench.run.definition
    assert bench.run.definition == saved.definition
    assert ["extra", "scaled"] == sorted(saved.manifest.finished)


@pytest.mark.parametrize("then", ["", COUNT], ids=["whose manifest nobody reads", "whose manifest is read"])
def test_newest_checkpoint_is_looked_for_again_where_retention_lets_it_go_while_it_is_branched(
    bench: InMemory, then: str
) -> None:
    bench.write_iteration(SOURCE + then)

    made = branched_meanwhile(bench, KEY)

    branch = bench.store.find_branch(made.run_id)
    assert branch is not None
    assert 2 == branch.origin_checkpoint_id


@pytest.mark.parametrize("then", ["", COUNT], ids=["whose manifest nobody reads", "whose manifest is read"])
def test_branch_of_a_checkpoint_that_retention_lets_go_meanwhile_is_told_which_ones_there_are(
    bench: InMemory, then: str
) -> None:
    bench.write_iteration(SOURCE + then)

    with pytest.raises(UsageError) as caught:
        branched_meanwhile(bench, f"{KEY}@1")

    assert f"run {KEY!r} has no such checkpoint; it has: 2 (epoch 1)" == str(caught.value)


def test_branch_that_is_asked_for_again_is_the_answer_where_its_origin_was_deleted_and_is_named_by_its_id(
    bench: InMemory,
) -> None:
    settings = Settings(store_url=None, state_uri=str(bench.folder / "state"))
    by_key = BranchRequest(checkpoint=f"{KEY}@1", run_key="again", branched_by="ann")
    by_id = replace(by_key, checkpoint=f"{bench.run.run_id}@1")
    made = branch_run(bench.store, settings, by_key)
    Coordinator(bench.store).apply(bench.run.run_id, RunDeleted(deleted_by="ann"))

    again = branch_run(bench.store, settings, by_id)

    assert made.run_id == again.run_id
    with pytest.raises(RunNotFoundError, match=f"no run has the id or the key '{KEY}';"):
        branch_run(bench.store, settings, by_key)


def branched_meanwhile(bench: InMemory, checkpoint: str) -> RunRecord:
    """Branch a run that goes on when its checkpoint has been found, and keeps its newest one alone."""
    store = Overtaken(
        bench.store, "list_operators", lambda: bench.drive(until_epoch=2, checkpointing={"retain_last": 1})
    )
    settings = Settings(store_url=None, state_uri=str(bench.folder / "state"))
    request = BranchRequest(checkpoint=checkpoint, run_key="again", branched_by="ann")
    return branch_run(cast("StoreWithHistory", store), settings, request)


def test_checkpoint_is_saved_again_beside_its_first_savepoint_where_the_run_has_other_code_since(
    bench: InMemory,
) -> None:
    first = [save_run(bench.store, bench.run) for _ in range(2)]
    bench.write_iteration(SOURCE + EXTRA.format(factor=10.0))
    bench.drive_until_broken()

    second = [save_run(bench.store, bench.run) for _ in range(2)]

    assert [1] * 4 == [known.checkpoint.checkpoint_id for known in (*first, *second)]
    assert first[0] == first[1]
    assert second[0] == second[1]
    kept, made = first[0].savepoint, second[0].savepoint
    assert {kept.location.uri, made.location.uri} == {
        str(path) for path in (bench.folder / "state/savepoints").iterdir()
    }
    assert [kept, made] == [open_savepoint(known.location.uri) for known in (kept, made)]
    assert kept.definition != made.definition


def test_folder_of_a_savepoint_may_be_called_as_a_checkpoint_of_a_run_would_be(twice_added: InMemory) -> None:
    """By day, say. No run has the name before the @."""
    store, run, folder = twice_added.store, twice_added.run, twice_added.folder
    settings = Settings(store_url=None, state_uri=str(folder / "state"))
    uri = str(folder / "kept@2")
    save_run(store, run, uri=uri, checkpoint_id=3)

    made = branch_run(store, settings, BranchRequest(checkpoint=uri, run_key="b", branched_by="ann"))

    branch = store.find_branch(made.run_id)
    assert branch is not None
    assert (uri, None, 2) == (branch.uri, branch.origin_run_id, branch.epoch)
    with pytest.raises(RunNotFoundError, match=r"no run has the id or the key 'kept';"):
        branch_run(store, settings, BranchRequest(checkpoint="kept@2", run_key="c", branched_by="ann"))


def test_savepoint_that_cannot_be_read_is_not_taken_for_none(twice_added: InMemory) -> None:
    """Whoever is asked for it may try again, and has to see to the credentials."""
    request = BranchRequest(
        checkpoint=f"{locked_store.LockedFileSystem.protocol[0]}://desk/kept", run_key="b", branched_by="ann"
    )
    settings = Settings(store_url=None, state_uri=str(twice_added.folder / "state"))

    with pytest.raises(StateLocationError, match="unable to locate credentials") as caught:
        branch_run(twice_added.store, settings, request)

    assert caught.value.is_passing


def test_branch_of_a_branch_names_its_copies_as_shortly_as_the_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many generations there are: a store of objects and a file system bound the length of a name."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    bench = InMemory.begin(tmp_path)
    bench.drive()
    settings = Settings(store_url=None, state_uri=str(tmp_path / "state"))
    drive = Drive(holder=this_holder(), open_runner=Engine(kind=EngineKind.LOCAL).open_runner, parallelism=2)
    paths: list[list[str]] = []

    for generation in range(1, 4):
        asked = BranchRequest(
            checkpoint=bench.run.run_key if generation == 1 else f"child-{generation - 1}",
            run_key=f"child-{generation}",
            branched_by="ann",
            params={"max_epochs": 3 + generation},
        )
        branch = drive_run(bench.store, settings, branch_run(bench.store, settings, asked), drive)
        paths.append(sorted(path for path in kept_paths(bench.store, branch) if "/origin/" in path))
        assert [] == [file for file in verify_run(bench.store, branch) if file.problem is not None]

    assert [3, 3, 3] == [len(found) for found in paths]  # of the stream `made`, and both parts of `scaled`
    behind = [[path.split("/", 2)[2] for path in found] for found in paths]
    assert [behind[0]] * 3 == behind


def kept_paths(store: MemoryStore, run: RunRecord) -> set[str]:
    """Return the files in a run's own folder that it has computed, or taken over, once and for all."""
    pinned = {file.path for pin in store.list_pins(run.run_id) for file in pinned_from_json(pin.pin).files}
    outputs = [SavedStream.from_json(known.output) for known in store.list_operators(run.run_id) if known.output]
    return pinned | {file.path for output in outputs for file in output.files}
