"""Does garbage collection ever touch what somebody needs, and does it leave what nobody does?

Real runs of plain Python, collected at their crash points: by a process beside a live attempt, and after a kill.
"""

from __future__ import annotations

import random
import secrets
import sys
import threading
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iteration_lib.clock import SystemClock
from iteration_lib.coordinator import Coordinator
from iteration_lib.crash_point import CrashPoint
from iteration_lib.driver.attempt import attempt_folder
from iteration_lib.driver.background import Job
from iteration_lib.driver.context import Silent
from iteration_lib.errors import OperatorFailedError, StateCorruptedError
from iteration_lib.garbage import Collection, Fate, collect_garbage
from iteration_lib.garbage.judgement import writer_of
from iteration_lib.protocol.event import CheckpointRequested, RunDeleted
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.status import CheckpointKind, CheckpointStatus, RunStatus
from iteration_lib.runner.seam import Runner
from iteration_lib.state.files import write_bytes
from iteration_lib.state.location import StateLocation
from iteration_lib.store.memory import MemoryStore
from iteration_lib.store.record import RunRecord
from iteration_lib.store.seam import History, StoreWithHistory
from iteration_lib.verification import verify_run
from tests.driven_here import KILL, Here, Killed, Latch, Script, at_rest
from tests.driven_in_memory import MODULE, InMemory
from tests.failover.driven import wait_until
from tests.iterations.steered import steered, wired
from tests.kept_checkpoints import FreshRun
from tests.size import IS_NIGHTLY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPOCHS = 3
AT_ONCE: Mapping[str, Any] = {"alignment_timeout_seconds": 0.0}
P = CrashPoint
# What tests.driven_here reaches; the others lie in the launch, or need listeners.
NOT_PASSED = (P.ATTEMPT_OPENED, P.ORIGIN_KEPT, P.CHECKPOINTS_DISCARDED, P.LISTENER_CALLED, P.LISTENER_NOTIFIED)
POINTS = [point for point in P if point not in NOT_PASSED]
IN_EPOCHS = (
    *(P.EPOCH_OPENED, P.EDGE_MARKED, P.EPOCH_WRITTEN, P.EPOCH_ALIGNED, P.OUTPUTS_WRITTEN),
    *(P.MANIFEST_WRITTEN, P.CHECKPOINT_COMPLETED),
)
PLACES = [
    *(point.value for point in POINTS if point not in IN_EPOCHS),
    *(f"{point.value}@{epoch}" for epoch in range(EPOCHS) for point in IN_EPOCHS),
]


@pytest.fixture
def here(each_store: StoreWithHistory, tmp_path: Path) -> Here:
    return Here.begin(each_store, tmp_path, steered, epochs=EPOCHS)


