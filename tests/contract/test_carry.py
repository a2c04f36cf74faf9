"""What does an operator that carries state compute, whatever runs it?

The same as functions that are called one after another with plain arrays, each once per epoch and bucket.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from iteration_lib.model.bucket import Bucket, bucket_rows
from iteration_lib.model.metrics import Metrics
from iteration_lib.runner.local import LocalRunner
from iteration_lib.runner.seam import Runner
from iteration_lib.state.location import StateLocation
from iteration_lib.state.streams import load_whole
from tests.iterations import stateful as program
from tests.iterations.stateful import StatefulParams, stateful
from tests.library_loop import Loop

BUCKETS = 6
EPOCHS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a run left, and what its operators' bodies wrote down."""

    records: list[int]
    outputs: dict[str, pa.RecordBatch]
    calls: list[str]


@pytest.fixture(scope="module", params=["local 1", "local 4", pytest.param("spark 3", marks=pytest.mark.spark)])
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    """Run the iteration once, by a runner with a parallelism."""
    name, parallelism = request.param.split()
    folder = tmp_path_factory.mktemp("ran")
    location = StateLocation(str(folder / "run"))
    runner: Runner = LocalRunner(location, max_buckets=BUCKETS, parallelism=int(parallelism))
    if name == "spark":
        from iteration_lib.runner.spark import SparkRunner  # noqa: PLC0415  (the other half needs no Spark)

        spark = request.getfixturevalue("spark")
        runner = SparkRunner(spark, location, max_buckets=BUCKETS, parallelism=int(parallelism))
    outcome = Loop(runner, stateful, StatefulParams(log=str(folder))).run()
    yield Ran(
        records=outcome.records,
        outputs={output: load_whole(location, saved) for output, saved in outcome.outputs.items()},
        calls=(folder / "calls").read_text().splitlines(),
    )
    runner.close()


def test_operators_that_carry_state_compute_what_plain_calls_do(ran: Ran) -> None:
    assert plain_calls(StatefulParams()) == {
        "records": ran.records,
        "near": ran.outputs["settled"]["near"].to_pylist(),
        "answer": ran.outputs["answer"]["weights"].to_pylist(),
        "fits": ran.outputs["fits"]["weights"].to_pylist(),
    }


def test_every_operator_runs_once_per_epoch_and_bucket(ran: Ran) -> None:
    """Also one that carries state, whose result and state are taken by two."""
    buckets, epochs = range(BUCKETS), range(EPOCHS)

    on_buckets = [f"{name} {e} {b}" for name in ("fitted", "pulled", "settling") for e in epochs for b in buckets]
    on_values = [f"{name} {e} None" for name in ("agreed", "unsettled") for e in epochs]
    for_good = [f"normal-equations None {b}" for b in buckets]

    assert Counter([*on_buckets, *on_values, *for_good]) == Counter(ran.calls)


def plain_calls(params: StatefulParams) -> dict[str, Any]:
    """Run the iteration by calling its functions, with arrays and nothing else."""
    source = program.measured(params).columns
    measured = {name: np.array(column) for name, column in source.items()}
    guessed = {"weights": np.array(program.guessed().columns["weights"])}
    buckets = [Bucket(index=index, count=BUCKETS) for index in range(BUCKETS)]
    rows = [bucket_rows(bucket.index, count=BUCKETS, rows=params.rows) for bucket in buckets]
    cut = [{name: array[r.start : r.stop] for name, array in measured.items()} for r in rows]
    equations = [program.equations(block, params, bucket) for block, bucket in zip(cut, buckets, strict=True)]
    fits = [program.fits(block) for block in equations]
    pulls = [program.pulls(block) for block in equations]
    state, states, records = None, [dict[str, Any]()] * BUCKETS, []
    for epoch in range(params.max_epochs):
        agreed, state = program.agreed(
            whole(fits),
            whole(pulls),
            guessed,
            state=state,
            params=params,
            epoch=epoch,
            metrics=Metrics(operator_id="a"),
        )
        fits = [program.fitted(equations[b.index], pulls[b.index], agreed, params, epoch, b) for b in buckets]
        pulls = [program.pulled(pulls[b.index], fits[b.index], agreed, params, epoch, b) for b in buckets]
        pairs = [program.settled(fits[b.index], agreed, states[b.index] or None, params, epoch, b) for b in buckets]
        settled, states = whole([pair[0] for pair in pairs]), [pair[1] for pair in pairs]
        records.append(len(program.unsettled(settled, params, epoch, Metrics(operator_id="u"))["bucket"]))
        guessed = {"weights": guessed["weights"][:0]}
        if not records[-1]:
            break
    return {
        "records": records,
        "near": settled["near"].tolist(),
        "answer": agreed["weights"].tolist(),
        "fits": whole(fits)["weights"].tolist(),
    }


def whole(blocks: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
