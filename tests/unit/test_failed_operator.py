"""Which operator does an attempt name that it failed by, and in which epoch? The one to blame, whatever the error."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from iteration_lib.errors import IterationError, MetricError, OperatorResultError, SchemaMismatchError
from iteration_lib.protocol.state import NO_EPOCH, FailedOperator
from tests.driven_in_memory import MODULE, SOURCE, InMemory

MOVED = FailedOperator(operator_id="moved", epoch=1)
MEASURED = SOURCE.replace("params, epoch)", "params, epoch, metrics)")
CARRIED = (
    SOURCE.replace("@planned.operator", '@planned.operator(state="carry")')
    .replace("moved(sums,", "moved(sums, state,")
    .replace(".sum(keepdims=True)}", '.sum(keepdims=True)}, {"at": np.zeros(1)}')
)
BROKEN = """
    if epoch == {} and Path(params.broken).exists():
        raise RuntimeError("broken")
"""
SOUND = SOURCE.replace(BROKEN.format(1), "")
PUBLISHED = f"""{SOUND}

@planned.map_buckets
def shown(scaled, params, epoch):{BROKEN.format(2)}
    return {{"at": scaled["at"]}}


planned.output(at=shown)
"""
HEARD = f"""{SOUND}

@planned.on_epoch_durable
def heard(epoch, params):{BROKEN.format(1)}
"""
ONCE = SOUND.replace("made):", f"made, params):{BROKEN.replace('epoch == {} and ', '')}")


@pytest.mark.parametrize(
    ("source", "line", "error", "failed"),
    [
        (SOURCE, 'return {"other": np.zeros(1)}', SchemaMismatchError, MOVED),
        (SOURCE, "return True", OperatorResultError, MOVED),
        (MEASURED, 'metrics.report("loss", np.nan)', MetricError, MOVED),
        (CARRIED, 'return state, {"other": np.zeros(1)}', SchemaMismatchError, MOVED),
        (PUBLISHED, "return True", OperatorResultError, FailedOperator(operator_id="shown", epoch=2)),
        (HEARD, "return True", OperatorResultError, FailedOperator(operator_id="heard", epoch=1)),
        (ONCE, "return True", OperatorResultError, FailedOperator(operator_id="scaled", epoch=NO_EPOCH)),
    ],
    ids=["other columns", "no columns", "no number", "other state", "output", "listener", "finishes for good"],
)
def test_attempt_names_the_operator_that_returned_or_measured_what_nobody_takes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    line: str,
    error: type[IterationError],
    failed: FailedOperator,
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    bench = InMemory.begin(tmp_path, source.replace('raise RuntimeError("broken")', line))
    (tmp_path / "broken").touch()

    with pytest.raises(error):
        bench.drive(checkpointing={"every_epochs": 3})

    (attempt,) = bench.store.list_attempts(bench.run.run_id)
    assert failed == attempt.failed
