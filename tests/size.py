"""How large are the tests: those for a change, or those of a night? `script/test --nightly` asks for the latter."""

from __future__ import annotations

import os

import pytest

SIZE = os.environ.get("ITERATION_TEST_SIZE", "pr")
IS_NIGHTLY = SIZE == "nightly"


def nightly(why: str) -> pytest.MarkDecorator:
    """Leave a test, or one of its cases, to the night."""
    return pytest.mark.skipif(not IS_NIGHTLY, reason=f"{why}: nightly")
