"""What would the next attempt do, and would it be let? A dry run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from iteration_lib.cli.plan import plan_json
from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import (
    InputError,
    IterationError,
    IterationNotFoundError,
    OperatorFailedError,
    ProtocolViolationError,
    RunStoppedError,
    SinkTargetError,
    StateCorruptedError,
)
from iteration_lib.explanation import read_history
from iteration_lib.planning import RunPlan, plan_run
from iteration_lib.protocol import Event
from iteration_lib.protocol.bucket_range import Ranges
from iteration_lib.protocol.event import Committable, FinishedPart
from iteration_lib.protocol.resume import Action
from iteration_lib.protocol.status import RunStatus, StopKind
from iteration_lib.state.saved import FileFormat, SavedFile, SavedStream
from tests.driven_in_memory import MODULE, SOURCE, InMemory
from tests.overtaken_store import Overtaken
from tests.protocol_script import FIRST, Sender, claim, part, stops
from tests.unit.test_verification import remove, spoil

ALL = ((0, 4),)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InMemory:
    """A run that nobody has driven yet."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return InMemory.begin(tmp_path)


def plan(bench: InMemory, **options: bool) -> RunPlan:
    return plan_run(bench.store, bench.run, **options)


def leave_uncommitted(bench: InMemory) -> None:
    """Leave something that waits for a sink which its output has no more."""
    committable = Committable(epoch=0, output="rows", target="a folder", content={})
    bench.store_as_it_was_driven(committable)


def unused(planned: RunPlan) -> list[tuple[str, Ranges, str]]:
    assert planned.resume is not None
    return [(edge.operator_id, edge.buckets, edge.reason) for edge in planned.resume.unused]


def actions(planned: RunPlan) -> dict[str, tuple[Action, Ranges]]:
    assert planned.resume is not None
    return {step.vertex.operator_id: (step.action, step.running) for step in planned.resume.steps}


@pytest.mark.parametrize("is_made_durable", [True, False], ids=["none in its place", "nothing made durable"])
def test_run_whose_checkpoint_is_not_of_its_last_durable_epoch_is_neither_driven_nor_planned(
    bench: InMemory,
    is_made_durable: bool,  # noqa: FBT001 - a case
) -> None:
    bench.drive(until_epoch=2)
    rows = bench.store._runs[bench.run.run_id]
    if is_made_durable:
        rows.checkpoints[2]["status"] = "SUBSUMED"
    else:
        rows.run["last_durable_epoch"] = 0
        rows.epochs[1, 1]["status"] = "ALIGNED"
    before = bench.run

    planned = plan(bench)
    with pytest.raises(ProtocolViolationError) as caught:
        bench.drive()

    assert (str(caught.value),) == planned.refusals
    assert before == bench.run


def reason(planned: RunPlan, operator_id: str) -> str:
    """Return why an operator is skipped or run."""
    assert planned.resume is not None
    step = planned.resume.step(operator_id)
    assert step is not None
    return step.reason


def test_plan_that_ignores_edges_is_what_an_attempt_does_that_ignores_them(bench: InMemory) -> None:
    bench.drive_until_broken()
    bench.mend()

    ignoring = plan(bench, ignore_edges=True)
    planned = actions(ignoring)
    bench.drive(ignore_edges=True)

    assert "its edge is not used: edges are ignored" == reason(ignoring, "sums")
    assert "it had not finished" == reason(ignoring, "moved")

    assert {
        "scaled": (Action.SKIPPED, ()),
        "centre": (Action.RESTORED, ()),
        "sums": (Action.RUN, ALL),
        "moved": (Action.RUN, ((0, 1),)),
    } == planned
    voided = [part for part in bench.store.list_parts(bench.run.run_id) if part.voided_at is not None]
    assert {(1, "sums")} == {(part.epoch, part.operator_id) for part in voided}


