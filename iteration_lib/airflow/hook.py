"""Where is the iteration store, and where does state go, as Airflow knows it?

The store: the connection that the DAG names, else the one named by `[iteration] store_conn_id`; where neither names
another than `iteration_store` and that is not there, ITERATION_STORE_URL. Airflow's pages read it by the one named by
`[iteration] store_read_conn_id`, if there is any: its login needs no more than the role iteration_reader. The state:
what the DAG says, else `[iteration] state_uri`, else ITERATION_STATE_URI. No password reaches a log, a DAG file or a
command line.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import quote, urlencode, urlsplit

from airflow.sdk import BaseHook, Connection
from airflow.sdk.log import mask_secret

from iteration_lib.airflow.interface import AirflowNotFoundException, conf
from iteration_lib.config import STATE_URI_VARIABLE, STORE_URL_VARIABLE
from iteration_lib.errors import ConnectionNotFoundError, IterationError, UsageError
from iteration_lib.store.postgres import PostgresStore

_SECTION = "iteration"


class IterationStoreHook(BaseHook):
    """Leads to the iteration store."""

    conn_name_attr = "store_conn_id"
    default_conn_name = "iteration_store"
    conn_type = "iteration_store"
    hook_name = "Iteration store"

    def __init__(self, store_conn_id: str | None = None) -> None:
        super().__init__()
        self._named = store_conn_id

    def get_url(self, environ: Mapping[str, str] = os.environ) -> str:
        """Return the store's address, password included; raises ConnectionNotFoundError when nothing leads to it."""
        conn_id = self._named or find_store_conn_id()
        try:
            return url_of_connection(self.get_connection(conn_id))
        except AirflowNotFoundException as error:
            url = environ.get(STORE_URL_VARIABLE)
            if self._named is not None or conn_id != self.default_conn_name or not url:
                way_out = (
                    f"add it (type {self.conn_type} or postgres) under Admin, Connections, or name none and set "
                    f"{STORE_URL_VARIABLE} for Airflow's processes"
                )
                raise ConnectionNotFoundError(conn_id, way_out) from error
        mask_secret(urlsplit(url).password)
        return url

    def get_conn(self) -> PostgresStore:
        """Open the store; the caller closes it."""
        return PostgresStore(self.get_url())

    def test_connection(self) -> tuple[bool, str]:
        """Answer the button of Airflow's connection form."""
        try:
            self.get_conn().close()
        except IterationError as error:
            return False, str(error)
        return True, "The store answers."


def find_store_conn_id() -> str:
    """Return the id of the connection that leads to the store."""
    return str(conf.get(_SECTION, "store_conn_id", fallback=IterationStoreHook.default_conn_name))


def find_read_conn_id() -> str | None:
    """Return the id of the connection that pages read the store by; None where that is the store's own."""
    return conf.get(_SECTION, "store_read_conn_id", fallback="") or None


def url_of_connection(connection: Connection) -> str:
    """Return SQLAlchemy's address of a connection; its extra fields become the address's options, such as sslmode."""
    login = quote(connection.login or "", safe="")
    password = f":{quote(connection.password, safe='')}" if connection.password else ""
    port = f":{connection.port}" if connection.port else ""
    place = f"{login}{password}{'@' if login else ''}{connection.host or ''}{port}"
    options = urlencode({name: str(value) for name, value in connection.extra_dejson.items()})
    return f"postgresql+psycopg2://{place}/{connection.schema or ''}{'?' if options else ''}{options}"


def find_state_uri(given: str | None, *, environ: Mapping[str, str] = os.environ) -> str:
    """Return where state goes; raises UsageError when nothing says it."""
    uri = given or conf.get(_SECTION, "state_uri", fallback="") or environ.get(STATE_URI_VARIABLE, "")
    if not uri:
        raise UsageError(
            f"nothing says where state goes; set `state_uri` in section [{_SECTION}] of Airflow's configuration, "
            f"{STATE_URI_VARIABLE} for its processes, or state_uri= of the DAG"
        )
    return str(uri)
