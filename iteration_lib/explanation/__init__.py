"""Why did a run go as it did? From its rows alone, so that everything said here can be asked of the database too."""

from iteration_lib.explanation.history import RunHistory, read_history
from iteration_lib.explanation.run import explain_run

__all__ = ["RunHistory", "explain_run", "read_history"]
