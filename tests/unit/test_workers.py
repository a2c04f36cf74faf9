"""Do the tests of a module stay on one worker, where there are several? Else each starts the module's servers anew."""

from __future__ import annotations

import os

import pytest


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="all tests run in one process")
def test_worker_knows_what_stays_together(request: pytest.FixtureRequest) -> None:
    assert request.node.nodeid.endswith("::test_worker_knows_what_stays_together@tests/unit/test_workers.py")
