"""Does a user's code reach executors that cannot see the driver's files?"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

from iteration_lib.errors import IterationNotFoundError
from iteration_lib.runner.code_shipping import write_zip
from tests.failover.driven import PATIENCE_SECONDS


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package and a module that only this process can import."""
    root = tmp_path / "code"
    (root / "some_team" / "sub" / "__pycache__").mkdir(parents=True)
    for name in ("__init__.py", "sub/__init__.py", "sub/__pycache__/x.pyc", "sub/data.json", ".hidden"):
        (root / "some_team" / name).write_text("")
    (root / "some_team" / "sub" / "step.py").write_text("def double(points):\n    return {'x': 2 * points['number']}\n")
    (root / "lone.py").write_text("ONE = 1\n")
    monkeypatch.syspath_prepend(str(root))
    return root


def test_zip_holds_the_package_and_nothing_that_a_run_leaves_behind(team: Path, tmp_path: Path) -> None:
    write_zip(tmp_path / "code.zip", ("some_team", "lone"))

    with zipfile.ZipFile(tmp_path / "code.zip") as found:
        assert [
            "lone.py",
            "some_team/__init__.py",
            "some_team/sub/__init__.py",
            "some_team/sub/data.json",
            "some_team/sub/step.py",
        ] == found.namelist()


def test_equal_code_gives_an_equal_zip_and_other_code_another(team: Path, tmp_path: Path) -> None:
    step = team / "some_team" / "sub" / "step.py"

    first = write_zip(tmp_path / "1.zip", ("some_team",))
    os.utime(step, (1, 1))
    second = write_zip(tmp_path / "2.zip", ("some_team",))
    step.write_text("def double(points): ...")
    third = write_zip(tmp_path / "3.zip", ("some_team",))

    assert first == second != third


def test_package_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(IterationNotFoundError, match="'nowhere_to_be_found'"):
        write_zip(tmp_path / "1.zip", ("nowhere_to_be_found",))


SCRIPT = """
    import sys
    from pathlib import Path
    from iteration_lib.model.operator import Kind
    from iteration_lib.runner.code_shipping import ship_code
    from iteration_lib.runner.spark import SparkRunner
    from iteration_lib.runner.spark_session import open_session
    from iteration_lib.state.location import StateLocation

    master, root = sys.argv[1:]
    sys.path.append(root)  # the executors do not have it
    from some_team.sub.step import double
    from tests import runner_cases as cases
    from tests.runner_cases import Harness

    spark = open_session(master, "shipping", conf={"spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"})
    digest = ship_code(spark, "some_team.sub.step:double")
    runner = SparkRunner(spark, StateLocation(f"{root}/run"), max_buckets=4, parallelism=2, owns_session=True)
    harness = Harness(runner)
    found = harness.rows(harness.buckets(double, points=harness.open(cases.thousand)))
    print("FOUND", len(digest), sum(found["x"]))
    runner.close()
"""


@pytest.mark.spark
def test_executors_of_a_cluster_run_code_that_they_were_sent(cluster: str, team: Path) -> None:
    root = str(Path(__file__).parents[2])
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), cluster, str(team)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
        env=os.environ | {"PYTHONPATH": root, "PYSPARK_PYTHON": sys.executable},
    )

    assert "FOUND 64 999000" in found.stdout, found.stderr


ONLY = """
import sys
from importlib.abc import MetaPathFinder

class Elsewhere(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in sys.argv and not top.startswith("_"):
            raise ModuleNotFoundError(f"No module named {top!r}", name=top)

sys.meta_path.insert(0, Elsewhere())
import iteration_lib.runner.spark_tasks, iteration_lib.library.kmeans, iteration_lib.sinks
"""


def test_executors_need_no_packages_but_those_that_the_docs_name() -> None:
    docs = (Path(__file__).parents[2] / "docs" / "clusters.md").read_text()
    (named,) = re.findall(r"^\| executors \| .*, with ([^;]+);", docs, re.MULTILINE)
    packages = [*re.split(r", | and ", named), "pyspark", "py4j", "dateutil", "pytz", "six", "iteration_lib"]

    done = subprocess.run([sys.executable, "-c", ONLY, *packages], capture_output=True, text=True, check=False)

    assert (0, "") == (done.returncode, done.stderr)