@pytest.fixture
def in_memory(tmp_path: Path) -> Here:
    return Here.begin(MemoryStore(SystemClock()), tmp_path, steered, epochs=EPOCHS)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of what a run publishes that nothing happened to."""
    here = Here.begin(MemoryStore(SystemClock()), tmp_path_factory.mktemp("undisturbed"), steered, epochs=EPOCHS)
    return str(here.drive().state_digest)


def kill(here: Here, *places: str, script: Script = MappingProxyType({}), **options: Any) -> None:
    """Drive until the attempt is killed, or ends before; and wait until nothing of it writes any more."""
    jobs: list[Job] = []
    with suppress(Killed):
        here.drive(script={**script, **dict.fromkeys(places, KILL)}, jobs=jobs, **options)
    at_rest(jobs)


def collect(here: Here, **options: Any) -> Collection:
    return collect_garbage(here.store, here.found, **options)


def fates(collection: Collection) -> set[Fate]:
    return {file.fate for file in collection.files}


def files(here: Here) -> dict[str, bytes]:
    """Return the files of the run, and what is in them."""
    found = (path for path in here.folder.rglob("*") if path.is_file())
    return {str(path.relative_to(here.folder)): path.read_bytes() for path in found}


def names(here: Here, attempt: str) -> set[str]:
    """Return the files of one attempt; not those that are being written, which get another name in this moment."""
    found = (str(path.relative_to(here.folder)) for path in here.folder.rglob("*") if path.is_file())
    return {path for path in found if writer_of(path) == attempt and not path.endswith(".tmp")}


def live_folder(here: Here) -> str:
    """Return the folder of the attempt that has not ended."""
    (live,) = [attempt for attempt in here.store.list_attempts(here.run.run_id) if attempt.ended_at is None]
    return attempt_folder(live.fencing_token, live.attempt_id)


def bad_files(here: Here) -> list[str]:
    return [file.path for file in verify_run(here.store, here.found) if file.problem is not None]


@pytest.mark.parametrize("place", PLACES)
def test_run_killed_anywhere_then_collected_goes_on_to_the_same_bits_and_leaves_nothing(
    in_memory: Here, expected: str, place: str
) -> None:
    """As long as nobody took over, the killed attempt counts as live: only edges of durable epochs go."""
    kill(in_memory, place, **AT_ONCE)
    before = files(in_memory)
    is_finished = in_memory.found.status is RunStatus.FINISHED
    if not is_finished:
        edges = {file.path for file in collect(in_memory).garbage if file.reason.endswith("which is durable")}
        assert {path: content for path, content in before.items() if path not in edges} == files(in_memory)
        kill(in_memory, "epoch_opened", "pointer_written")

    after_takeover = collect(in_memory)
    problems = bad_files(in_memory)
    finished = in_memory.found if is_finished else in_memory.drive(**AT_ONCE)

    assert [] == problems
    assert {} == after_takeover.left
    assert expected == finished.state_digest
    collect(in_memory)
    assert {Fate.REFERENCED} == fates(collect(in_memory))
    assert [] == bad_files(in_memory)
    assert {file.path for file in collect(in_memory, dry_run=True).files} == set(files(in_memory))


def test_output_of_an_operator_that_finished_stays_also_where_no_checkpoint_holds_it_yet(in_memory: Here) -> None:
    """There are no edges either: the operator's own row is all that names it."""
    kill(in_memory, "operator_finished")
    kill(in_memory, "epoch_opened")

    collect(in_memory)

    assert [] == bad_files(in_memory)


def test_killed_attempt_leaves_garbage_that_goes_once_another_has_taken_over(in_memory: Here) -> None:
    """What is durable stays, an epoch that is not goes; and what is judged is what is removed, folders included."""
    kill(in_memory, "manifest_written@1", until_epoch=2)
    (killed,) = {writer_of(path) for path in files(in_memory)}
    kill(in_memory, "epoch_opened")
    before = files(in_memory)

    foretold = collect(in_memory, dry_run=True)
    assert before == files(in_memory)
    done = collect(in_memory)

    assert foretold == done
    garbage = {file.path: file.size_bytes for file in done.garbage}
    assert {"checkpoint-000002.json", "epoch-000001"} == {path.split("/")[1] for path in garbage}
    assert garbage == {path: len(content) for path, content in before.items() if path in garbage}
    assert {path: content for path, content in before.items() if path not in garbage} == files(in_memory)
    assert {"checkpoint-000001.json", "epoch-000000", "finished", "pins"} == {
        path.name for path in (in_memory.folder / killed).iterdir()
    }


@pytest.mark.postgres
def test_files_of_a_live_attempt_survive_a_collection_at_every_crash_point(here: Here, expected: str) -> None:
    """It goes on behind the edges of one that was killed, whose files it names in manifests of its own."""
    kill(here, "epoch_written@1", **AT_ONCE)
    collected: list[str] = []
    one_by_one = threading.Lock()  # the checkpoint's asynchronous part passes crash points beside the driver

    def collect_here(place: str) -> Callable[[], None]:
        def act() -> None:
            with one_by_one:
                folder = live_folder(here)
                before = names(here, folder)
                edges = {file.path for file in collect(here).garbage if file.reason.endswith("which is durable")}
                assert before - edges <= names(here, folder)
                assert [] == bad_files(here)
                collected.append(place)

        return act

    everywhere = {place: collect_here(place) for place in PLACES if place != "run_finished"}
    finished = here.drive_to_rest(script=everywhere, **AT_ONCE)

    assert expected == finished.state_digest
    assert {"epoch_opened@1", "epoch_written@2", "manifest_written@1", "pointer_written"} <= set(collected)
    assert [] == bad_files(here)


