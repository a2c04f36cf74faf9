"""What does an operator get that has the id of one which was removed before? Nothing that the other one left."""

from __future__ import annotations

import dataclasses
import shutil
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import cast

import pytest

from iteration_lib.branching import BranchRequest, branch_run
from iteration_lib.config import Settings
from iteration_lib.continuation import read_continuation
from iteration_lib.coordinator import Coordinator
from iteration_lib.driver.restore import read_manifest
from iteration_lib.engine import Engine, EngineKind
from iteration_lib.errors import IllegalBranchError, InputError, OperatorFailedError, RunMismatchError
from iteration_lib.launch import Drive, drive_run, read_outputs
from iteration_lib.model.definition import load_iteration
from iteration_lib.planning.plan import plan_run
from iteration_lib.process import this_holder
from iteration_lib.protocol.event import RunDeleted
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.resume import Action
from iteration_lib.protocol.state import RunId
from iteration_lib.protocol.status import RestoreMode, RunStatus
from iteration_lib.runner.seam import Runner
from iteration_lib.savepoint import checkpoint_of, write_savepoint
from iteration_lib.saving import save_run
from iteration_lib.state.location import StateLocation
from iteration_lib.store.opening import find_run
from iteration_lib.store.record import NewRun, Origin, RunRecord
from iteration_lib.store.seam import StoreWithHistory
from iteration_lib.verification import verify_run
from tests.driven_in_memory import KEY, MODULE, SOURCE, InMemory
from tests.overtaken_store import Overtaken

LONG = SOURCE.replace("max_epochs: int = 3", "max_epochs: int = 5")
BROKEN = """

@planned.operator
def broken(centre):
    raise RuntimeError("broken")


planned.output(broken=broken)
"""
COUNT = """

@planned.operator(state="carry")
def count(moved, state):
    before = state["n"] if state else np.zeros(1)
    return {{"total": before + {step}}}, {{"n": before + {step}}}


planned.output(count=count)
"""
COUNT_BY_BUCKETS = COUNT.replace("planned.operator(", "planned.map_buckets(").replace("(moved,", "(scaled,")
EXTRA = """

@planned.map_buckets(finishes=True)
def extra(points):
    return {{"at": points["x"] * {factor}}}


@planned.operator
def probe(extra):
    return {{"total": extra["at"].sum(keepdims=True)}}


planned.output(probe=probe)
"""
LEGEND = """

@planned.operator(finishes=True)
def legend(points):
    return {"n": np.array([len(points["x"])])}


planned.output(legend=legend)
"""
PRICES = """

@planned.data
def prices():
    return records(p=[{price}])


@planned.operator
def probe(prices):
    return {{"total": prices["p"].sum(keepdims=True)}}


planned.output(probe=probe)
"""

AGAIN = BranchRequest(checkpoint="planned@2", run_key="again", branched_by="ann")
REMOVED_SINCE = (
    "it holds the state of an operator 'count' that its run has removed since, and the branch's own would begin with "
    "none; give it another operator_id, or say --allow-dropped-state"
)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InMemory:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    bench = InMemory(tmp_path)
    bench.write_input()
    return bench


@pytest.mark.parametrize("is_broken", [True, False], ids=["before a checkpoint", "behind a checkpoint"])
def test_operator_begins_with_no_state_where_another_one_of_its_id_was_dropped(
    bench: InMemory,
    is_broken: bool,  # noqa: FBT001 - a case
) -> None:
    bench.write_iteration(LONG + COUNT.format(step=1.0))
    bench.open()
    bench.drive(until_epoch=2)
    bench.write_iteration(LONG + BROKEN if is_broken else LONG)
    if is_broken:
        with pytest.raises(OperatorFailedError):
            bench.drive(until_epoch=3, allow_dropped_state=True)
    else:
        bench.drive(until_epoch=3, allow_dropped_state=True)
    first = bench.run.epochs
    bench.write_iteration(LONG + COUNT.format(step=1000.0))

    bench.drive()

    assert [{"total": 1000.0 * (5 - first)}] == read_outputs(bench.store, bench.run)["count"].to_pylist()


