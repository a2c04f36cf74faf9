"""A loop in a script of its own: a random walk, whose generator is a variable like any other.

It appends a line to the log for each body that runs, and prints the walk's last place, to the bit.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from iteration_lib import Checkpointing, open_run

KEY, LOG, EVERY = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])


def note(line: str) -> None:
    """Append a line."""
    with LOG.open("a") as log:
        log.write(f"{line}\n")


def start() -> np.ndarray:
    """Give the first place."""
    note("start")
    return np.zeros((3, 2))


with open_run(KEY, params={"seed": 7}, checkpointing=Checkpointing(every_epochs=EVERY)) as run:
    draw = np.random.default_rng(7)
    for epoch in run.epochs(place=start, rng=draw.bit_generator.state, max_epochs=7):
        note(str(epoch.number))
        draw.bit_generator.state = epoch.rng
        epoch.place += draw.normal(size=(3, 2)) / 3
        epoch.rng = draw.bit_generator.state
        epoch.metrics(far=np.abs(epoch.place).max())
        if len(sys.argv) > 4:
            Path(sys.argv[4]).touch()
            while epoch.number == 3 and Path(sys.argv[4]).exists():
                pass
    sys.stdout.write(run.result.place.tobytes().hex())
