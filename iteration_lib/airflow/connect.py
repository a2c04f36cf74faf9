"""Where is the Spark Connect server that a task is to be a client of, and where does it show what it does?"""

from __future__ import annotations

from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
from airflow.sdk.log import mask_secret

from iteration_lib.airflow.interface import AirflowNotFoundException
from iteration_lib.errors import ConnectionNotFoundError

_TOKEN = f"{SparkConnectHook.PARAM_TOKEN}="


def find_connect_url(conn_id: str) -> str:
    """Return the server's address, sc://..., a token included; raises ConnectionNotFoundError where there is none."""
    try:
        url = SparkConnectHook(conn_id).get_connection_url()
    except AirflowNotFoundException as error:
        way_out = (
            "add it (type spark_connect, the server's host and port) under Admin, Connections, or name another with "
            "conn_id="
        )
        raise ConnectionNotFoundError(conn_id, way_out) from error
    for parameter in url.split(";"):
        if parameter.startswith(_TOKEN):
            mask_secret(parameter.removeprefix(_TOKEN))  # as the address spells it: Airflow masks it as it was given
    return url


def find_ui_address(conn_id: str) -> str:
    """Return where the server's UI is, as the connection's extra `ui_url` says; a client cannot ask the server."""
    return str(SparkConnectHook.get_connection(conn_id).extra_dejson.get("ui_url") or "")
