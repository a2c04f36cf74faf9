"""What do all floors share? The sizes of property tests, a home for Airflow, and whole servers as fixtures."""

from __future__ import annotations

import os
import tempfile

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.fixture.airflow"]

settings.register_profile(
    "pr", max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("nightly", max_examples=20_000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("ITERATION_TEST_SIZE", "pr"))

# Importing Airflow writes a configuration: not into the user's home.
os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="airflow-of-tests-"))