def test_run_that_nobody_has_driven_begins_at_epoch_0_with_nothing(bench: InMemory) -> None:
    planned = plan(bench)

    assert {
        "scaled": (Action.RUN, ALL),
        "centre": (Action.RUN, ((0, 1),)),
        "sums": (Action.RUN, ALL),
        "moved": (Action.RUN, ((0, 1),)),
    } == actions(planned)
    assert (0, None, (), (), (), None) == (
        planned.resume.epoch if planned.resume else None,
        planned.checkpoint,
        planned.pins,
        planned.changes,
        planned.refusals,
        planned.live,
    )


def test_run_that_failed_inside_an_epoch_goes_on_behind_its_edges(bench: InMemory) -> None:
    bench.drive_until_broken()

    planned = plan(bench)

    assert {
        "scaled": (Action.SKIPPED, ()),
        "centre": (Action.RESTORED, ()),
        "sums": (Action.RESTORED, ()),
        "moved": (Action.RUN, ((0, 1),)),
    } == actions(planned)
    assert planned.resume is not None
    assert ["moved"] == [trigger.operator_id for trigger in planned.resume.frontier]
    assert ((), ()) == (planned.refusals, planned.resume.unused)
    assert [("made", 1, 4, None), ("points", 1, 8, None)] == [dataclasses.astuple(pin) for pin in planned.pins]


def test_plan_names_the_checkpoint_and_what_is_read_of_it(bench: InMemory) -> None:
    bench.drive_until_broken()

    restored = plan(bench).checkpoint

    assert restored is not None
    folder = next(path for path in bench.state.iterdir() if path.name.startswith("000001-"))
    files = [*folder.glob("epoch-000000/moved/*"), *folder.glob("finished/scaled/*")]
    assert (1, 0, len(files), sum(file.stat().st_size for file in files)) == (
        restored.checkpoint_id,
        restored.epoch,
        restored.files,
        restored.size_bytes,
    )


def test_run_without_edges_runs_its_open_epoch_again(bench: InMemory) -> None:
    bench.drive_until_broken(alignment_timeout_seconds=None)

    planned = plan(bench)

    assert (Action.RUN, ALL) == actions(planned)["sums"]
    assert planned.resume is not None
    step = planned.resume.step("sums")
    assert step is not None
    assert "the last attempt at epoch 1 had not switched to unaligned, so it left no edge" == step.reason


def test_plan_changes_nothing_and_takes_nothing(bench: InMemory) -> None:
    bench.drive_until_broken()
    rows, files = read_history(bench.store, bench.run), bench.all_files()

    plan(bench)

    assert (rows, files) == (read_history(bench.store, bench.run), bench.all_files())


def test_plan_is_what_the_next_attempt_does(bench: InMemory) -> None:
    """What the plan restores nobody marks again, and what it runs is marked by the attempt that runs it."""
    bench.drive_until_broken()
    runs = {operator_id for operator_id, (_, running) in actions(plan(bench)).items() if running}

    bench.mend()
    bench.drive()

    parts = bench.store.list_parts(bench.run.run_id)
    assert runs == {part.operator_id for part in parts if (part.epoch, part.fencing_token) == (1, 2)}


def test_first_values_of_variables_are_restored_with_the_edges_of_epoch_0(bench: InMemory) -> None:
    bench.write_iteration(SOURCE.replace("epoch == 1", "epoch == 0"))
    fresh = InMemory(bench.folder)
    fresh.open()
    fresh.drive_until_broken()

    assert {
        "scaled": (Action.SKIPPED, ()),
        "centre": (Action.RESTORED, ()),
        "sums": (Action.RESTORED, ()),
        "moved": (Action.RUN, ((0, 1),)),
    } == actions(plan(fresh))


def test_new_variable_is_no_refusal_where_first_values_are_captured_and_no_checkpoint_holds_any(
    bench: InMemory,
) -> None:
    """The epoch that saw the first values is begun anew, with the new variable's."""
    source = SOURCE.replace("epoch == 1", "epoch == 0")
    bench.write_iteration(source)
    fresh = InMemory(bench.folder)
    fresh.open()
    fresh.drive_until_broken()
    bench.write_iteration(
        source.replace(
            "planned.feedback(centre=moved)",
            '@planned.variable\ndef pace():\n    return {"at": np.zeros(1)}\n\n\n'
            "@planned.operator\ndef paced(pace):\n    return pace\n\n\n"
            "planned.feedback(centre=moved, pace=paced)",
        )
    )

    planned = plan(fresh)

    assert ("operator 'pace' is new", ()) == (planned.changes[0], planned.refusals)


