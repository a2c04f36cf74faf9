"""Registers the iteration tab where Airflow finds it in its plugins folder alone.

An installed iteration-lib registers it by its entry point; then this file registers nothing, so that the plugin is
never loaded twice.
"""

from __future__ import annotations

from importlib.metadata import entry_points

if not entry_points(group="airflow.plugins", name="iteration"):
    from iteration_ui import IterationPlugin

    __all__ = ["IterationPlugin"]
