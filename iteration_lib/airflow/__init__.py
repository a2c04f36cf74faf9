"""How do iterations run under Airflow? As a DAG of their own, or as a task group of a larger one; the rest serves them.

Names are looked up on first use: Airflow imports this package while it looks for providers, when its own SDK cannot be
imported yet.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iteration_lib.airflow.dag import iteration_dag
    from iteration_lib.airflow.stall import StallAlert
    from iteration_lib.airflow.task_group import iteration_asset, iteration_task_group

__all__ = ["StallAlert", "iteration_asset", "iteration_dag", "iteration_task_group"]

_HOMES = {
    "StallAlert": "stall",
    "iteration_asset": "task_group",
    "iteration_dag": "dag",
    "iteration_task_group": "task_group",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
