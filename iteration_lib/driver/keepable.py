"""What of a user's can every database keep, as a text and as JSON?"""

from __future__ import annotations

import json
import re
from typing import Any

_MAX_CHARACTERS = 10_000
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")  # escaped as JSON does it, and not a text that looks like that


def printable(text: str) -> str:
    """Return a text as every database can keep it: no NUL, no half of a surrogate pair, no novel."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")[:_MAX_CHARACTERS]


def as_json(value: object) -> Any:  # noqa: ANN401 - of the kind that was given
    """Return a value as a database gives it back from JSON.

    Raises TypeError or ValueError for what no JSON holds, and ValueError for a text that no database keeps.
    """
    text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError as err:
        raise ValueError(f"half of a surrogate pair is no text: {err.object[err.start : err.end]!r}") from None
    if _NUL.search(text):
        raise ValueError("no database keeps a NUL in a text")
    return json.loads(text)