def test_operator_begins_with_no_state_where_the_run_fell_back_behind_its_removal(bench: InMemory) -> None:
    bench.write_iteration(LONG + COUNT.format(step=1.0))
    bench.open()
    bench.drive(until_epoch=2)
    bench.write_iteration(LONG)
    bench.drive(until_epoch=3, allow_dropped_state=True)
    bench.write_iteration(LONG + COUNT.format(step=1000.0))
    bench.drive(until_epoch=4)
    for number in (3, 4):
        files = verify_run(bench.store, bench.run, checkpoint_id=number)
        (bench.state / next(file.path for file in files if "/moved/" in file.path)).unlink()

    bench.drive(allow_fallback=True)

    assert [2] == [fell.to_checkpoint_id for fell in bench.store.list_fallbacks(bench.run.run_id)]
    assert [{"total": 3000.0}] == read_outputs(bench.store, bench.run)["count"].to_pylist()


def test_operator_that_keeps_its_id_keeps_its_state_over_changes_of_others(bench: InMemory) -> None:
    bench.write_iteration(LONG + COUNT.format(step=1.0))
    bench.open()
    bench.drive(until_epoch=2)
    bench.write_iteration(LONG + COUNT.format(step=1.0) + EXTRA.format(factor=1.0))

    bench.drive()

    assert [{"total": 5.0}] == read_outputs(bench.store, bench.run)["count"].to_pylist()


def test_data_stream_does_not_read_what_another_one_of_its_id_has_read(bench: InMemory) -> None:
    bench.write_iteration(LONG + PRICES.format(price=10.0))
    bench.open()
    bench.drive(until_epoch=2)
    bench.write_iteration(LONG)
    bench.drive(until_epoch=3)
    bench.write_iteration(LONG + PRICES.format(price=1000.0))

    planned = plan_run(bench.store, bench.run)
    with pytest.raises(RunMismatchError) as caught:
        bench.drive()

    refusal = (
        "data stream 'prices' is new, and one of this id, which is gone, has read its rows before; "
        "give it another operator_id"
    )
    assert (refusal,) == caught.value.differences == planned.refusals


def test_branch_does_not_take_over_what_an_operator_left_that_it_has_dropped(bench: InMemory) -> None:
    bench.write_iteration(LONG + EXTRA.format(factor=10.0))
    bench.open()
    bench.drive()
    settings = Settings(store_url=None, state_uri=str(bench.folder / "state"))
    branch = branch_run(
        bench.store, settings, BranchRequest(checkpoint="planned@2", run_key="again", branched_by="ann")
    )
    bench.write_iteration(LONG + BROKEN)
    with pytest.raises(OperatorFailedError):
        drive_branch(bench, settings, allow_dropped_state=True)
    bench.write_iteration(LONG + EXTRA.format(factor=1000.0))

    planned = plan_run(bench.store, find_run(bench.store, "again"))
    ended = drive_branch(bench, settings)

    assert planned.resume is not None
    skipped = [step.vertex.operator_id for step in planned.resume.steps if step.action is Action.SKIPPED]
    assert (branch.run_id, ["scaled"], ()) == (ended.run_id, skipped, planned.refusals)
    assert [{"total": 28000.0}] == read_outputs(bench.store, ended)["probe"].to_pylist()


def test_branch_pins_anew_what_a_data_stream_reads_that_it_has_dropped_and_the_plan_looks(bench: InMemory) -> None:
    bench.write_iteration(LONG + PRICES.format(price=10.0))
    bench.open()
    bench.drive()
    settings = Settings(store_url=None, state_uri=str(bench.folder / "state"))
    branch_run(bench.store, settings, BranchRequest(checkpoint="planned@2", run_key="again", branched_by="ann"))
    bench.write_iteration(LONG + BROKEN)
    with pytest.raises(OperatorFailedError):
        drive_branch(bench, settings)
    elsewhere = PRICES.format(price=0.0).replace("records(p=[0.0])", f"parquet({str(bench.folder / 'none')!r})")
    bench.write_iteration(LONG + elsewhere)

    planned = plan_run(bench.store, find_run(bench.store, "again"))
    with pytest.raises(InputError) as caught:
        drive_branch(bench, settings)

    assert (str(caught.value),) == planned.refusals


