"""Which operator does an attempt name that it failed by? The one to blame, whatever the error."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from iteration_lib.errors import IterationError, MetricError, OperatorResultError, SchemaMismatchError
from iteration_lib.protocol.state import NO_EPOCH, FailedOperator
from tests.driven_in_memory import MODULE, SOURCE, InMemory

MEASURED = SOURCE.replace("params, epoch)", "params, epoch, metrics)")


@pytest.mark.parametrize(
    ("source", "line", "error", "epoch"),
    [
        (SOURCE, 'return {"other": np.zeros(1)}', SchemaMismatchError, 1),
        (SOURCE, "return True", OperatorResultError, NO_EPOCH),
        (MEASURED, 'metrics.report("loss", np.nan)', MetricError, NO_EPOCH),
    ],
    ids=["other columns", "no columns", "no number"],
)
def test_attempt_names_the_operator_that_returned_or_measured_what_nobody_takes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    line: str,
    error: type[IterationError],
    epoch: int,
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    bench = InMemory(tmp_path)
    bench.write_input()
    bench.write_iteration(source.replace('raise RuntimeError("broken")', line))
    bench.open()
    (tmp_path / "broken").touch()

    with pytest.raises(error):
        bench.drive()

    (attempt,) = bench.store.list_attempts(bench.run.run_id)
    assert FailedOperator(operator_id="moved", epoch=epoch) == attempt.failed
