"""What does every test find in place? A home for Airflow that is not the user's, and whole servers as fixtures."""

from __future__ import annotations

import os
import tempfile

import pytest

pytest_plugins = ["tests.fixture.airflow"]

# Importing Airflow writes a configuration there.
os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="airflow-of-tests-"))


def pytest_configure(config: pytest.Config) -> None:
    """Let Airflow's own deprecations be Airflow's business."""
    config.addinivalue_line("filterwarnings", "ignore::DeprecationWarning:airflow")