@pytest.mark.parametrize("is_back", [True, False], ids=["back already", "gone still"])
@pytest.mark.parametrize("is_saved", [True, False], ids=["by a savepoint", "by a branch"])
def test_branch_begins_with_no_state_of_an_operator_that_its_origin_has_removed_since(
    bench: InMemory,
    is_back: bool,  # noqa: FBT001 - a case
    is_saved: bool,  # noqa: FBT001 - a case
) -> None:
    settings = counted_and_removed(bench)
    bench.write_iteration(LONG + COUNT.format(step=1000.0))
    if is_back:
        bench.drive(until_epoch=4)
    checkpoint = "planned@2"
    if is_saved:
        checkpoint = str(bench.folder / "saved")
        second = bench.store.list_checkpoints(bench.run.run_id, [2])[0]
        write_savepoint(checkpoint_of(bench.store, bench.run, second), StateLocation(checkpoint))
    request = BranchRequest(checkpoint=checkpoint, run_key="again", branched_by="ann", allow_dropped_state=not is_saved)
    branch_run(bench.store, settings, request)
    for folder in bench.state.rglob("count.state-next"):
        shutil.rmtree(folder)

    planned = plan_run(bench.store, find_run(bench.store, "again"))
    ended = drive_branch(bench, settings)

    assert () == planned.refusals
    assert [{"total": 3000.0}] == read_outputs(bench.store, ended)["count"].to_pylist()


def test_savepoint_that_holds_what_its_run_had_removed_gives_no_state_to_who_takes_the_id(bench: InMemory) -> None:
    """One that an older version wrote: it says by its definition which operators the run had."""
    settings = counted_and_removed(bench)
    second = bench.store.list_checkpoints(bench.run.run_id, [2])[0]
    savepoint = checkpoint_of(bench.store, bench.run, second)
    manifest = read_manifest(savepoint.location, second)
    write_savepoint(dataclasses.replace(savepoint, manifest=manifest), StateLocation(str(bench.folder / "saved")))
    bench.write_iteration(LONG + COUNT.format(step=1000.0))
    request = BranchRequest(checkpoint=str(bench.folder / "saved"), run_key="again", branched_by="ann")
    with pytest.raises(IllegalBranchError) as caught:
        branch_run(bench.store, settings, request)
    branch_run(bench.store, settings, dataclasses.replace(request, allow_dropped_state=True))

    ended = drive_branch(bench, settings)

    assert (REMOVED_SINCE,) == caught.value.reasons
    assert ({"centre"}, {"count.state"}) == (set(manifest.variables), set(manifest.states))
    assert [{"total": 3000.0}] == read_outputs(bench.store, ended)["count"].to_pylist()


@pytest.mark.parametrize("is_back", [True, False], ids=["back already", "gone still"])
def test_branch_drops_the_state_of_an_operator_that_its_origin_has_removed_only_where_that_is_said(
    bench: InMemory,
    is_back: bool,  # noqa: FBT001 - a case
) -> None:
    settings = counted_and_removed(bench)
    bench.write_iteration(LONG + COUNT.format(step=1.0))
    if is_back:
        bench.drive(until_epoch=4)

    with pytest.raises(IllegalBranchError) as caught:
        branch_run(bench.store, settings, AGAIN)

    assert (REMOVED_SINCE,) == caught.value.reasons
    assert bench.store.find_run("again") is None


@pytest.mark.parametrize("then", ["", COUNT_BY_BUCKETS], ids=["without", "of another kind"])
@pytest.mark.parametrize("has_failed", [True, False], ids=["failed at once", "ran"])
@pytest.mark.parametrize("is_saved", [True, False], ids=["of a savepoint", "of a run"])
def test_branch_is_held_to_no_state_that_its_checkpoint_does_not_hold(
    bench: InMemory,
    is_saved: bool,  # noqa: FBT001 - a case
    has_failed: bool,  # noqa: FBT001 - a case
    then: str,
) -> None:
    """Whatever operators its origin has added since."""
    settings = counted_behind_checkpoint_2(bench, has_failed=has_failed)
    saved = save_run(bench.store, bench.run, checkpoint_id=2).savepoint.location.uri
    bench.write_iteration(LONG + then.format(step=1.0))

    branch_run(bench.store, settings, dataclasses.replace(AGAIN, checkpoint=saved) if is_saved else AGAIN)

    assert RunStatus.FINISHED is drive_branch(bench, settings).status