def test_input_that_changed_is_a_refusal_that_names_the_file(bench: InMemory) -> None:
    bench.drive_until_broken()
    bench.write_input(rows=9)

    planned = plan(bench)

    assert 1 == len(planned.refusals)
    assert planned.refusals[0].startswith(f"input file {bench.input} has changed from ")
    assert [None, planned.refusals[0]] == [pin.problem for pin in planned.pins]


OTHER = (
    SOURCE
    + """

@planned.data
def other(params):
    return parquet(params.input + "-other", columns=["x"])


@planned.map_buckets
def shifted(other, sums):
    return {"at": other["x"] + 1.0}


planned.output(shifted=shifted)
"""
)


def test_data_stream_that_is_gone_from_the_iteration_is_not_looked_at(bench: InMemory) -> None:
    other = Path(f"{bench.input}-other")
    bench.input.rename(other)
    bench.write_input()
    bench.write_iteration(OTHER)
    fresh = InMemory(bench.folder)
    fresh.open()
    fresh.drive(until_epoch=1)
    other.unlink()
    fresh.write_iteration()

    planned = plan(fresh)

    assert (["made", "points"], ()) == ([pin.name for pin in planned.pins], planned.refusals)
    assert RunStatus.FINISHED is fresh.drive().status


def remove_input(bench: InMemory) -> None:
    bench.input.unlink()


def add_data_stream(bench: InMemory) -> None:
    bench.drive(until_epoch=1)
    bench.write_iteration(OTHER)


@pytest.mark.parametrize("harm", [remove_input, add_data_stream])
def test_input_that_nobody_has_pinned_yet_is_the_refusal_that_the_attempt_would_give(
    bench: InMemory, harm: Callable[[InMemory], None]
) -> None:
    harm(bench)
    rows, files = read_history(bench.store, bench.run), bench.all_files()

    planned = plan(bench)
    looked = (read_history(bench.store, bench.run), bench.all_files())
    with pytest.raises(InputError) as caught:
        bench.drive()

    assert (str(caught.value),) == planned.refusals
    assert (rows, files) == looked


def test_checkpoint_that_is_gone_is_a_refusal_that_names_its_manifest(bench: InMemory) -> None:
    bench.drive_until_broken()
    manifest = next(bench.state.glob("*/checkpoint-000001.json"))
    manifest.unlink()

    planned = plan(bench)

    assert (None, (f"state file {manifest} is missing; restore the file, nothing was changed",)) == (
        planned.checkpoint,
        planned.refusals,
    )


@pytest.mark.parametrize(
    "pattern",
    ["*/epoch-000000/moved/*", "*/finished/scaled/*", "*/epoch-000001/sums/*", "*/pins/made/*"],
    ids=["a variable", "what finished for good", "an edge", "copied input"],
)
@pytest.mark.parametrize("harm", [remove, spoil])
def test_file_that_is_bad_is_the_refusal_that_the_attempt_would_give(
    bench: InMemory, pattern: str, harm: Callable[[Path], str]
) -> None:
    bench.drive_until_broken()
    bench.mend()
    harm(min(bench.state.glob(pattern)))

    planned = plan(bench)
    with pytest.raises((StateCorruptedError, InputError)) as caught:
        bench.drive()

    assert (str(caught.value),) == planned.refusals


def test_edge_that_is_bad_is_no_refusal_where_edges_are_ignored(bench: InMemory) -> None:
    bench.drive_until_broken()
    remove(min(bench.state.glob("*/epoch-000001/sums/*")))

    assert () == plan(bench, ignore_edges=True).refusals


