"""The command `iteration`: run, stop, resume, plan, explain, verify, list, show, savepoint, branch, gc, db and more."""

from iteration_lib.cli.main import main

__all__ = ["main"]