class Meanwhile:
    """A history in which something happens right before a named read, once; everything is read from the real one."""

    def __init__(self, store: History, read: str, act: Callable[[], object]) -> None:
        """Act before `read`."""
        self._store = store
        self._read = read
        self._act: Callable[[], object] | None = act

    def __getattr__(self, name: str) -> Any:
        """Return how the real one is read."""
        if name == self._read and self._act is not None:
            act, self._act = self._act, None
            act()
        return getattr(self._store, name)


READS = ["list_attempts", "list_parts", "find_run", "list_operators", "list_pins", "list_checkpoints"]


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize(
    ("killed_at", "place"),
    [
        ("operator_written", "operator_written"),
        ("operator_finished", "manifest_written@0"),
        ("epoch_written@1", "epoch_written@1"),
        ("epoch_written@1", "manifest_written@1"),
        ("edge_marked@1", "outputs_written@2"),
    ],
)
def test_attempt_that_goes_on_to_the_end_between_two_reads_loses_nothing(
    in_memory: Here, expected: str, read: str, killed_at: str, place: str
) -> None:
    """Edges of a killed attempt become part of manifests, and files that nothing named yet are named."""
    kill(in_memory, killed_at, **AT_ONCE)
    latch = Latch()
    with in_memory.driving(script={place: latch}, **AT_ONCE) as driven, latch:
        run = in_memory.found

        def let_it_end() -> None:
            latch.open()
            driven.result()

        collect_garbage(Meanwhile(in_memory.store, read, let_it_end), run)

    assert expected == driven.result().state_digest
    assert [] == bad_files(in_memory)


@pytest.mark.parametrize("read", READS)
def test_attempt_that_takes_over_between_two_reads_finds_all_that_it_needs(
    in_memory: Here, expected: str, read: str
) -> None:
    kill(in_memory, "epoch_written@1", **AT_ONCE)
    run = in_memory.found

    collect_garbage(Meanwhile(in_memory.store, read, lambda: in_memory.drive(until_epoch=2, **AT_ONCE)), run)

    assert [] == bad_files(in_memory)
    assert expected == in_memory.drive(**AT_ONCE).state_digest


def test_attempt_that_falls_back_after_the_run_was_read_keeps_the_edges_that_it_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever collects many runs has read them all before: an epoch that was durable then may be open again."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    bench = InMemory.begin(tmp_path)
    bench.drive(until_epoch=2)
    run = bench.run
    broken = next(file for file in verify_run(bench.store, run, checkpoint_id=2) if "/epoch-" in file.path)
    (bench.state / broken.path).unlink()
    (tmp_path / "broken").touch()
    with pytest.raises(OperatorFailedError):
        bench.drive(allow_fallback=True)
    bench.mend()

    collect_garbage(bench.store, run)

    assert (1, 0) == (run.last_durable_epoch, bench.run.last_durable_epoch)
    assert [] == [file.path for file in verify_run(bench.store, bench.run) if file.problem is not None]
    assert RunStatus.FINISHED is bench.drive().status


def discard(here: Here | FreshRun, *checkpoint_ids: int) -> None:
    """Discard checkpoints, as retention will."""
    assert isinstance(here.store, MemoryStore)
    with here.store._lock:
        for checkpoint_id in checkpoint_ids:
            here.store._runs[here.run.run_id].checkpoints[checkpoint_id]["status"] = "DISCARDED"


def test_discarded_checkpoint_goes_while_the_attempt_that_wrote_it_is_live(in_memory: Here, expected: str) -> None:
    """Its manifest too, but neither finished outputs nor pins, which it names as every other checkpoint does."""
    garbage: list[str] = []

    def discard_and_collect() -> None:
        wait_until(lambda: in_memory.found.last_durable_epoch == 1, "checkpoint 2 to subsume the first")
        discard(in_memory, 1)
        garbage.extend(file.path for file in collect(in_memory).garbage)

    finished = in_memory.drive(script={"epoch_written@2": discard_and_collect})

    assert {"checkpoint-000001.json", "epoch-000000"} == {path.split("/")[1] for path in garbage}
    assert set(garbage).isdisjoint(files(in_memory))
    assert expected == finished.state_digest
    assert [] == bad_files(in_memory)