def test_file_that_nothing_reads_any_more_is_no_refusal(bench: InMemory) -> None:
    """Neither of an operator whose takers have all finished for good, nor an edge whose takers have edges."""
    bench.write_iteration(
        SOURCE.replace("def scaled(points, made):", CLEANED)
        .replace('points["x"] * 2.0', 'cleaned["x"] * 2.0')
        .replace('{"at": sums["sum"].sum(keepdims=True)}', "moved")
        .replace("def moved(sums, params, epoch):", SHIFTED)
        .replace("centre=moved", "centre=shifted")
    )
    chained = InMemory(bench.folder)
    chained.open()
    chained.drive_until_broken()
    chained.mend()
    for path in [*chained.state.glob("*/finished/cleaned/*"), *chained.state.glob("*/epoch-000001/sums/*")]:
        path.unlink()

    planned = plan(chained)

    assert ((), RunStatus.FINISHED) == (planned.refusals, chained.drive().status)


CLEANED = """def cleaned(points):
    return points


@planned.map_buckets(finishes=True)
def scaled(cleaned, made):"""

SHIFTED = """def moved(sums):
    return {"at": sums["sum"].sum(keepdims=True)}


@planned.operator
def shifted(moved, params, epoch):"""


def test_output_that_is_bad_is_a_refusal_of_the_run_that_only_publishes_it(bench: InMemory) -> None:
    bench.drive(publish=False)
    remove(min(bench.state.glob("outputs/centre/*/*")))

    planned = plan(bench)
    with pytest.raises(StateCorruptedError) as caught:
        bench.drive()

    assert (str(caught.value),) == planned.refusals


def test_output_that_waits_for_another_target_is_the_refusal_that_the_attempt_would_give(bench: InMemory) -> None:
    bench.drive(until_epoch=1)
    leave_uncommitted(bench)

    planned = plan(bench)
    with pytest.raises(SinkTargetError) as caught:
        bench.drive()

    assert (str(caught.value),) == planned.refusals


SPEECHLESS = f"""{SOURCE}

from iteration_lib import errors


class Speechless:
    def prepare(self, transaction, publication):
        return {{}}

    def commit(self, transaction, committable):
        pass

    def abort(self, transaction):
        pass

    def describe(self):
        raise RuntimeError("no name")


planned.output(rows=moved, sink=Speechless())
"""


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        ('RuntimeError("no name")', "(RuntimeError: no name)"),
        ('SystemExit("no licence")', "(SystemExit: no licence)"),
        ('errors.UsageError("set SINK_URL")', "(UsageError: set SINK_URL)"),
        ('errors.StateLocationError("file:///x", "is not there")', "(StateLocationError: state location 'file:///x'"),
        ('errors.StateCorruptedError("/x", "is missing")', "(StateCorruptedError: state file /x is missing"),
    ],
    ids=["any error", "exit", "own words", "a location", "a file"],
)
def test_sink_that_cannot_say_where_it_goes_is_the_refusal_that_the_attempt_would_give(
    bench: InMemory, raised: str, told: str
) -> None:
    bench.drive(until_epoch=1)
    leave_uncommitted(bench)
    bench.write_iteration(SPEECHLESS.replace('RuntimeError("no name")', raised))

    planned = plan(bench)
    with pytest.raises(SinkTargetError) as caught:
        bench.drive()

    assert f"the Speechless of output 'rows' failed in describe {told}" in str(caught.value)
    assert (str(caught.value),) == planned.refusals


def test_operator_that_comes_behind_what_the_epoch_had_left_leaves_it_as_it_was(bench: InMemory) -> None:
    bench.drive_until_broken()
    bench.write_iteration(
        SOURCE.replace(
            "@planned.operator\ndef moved(sums,",
            "@planned.map_buckets\ndef shares(sums):\n    return sums\n\n\n@planned.operator\ndef moved(shares,",
        ).replace('sums["sum"].sum(keep', 'shares["sum"].sum(keep')
    )

    planned = plan(bench)

    assert "operator 'shares' is new" in planned.changes
    assert ["SKIPPED", "RESTORED", "RUN"] == [actions(planned)[name][0].value for name in ("scaled", "sums", "shares")]
    assert planned.resume is not None
    assert () == planned.resume.unused


