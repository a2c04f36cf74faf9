"""Which failures does Airflow try again?

A user's mistake never: the next try would only find it again. Everything else (a lost driver, a lost connection, an
operator that raised) is tried again by the task's `retries`, and goes on from the last durable epoch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from airflow.sdk.exceptions import AirflowFailException

from iteration_lib.errors import UsageError


@contextlib.contextmanager
def without_retry_of_mistakes() -> Iterator[None]:
    """Turn a UsageError into the exception that makes Airflow fail a task for good, unless it may be an outage."""
    try:
        yield
    except UsageError as error:
        if error.is_passing:
            raise
        raise AirflowFailException(str(error)) from error