def test_operator_whose_state_no_savepoint_holds_may_be_taken_out_of_its_branch_again(bench: InMemory) -> None:
    settings = counted_behind_checkpoint_2(bench, has_failed=True)
    saved = save_run(bench.store, bench.run).savepoint.location.uri
    branch_run(bench.store, settings, dataclasses.replace(AGAIN, checkpoint=saved))
    with pytest.raises(OperatorFailedError):
        drive_branch(bench, settings)
    bench.write_iteration(LONG)

    planned = plan_run(bench.store, find_run(bench.store, "again"))
    ended = drive_branch(bench, settings)

    assert ((), RunStatus.FINISHED) == (planned.refusals, ended.status)


@pytest.mark.parametrize("is_branch", [True, False], ids=["a branch", "a run"])
def test_operator_that_failed_before_any_checkpoint_held_its_state_may_be_taken_out_again(
    bench: InMemory,
    is_branch: bool,  # noqa: FBT001 - a case
) -> None:
    bench.write_iteration(LONG)
    bench.open()
    bench.drive(until_epoch=2)
    settings = Settings(store_url=None, state_uri=str(bench.folder / "state"))
    run_key = branch_run(bench.store, settings, AGAIN).run_key if is_branch else bench.run.run_key
    bench.write_iteration(LONG + COUNT.format(step="np.nowhere"))
    with pytest.raises(OperatorFailedError):
        drive_branch(bench, settings, run_key=run_key)
    bench.write_iteration(LONG)

    planned = plan_run(bench.store, find_run(bench.store, run_key))
    ended = drive_branch(bench, settings, run_key=run_key)

    assert ((), RunStatus.FINISHED) == (planned.refusals, ended.status)


def test_branch_that_is_asked_for_again_is_the_one_that_there_is_whatever_its_origin_has_done_since(
    bench: InMemory,
) -> None:
    bench.write_iteration(LONG + EXTRA.format(factor=10.0))
    bench.open()
    bench.drive(until_epoch=2)
    settings = Settings(store_url=None, state_uri=str(bench.folder / "state"))
    made = branch_run(bench.store, settings, AGAIN)
    bench.write_iteration(LONG + COUNT.format(step=1.0))
    bench.drive(until_epoch=3, allow_dropped_state=True)
    bench.write_iteration(LONG + EXTRA.format(factor=10.0))

    again = branch_run(bench.store, settings, AGAIN)
    with pytest.raises(RunMismatchError) as caught:
        branch_run(bench.store, settings, dataclasses.replace(AGAIN, data="new"))

    assert made.run_id == again.run_id
    assert ("it keeps extra, made, points, scaled of its origin",) == caught.value.differences


@pytest.mark.parametrize(
    ("first", "since"), [(PRICES, ""), ("", PRICES)], ids=["origin has lost a stream", "origin has added a stream"]
)
@pytest.mark.parametrize("is_of_now", [True, False], ids=["by the origin's file of now", "by that of then"])
def test_branch_that_keeps_its_data_is_the_answer_whichever_streams_its_origin_has_by_now(
    bench: InMemory,
    is_of_now: bool,  # noqa: FBT001 - a case
    first: str,
    since: str,
) -> None:
    then, now = LONG + first.format(price=10.0), LONG + since.format(price=10.0)
    bench.write_iteration(then)
    bench.open()
    bench.drive(until_epoch=2)
    settings = Settings(store_url=None, state_uri=str(bench.folder / "state"))
    kept = dataclasses.replace(AGAIN, data="kept")
    made = branch_run(bench.store, settings, kept)
    bench.write_iteration(now)
    bench.drive(until_epoch=3)
    bench.write_iteration(now if is_of_now else then)

    again = branch_run(bench.store, settings, kept)

    assert made.run_id == again.run_id


def about_to_read_prices(bench: InMemory) -> tuple[Settings, BranchRequest]:
    """Drive a run whose file has one more data stream now; return what asks for a branch that keeps its data."""
    bench.write_iteration(LONG)
    bench.open()
    bench.drive(until_epoch=2)
    bench.write_iteration(LONG + PRICES.format(price=10.0))
    settings = Settings(store_url=None, state_uri=str(bench.folder / "state"))
    kept = dataclasses.replace(AGAIN, data="kept")
    return settings, kept