def test_why_an_operator_runs_is_said_by_the_last_attempt_at_the_epoch(bench: InMemory) -> None:
    bench.drive_until_broken()
    with pytest.raises(OperatorFailedError):
        bench.drive(ignore_edges=True, alignment_timeout_seconds=None)

    planned = plan(bench)

    assert "the last attempt at epoch 1 had not switched to unaligned, so it left no edge" == reason(planned, "sums")


def test_operator_that_comes_before_what_the_epoch_had_left_voids_it(bench: InMemory) -> None:
    """What finished for good is skipped all the same."""
    bench.drive_until_broken()
    bench.write_iteration(
        SOURCE.replace(
            "@planned.map_buckets\ndef sums(scaled, centre):",
            "@planned.map_buckets\ndef shares(scaled):\n    return scaled\n\n\n"
            "@planned.map_buckets\ndef sums(shares, centre):",
        ).replace('np.array([scaled["at"].sum()', 'np.array([shares["at"].sum()')
    )

    planned = plan(bench)

    assert "operator 'shares' is new" in planned.changes
    assert ["SKIPPED", "RUN"] == [actions(planned)[name][0].value for name in ("scaled", "sums")]
    assert [("sums", ALL, "its inputs are shares, centre now")] == unused(planned)
    assert "its edge is not used: its inputs are shares, centre now" == reason(planned, "sums")
    assert "it had not finished" == reason(planned, "moved")


# `shares` takes `sums` beside `moved`, whose result it is no part of.
BESIDE = SOURCE.replace(
    "planned.feedback(",
    "@planned.map_buckets\ndef shares(sums):\n    return sums\n\n\nplanned.output(shares=shares)\nplanned.feedback(",
)
WRITTEN = SavedFile(path="sums.arrow", size_bytes=1, sha256="ab", rows=1, first_bucket=0, end_bucket=4)


def of_sums(*files: SavedFile, schema: str) -> FinishedPart:
    """Return the whole output of `sums`, as it is marked."""
    output = SavedStream(kind="buckets", format=FileFormat.ARROW, schema=schema, files=files).to_json()
    return dataclasses.replace(part("sums", 0, 4, total=4), output=output)


def leave_of_sums(bench: InMemory, *, schema: str) -> None:
    """Leave an edge of `sums` without files in epoch 1."""
    bench.drive(until_epoch=1)
    driver = Sender(2, 2)
    Coordinator(bench.store).apply(bench.run.run_id, claim(2), driver.opens(1, centre=1), driver.switches(1))
    Coordinator(bench.store).apply(bench.run.run_id, driver.marks(1, of_sums(schema=schema)))


def test_edge_without_files_is_void_where_another_operator_asks_for_them(bench: InMemory) -> None:
    leave_of_sums(bench, schema="")
    bench.write_iteration(BESIDE)

    assert "its edge is not used: it left no files, and 'shares' asks for them" == reason(plan(bench), "sums")


def test_edge_of_a_result_without_rows_is_as_good_as_any(bench: InMemory) -> None:
    """A DataFrame without rows leaves no files."""
    leave_of_sums(bench, schema="00")
    bench.write_iteration(BESIDE)

    assert (Action.RESTORED, ()) == actions(plan(bench))["sums"]


def test_other_code_is_a_refusal(bench: InMemory) -> None:
    bench.drive_until_broken()
    bench.write_iteration(SOURCE.replace("* 2.0", "* 3.0"))

    assert ["operator 'scaled': its code changed"] == [refusal.partition(";")[0] for refusal in plan(bench).refusals]


def test_new_operator_before_one_that_finished_is_refused_with_both_names(bench: InMemory) -> None:
    bench.drive_until_broken()
    bench.write_iteration(
        SOURCE.replace(
            "@planned.map_buckets(finishes=True)\ndef scaled(points, made):",
            "@planned.map_buckets(finishes=True)\ndef cleaned(points):\n    return points\n\n\n"
            "@planned.map_buckets(finishes=True)\ndef scaled(cleaned, made):",
        ).replace('points["x"] * 2.0', 'cleaned["x"] * 2.0')
    )

    offence = "operator 'scaled' is finished, but its input 'cleaned' is not"
    assert f"{offence}; put the operators back as they were, or start another run" in plan(bench).refusals


