"""How does a page write durations, sizes and rates? As people read them."""

from __future__ import annotations

from datetime import datetime


def show_seconds(seconds: float | None) -> str:
    """Return a duration: 0.25 s, 12 s, 3 min 5 s, 2 h 4 min, 3 d 1 h."""
    if seconds is None:
        return ""
    if seconds < 60:  # noqa: PLR2004  (a minute)
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004  (digits that matter)
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "d"), (hours, "h"), (minutes, "min"), (rest, "s"))
    first = next(place for place, (value, _) in enumerate(parts) if value)
    return " ".join(f"{value} {unit}" for value, unit in parts[first : first + 2] if value)


def show_bytes(size: int | None) -> str:
    """Return a size, in powers of 1,000."""
    if size is None:
        return ""
    shown, units = float(size), iter(("B", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while shown >= 1000 and unit != "TB":  # noqa: PLR2004  (a power of 1,000)
        shown, unit = shown / 1000, next(units)
    return f"{shown:.0f} {unit}" if unit == "B" else f"{shown:.1f} {unit}"


def show_rate(per_second: float) -> str:
    """Return a rate of epochs, in the unit that gives at least 1: 3.2 epochs/s, 12 epochs/min, 5 epochs/h."""
    for factor, unit in ((1, "s"), (60, "min"), (3600, "h")):
        if per_second * factor >= 1:
            return f"{per_second * factor:.3g} epochs/{unit}"
    return f"{per_second * 86_400:.3g} epochs/d"


def show_time(at: datetime | None) -> str:
    """Return an instant to the second."""
    return at.strftime("%Y-%m-%d %H:%M:%S UTC") if at is not None else ""


def show_epochs(first: int, last: int) -> str:
    """Return a range of epochs."""
    return str(first) if first == last else f"{first} to {last}"
