"""Which texts can be the key of a run?"""

from __future__ import annotations

from iteration_lib.errors import UsageError

# Three ids of Airflow, of 250 characters each, have room; an index of Postgres takes 2,700.
LONGEST_RUN_KEY_BYTES = 2_000


def check_run_key(run_key: str) -> None:
    """Raise UsageError for a text that no run can have as its key."""
    if not run_key:
        raise UsageError("the run key is empty; give the run's name")
    if not is_storable(run_key):
        raise UsageError(f"the run key {run_key!r} is no text that can be kept; give another one")
    size = len(run_key.encode())
    if size > LONGEST_RUN_KEY_BYTES:
        problem = f"has {size} bytes, and {LONGEST_RUN_KEY_BYTES} have room"
        raise UsageError(f"the run key {run_key[:40]!r}... {problem}; give a shorter one")


def is_storable(text: str) -> bool:
    """Tell whether a store can keep a text: not one with a NUL, nor bytes of a command line that are no UTF-8."""
    return "\0" not in text and text.encode(errors="ignore").decode() == text
