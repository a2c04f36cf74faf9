"""What time is it? Whoever needs to know is given a clock.

Instants come from the store's clock, which all attempts share; a local clock only measures durations and waits.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """A clock of this process."""

    def now(self) -> datetime:
        """Return the instant, in UTC."""
        ...

    def monotonic_seconds(self) -> float:
        """Return a number of seconds that never goes back; only differences mean anything."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the instant, in UTC."""
        return datetime.now(UTC)

    def monotonic_seconds(self) -> float:
        """Return a number of seconds that never goes back."""
        return time.monotonic()
