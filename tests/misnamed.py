"""Does a patch fail for what it breaks, or for naming what is not there? That is no slip: a type checker stops it."""

from __future__ import annotations

import re

_MISSING = re.compile(r"(?:has no attribute|variable|keyword argument|No module named|name) '(\w+)'")
_WORD = re.compile(r"\w+")


def misnamed(old: str, new: str, said: str) -> set[str]:
    """Return the names that a patch of Python brings in and that were missed, by what was said when it was tried."""
    brought_in = set(_WORD.findall(new)) - set(_WORD.findall(old))
    return brought_in & set(_MISSING.findall(said))
