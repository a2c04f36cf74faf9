"""Which failures does Airflow try again?

A user's mistake never: the next try would only find it again. Everything else (a lost driver, a lost connection, an
operator that raised) is tried again by the task's `retries`, and goes on from the last durable epoch. A run that a
person has stopped is no failure: its tasks are skipped, until somebody resumes the run and clears them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from iteration_lib.airflow.interface import AirflowFailException, AirflowSkipException
from iteration_lib.errors import RunStoppedError, UsageError


@contextlib.contextmanager
def without_retry_of_mistakes() -> Iterator[None]:
    """Turn a UsageError into the exception that makes Airflow fail a task for good, unless it may be an outage.

    A RunStoppedError makes it skip the task.
    """
    try:
        yield
    except RunStoppedError as error:
        raise AirflowSkipException(f"{error}, then clear this task") from error
    except UsageError as error:
        if error.is_passing:
            raise
        raise AirflowFailException(str(error)) from error