def test_operator_whose_state_would_be_lost_is_refused_unless_it_may_be(bench: InMemory) -> None:
    bench.drive_until_broken()
    bench.write_iteration(
        SOURCE.replace(
            "@planned.map_buckets(finishes=True)\n", '@planned.map_buckets(finishes=True, operator_id="s2")\n'
        )
    )

    refused, allowed = plan(bench), plan(bench, allow_dropped_state=True)

    assert ["'scaled' is gone, and has state"] == [
        refusal.removeprefix("operator ").partition(";")[0] for refusal in refused.refusals
    ]
    assert () == allowed.refusals
    assert (Action.RUN, ALL) == actions(allowed)["s2"]


ASIDE = """@planned.operator
def aside(centre):
    return {"at": centre["at"] + 1.0}


planned.output(aside=aside)


@planned.operator
def moved("""


def test_operator_that_is_gone_with_what_it_left_in_the_open_epoch_is_refused_unless_that_may_go(
    bench: InMemory,
) -> None:
    """It is no state of a checkpoint, but a durable edge (B5.8)."""
    bench.write_iteration(SOURCE.replace("@planned.operator\ndef moved(", ASIDE))
    bench.open()
    bench.drive_until_broken()
    bench.write_iteration()

    refused, allowed = plan(bench), plan(bench, allow_dropped_state=True)

    assert ["'aside' is gone, and has state"] == [
        refusal.removeprefix("operator ").partition(";")[0] for refusal in refused.refusals
    ]
    assert () == allowed.refusals


def test_parameters_that_the_iteration_takes_no_more_are_a_refusal(bench: InMemory) -> None:
    bench.write_iteration(SOURCE.replace("    broken: str\n", "    broken: str\n    also: str\n"))

    assert ["parameter 'also' is missing; give --param also=..."] == list(plan(bench).refusals)


def test_iteration_that_is_not_there_is_named(bench: InMemory) -> None:
    bench.write_iteration("planned = None\n")

    with pytest.raises(IterationNotFoundError, match=MODULE):
        plan(bench)


def test_run_that_terminates_only_publishes(bench: InMemory) -> None:
    bench.drive(publish=False)

    planned = plan(bench)

    assert (None, (), ()) == (planned.resume, planned.pins, planned.refusals)
    assert planned.checkpoint is not None
    assert 3 == planned.checkpoint.checkpoint_id


def test_stopped_run_is_planned_and_refused_until_somebody_resumes_it(bench: InMemory) -> None:
    Coordinator(bench.store).apply(bench.run.run_id, stops())

    planned = plan(bench)

    assert (f"run {bench.run.run_id} is stopped; `iteration resume {bench.run.run_id}` lets it go on",) == (
        planned.refusals
    )
    assert planned.resume is not None
    assert 0 == planned.resume.epoch


@pytest.mark.parametrize(
    ("begun", "kind", "epochs", "said"),
    [
        ((), StopKind.STOP, 0, "stop"),
        ((FIRST.opens(0, centre=1),), StopKind.STOP, 1, "run epoch 0, and stop behind it"),
        ((), StopKind.DRAIN, 1, "run epoch 0, the run's last"),
    ],
)
def test_stop_that_is_in_force_is_planned_as_the_next_attempt_answers_it(
    bench: InMemory, begun: tuple[Event, ...], kind: StopKind, epochs: int, said: str
) -> None:
    Coordinator(bench.store).apply(bench.run.run_id, claim(), *begun, stops(kind=kind))

    planned = plan(bench)
    with nullcontext() if epochs else pytest.raises(RunStoppedError):
        bench.drive(takeover=True)

    run_id = bench.run.run_id
    refused = f"run {run_id} is asked to stop, and is STOPPED instead; then `iteration resume {run_id}` lets it go on"
    assert (said, kind) == (plan_json(planned)["next"], planned.stop.kind if planned.stop is not None else None)
    assert (() if epochs else (refused,)) == planned.refusals
    assert (epochs, 0 if epochs else None) == (
        bench.run.epochs,
        planned.resume.epoch if planned.resume is not None else None,
    )


