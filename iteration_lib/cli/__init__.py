"""The command `iteration`: run, plan, list, show, explain, verify, checkpoints, checkpoint, abort, db."""

from iteration_lib.cli.main import main

__all__ = ["main"]