def test_branch_that_read_a_new_stream_before_its_origin_did_is_the_answer(bench: InMemory) -> None:
    settings, kept = about_to_read_prices(bench)
    made = branch_run(bench.store, settings, kept)
    bench.drive(until_epoch=3)

    again = branch_run(bench.store, settings, kept)

    assert made.run_id == again.run_id


def test_branch_that_was_made_while_its_origin_waited_for_spark_is_the_answer(bench: InMemory) -> None:
    """The attempt that gives its origin the stream had begun, and the operators were still the old ones."""
    settings, kept = about_to_read_prices(bench)
    made = []

    @contextmanager
    def open_slowly(location: StateLocation, run: RunRecord, scratch: str) -> Iterator[Runner]:
        made.append(branch_run(bench.store, settings, kept))
        with Engine(kind=EngineKind.LOCAL).open_runner(location, run, scratch) as runner:
            yield runner

    bench.drive(until_epoch=3, open_runner=open_slowly)

    again = branch_run(bench.store, settings, kept)

    assert [again.run_id] == [branch.run_id for branch in made]


def test_branch_that_reads_a_stream_anew_which_it_could_have_kept_is_not_one_that_keeps_its_data(
    bench: InMemory,
) -> None:
    """Its origin had the stream when the branch was made, though not yet at the checkpoint."""
    with_price = LONG.replace("max_epochs: int = 5", "max_epochs: int = 5\n    price: float = 10.0")
    prices = PRICES.format(price=0).replace("def prices():", "def prices(params):").replace("[0]", "[params.price]")
    bench.write_iteration(with_price)
    bench.open()
    bench.drive(until_epoch=2)
    bench.write_iteration(with_price + prices)
    bench.drive(until_epoch=3)
    settings = Settings(store_url=None, state_uri=str(bench.folder / "state"))
    asked = dataclasses.replace(AGAIN, checkpoint="planned@1", params={"price": 99.0})
    branch_run(bench.store, settings, asked)

    with pytest.raises(RunMismatchError) as caught:
        branch_run(bench.store, settings, dataclasses.replace(asked, data="kept"))

    assert ("it keeps made, points, scaled of its origin",) == caught.value.differences


def test_branch_that_goes_on_while_it_is_planned_needs_its_origins_checkpoint_no_more(bench: InMemory) -> None:
    source = LONG + LEGEND
    moved = source.replace("def legend(points):", "def legend(made):").replace('len(points["x"])', 'len(made["x"])')
    settings = Settings(store_url=None, state_uri=str(bench.folder / "state"))
    bench.write_iteration(source)
    bench.open()
    bench.drive(until_epoch=2, alignment_timeout_seconds=None)
    made = branch_run(bench.store, settings, AGAIN)
    bench.drive(until_epoch=3, alignment_timeout_seconds=None)

    def go_on() -> None:
        bench.write_iteration(source)
        drive_branch(bench, settings, run_key=made.run_key, until_epoch=3)
        let_older_checkpoints_go(bench)
        bench.write_iteration(moved)

    bench.write_iteration(moved)
    store = cast("StoreWithHistory", Overtaken(bench.store, "find_branch", go_on, answers=2))

    planned = plan_run(store, made)

    branch = bench.store.find_branch(made.run_id)
    assert (False, ()) == (branch is None or branch.holds_origin, planned.refusals)
    assert plan_run(bench.store, find_run(bench.store, made.run_key)) == planned


def test_operator_that_a_branch_takes_over_while_it_is_read_stands_in_the_way_all_the_same(bench: InMemory) -> None:
    source = LONG + EXTRA.format(factor=10.0)
    moved = source.replace("def extra(points):", "def extra(made):").replace('points["x"] * 10.0', 'made["y"] * 10.0')
    settings = Settings(store_url=None, state_uri=str(bench.folder / "state"))
    bench.write_iteration(source)
    bench.open()
    bench.drive(until_epoch=2, alignment_timeout_seconds=None)
    made = branch_run(bench.store, settings, AGAIN)
    bench.drive(until_epoch=3, alignment_timeout_seconds=None)
    bench.write_iteration(moved)
    graph = load_iteration(made.reference).graph()
    before = read_continuation(bench.store, made, graph).refusals(allow_dropped_state=False)

    def go_on() -> None:
        bench.write_iteration(source)
        drive_branch(bench, settings, run_key=made.run_key, until_epoch=3)
        let_older_checkpoints_go(bench)

    store = cast("StoreWithHistory", Overtaken(bench.store, "find_branch", go_on))

    meanwhile = read_continuation(store, made, graph).refusals(allow_dropped_state=False)

    branch = bench.store.find_branch(made.run_id)
    assert branch is not None
    assert not branch.holds_origin
    assert any("'extra' finished for good" in refusal for refusal in before), before
    assert before == meanwhile


