"""What happened in a schedule, step by step? `python -m tests.simulation.replay SEED...` prints it.

With --evolving it is the schedule of that seed in which the user's file changes.
Per step: its number, the store's clock in seconds, who went on, before which call, and how that call ended.
"""

from __future__ import annotations

import argparse
import sys

from tests.simulation.schedule import run_schedule


def main(arguments: list[str]) -> int:
    """Print each seed's schedule; exit code 1 if one of them violates an invariant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", nargs="+", type=int)
    parser.add_argument("--evolving", action="store_true")
    asked, code = parser.parse_args(arguments), 0
    for seed in asked.seeds:
        outcome = run_schedule(seed, is_traced=True, is_evolving=asked.evolving)
        print(*outcome.trace, sep="\n")  # noqa: T201 - a program's output
        code |= outcome.violation is not None
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
