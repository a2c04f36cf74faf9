"""What need a process of many schedules not do again? What the first one leaves in the process it is forked from.

That is the modules, and the programs with the digests of their code: a tenth of the time of a hundred schedules.
"""

from __future__ import annotations

from tests.simulation.schedule import run_schedule

run_schedule(0)
