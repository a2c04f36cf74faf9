"""Is the lineage of a run whole, however many generations there were?"""

from __future__ import annotations

import inspect
import sys

from iteration_lib.clock import SystemClock
from iteration_lib.coordinator import Coordinator
from iteration_lib.lineage import lineage_of
from iteration_lib.store.memory import MemoryStore
from tests.protocol_script import Sender, claim
from tests.store_script import a_run, an_origin, new_family, origin_of

GENERATIONS = 200


def test_lineage_of_more_generations_than_calls_may_be_nested_is_told() -> None:
    """As of a model that is trained daily from what the day before left, for most of a year."""
    store = MemoryStore(SystemClock())
    runs = [a_run()]
    an_origin(store, runs[0])
    for epoch in range(1, GENERATIONS):
        family, run = new_family(), a_run()
        store.add_run(run, origin_of(runs[-1], checkpoint_id=1, epoch=epoch - 1))
        Coordinator(store).apply(run.run_id, claim(family=family), *Sender(1, 1, family).passes(epoch, 1))
        runs.append(run)
    last = store.find_run(runs[-1].run_id)
    assert last is not None

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + GENERATIONS)  # less than a call for each, and its own
    try:
        lineage = lineage_of(store, last)
    finally:
        sys.setrecursionlimit(limit)

    assert [(run.run_id, depth) for depth, run in enumerate(runs)] == [(one.run.run_id, one.depth) for one in lineage]
