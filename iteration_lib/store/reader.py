"""How does a page read the store? By connections that can write nothing, and that no question holds for long."""

from __future__ import annotations

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from iteration_lib.store.postgres import PostgresStore

STATEMENT_TIMEOUT_SECONDS = 5
_OPTIONS = f"-c default_transaction_read_only=on -c statement_timeout={STATEMENT_TIMEOUT_SECONDS}s"


def open_reader(url: str) -> PostgresStore:
    """Return the store at `url`, for reading: the server refuses every write, whatever the login may do."""
    try:
        address = make_url(url)
    except (ArgumentError, ValueError):
        return PostgresStore(url)  # which says what is wrong with it
    given = address.query.get("options", ())
    options = " ".join([*([given] if isinstance(given, str) else given), _OPTIONS])
    return PostgresStore(address.update_query_dict({"options": options}).render_as_string(hide_password=False))
