"""What happened in a schedule, step by step? `python -m tests.simulation.replay SEED...` prints it.

Per step: its number, the store's clock in seconds, who went on, before which call, and how that call ended.
"""

from __future__ import annotations

import sys

from tests.simulation.schedule import run_schedule


def main(arguments: list[str]) -> int:
    """Print each seed's schedule; exit code 1 if one of them violates an invariant."""
    code = 0
    for argument in arguments:
        outcome = run_schedule(int(argument), is_traced=True)
        print(*outcome.trace, sep="\n")  # noqa: T201 - a program's output
        code |= outcome.violation is not None
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
