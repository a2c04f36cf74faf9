"""Who may see a page, and who may act? What Airflow's own authorisation says of the DAG, and nothing else.

    read      GET of the DAG's runs          its runs' pages
    change    PUT of the DAG's runs          what marking a DAG run may do: stop, resume, checkpoint, savepoint, pin,
                                             release, plan
    trigger   POST of the DAG's runs         start a run from a checkpoint

A run belongs to the DAG that its key names before the first slash. A run whose key has none was started by the command
line: it is shown to those who may read the store's connection, and nobody acts on it here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import ConnectionDetails, DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from airflow.configuration import conf  # airflow.sdk has it too, but not in 3.1
from fastapi import HTTPException, Request, status

from iteration_lib.airflow.hook import find_store_conn_id
from iteration_ui.lookup import NothingToShowError

ANY_DAG = "~"

read = requires_access_dag("GET", DagAccessEntity.RUN)
change = requires_access_dag("PUT", DagAccessEntity.RUN)
trigger = requires_access_dag("POST", DagAccessEntity.RUN)


def read_store(user: GetUserDep) -> None:
    """Let those in who may read the store's connection."""
    if not may_read_store(user):
        raise HTTPException(status.HTTP_403_FORBIDDEN, "Forbidden")


def one_dag(dag_id: str) -> None:
    """Refuse what Airflow's authorisation takes for all DAGs together, which no page of ours shows."""
    if dag_id == ANY_DAG:
        raise NothingToShowError("There is no such DAG.")


def no_nul(request: Request) -> None:
    """Refuse the one character that no text in a database has."""
    if any("\0" in str(given) for given in (*request.path_params.values(), *request.query_params.values())):
        raise NothingToShowError("No name has such a character.")


def same_origin(request: Request) -> None:
    """Refuse what another site made a viewer's browser send; a caller with a token of its own is no browser."""
    if not is_same_origin(request.headers, base_url=conf.get("api", "base_url", fallback="")):
        raise HTTPException(status.HTTP_403_FORBIDDEN, "This was sent from another site; use the buttons of this one.")


def is_same_origin(headers: Mapping[str, str], *, base_url: str) -> bool:
    """Tell whether a browser says that this site's own page has sent a request.

    Browsers say so by Sec-Fetch-Site where the site is safe, else by Origin; no other site can make them send a token
    in Authorization, which only callers without a session use.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        return site == "same-origin"
    if origin is not None:
        host = urlsplit(origin).netloc  # "" of a page that has no origin, as is that of a base_url without a host
        return host != "" and host in (headers.get("host"), urlsplit(base_url).netloc)
    return "authorization" in headers


def may(guard: Callable[[Request, BaseUser], None], request: Request, user: BaseUser) -> bool:
    """Tell whether a guard lets a viewer in, to the DAG of this request."""
    try:
        guard(request, user)
    except HTTPException:
        return False
    return True


def may_read_store(user: BaseUser) -> bool:
    """Tell whether a viewer may read the store's connection."""
    details = ConnectionDetails(conn_id=find_store_conn_id())
    return get_auth_manager().is_authorized_connection(method="GET", details=details, user=user)


def readable_dags(user: BaseUser) -> set[str]:
    """Return the DAGs that a viewer may read."""
    return get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
