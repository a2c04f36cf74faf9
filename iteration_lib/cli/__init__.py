"""The command `iteration`: run, list, show, checkpoints, db."""

from iteration_lib.cli.main import main

__all__ = ["main"]
