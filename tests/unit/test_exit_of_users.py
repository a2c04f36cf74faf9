"""What becomes of a run whose user's code calls `sys.exit`, or raises an error of this project? The code has failed.

Nobody told the process to end, and what the error tells of is another run, one that the code drives or reads itself.
So it is with whatever else is no Exception, or cannot be told; what comes from outside is nobody's fault.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from iteration_lib.errors import IterationError, SinkTargetError, UsageError
from iteration_lib.interrupt import ToldToEnd
from iteration_lib.protocol.state import FailedOperator
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
        raise SystemExit("no licence")
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


def bench_of(source: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> InMemory:
    """Return a bench with a run of this text."""
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    bench = InMemory(folder)
    bench.write_input()
    bench.write_iteration(source)
    bench.open()
    return bench


EXIT = 'SystemExit("no licence")'
RAISED = {
    "exits": (EXIT, "SystemExit: no licence"),
    "is cancelled": ("__import__('asyncio').CancelledError()", "CancelledError"),
    "has an error that cannot be told": (
        "type('Mute', (Exception,), {'__str__': lambda _: None})()",
        "Mute",
    ),
}


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (OPERATOR, "operator 'moved' failed in epoch 1: {}"),
        (LISTENER, "operator 'heard' failed in epoch 1: {}"),
        (SINK, "the Sink of output 'at' failed in prepare ({})"),
    ],
    ids=["operator", "listener", "sink"],
)
@pytest.mark.parametrize(("raised", "said"), RAISED.values(), ids=RAISED)
def test_users_function_that_exits_or_the_like_fails_the_run_and_it_is_said_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, told: str, raised: str, said: str
) -> None:
    bench = bench_of(source.replace(EXIT, raised), tmp_path, monkeypatch)

    with pytest.raises(IterationError) as caught:
        bench.drive()

    (attempt,) = bench.store.list_attempts(bench.run.run_id)
    assert told.format(said) == str(caught.value).split("; ")[0]
    assert (RunStatus.FAILED, AttemptOutcome.FAILED) == (bench.run.status, attempt.outcome)
    assert str(caught.value) == attempt.reason == bench.run.failure


OTHERS = {
    "finished": 'RunFinishedError("other")',
    "superseded": 'SupersededError(run_id="other", held=1, current=None)',
    "stopped": 'RunStoppedError("other")',
    "lost": 'ExecutionLostError("Spark is gone")',
    "an operator failed": 'OperatorFailedError(operator_id="theirs", epoch=0, cause="boom")',
    "an operator of the same id failed": 'OperatorFailedError(operator_id="moved", epoch=7, cause="boom")',
    "data of the same id failed": 'OperatorFailedError(operator_id="moved", epoch=None, cause="boom")',
    "an operator of the same id fed back": (
        'SchemaMismatchError(variable="centre", operator_id="moved", expected="a", found="b", epoch=1)'
    ),
}


@pytest.mark.parametrize(
    ("source", "told", "failed"),
    [
        (OPERATOR, "operator 'moved' failed in epoch 1: {}: ", FailedOperator(operator_id="moved", epoch=1)),
        (SINK, "the Sink of output 'at' failed in prepare ({}: ", None),
    ],
    ids=["operator", "sink"],
)
@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_error_of_another_run_fails_the_run_whose_code_raises_it_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, told: str, failed: FailedOperator | None, other: str
) -> None:
    raised = f"import iteration_lib.errors; raise iteration_lib.errors.{other}"
    bench = bench_of(source.replace('raise SystemExit("no licence")', raised), tmp_path, monkeypatch)

    with pytest.raises(IterationError) as caught:
        bench.drive()

    (attempt,) = bench.store.list_attempts(bench.run.run_id)
    assert str(caught.value).startswith(told.format(other.split("(", maxsplit=1)[0]))
    assert (RunStatus.FAILED, AttemptOutcome.FAILED, failed) == (bench.run.status, attempt.outcome, attempt.failed)
    assert str(caught.value) == attempt.reason == bench.run.failure


SLOW_SINK = SINK.replace('raise SystemExit("no licence")', "import time; time.sleep(2.5); return {}").replace(
    "sink=Sink()", "sink=Sink(), each_epoch=True"
)


@pytest.mark.parametrize(
    ("raised", "marked"),
    [('RuntimeError("late")', set()), ('planned_timeouts.TaskTimeoutError("late")', {"sums"})],
    ids=["error", "timeout"],
)
def test_what_ends_an_epoch_takes_nothing_from_those_before_it_and_leaves_what_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: str, marked: set[str]
) -> None:
    """A task's timeout is no Exception, and leaves the process as much time as an error does."""
    (tmp_path / "planned_timeouts.py").write_text("class TaskTimeoutError(BaseException):\n    pass\n")
    source = f"import planned_timeouts\n{SLOW_SINK}".replace('RuntimeError("broken")', raised)
    bench = bench_of(source.replace(" and Path(params.broken).exists()", ""), tmp_path, monkeypatch)

    with pytest.raises(BaseException, match="late"):
        bench.drive(alignment_timeout_seconds=None)

    assert (RunStatus.FAILED, 1) == (bench.run.status, bench.run.epochs)
    assert marked == {part.operator_id for part in bench.store.list_live_parts(bench.run.run_id) if part.epoch == 1}


FULL_SINK = SINK.replace(
    'raise SystemExit("no licence")',
    """if transaction.epoch == 1:
            raise OSError(28, "No space left on device")
        return {}""",
).replace("sink=Sink()", "sink=Sink(), each_epoch=True")


def test_attempt_whose_last_checkpoint_fails_says_why_though_a_failure_is_tolerable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_of(FULL_SINK, tmp_path, monkeypatch)

    with pytest.raises(SinkTargetError, match="No space left on device") as caught:
        bench.drive(until_epoch=2, checkpointing={"tolerable_failures": 1})

    assert str(caught.value) == bench.run.failure


def test_what_a_sink_says_of_its_target_is_said_in_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = "the table is not there; make it"
    check = f"""
    def check(self):
        from iteration_lib.errors import UsageError

        raise UsageError({told!r})
"""
    bench = bench_of(SINK.replace("class Sink:", f"class Sink:{check}"), tmp_path, monkeypatch)

    with pytest.raises(UsageError) as caught:
        bench.drive()

    assert told == str(caught.value) == bench.run.failure


def test_program_that_is_told_to_end_while_a_sink_is_made_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = """
from iteration_lib.interrupt import ToldToEnd


def sink(params):
    raise ToldToEnd


planned.output(at=moved, sink=sink)
"""
    bench = bench_of(SOURCE + made, tmp_path, monkeypatch)

    with pytest.raises(ToldToEnd):
        bench.drive()
