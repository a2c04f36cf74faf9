"""Does the next attempt call what the plan says it runs, bucket by bucket, and nothing else?"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from iteration_lib.planning import plan_run
from iteration_lib.protocol.resume import Action
from tests.driven_in_memory import InMemory

# In epoch 1 the call that the file `broken` names fails: `halved` takes `sums` bucket by bucket, and `moved` the whole.
SOURCE = """
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from iteration_lib import Iteration, parquet


@dataclass(frozen=True)
class Params:
    input: str
    broken: str
    max_epochs: int = 2


def call(params, name, epoch, bucket):
    broken = Path(params.broken)
    if epoch == 1 and broken.exists() and broken.read_text() == f"{name} {bucket}":
        raise RuntimeError("broken")
    with broken.with_name("calls").open("a") as calls:
        calls.write(f"{name} {epoch} {bucket}\\n")


planned = Iteration("planned", params=Params)


@planned.data
def points(params):
    return parquet(params.input, columns=["x"])


@planned.variable
def centre():
    return {"at": np.zeros(1)}


@planned.map_buckets
def sums(points, centre, params, epoch, bucket):
    call(params, "sums", epoch, bucket.index)
    return {"sum": np.array([points["x"].sum() - centre["at"][0]])}


@planned.map_buckets
def halved(sums, params, epoch, bucket):
    call(params, "halved", epoch, bucket.index)
    return {"sum": sums["sum"] / 2.0}


@planned.operator
def moved(halved, params, epoch):
    call(params, "moved", epoch, 0)
    return {"at": halved["sum"].sum(keepdims=True)}


planned.feedback(centre=moved)
"""


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InMemory:
    monkeypatch.syspath_prepend(str(tmp_path))
    return InMemory.begin(tmp_path, SOURCE)


@pytest.mark.parametrize(
    ("broken", "actions"),
    [
        ("sums 2", {"sums": Action.CONTINUED, "halved": Action.RUN, "moved": Action.RUN}),
        ("halved 2", {"sums": Action.RESTORED, "halved": Action.CONTINUED, "moved": Action.RUN}),
        ("moved 0", {"sums": Action.RESTORED, "halved": Action.RESTORED, "moved": Action.RUN}),
    ],
)
def test_next_attempt_calls_what_the_plan_runs_and_nothing_else(
    bench: InMemory, broken: str, actions: dict[str, Action]
) -> None:
    (bench.folder / "broken").write_text(broken)
    bench.drive_until_broken()
    calls = bench.folder / "calls"
    calls.unlink()
    resume = plan_run(bench.store, bench.run).resume
    assert resume is not None

    bench.mend()
    bench.drive()

    assert {"centre": Action.RESTORED, **actions} == {step.vertex.operator_id: step.action for step in resume.steps}
    planned = [
        f"{step.vertex.operator_id} 1 {bucket}"
        for step in resume.steps
        for run in step.running
        for bucket in range(*run)
    ]
    assert Counter(planned) == Counter(calls.read_text().splitlines())
