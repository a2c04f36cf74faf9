"""Which failures does Airflow try again?

A user's mistake never, nor a state file that is not what was written: the next try would only find it again. Everything
else (a lost driver, a lost connection, an operator that raised, a connection that Airflow does not find, for it says so
of a secrets backend that does not answer) is tried again by the task's `retries`, and goes on from the last durable
epoch; a retry policy of the user's has the say over these alone. A run that a person has stopped is no failure: its
tasks are skipped, until somebody resumes the run and clears them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from iteration_lib.airflow.interface import AirflowFailException, AirflowSkipException
from iteration_lib.errors import RunStoppedError, StateCorruptedError, UsageError


@contextlib.contextmanager
def without_retry_of_mistakes() -> Iterator[None]:
    """Turn what only a person can mend into the exception that makes Airflow fail a task for good.

    A RunStoppedError makes it skip the task.
    """
    try:
        yield
    except RunStoppedError as error:
        raise AirflowSkipException(f"{error}, then clear this task") from error
    except (UsageError, StateCorruptedError) as error:
        if error.is_passing:
            raise
        raise AirflowFailException(str(error)) from error
