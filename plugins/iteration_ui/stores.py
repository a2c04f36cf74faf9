"""How do the pages reach the store? They read by connections that can write nothing; what acts opens another one."""

from __future__ import annotations

from functools import lru_cache

from iteration_lib.airflow.hook import IterationStoreHook, find_read_conn_id
from iteration_lib.store.postgres import PostgresStore
from iteration_lib.store.reader import open_reader


@lru_cache(maxsize=1)
def _reader(url: str) -> PostgresStore:
    return open_reader(url)


@lru_cache(maxsize=1)
def _writer(url: str) -> PostgresStore:
    return PostgresStore(url)


def open_history() -> PostgresStore:
    """Return the store, for reading; raises UsageError when nothing leads to it, or nothing answers there."""
    return _reader(reading_url())


def reading_url() -> str:
    """Return the address that pages read the store at."""
    return IterationStoreHook(find_read_conn_id()).get_url()


def open_store() -> PostgresStore:
    """Return the store, for an action; raises as `open_history` does."""
    return _writer(IterationStoreHook().get_url())
