"""How do iterations run under Airflow? `iteration_dag` draws the DAG; the rest serves it.

Names are looked up on first use: Airflow imports this package while it looks for providers, when its own SDK cannot be
imported yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iteration_lib.airflow.dag import iteration_dag

__all__ = ["iteration_dag"]


def __getattr__(name: str) -> object:
    if name == "iteration_dag":
        from iteration_lib.airflow.dag import iteration_dag  # noqa: PLC0415  (see the module's docstring)

        return iteration_dag
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
