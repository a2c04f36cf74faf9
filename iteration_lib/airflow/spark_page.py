"""Where does Spark show what a task computes? Behind the link "Spark UI" of the tasks that run epochs on Spark.

Airflow shows the address that it finds in the task's XCom of the link's key. The task writes it there as soon as it
knows one. When the task has ended, Airflow asks the link for the address to keep: an application's own pages are gone
by then, those of a history server or of a Spark Connect server are not.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from airflow.sdk import BaseOperatorLink

from iteration_lib.airflow.interface import conf

if TYPE_CHECKING:
    from airflow.sdk.types import RuntimeTaskInstanceProtocol, TaskInstanceKey

    from iteration_lib.airflow.operators import EpochsOperator

XCOM_KEY = "spark_ui"

_logger = logging.getLogger(__name__)


class SparkLink(BaseOperatorLink):
    """The link of a task that runs epochs on Spark; Airflow shows none where the address is empty."""

    @property
    def name(self) -> str:
        """What the link is called."""
        return "Spark UI"

    @property
    def xcom_key(self) -> str:
        """Where Airflow looks for the address."""
        return XCOM_KEY

    def get_link(
        self,
        operator: EpochsOperator,  # type: ignore[override]  # nothing else has this link
        *,
        ti_key: TaskInstanceKey,  # noqa: ARG002  (Airflow's signature)
    ) -> str:
        """Return the address that is left when the task has ended."""
        return operator.spark_page


class SparkPage:
    """What one try of a task leads to; `address_afterwards` is what is left of that when the try has ended."""

    def __init__(self, task_instance: RuntimeTaskInstanceProtocol) -> None:
        self._task_instance = task_instance
        self.address_afterwards = ""

    def lead_to_application(self, application_id: str, address: str) -> None:
        """Lead to the pages of a Spark application, and once they have ended with it to the history server's."""
        self.address_afterwards = find_history_page(application_id)
        self._lead_to(clean_address(address))

    def lead_to_server(self, address: str) -> None:
        """Lead to the pages of a Spark Connect server, which goes on when the task has ended."""
        self.address_afterwards = clean_address(address)
        self._lead_to(self.address_afterwards)

    def _lead_to(self, address: str) -> None:
        if not address:
            return
        try:
            self._task_instance.xcom_push(key=XCOM_KEY, value=address)
        except Exception as error:  # noqa: BLE001  (whatever an XCom backend raises: no epoch fails for want of a link)
            _logger.warning("event=spark_link_lost error=%s", error)


def find_history_page(application_id: str) -> str:
    """Return where Spark's history server shows an application; empty where Airflow is not told of a server."""
    server = clean_address(conf.get("iteration", "spark_history_url", fallback="") or "")
    return f"{server.rstrip('/')}/history/{application_id}/jobs/" if server else ""


def clean_address(text: str) -> str:
    """Return a web address without the user and the password in it; empty for whatever is none."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return ""
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
