"""How is the store of the settings opened, and a run found in it? Needs neither Arrow nor what drives a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from iteration_lib.config import Settings
from iteration_lib.errors import RunNotFoundError
from iteration_lib.store.migrate import upgrade
from iteration_lib.store.postgres import PostgresStore, open_engine
from iteration_lib.store.record import RunRecord
from iteration_lib.store.seam import StoreWithHistory

_EMBEDDED_DATABASE = "iteration"


@contextmanager
def open_store(settings: Settings) -> Iterator[PostgresStore]:
    """Connect to the store of the settings; the embedded one is started, and brought to this version, on the way.

    Raises StoreUnavailableError or StoreVersionError.
    """
    with ExitStack() as stack:
        url = settings.store_url
        if url is None:
            from iteration_lib.store.embedded import EmbeddedPostgres, default_folder  # noqa: PLC0415 - an extra

            server = stack.enter_context(EmbeddedPostgres(default_folder()))
            server.ensure_database(_EMBEDDED_DATABASE)
            url = server.url(_EMBEDDED_DATABASE)
            engine = open_engine(url)
            upgrade(engine)
            engine.dispose()
        store = PostgresStore(url)
        stack.callback(store.close)
        yield store


def find_run(store: StoreWithHistory, run: str) -> RunRecord:
    """Return the run with this key or id; raises RunNotFoundError."""
    found = store.find_run(run)
    if found is None:
        raise RunNotFoundError(run)
    return found
