"""What may users import, and nothing else without a decision?"""

from __future__ import annotations

import subprocess
import sys

import iteration_lib


def test_public_names_are_these() -> None:
    exported = {name for name, value in vars(iteration_lib).items() if not name.startswith("_") and not is_room(value)}

    assert ["Checkpointing", "InputError", "Iteration", "Metrics", "load", "open_run", "parquet", "records"] == sorted(
        exported
    )
    assert sorted(exported) == sorted(iteration_lib.__all__)


def test_importing_them_brings_no_heavy_library_along() -> None:
    """Every Spark worker imports them too."""
    heavy = ("pyspark", "airflow", "sqlalchemy", "psycopg2")
    asked = f"import sys, iteration_lib; print([name for name in {heavy} if name in sys.modules])"

    answer = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)

    assert "[]\n" == answer.stdout


def is_room(value: object) -> bool:
    return type(value).__name__ == "module"
