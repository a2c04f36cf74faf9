"""The command `iteration db`: is the store's schema this version's?"""

from __future__ import annotations

import click

from iteration_lib.cli.options import settings_of, store_options
from iteration_lib.cli.output import print_json
from iteration_lib.store.migrate import upgrade
from iteration_lib.store.opening import open_store
from iteration_lib.store.postgres import open_engine


@click.group()
def db() -> None:
    """Look after the store's schema."""


@db.command("upgrade")
@store_options
def db_upgrade(store_url: str | None, *, as_json: bool) -> None:
    """Bring the store's schema to this version. Repeating it is harmless."""
    settings = settings_of(store_url)
    if settings.store_url is None:
        with open_store(settings):  # the embedded store is upgraded whenever it is opened
            applied: list[str] = []
    else:
        engine = open_engine(settings.store_url)
        applied = [f"{migration.version:04d}_{migration.name}" for migration in upgrade(engine)]
        engine.dispose()
    if as_json:
        print_json({"applied": applied})
    else:
        click.echo(f"applied: {', '.join(applied)}" if applied else "the store's schema is up to date")
