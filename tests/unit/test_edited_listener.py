"""What does a listener hear whose function was edited between two attempts?"""

from __future__ import annotations

from pathlib import Path

import pytest

from iteration_lib.continuation import read_continuation
from iteration_lib.errors import RunMismatchError
from iteration_lib.explanation import read_history
from iteration_lib.model.definition import load_iteration
from iteration_lib.planning import UnheardEpochs, plan_run
from iteration_lib.protocol.status import RunStatus
from tests.driven_in_memory import SOURCE, InMemory

SAID = (
    "listener 'tell' hears of the end now, and has heard of epochs: it would not be told; give it another listener_id"
)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InMemory:
    monkeypatch.syspath_prepend(str(tmp_path))
    bench = InMemory(tmp_path)
    bench.write_input()
    return bench


def edit(bench: InMemory, listener: str) -> None:
    """Write the iteration with one listener, of which the first line is given."""
    said = f"    with open({str(bench.folder / 'said')!r}, 'a') as file:\n        file.write(f'{{epoch}} ')\n"
    bench.write_iteration(f"{SOURCE}\n\n{listener}\n{said}")


def said(bench: InMemory) -> list[str]:
    """Return the epochs that listeners said they heard of, in order."""
    return (bench.folder / "said").read_text().split()


def test_listener_that_keeps_its_id_may_be_renamed_and_hears_nothing_twice(bench: InMemory) -> None:
    edit(bench, "@planned.on_epoch_durable(listener_id='tell')\ndef tell(epoch):")
    bench.open()
    bench.drive(until_epoch=2)

    edit(bench, "@planned.on_epoch_durable(listener_id='tell')\ndef announce(epoch):")
    unheard = plan_run(bench.store, bench.run).unheard
    bench.drive()

    assert ((), ["0", "1", "2"]) == (unheard, said(bench))


def test_renamed_listener_without_an_id_is_a_new_one_and_hears_of_every_durable_epoch(bench: InMemory) -> None:
    edit(bench, "@planned.on_epoch_durable\ndef tell(epoch):")
    bench.open()
    bench.drive(until_epoch=2)

    edit(bench, "@planned.on_epoch_durable\ndef announce(epoch):")
    unheard = plan_run(bench.store, bench.run).unheard
    bench.drive()

    assert (UnheardEpochs(listener_id="announce", first_epoch=0, last_epoch=1),) == unheard
    assert ["0", "1", "0", "1", "2"] == said(bench)


def test_listener_of_epochs_that_is_to_hear_of_the_end_is_refused_before_anything_runs(bench: InMemory) -> None:
    """What it has heard would pass for having heard of the end."""
    edit(bench, "@planned.on_epoch_durable\ndef tell(epoch):")
    bench.open()
    bench.drive(until_epoch=2)
    rows, files = read_history(bench.store, bench.run), said(bench)
    edit(bench, "@planned.on_terminated\ndef tell(epoch):")

    with pytest.raises(RunMismatchError) as caught:
        bench.drive()

    assert (SAID,) == caught.value.differences == plan_run(bench.store, bench.run).refusals
    assert (rows, files) == (read_history(bench.store, bench.run), said(bench))


def test_listener_of_epochs_that_is_to_hear_of_the_end_does_so_under_another_id(bench: InMemory) -> None:
    edit(bench, "@planned.on_epoch_durable\ndef tell(epoch):")
    bench.open()
    bench.drive(until_epoch=2)

    edit(bench, "@planned.on_terminated(listener_id='tell-end')\ndef tell(epoch):")
    run = bench.drive()

    assert ["0", "1", "2"] == said(bench)
    assert RunStatus.FINISHED is run.status


def test_listener_of_the_end_that_is_to_hear_of_epochs_hears_of_every_one(bench: InMemory) -> None:
    """It has heard nothing yet: the end is heard of in the step that finishes the run."""
    edit(bench, "@planned.on_terminated\ndef tell(epoch):")
    bench.open()
    bench.drive(until_epoch=2)

    edit(bench, "@planned.on_epoch_durable\ndef tell(epoch):")
    bench.drive()

    assert ["0", "1", "2"] == said(bench)


def test_run_whose_listener_has_heard_of_its_end_is_still_the_run_of_its_key(bench: InMemory) -> None:
    edit(bench, "@planned.on_terminated\ndef tell(epoch):")
    bench.open()
    bench.drive()

    run = bench.open()

    assert (["2"], RunStatus.FINISHED) == (said(bench), run.status)


def test_listener_that_has_heard_of_the_end_since_the_run_was_read_is_no_reason_to_refuse(bench: InMemory) -> None:
    """Another attempt finished it meanwhile, which the next step finds out."""
    edit(bench, "@planned.on_terminated\ndef tell(epoch):")
    before = bench.open()
    graph = load_iteration(before.reference).graph()
    bench.drive()

    continuation = read_continuation(bench.store, before, graph)

    assert (RunStatus.RUNNING, ()) == (before.status, continuation.refusals(allow_dropped_state=False))
