"""Who decides when a fiber goes on? The scheduler alone, whoever made it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from tests.simulation.fiber import Call, Fate, Fiber, ask

if TYPE_CHECKING:
    from tests.simulation.process import SimulatedProcess

_PROCESS = cast("SimulatedProcess", SimpleNamespace(is_killed=False))


def test_fiber_that_another_one_made_leaves_that_one_where_it_was_when_it_asks_and_when_it_ends() -> None:
    heard: list[tuple[str, Fate]] = []
    job = []

    def write() -> None:
        heard.append(("job", ask(Call.PUT)))

    def drive() -> None:
        job.append(Fiber(_PROCESS, "job", write, is_beside=True))
        heard.append(("main", ask(Call.RUN)))

    main = Fiber(_PROCESS, "main", drive)

    main.switch(Fate.GO)
    job[0].switch(Fate.GO)
    assert [] == heard  # both have asked, and wait
    job[0].switch(Fate.FAIL)
    assert [("job", Fate.FAIL)] == heard  # the job has ended
    main.switch(Fate.LOST)

    assert [("job", Fate.FAIL), ("main", Fate.LOST)] == heard