def let_older_checkpoints_go(bench: InMemory) -> None:
    """Discard what came before a run's newest checkpoint, and remove its files."""
    Coordinator(bench.store).discard(bench.run.run_id, CheckpointPolicy(retain_last=1))
    for old in bench.store.list_checkpoints(bench.run.run_id)[:-1]:
        (bench.state / str(old.manifest_path)).unlink()


@pytest.mark.parametrize("how", ["moved", "gone"])
def test_branch_goes_on_with_another_operator_of_an_id_that_its_origin_had_not_finished(
    bench: InMemory, how: str
) -> None:
    """Nobody asks for it before the last epoch, so the origin has finished nothing that the branch could take over."""
    source = LONG + LEGEND
    bench.write_iteration(source)
    bench.open()
    bench.drive(until_epoch=2, alignment_timeout_seconds=None)
    assert ["scaled"] == [
        known.operator_id for known in bench.store.list_operators(bench.run.run_id) if known.finished_epoch is not None
    ]
    made = branch_run(bench.store, Settings(store_url=None, state_uri=str(bench.folder / "state")), AGAIN)
    branch = bench.store.find_branch(made.run_id)
    assert branch is not None
    assert "legend" in branch.keeps
    moved = source.replace("def legend(points):", "def legend(made):").replace('len(points["x"])', 'len(made["x"])')
    bench.write_iteration({"moved": moved, "gone": LONG}[how])

    planned = plan_run(bench.store, made)

    assert () == planned.refusals
    assert planned.changes


def test_branch_that_reads_anew_is_not_one_that_keeps_its_data_nor_one_that_claims(bench: InMemory) -> None:
    bench.write_iteration(LONG)
    bench.open()
    bench.drive(until_epoch=2)
    settings = Settings(store_url=None, state_uri=str(bench.folder / "state"))
    asked = dataclasses.replace(AGAIN, checkpoint="planned@1", data="new")
    branch_run(bench.store, settings, asked)

    with pytest.raises(RunMismatchError) as by_data:
        branch_run(bench.store, settings, dataclasses.replace(asked, data="kept"))
    with pytest.raises(RunMismatchError) as by_mode:
        branch_run(bench.store, settings, dataclasses.replace(asked, mode=RestoreMode.CLAIM))

    assert ("it keeps nothing of its origin",) == by_data.value.differences
    assert ("it is in mode NO_CLAIM",) == by_mode.value.differences


@pytest.mark.parametrize("is_of_now", [True, False], ids=["of now", "of an older version"])
def test_branch_goes_on_with_the_state_that_was_there_when_it_was_made(
    bench: InMemory,
    is_of_now: bool,  # noqa: FBT001 - a case
) -> None:
    bench.write_iteration(LONG + COUNT.format(step=1.0))
    bench.open()
    bench.drive(until_epoch=2)
    settings = Settings(store_url=None, state_uri=str(bench.folder / "state"))
    made = branch_run(bench.store, settings, BranchRequest(checkpoint="planned", run_key="again", branched_by="ann"))
    if not is_of_now:
        branched_by_an_older_version(bench, made, run_key="again")
    bench.write_iteration(LONG)
    bench.drive(until_epoch=3, allow_dropped_state=True)
    bench.write_iteration(LONG + COUNT.format(step=1000.0))
    bench.drive()
    bench.write_iteration(LONG + COUNT.format(step=1.0))

    ended = drive_branch(bench, settings)

    assert [{"total": 5.0}] == read_outputs(bench.store, ended)["count"].to_pylist()


def counted_and_removed(bench: InMemory) -> Settings:
    """Drive a run whose checkpoint 2 holds the state of `count`, and whose checkpoint 3 is without that operator."""
    bench.write_iteration(LONG + COUNT.format(step=1.0))
    bench.open()
    bench.drive(until_epoch=2)
    bench.write_iteration(LONG)
    bench.drive(until_epoch=3, allow_dropped_state=True)
    return Settings(store_url=None, state_uri=str(bench.folder / "state"))