@pytest.mark.parametrize("begun", [(), (Sender(2, 2).opens(1, centre=1),)])
def test_run_that_is_to_stop_only_commits_what_waits_for_its_sinks(bench: InMemory, begun: tuple[Event, ...]) -> None:
    bench.drive(until_epoch=1)
    leave_uncommitted(bench)
    Coordinator(bench.store).apply(bench.run.run_id, claim(2), *begun, stops())

    planned = plan(bench)
    with pytest.raises(SinkTargetError) as caught:
        bench.drive(takeover=True)

    assert (None, "commit what waits for its sinks, and stop") == (planned.resume, plan_json(planned)["next"])
    assert (str(caught.value),) == planned.refusals


@pytest.mark.parametrize(
    ("method", "answers"),
    [
        ("list_attempts", 1),
        ("list_epochs", 1),
        ("list_live_parts", 1),
        ("list_operators", 1),
        ("list_pins", 1),
        ("find_completed", 1),
        ("find_run", 1),
    ],
)
def test_plan_beside_a_driver_is_one_of_the_run_as_it_is_at_one_instant(
    bench: InMemory, method: str, answers: int
) -> None:
    """Also where the checkpoint that was found is discarded, and its files are gone, when they are looked at."""
    bench.drive(until_epoch=1, checkpointing={"retain_last": 1})
    store = Overtaken(
        bench.store, method, lambda: bench.drive(until_epoch=2, checkpointing={"retain_last": 1}), answers
    )

    planned = plan_run(store, bench.run)

    assert ("DISCARDED", 2) == (
        bench.store.list_checkpoints(bench.run.run_id)[0].status.value,
        planned.resume.epoch if planned.resume is not None else None,
    )
    assert plan(bench) == planned


@pytest.mark.parametrize("method", ["list_attempts", "list_epochs", "list_live_parts", "list_pins", "find_completed"])
def test_plan_beside_an_epoch_in_progress_is_one_of_the_run_as_it_is_at_one_instant(
    bench: InMemory, method: str
) -> None:
    """An epoch is opened, switched to unaligned and leaves an edge, which the row of the run hardly shows."""
    bench.drive(until_epoch=1)
    coordinator, driver = Coordinator(bench.store), Sender(2, 2)
    coordinator.apply(bench.run.run_id, claim(2))
    output = SavedStream(kind="buckets", format=FileFormat.ARROW, schema="", files=()).to_json()
    edge = driver.marks(1, dataclasses.replace(part("sums", 0, 4, total=4), output=output))
    store = Overtaken(
        bench.store,
        method,
        lambda: coordinator.apply(bench.run.run_id, driver.opens(1, centre=1), driver.switches(1), edge),
    )

    planned = plan_run(store, bench.run)

    assert plan(bench) == planned
    assert (Action.RESTORED, ()) == actions(planned)["sums"]


def test_run_that_goes_on_between_any_two_looks_is_not_planned(bench: InMemory) -> None:
    def go_on() -> None:
        number = bench.run.fencing_token + 1
        Coordinator(bench.store).apply(bench.run.run_id, claim(number, takeover=True))
        store.answers = 1

    store = Overtaken(bench.store, "list_epochs", go_on)

    with pytest.raises(IterationError, match="goes on faster than it can be planned"):
        plan_run(store, bench.run)


def test_finished_run_has_nothing_left_whatever_became_of_its_iteration(bench: InMemory) -> None:
    bench.drive()
    bench.write_iteration("")

    planned = plan(bench)

    assert (None, None, (), ()) == (planned.resume, planned.checkpoint, planned.changes, planned.refusals)


def test_live_attempt_is_named_and_no_refusal(bench: InMemory) -> None:
    coordinator = Coordinator(bench.store)
    coordinator.apply(bench.run.run_id, claim())

    planned = plan(bench)

    assert planned.live is not None
    assert (FIRST.attempt_id, ()) == (planned.live.attempt_id, planned.refusals)
    coordinator.apply(bench.run.run_id, FIRST.ends())
    assert plan(bench).live is None
