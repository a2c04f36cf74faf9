"""How is a plan shown?"""

from __future__ import annotations

from pathlib import Path

import pytest

from iteration_lib.cli.plan import plan_json, print_plan
from iteration_lib.coordinator import Coordinator
from iteration_lib.planning import plan_run
from tests.driven_in_memory import InMemory
from tests.protocol_script import claim, stops


def test_stop_that_is_in_force_is_shown_with_who_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    bench = InMemory(tmp_path)
    bench.write_input()
    bench.write_iteration()
    bench.open()
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