def counted_behind_checkpoint_2(bench: InMemory, *, has_failed: bool) -> Settings:
    """Drive a run that has `count` now, of which its checkpoint 2 holds nothing."""
    bench.write_iteration(LONG)
    bench.open()
    bench.drive(until_epoch=2)
    bench.write_iteration(LONG + COUNT.format(step="np.nowhere" if has_failed else 1.0))
    with pytest.raises(OperatorFailedError) if has_failed else nullcontext():
        bench.drive(until_epoch=4)
    return Settings(store_url=None, state_uri=str(bench.folder / "state"))


def branched_by_an_older_version(bench: InMemory, made: RunRecord, *, run_key: str) -> None:
    """Put in a branch's place one that says nothing of what it carries on, as older versions made it."""
    known = bench.store.find_branch(made.run_id)
    assert known is not None
    Coordinator(bench.store).apply(made.run_id, RunDeleted(deleted_by="ann"))
    fields = {field.name: getattr(known, field.name) for field in dataclasses.fields(Origin)}
    of_the_same = {field.name: getattr(made, field.name) for field in dataclasses.fields(NewRun)}
    run = NewRun(**{**of_the_same, "run_id": RunId(str(uuid.uuid4())), "run_key": run_key})
    assert bench.store.add_run(run, Origin(**{**fields, "carries": None}))


def drive_branch(
    bench: InMemory,
    settings: Settings,
    *,
    run_key: str = "again",
    allow_dropped_state: bool = False,
    until_epoch: int | None = None,
) -> RunRecord:
    drive = Drive(
        holder=this_holder(),
        open_runner=Engine(kind=EngineKind.LOCAL).open_runner,
        parallelism=2,
        allow_dropped_state=allow_dropped_state,
        until_epoch=until_epoch,
    )
    return drive_run(bench.store, settings, find_run(bench.store, run_key), drive)


DRIFT = """

@planned.variable
def drift():
    return {"at": np.ones(1)}


@planned.operator
def drifted(drift, moved):
    return {"at": drift["at"] + moved["at"]}


planned.feedback(drift=drifted)
"""


def while_a_variable_goes(bench: InMemory, method: str, *, answers: int = 1) -> StoreWithHistory:
    """Return the store of a run that drops a variable behind an answer to whoever knows the run with it."""
    bench.write_iteration(LONG + DRIFT)
    bench.open()
    bench.drive(until_epoch=1)

    def drop_it() -> None:
        bench.write_iteration(LONG)
        bench.drive(until_epoch=2, allow_dropped_state=True)
        bench.write_iteration(LONG + DRIFT)

    return cast("StoreWithHistory", Overtaken(bench.store, method, drop_it, answers=answers))


def test_branch_of_a_run_that_drops_a_variable_meanwhile_has_no_value_for_it_and_is_refused(bench: InMemory) -> None:
    store = while_a_variable_goes(bench, "find_run", answers=2)
    settings = Settings(store_url=None, state_uri=str(bench.folder / "state"))

    with pytest.raises(IllegalBranchError) as caught:
        branch_run(store, settings, BranchRequest(checkpoint=f"{KEY}@1", run_key="again", branched_by="ann"))

    assert ("variable 'drift' is new, and has no value to go on with; start another run",) == (caught.value.reasons)
    assert bench.store.find_run("again") is None


def test_savepoint_of_a_run_that_drops_a_variable_meanwhile_names_what_it_holds(bench: InMemory) -> None:
    store = while_a_variable_goes(bench, "list_checkpoints")

    saved = save_run(store, bench.run, checkpoint_id=1).savepoint

    assert bench.run.definition == saved.definition
    assert {"centre"} == set(saved.manifest.variables)


def test_attempt_is_judged_by_the_operators_of_one_definition_though_another_one_drops_some_meanwhile(
    bench: InMemory,
) -> None:
    store = while_a_variable_goes(bench, "list_epochs")
    graph = load_iteration(f"{MODULE}:planned").graph()

    judged = read_continuation(store, bench.run, graph)

    assert read_continuation(bench.store, bench.run, graph) == judged
    assert ("drift", "drifted") == judged.evolution.added
