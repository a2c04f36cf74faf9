"""How does a page read the store? By connections that can write nothing, and that no question holds for long."""

from __future__ import annotations

import time

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from iteration_lib.errors import StatementCancelledError
from iteration_lib.store.postgres import PostgresStore
from iteration_lib.store.retry import Sleep

STATEMENT_TIMEOUT_SECONDS = 5
RETRY_DELAYS_SECONDS = (0.1,)  # for a server that was started again; beyond that a page asks again by itself
_READ_ONLY = "-c default_transaction_read_only=on"


def read_only(url: str, *options: str) -> str:
    """Return an address whose connections can write nothing, with more options of the server's.

    What it asks of the server otherwise stays. What is no address stays as it is: whoever opens it says so.
    """
    try:
        address = make_url(url)
    except (ArgumentError, ValueError):
        return url
    given = address.query.get("options", ())
    asked = " ".join([*([given] if isinstance(given, str) else given), _READ_ONLY, *options])
    return address.update_query_dict({"options": asked}).render_as_string(hide_password=False)


def open_reader(url: str, *, sleep: Sleep = time.sleep) -> PostgresStore:
    """Return the store at `url`, for reading: the server refuses every write, whatever the login may do."""
    return PostgresStore(
        read_only(url, f"-c statement_timeout={STATEMENT_TIMEOUT_SECONDS}s"),
        sleep=sleep,
        read_delays_seconds=RETRY_DELAYS_SECONDS,
        read_once_if=(StatementCancelledError,),  # it may take as long again, and somebody is looking
    )
