"""Is an attempt refused that would start from markers that cannot be, or lose state, before it has done anything?"""

from __future__ import annotations

from pathlib import Path

import pytest

from iteration_lib.coordinator import Coordinator
from iteration_lib.errors import IllegalRestoreError, RunMismatchError
from iteration_lib.explanation import read_history
from iteration_lib.launch import check_restorable
from iteration_lib.planning import plan_run
from tests.driven_in_memory import KEY, SOURCE, InMemory
from tests.protocol_script import FIRST, NOW, claim

CLEANED = SOURCE.replace(
    "@planned.map_buckets(finishes=True)\ndef scaled(points, made):",
    "@planned.map_buckets(finishes=True)\ndef cleaned(points):\n    return points\n\n\n"
    "@planned.map_buckets(finishes=True)\ndef scaled(cleaned, made):",
).replace('points["x"] * 2.0', 'cleaned["x"] * 2.0')
OFFENCE = (
    "operator 'scaled' is finished, but its input 'cleaned' is not; put the operators back as they were, or start "
    "another run"
)


@pytest.mark.parametrize("option", ["", "takeover", "ignore_edges", "allow_fallback", "allow_dropped_state"])
def test_attempt_behind_an_illegal_marker_is_refused_with_the_names_before_it_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """As after a store was mended by hand; the dry run says the same."""
    monkeypatch.syspath_prepend(str(tmp_path))
    bench = InMemory(tmp_path)
    bench.write_input()
    bench.write_iteration(CLEANED)
    run = bench.open()
    Coordinator(bench.store).apply(run.run_id, claim(), FIRST.ends())
    bench.store._runs[run.run_id].operators["scaled"].update(
        finished_epoch=0, fencing_token=1, output={}, finished_at=NOW
    )
    rows, files = read_history(bench.store, bench.run), bench.all_files()

    with pytest.raises(IllegalRestoreError) as caught:
        bench.drive(**({option: True} if option else {}))

    assert (KEY, (OFFENCE,)) == (caught.value.run_key, caught.value.offences)
    assert f"  - {OFFENCE}\n" in str(caught.value)
    assert (rows, files) == (read_history(bench.store, bench.run), bench.all_files())
    assert (OFFENCE,) == plan_run(bench.store, bench.run).refusals
    with pytest.raises(IllegalRestoreError, match=OFFENCE):
        check_restorable(bench.store, bench.run)


def test_attempt_that_would_lose_an_operators_state_is_refused_before_it_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    bench = InMemory.begin(tmp_path)
    bench.drive(until_epoch=1)
    bench.write_iteration(SOURCE.replace("(finishes=True)", '(finishes=True, operator_id="other")'))
    rows, files = read_history(bench.store, bench.run), bench.all_files()

    with pytest.raises(RunMismatchError, match="operator 'scaled' is gone, and has state"):
        bench.drive()

    assert (rows, files) == (read_history(bench.store, bench.run), bench.all_files())
    assert 2 == bench.drive(until_epoch=2, allow_dropped_state=True).epochs
