"""Does epoch 50 of PageRank cost what epoch 5 costs? It does as long as the lineage is cut in every epoch.

Les Miserables, 60 passes in one run on local[2]; prints the median of epochs 5 to 14, of epochs 50 to 59, their ratio.
"""

from __future__ import annotations

import statistics
import tempfile
import uuid
from contextlib import ExitStack
from pathlib import Path

from epoch_cost import Timings, open_bench_store

from iteration_lib.config import Settings
from iteration_lib.engine import Engine, EngineKind
from iteration_lib.launch import Drive, Request, drive_run, open_run
from iteration_lib.library.datasets import write_les_miserables
from iteration_lib.process import this_holder

EPOCHS = 60


def main() -> None:
    """Measure and print."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = open_bench_store(stack, folder)
        settings = Settings(store_url=None, state_uri=str(folder / "state"))
        path = write_les_miserables(folder / "edges.parquet")
        request = Request(
            reference="iteration_lib.library.pagerank:pagerank",
            run_key=uuid.uuid4().hex,
            params={"input": str(path), "max_epochs": EPOCHS, "tolerance": 0.0, "damping": 0.99999},
        )
        timings = Timings()
        engine = Engine(kind=EngineKind.SPARK, master="local[2]")
        drive = Drive(holder=this_holder(), open_runner=engine.open_runner, parallelism=2, observer=timings)
        run = drive_run(store, settings, open_run(store, settings, request), drive)
        times = timings.milliseconds()  # without epoch 0
        early, late = statistics.median(times[4:14]), statistics.median(times[49:59])
        print(
            f"{run.epochs} epochs; epochs 5-14: {early:.0f} ms, epochs 50-59: {late:.0f} ms, ratio {late / early:.2f}"
        )


if __name__ == "__main__":
    main()
