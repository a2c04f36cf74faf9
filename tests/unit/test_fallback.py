"""Which older checkpoint does a run go on from, where its newest one is broken and a person lets it?"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from iteration_lib import fallback
from iteration_lib.coordinator import Coordinator
from iteration_lib.engine import Engine, EngineKind
from iteration_lib.errors import FallbackRefusedError, InputError, StateCorruptedError
from iteration_lib.explanation import explain_run, read_history
from iteration_lib.fallback import advise, problem_of
from iteration_lib.garbage import collect_garbage
from iteration_lib.model.definition import load_iteration
from iteration_lib.protocol.command import RecordNotice
from iteration_lib.protocol.event import Committable
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.status import RunStatus
from iteration_lib.store.memory import MemoryStore
from iteration_lib.store.record import CheckpointRecord
from iteration_lib.verification import verify_run
from tests.driven_in_memory import MODULE, SOURCE, InMemory
from tests.overtaken_store import Overtaken
from tests.store_script import history
from tests.unit.test_ids_that_come_back import COUNT


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InMemory:
    """A run of three epochs, of which two are durable."""
    return all_but_one_durable(tmp_path, monkeypatch, epochs=3)


def all_but_one_durable(folder: Path, monkeypatch: pytest.MonkeyPatch, *, epochs: int) -> InMemory:
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    bench = InMemory(folder)
    bench.write_input()
    bench.write_iteration(SOURCE.replace("max_epochs: int = 3", f"max_epochs: int = {epochs}"))
    bench.open()
    bench.drive(until_epoch=epochs - 1)
    return bench


def checkpoint(bench: InMemory, checkpoint_id: int) -> CheckpointRecord:
    return bench.store.list_checkpoints(bench.run.run_id)[checkpoint_id - 1]


def state_file(bench: InMemory, checkpoint_id: int) -> Path:
    """Return the file of a checkpoint that holds its variable."""
    files = verify_run(bench.store, bench.run, checkpoint_id=checkpoint_id)
    return next(bench.state / file.path for file in files if "/epoch-" in file.path)


def leave_published(bench: InMemory) -> None:
    """Leave what a sink has published of epoch 1, of an output that has no sink any more."""
    committable = Committable(epoch=1, output="rows", target="a folder", content={}, in_store=True)
    bench.store_as_it_was_driven(committable)


def statuses(bench: InMemory) -> list[str]:
    return [known.status.value for known in bench.store.list_checkpoints(bench.run.run_id)]


def test_broken_newest_checkpoint_stops_the_run_and_nothing_is_given_up_unasked(bench: InMemory) -> None:
    state_file(bench, 2).unlink()

    with pytest.raises(StateCorruptedError, match="is missing"):
        bench.drive()

    assert (["SUBSUMED", "COMPLETED"], 2, ()) == (
        statuses(bench),
        bench.run.epochs,
        bench.store.list_fallbacks(bench.run.run_id),
    )


@pytest.mark.parametrize("what", ["a file is missing", "a file is changed", "the manifest is missing"])
def test_run_goes_on_from_the_older_checkpoint_to_the_same_bits_where_it_is_let(bench: InMemory, what: str) -> None:
    path = state_file(bench, 2)
    if what == "the manifest is missing":
        path = bench.state / str(checkpoint(bench, 2).manifest_path)
    if what == "a file is changed":
        path.write_bytes(b"x" + path.read_bytes()[1:])
    else:
        path.unlink()

    run = bench.drive(allow_fallback=True)

    (fell,) = bench.store.list_fallbacks(run.run_id)
    epochs = [(e.epoch, e.fencing_token) for e in bench.store.list_epochs(run.run_id) if e.status.value == "DURABLE"]
    assert (RunStatus.FINISHED, ["SUBSUMED", "DISCARDED", "SUBSUMED", "COMPLETED"]) == (run.status, statuses(bench))
    assert (2, 1, 0) == (fell.from_checkpoint_id, fell.to_checkpoint_id, fell.epoch)
    assert str(path.relative_to(bench.state)) in fell.reason
    assert [(0, 1), (1, 2), (2, 2)] == epochs
    undisturbed = InMemory(bench.folder / "undisturbed")
    undisturbed.folder.mkdir()
    undisturbed.write_input()
    undisturbed.open()
    assert undisturbed.drive().state_digest == run.state_digest


def test_what_was_given_up_is_explained_and_collected_and_the_rest_is_whole(bench: InMemory) -> None:
    broken = state_file(bench, 2)
    broken.unlink()
    run = bench.drive(allow_fallback=True)

    told = cast("dict[str, Any]", explain_run(read_history(bench.store, run)))
    collect_garbage(bench.store, run, dry_run=False)

    said = [
        sentence for part in ("attempts", "epochs", "checkpoints") for row in told[part] for sentence in row["because"]
    ]
    relative = broken.relative_to(bench.state)
    assert 1 == len([s for s in said if s.startswith("fell back to checkpoint 1 of epoch 0 ") and str(relative) in s])
    assert 1 == len([s for s in said if s.startswith("voided: attempt 2, ") and "fell back to checkpoint 1" in s])
    assert 1 == len([s for s in said if s.startswith("given up by attempt 2, ") and "checkpoint 2 was broken" in s])
    assert [(0, 1, 1), (1, 1, None), (1, 2, 3), (2, 2, 4)] == [
        (row["epoch"], row["attempt"], row["checkpoint_id"]) for row in told["epochs"]
    ]
    assert ["subsumed by checkpoint 3 of epoch 1", "subsumed by checkpoint 4 of epoch 2"] == [
        sentence for sentence in said if sentence.startswith("subsumed")
    ]
    assert [] == [file for file in verify_run(bench.store, bench.run) if file.problem is not None]


def test_run_of_which_a_sink_has_published_more_is_refused_though_its_output_has_no_sink_any_more(
    bench: InMemory,
) -> None:
    leave_published(bench)
    state_file(bench, 2).unlink()

    with pytest.raises(FallbackRefusedError, match="output 'rows' is published of epochs after 0"):
        bench.drive(allow_fallback=True)

    assert ["SUBSUMED", "COMPLETED"] == statuses(bench)


def test_run_that_sends_each_epoch_to_a_new_sink_which_has_published_nothing_falls_back(bench: InMemory) -> None:
    state_file(bench, 2).unlink()
    folder = bench.folder / "published"
    bench.write_iteration(
        SOURCE
        + "\n\nfrom iteration_lib.sinks import ParquetSink\n\n"
        + f"planned.output(rows=moved, sink=ParquetSink({str(folder)!r}), each_epoch=True)\n"
    )

    with pytest.raises(StateCorruptedError):
        bench.drive()

    run = bench.drive(allow_fallback=True)

    assert RunStatus.FINISHED is run.status
    assert [1, 2] == [known.epoch for known in bench.store.list_committables(run.run_id)]


class Opened(Engine):
    """Counts the runners that it opens."""

    runners = 0

    def open_runner(self, *args: Any) -> Any:
        """See Engine."""
        Opened.runners += 1
        return super().open_runner(*args)


@pytest.fixture
def engine() -> Opened:
    """Whatever an attempt shall compute its epochs on."""
    Opened.runners = 0
    return Opened(kind=EngineKind.LOCAL)


def test_epochs_that_are_given_up_are_computed_again_on_the_engine_that_was_asked_for(
    bench: InMemory, engine: Opened
) -> None:
    """Not on the one of an attempt that has come far enough, and has only listeners to tell."""
    bench.be_killed()
    state_file(bench, 2).unlink()

    run = bench.drive(until_epoch=2, allow_fallback=True, open_runner=engine.open_runner)

    assert (1, 2, 1) == (engine.runners, run.epochs, len(bench.store.list_fallbacks(run.run_id)))


def test_epochs_that_another_attempt_gives_up_meanwhile_are_computed_on_the_engine_that_was_asked_for(
    bench: InMemory, engine: Opened
) -> None:
    bench.be_killed()
    state_file(bench, 2).unlink()

    def fall_back() -> None:
        bench.drive(until_epoch=1, allow_fallback=True)

    overtaken = cast("MemoryStore", Overtaken(bench.store, "list_attempts", fall_back, answers=2))

    run = replace(bench, store=overtaken).drive(until_epoch=2, open_runner=engine.open_runner)

    assert (1, 2, 1) == (engine.runners, run.epochs, len(bench.store.list_fallbacks(run.run_id)))


def test_whole_newest_checkpoint_is_not_given_up(bench: InMemory) -> None:
    state_file(bench, 1).unlink()

    run = bench.drive(allow_fallback=True)

    assert (RunStatus.FINISHED, ()) == (run.status, bench.store.list_fallbacks(run.run_id))
    assert ["SUBSUMED", "SUBSUMED", "COMPLETED"] == statuses(bench)


@pytest.mark.parametrize("number", [2, 1], ids=["the newest", "an older one"])
def test_checkpoint_that_cannot_be_read_is_not_given_up_for_it(bench: InMemory, number: int) -> None:
    """It may be whole: what keeps it from being read may pass."""
    unreadable = state_file(bench, number)
    unreadable.unlink()
    unreadable.symlink_to(unreadable)
    if number == 1:
        state_file(bench, 2).unlink()

    with pytest.raises(StateCorruptedError, match="cannot be read") as caught:
        bench.drive(allow_fallback=True)

    assert str(unreadable.relative_to(bench.state)) in str(caught.value)
    assert ["SUBSUMED", "COMPLETED"] == statuses(bench)


def test_checkpoint_that_is_discarded_meanwhile_is_none_to_go_on_from(bench: InMemory) -> None:
    read_before = checkpoint(bench, 1)
    Coordinator(bench.store).discard(bench.run.run_id, CheckpointPolicy(retain_last=1))

    problem = problem_of(bench.store, bench.run, load_iteration(bench.run.reference).graph(), read_before)

    assert "checkpoint 1 was discarded meanwhile" == problem


def test_run_goes_on_from_the_next_older_checkpoint_where_one_is_discarded_that_was_just_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = all_but_one_durable(tmp_path, monkeypatch, epochs=4)
    state_file(bench, 3).unlink()
    coordinator, find = Coordinator(bench.store), fallback.newest_verified
    coordinator.pin(bench.run.run_id, 1, pinned_by="ann")

    def find_and_discard(*asked: Any) -> CheckpointRecord | None:
        found = find(*asked)
        coordinator.discard(bench.run.run_id, CheckpointPolicy(retain_last=1))
        return found

    monkeypatch.setattr(fallback, "newest_verified", find_and_discard)
    run = bench.drive(allow_fallback=True)

    assert [(3, 1)] == [(f.from_checkpoint_id, f.to_checkpoint_id) for f in bench.store.list_fallbacks(run.run_id)]
    assert RunStatus.FINISHED is run.status


def test_run_without_any_whole_checkpoint_says_so_and_changes_none(bench: InMemory) -> None:
    for number in (1, 2):
        state_file(bench, number).unlink()
    before = history(bench.store, bench.run.run_id)["checkpoints"]

    with pytest.raises(FallbackRefusedError, match=r"no older checkpoint is there whole; restore the files$"):
        bench.drive(allow_fallback=True)

    assert before == history(bench.store, bench.run.run_id)["checkpoints"]


LATE = f"""{SOURCE}

