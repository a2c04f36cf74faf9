"""Where does Airflow's public interface lie, for what the versions we support have in different places?

`airflow.sdk` has these names now; Airflow 3.1 documents them elsewhere. What all versions have in one place is imported
from there by whoever uses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the newest one's: a checker takes the second place for a second definition
    from airflow.sdk import conf
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSkipException,
        DownstreamTasksSkipped,
    )
else:
    try:
        from airflow.sdk import conf
    except ImportError:
        from airflow.configuration import conf
    try:
        from airflow.sdk.exceptions import (
            AirflowException,
            AirflowFailException,
            AirflowNotFoundException,
            AirflowSkipException,
            DownstreamTasksSkipped,
        )
    except ImportError:
        from airflow.exceptions import (
            AirflowException,
            AirflowFailException,
            AirflowNotFoundException,
            AirflowSkipException,
            DownstreamTasksSkipped,
        )

__all__ = [
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowSkipException",
    "DownstreamTasksSkipped",
    "conf",
]
