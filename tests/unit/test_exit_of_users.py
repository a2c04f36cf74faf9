"""What becomes of a run whose user's code calls `sys.exit`? The code has failed: nobody told the process to end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from iteration_lib.errors import IterationError
from iteration_lib.protocol.status import AttemptOutcome, RunStatus
from tests.driven_in_memory import MODULE, SOURCE, InMemory

OPERATOR = SOURCE.replace('raise RuntimeError("broken")', 'raise SystemExit("no licence")').replace(
    " and Path(params.broken).exists()", ""
)
LISTENER = (
    SOURCE
    + """

@planned.on_epoch_durable
def heard(epoch):
    if epoch == 1:
        raise SystemExit(3)
"""
)
SINK = (
    SOURCE
    + """

class Sink:
    def prepare(self, transaction, publication):
        raise SystemExit("no licence")

    def commit(self, transaction, committable):
        pass

    def abort(self, transaction):
        pass


planned.output(at=moved, sink=Sink())
"""
)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (OPERATOR, "operator 'moved' failed in epoch 1: SystemExit: no licence"),
        (LISTENER, "operator 'heard' failed in epoch 1: SystemExit: 3"),
        (SINK, "the Sink of output 'at' failed in prepare (SystemExit: no licence)"),
    ],
    ids=["operator", "listener", "sink"],
)
def test_exit_of_a_users_function_fails_the_run_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, told: str
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    bench = InMemory(tmp_path)
    bench.write_input()
    bench.write_iteration(source)
    bench.open()

    with pytest.raises(IterationError) as caught:
        bench.drive()

    (attempt,) = bench.store.list_attempts(bench.run.run_id)
    assert told == str(caught.value).split("; ")[0]
    assert (RunStatus.FAILED, AttemptOutcome.FAILED) == (bench.run.status, attempt.outcome)
    assert str(caught.value) == attempt.reason == bench.run.failure