def test_edges_of_durable_epochs_go_while_the_attempt_that_left_them_is_live(in_memory: Here) -> None:
    garbage: list[str] = []

    in_memory.drive(
        script={"epoch_opened@2": lambda: garbage.extend(file.path for file in collect(in_memory).garbage)}, **AT_ONCE
    )

    assert {"epoch-000000/shares", "epoch-000000/total", "epoch-000000/going"} <= {
        "/".join(path.split("/")[1:3]) for path in garbage
    }
    assert [] == bad_files(in_memory)


def retain_the_newest(here: Here | FreshRun) -> None:
    """Discard every checkpoint that is subsumed: the least that retention may leave."""
    assert isinstance(here.store, MemoryStore)
    with here.store._lock:
        known = here.store.list_checkpoints(here.run.run_id)
        discard(here, *(found.checkpoint_id for found in known if found.status is CheckpointStatus.SUBSUMED))


@pytest.mark.parametrize("seed", range(200 if IS_NIGHTLY else 8))
def test_run_killed_again_and_again_is_collected_all_the_while_and_ends_with_the_same_bits(
    in_memory: Here, expected: str, seed: int
) -> None:
    """At every crash point of every attempt, in whatever thread it is passed, nothing but the newest is retained."""
    chance = random.Random(seed)  # noqa: S311 - a test, not a secret
    options: dict[str, Any] = {
        "every_epochs": chance.choice([1, 2]),
        "max_pending": chance.choice([1, 2]),
        "alignment_timeout_seconds": chance.choice([None, 0.0]),
    }

    def retain_and_collect() -> None:
        if chance.random() < 0.7:
            retain_the_newest(in_memory)
        assert {} == collect(in_memory).left

    everywhere = dict.fromkeys(PLACES, retain_and_collect)
    for _ in range(4):
        if in_memory.found.status is not RunStatus.FINISHED:
            kill(in_memory, chance.choice(PLACES), script=everywhere, parallelism=chance.randint(1, 3), **options)
            retain_and_collect()

    if in_memory.found.status is not RunStatus.FINISHED:
        in_memory.drive_to_rest(script=everywhere, parallelism=chance.randint(1, 3), **options)

    assert expected == in_memory.found.state_digest
    retain_and_collect()
    assert [] == bad_files(in_memory)
    assert Fate.GARBAGE not in fates(collect(in_memory))


EDGES = "{folder}/edges.parquet"


class Retention(Silent):
    """Retains the newest checkpoint alone, and collects, whenever an epoch is durable."""

    def __init__(self, fresh: FreshRun) -> None:
        """Collect this run."""
        self._fresh = fresh
        self.removed = 0

    def epoch_durable(self, epoch: int, *, metrics: Mapping[str, float], seconds: float) -> None:  # noqa: ARG002 - as asked
        """See Observer."""
        retain_the_newest(self._fresh)
        self.removed += len(collect_garbage(self._fresh.store, self._fresh.run).garbage)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("reference", "params"),
    [
        ("tests.iterations.emptying:emptying", {}),
        ("tests.iterations.stateful:stateful", {"max_epochs": 4}),
        *([("iteration_lib.library.pagerank:pagerank", {"input": EDGES, "max_epochs": 4})] if IS_NIGHTLY else []),
    ],
)
def test_nothing_that_executors_read_late_goes_while_only_the_newest_checkpoint_is_retained(
    tmp_path: Path, spark: SparkSession, reference: str, params: dict[str, object]
) -> None:
    """Spark computes late: what an epoch takes is read from the files of the one before, while others go."""
    pq.write_table(pa.table({"src": [0, 1, 2, 2, 3, 4], "dst": [1, 2, 0, 3, 4, 2]}), tmp_path / "edges.parquet")
    given = {name: str(value).format(folder=tmp_path) for name, value in params.items()}

    def open_runner(run: RunRecord, location: StateLocation, scratch: str) -> AbstractContextManager[Runner]:
        from iteration_lib.runner.spark import SparkRunner  # noqa: PLC0415 - most tests need no Spark

        return closing(SparkRunner(spark, location, max_buckets=run.max_buckets, parallelism=2, scratch=scratch))

    undisturbed = FreshRun.begin(tmp_path / "undisturbed", reference=reference, **given)
    fresh = FreshRun.begin(tmp_path / "collected", reference=reference, **given)
    retention = Retention(fresh)
    finished = fresh.drive(open_runner=open_runner, observer=retention)

    assert undisturbed.drive(open_runner=open_runner).state_digest == finished.state_digest
    assert retention.removed >= 2
    assert [] == [file.path for file in verify_run(fresh.store, fresh.run) if file.problem is not None]


