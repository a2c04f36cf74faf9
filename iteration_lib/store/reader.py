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
_OPTIONS = f"-c default_transaction_read_only=on -c statement_timeout={STATEMENT_TIMEOUT_SECONDS}s"


def open_reader(url: str, *, sleep: Sleep = time.sleep) -> PostgresStore:
    """Return the store at `url`, for reading: the server refuses every write, whatever the login may do."""
    try:
        address = make_url(url)
    except (ArgumentError, ValueError):
        return PostgresStore(url, sleep=sleep)  # which says what is wrong with it
    given = address.query.get("options", ())
    options = " ".join([*([given] if isinstance(given, str) else given), _OPTIONS])
    reading = address.update_query_dict({"options": options}).render_as_string(hide_password=False)
    return PostgresStore(
        reading,
        sleep=sleep,
        read_delays_seconds=RETRY_DELAYS_SECONDS,
        read_once_if=(StatementCancelledError,),  # it may take as long again, and somebody is looking
    )
