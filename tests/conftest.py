"""What does every test find in place? Whole servers as fixtures, a home for Airflow that is not the user's, sizes."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile

import pytest
from hypothesis import HealthCheck, settings

from tests import spark_jvm
from tests.size import SIZE

pytest_plugins = [
    "tests.fixture.airflow",
    "tests.fixture.browser",
    "tests.fixture.cluster",
    "tests.fixture.object_store",
    "tests.fixture.spark",
    "tests.fixture.store",
]

if "AIRFLOW_HOME" not in os.environ:  # importing Airflow writes a configuration there
    os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="airflow-of-tests-")
    atexit.register(shutil.rmtree, os.environ["AIRFLOW_HOME"], ignore_errors=True)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # so it is in the background, also for programs that tests start
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault(spark_jvm.VARIABLE, spark_jvm.jvm_options())

settings.register_profile(
    "pr", max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("nightly", max_examples=20_000, deadline=None, derandomize=False, print_blob=True)
settings.load_profile(SIZE)


def pytest_configure(config: pytest.Config) -> None:
    """Let Airflow's own deprecations be Airflow's business."""
    config.addinivalue_line("filterwarnings", "ignore::DeprecationWarning:airflow")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Say what stays together where the tests run on several workers: a module, and all that needs Airflow.

    Here, and not where items are modified: xdist looks there before anything else does.
    """
    module = item.nodeid.partition("::")[0]
    item.add_marker(pytest.mark.xdist_group("airflow" if item.get_closest_marker("airflow") else module))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let what takes longest come first on several workers, and what needs Airflow last in one process.

    So nothing long is left for one worker alone, and Airflow's processes do not idle beside everything else.
    """
    on_workers, alone = {"airflow": 0, "long": 1, "": 2}, {"airflow": 1, "long": 0, "": 0}
    places = on_workers if hasattr(config, "workerinput") else alone
    items.sort(key=lambda item: places[next(filter(item.get_closest_marker, ("airflow", "long")), "")])
