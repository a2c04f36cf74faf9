"""Do seeded schedules of crashes, pauses and lost answers keep every invariant, and does every run end once healed?"""

from __future__ import annotations

from tests.simulation.explore import explore


def test_schedules_keep_every_invariant_and_every_healed_run_ends() -> None:
    """A violation names its seed; `python -m tests.simulation.replay SEED` shows it step by step."""
    found = explore(0, 1_000, workers=2)

    assert (1_000, {}) == (found.schedules, found.violations), found.report()