def test_checkpoint_that_is_discarded_and_collected_between_two_reads_is_passed_over(in_memory: Here) -> None:
    """Its manifest is gone when the first collector comes to read it."""
    in_memory.drive()
    first, second = in_memory.store, in_memory.store

    class ThenDiscarded(Meanwhile):
        def list_checkpoints(self, run_id: Any, ids: Any = None) -> Any:
            found = first.list_checkpoints(run_id, ids)
            discard(in_memory, 1)
            collect_garbage(second, in_memory.found)
            return found

    collection = collect_garbage(ThenDiscarded(first, "", lambda: None), in_memory.found)

    assert "checkpoint-000001.json" not in {path.split("/")[-1] for path in files(in_memory)}
    assert {} == collection.left
    assert [] == bad_files(in_memory)


def test_collectors_at_the_same_time_do_each_others_work(in_memory: Here) -> None:
    kill(in_memory, "epoch_written@1", **AT_ONCE)
    attempt = live_folder(in_memory)
    strays = {f"{attempt}/epoch-000001/.part-{number}.tmp" for number in range(50)}
    for stray in strays:
        (in_memory.folder / stray).touch()
    in_memory.drive(**AT_ONCE)

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: collect(in_memory), range(8)))

    assert [{}] * 8 == [collection.left for collection in done]
    assert strays <= {file.path for collection in done for file in collection.garbage}  # no one of them met them all
    assert {Fate.REFERENCED} == fates(collect(in_memory))
    assert [] == bad_files(in_memory)


def test_garbage_on_a_store_of_objects_is_collected_too(tmp_path: Path) -> None:
    """It has no folders that could be left empty."""
    fresh = FreshRun.begin(tmp_path, state_uri=f"memory://{secrets.token_hex(8)}/state")
    fresh.drive()
    (first, *_) = fresh.store.list_attempts(fresh.run.run_id)
    stray = f"{attempt_folder(first.fencing_token, first.attempt_id)}/epoch-000000/moved/part-00007-00.arrow"
    write_bytes(fresh.location, stray, b"a task that was repeated left it")
    before = set(fresh.location.list_files())

    done = collect_garbage(fresh.store, fresh.run)

    assert ([stray], {}) == ([file.path for file in done.garbage], done.left)
    assert before - {stray} == set(fresh.location.list_files())
    assert [] == [file.path for file in verify_run(fresh.store, fresh.run) if file.problem is not None]


def test_manifest_that_is_needed_and_cannot_be_read_stops_the_collection_before_anything_is_removed(
    in_memory: Here,
) -> None:
    """What it names nobody can say."""
    kill(in_memory, "epoch_aligned@1")  # which waits for the checkpoint of epoch 0
    kill(in_memory, "epoch_opened")
    (manifest,) = in_memory.folder.glob("*/checkpoint-000001.json")
    manifest.write_bytes(manifest.read_bytes()[:-1])
    before = files(in_memory)

    with pytest.raises(StateCorruptedError) as caught:
        collect(in_memory)

    assert str(manifest) == caught.value.uri
    assert before == files(in_memory)


def test_of_a_deleted_run_what_is_not_discarded_stays_and_then_nothing(in_memory: Here) -> None:
    in_memory.drive(**AT_ONCE)
    discard(in_memory, 1, 3)

    collect(in_memory, is_deleted=True)
    assert [] == [file.path for file in verify_run(in_memory.store, in_memory.found, checkpoint_id=2) if file.problem]
    kinds = {path.partition("/")[2].partition("/")[0] for path in files(in_memory)}
    discard(in_memory, 2)
    collect(in_memory, is_deleted=True)

    assert {"checkpoint-000002.json", "epoch-000001", "finished", "pins"} == kinds
    assert not in_memory.folder.exists()