@planned.operator(finishes=True)
def late(made):
    return {{"y": made["y"] * 0.0}}


@planned.operator
def shift(sums, late):
    return {{"y": sums["sum"].sum(keepdims=True) + late["y"].sum()}}


planned.output(shift=shift)
"""


def break_what_finished_late(bench: InMemory) -> tuple[InMemory, Path]:
    """Let an operator that was added for the newest checkpoint lose what it finished for good."""
    late = InMemory(bench.folder)
    late.open()
    late.drive(until_epoch=1)
    late.write_iteration(LATE)
    late.drive(until_epoch=2)
    return late, next(late.state.glob("*/finished/late/*"))


def break_copied_input(bench: InMemory) -> tuple[InMemory, Path]:
    state_file(bench, 2).unlink()
    return bench, next(bench.state.glob("*/pins/made/*"))


@pytest.mark.parametrize("break_it", [break_what_finished_late, break_copied_input])
def test_nothing_is_given_up_where_a_file_is_bad_that_no_older_checkpoint_brings_back(
    bench: InMemory, break_it: Callable[[InMemory], tuple[InMemory, Path]]
) -> None:
    broken, path = break_it(bench)
    path.unlink()

    with pytest.raises((StateCorruptedError, InputError)) as caught:
        broken.drive(allow_fallback=True)

    assert str(path) in str(caught.value)
    assert (["SUBSUMED", "COMPLETED"], 2, ()) == (
        statuses(broken),
        broken.run.epochs,
        broken.store.list_fallbacks(broken.run.run_id),
    )


def test_file_that_an_operator_left_which_is_gone_keeps_nobody_from_falling_back(bench: InMemory) -> None:
    broken, path = break_what_finished_late(bench)
    path.unlink()
    state_file(broken, 2).unlink()
    broken.write_iteration()

    run = broken.drive(allow_fallback=True, allow_dropped_state=True)

    assert (RunStatus.FINISHED, [0]) == (run.status, [fell.epoch for fell in broken.store.list_fallbacks(run.run_id)])


@pytest.mark.parametrize("left", ["finished/late/*", "epoch-000001/count.state-next/*"])
def test_checkpoint_is_not_given_up_for_a_file_that_the_attempt_does_not_read(bench: InMemory, left: str) -> None:
    """The operator that left it is gone."""
    another = InMemory(bench.folder)
    another.write_iteration(LATE + COUNT.format(step=1.0))
    another.open()
    another.drive(until_epoch=2)
    next(another.state.glob(f"*/{left}")).unlink()
    another.write_iteration()

    run = another.drive(allow_fallback=True, allow_dropped_state=True)

    assert (RunStatus.FINISHED, ()) == (run.status, another.store.list_fallbacks(run.run_id))


def leave_as_it_is(bench: InMemory) -> None:
    """Let nothing be bad."""


def break_newest(bench: InMemory) -> None:
    state_file(bench, 2).unlink()


def break_what_finished(bench: InMemory) -> None:
    next(bench.state.glob("*/finished/scaled/*")).unlink()


def break_published(bench: InMemory) -> None:
    """Let the run terminate, and lose what it would publish and the variable of its last checkpoint."""
    bench.drive(publish=False)
    for path in (*bench.state.glob("outputs/centre/*/*"), state_file(bench, 3)):
        path.unlink()


def break_all(bench: InMemory) -> None:
    """Let no checkpoint be whole."""
    for number in (1, 2):
        state_file(bench, number).unlink()


def break_what_a_listener_heard(bench: InMemory) -> None:
    """Let a listener hear of the newest epoch before its checkpoint is bad."""
    heard = (RecordNotice(listener_id="tell", epoch=epoch, effect=None) for epoch in (0, 1))
    bench.write_as_it_was_driven(*heard)
    break_newest(bench)


def break_what_a_sink_shows(bench: InMemory) -> None:
    """Let a sink have published something of the newest epoch."""
    leave_published(bench)
    break_newest(bench)


def break_what_a_person_pins(bench: InMemory) -> None:
    """Let a person have pinned the newest checkpoint."""
    Coordinator(bench.store).pin(bench.run.run_id, 2, pinned_by="ann")
    break_newest(bench)


ALLOWED = "with --allow-fallback it goes on from an older checkpoint"


@pytest.mark.parametrize(
    ("harm", "advice"),
    [
        (leave_as_it_is, None),
        (break_newest, ALLOWED),
        (break_what_finished, None),
        (break_published, None),
        (break_all, None),
        (break_what_a_listener_heard, None),
        (break_what_a_sink_shows, None),
        (break_what_a_person_pins, ALLOWED + ", after `iteration release {run_id} 2`"),
    ],
)
def test_older_checkpoint_is_advised_where_a_run_goes_on_and_its_newest_is_bad_by_itself(
    bench: InMemory, harm: Callable[[InMemory], None], advice: str | None
) -> None:
    harm(bench)
    graph = load_iteration(bench.run.reference).graph()

    assert (advice and advice.format(run_id=bench.run.run_id)) == advise(bench.store, bench.run, graph)
