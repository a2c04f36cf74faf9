"""How is a program told to end in order, so that it hears a signal and not what a user's own code raises?

Executors import this as well: it needs no other library.
"""

from __future__ import annotations

from asyncio import CancelledError
from typing import NoReturn

from iteration_lib.clock import SystemClock

TERMINATED_EXIT_CODE = 143  # of a program that SIGTERM ends
INTERRUPTED_EXIT_CODE = 130  # of one that Ctrl-C ends

# What a user's function may raise; all else (an interrupt, a task's timeout) comes from outside, but for ToldToEnd.
RAISED_BY_USERS = (Exception, SystemExit, CancelledError)


class ToldToEnd(SystemExit):
    """Ends a program in order that was told to; `told_seconds` is when: what it passes through may hold it up."""

    def __init__(self, *, told_seconds: float | None = None) -> None:
        """Leave it to whoever hears of it to say when that was, unless it is known."""
        super().__init__(TERMINATED_EXIT_CODE)
        self.told_seconds = told_seconds


def end_in_order(*_: object) -> NoReturn:
    """Handle SIGTERM."""
    raise ToldToEnd(told_seconds=SystemClock().monotonic_seconds())