def test_what_went_with_a_deleted_run_is_not_missed(in_memory: Here) -> None:
    """Its rows stay: they name edges, operators' outputs and copied input that nobody needs any more."""
    kill(in_memory, "edge_marked@1", **AT_ONCE)
    coordinator = Coordinator(in_memory.store)
    (live,) = in_memory.store.list_attempts(in_memory.run.run_id)
    event = RunDeleted(deleted_by="ann", gone_attempt_id=live.attempt_id)
    coordinator.apply(in_memory.run.run_id, event)
    coordinator.discard(in_memory.run.run_id, CheckpointPolicy())

    collect(in_memory, is_deleted=True)

    assert not in_memory.folder.exists()
    assert [] == bad_files(in_memory)


def test_files_of_others_stay_and_are_told(in_memory: Here) -> None:
    in_memory.drive()
    notes = ["notes.txt", "savepoints/mine/savepoint.json", "000009-deadbeef/checkpoint-000001.json", "outputs/a/b/c"]
    for path in notes:
        (in_memory.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (in_memory.folder / path).touch()

    collection = collect(in_memory)

    assert sorted(notes) == [file.path for file in collection.files if file.fate is Fate.UNKNOWN]
    assert all((in_memory.folder / path).exists() for path in notes)


def test_scratch_that_an_attempt_that_ended_still_writes_goes_whatever_its_files_are_called(in_memory: Here) -> None:
    """A body that has a scratch folder names files in it as it likes, and may be the last to hear of the end."""
    kill(in_memory, "epoch_opened@1")
    killed = in_memory.folder / live_folder(in_memory)
    in_memory.drive()
    (killed / "fresh/epoch-000000/moved").mkdir(parents=True)
    (killed / "fresh/epoch-000000/moved/a file, or two?").touch()

    collection = collect(in_memory)

    assert [f"{killed.name}/fresh/epoch-000000/moved/a file, or two?"] == [
        file.path for file in collection.garbage if "/fresh/" in file.path
    ]
    assert {} == collection.left
    assert not (killed / "fresh").exists()


def test_what_cannot_be_removed_is_told_and_everything_else_goes(in_memory: Here, tmp_path: Path) -> None:
    """Here somebody has put a link to a folder of his own in the place of one of the attempt's."""
    kill(in_memory, "epoch_written@1")
    folder = in_memory.folder / live_folder(in_memory)
    kill(in_memory, "epoch_opened")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/precious.txt").touch()
    (folder / "epoch-000001/linked").symlink_to(tmp_path / "mine")

    collection = collect(in_memory)

    assert all("linked" in path for path in collection.left)
    assert (tmp_path / "mine/precious.txt").exists()
    assert ["linked"] == [path.name for path in (folder / "epoch-000001").iterdir()]


def test_edges_stay_that_a_hand_made_checkpoint_will_name_which_a_newer_one_outran(
    tmp_path: Path,
) -> None:
    """Its epoch is durable by then, and its edges serve as the files of its tails."""
    store = MemoryStore(SystemClock())
    here, hangs = Here.begin(store, tmp_path, steered), Latch()

    def ask() -> None:
        event = CheckpointRequested(request_id=str(uuid.uuid4()), requested_by="ann")
        Coordinator(store).apply(here.run.run_id, event)

    def outrun() -> None:
        collect_garbage(store, here.found)
        hangs.open()

    here.drive(
        script={"epoch_opened@1": ask, "checkpoint-2": hangs, "checkpoint_completed@2": outrun},
        max_pending=2,
        alignment_timeout_seconds=0.0,
        timeout_seconds=1e6,
    )

    assert (CheckpointKind.MANUAL, CheckpointStatus.SUBSUMED) == (here.checkpoints[1].kind, here.checkpoints[1].status)
    assert [] == [file for file in verify_run(store, here.found) if file.problem is not None]


@pytest.mark.parametrize("name", ["fresh", "scratch"])
def test_output_that_is_called_like_a_scratch_folder_stays(tmp_path: Path, name: str) -> None:
    """Though an attempt that was killed left files beside it."""
    store, iteration = MemoryStore(SystemClock()), wired("steered")
    iteration._outputs = {name: "paced"}
    here = Here.begin(store, tmp_path, iteration)
    here.drive_and_fail(script={"outputs_written@3": KILL})
    here.drive()

    removed = collect_garbage(store, here.found).garbage

    assert [file.path for file in removed if file.path.startswith(f"outputs/{name}/")]
    assert [] == [file for file in verify_run(store, here.found) if file.problem is not None]
