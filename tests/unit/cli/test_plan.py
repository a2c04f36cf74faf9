"""How is a plan shown?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from iteration_lib.cli.plan import plan_json, print_plan
from iteration_lib.coordinator import Coordinator
from iteration_lib.planning import plan_run
from tests.driven_in_memory import SOURCE, InMemory
from tests.protocol_script import claim, stops


def test_stop_that_is_in_force_is_shown_with_who_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    bench = InMemory.begin(tmp_path)
    Coordinator(bench.store).apply(bench.run.run_id, claim(), stops())

    planned = plan_run(bench.store, bench.run)
    print_plan(planned)

    (stop,) = bench.store.list_stops(bench.run.run_id)
    at = stop.requested_at.isoformat(timespec="milliseconds")
    assert ["next        stop", f"asked to    stop, by ann {at}"] == [
        line for line in capsys.readouterr().out.splitlines() if line.startswith(("next", "asked to"))
    ]
    assert {
        "kind": "STOP",
        "requested_by": "ann",
        "requested_at": at,
        "stopped_at": None,
        "resumed_by": None,
        "resumed_at": None,
    } == plan_json(planned)["stop"]


def test_durable_epochs_that_a_listener_has_yet_to_hear_of_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    bench = InMemory.begin(tmp_path)
    bench.drive(until_epoch=2)
    bench.write_iteration(f"{SOURCE}\n\n@planned.on_epoch_durable\ndef tell(epoch): ...\n")

    planned = plan_run(bench.store, bench.run)
    print_plan(planned)

    assert "\nlisteners hear first\n  tell of the epochs 0 to 1\n" in capsys.readouterr().out
    assert [{"listener_id": "tell", "first_epoch": 0, "last_epoch": 1}] == plan_json(planned)["unheard"]


def test_attempt_whose_lease_is_over_is_not_said_to_drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have died on another machine, where no process can be looked for."""
    monkeypatch.syspath_prepend(str(tmp_path))
    bench = InMemory.begin(tmp_path)
    Coordinator(bench.store).apply(bench.run.run_id, claim())

    planned = plan_run(bench.store, bench.run)
    assert planned.live is not None
    dead = replace(planned, live=replace(planned.live, is_lease_over=True))

    until = planned.live.lease_expires_at.isoformat(timespec="milliseconds")
    who = planned.live.holder.describe()
    assert f"{who}; its lease runs out {until} unless it is renewed" == plan_json(planned)["driven_by"]
    assert f"{who}, whose lease ran out {until}: the next attempt takes the run over" == plan_json(dead)["driven_by"]
