"""What does an operator get that has the id of one which was removed before? Nothing that the other one left."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from iteration_lib.branching import BranchRequest, branch_run
from iteration_lib.config import Settings
from iteration_lib.engine import Engine, EngineKind
from iteration_lib.errors import InputError, OperatorFailedError, RunMismatchError
from iteration_lib.launch import Drive, drive_run, find_run, read_outputs
from iteration_lib.planning.plan import plan_run
from iteration_lib.process import this_holder
from iteration_lib.protocol.resume import Action
from iteration_lib.store.record import RunRecord
from iteration_lib.verification import verify_run
from tests.driven_in_memory import MODULE, SOURCE, InMemory

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
EXTRA = """

@planned.map_buckets(finishes=True)
def extra(points):
    return {{"at": points["x"] * {factor}}}


@planned.operator
def probe(extra):
    return {{"total": extra["at"].sum(keepdims=True)}}


planned.output(probe=probe)
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


def drive_branch(bench: InMemory, settings: Settings, *, allow_dropped_state: bool = False) -> RunRecord:
    drive = Drive(
        holder=this_holder(),
        open_runner=Engine(kind=EngineKind.LOCAL).open_runner,
        parallelism=2,
        allow_dropped_state=allow_dropped_state,
    )
    return drive_run(bench.store, settings, find_run(bench.store, "again"), drive)
