"""The command `iteration`: run, stop, resume, plan, explain, verify, list, show, checkpoint, savepoint, branch, gc, db."""

from iteration_lib.cli.main import main

__all__ = ["main"]
