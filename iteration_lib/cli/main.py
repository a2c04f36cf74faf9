"""Which commands are there? Each opens the store, asks, prints; errors are mapped to exit codes here.

A command's module is imported when it is asked for: those that only read or write rows need neither Arrow nor what
drives a run, which would be two fifths of a short command's time.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module

import click

from iteration_lib.errors import IterationError, UsageError
from iteration_lib.interrupt import INTERRUPTED_EXIT_CODE, end_in_order

# Each command's module, and its name there.
_COMMANDS = {
    "run": ("run", "run"),
    "list": ("show", "list_runs"),
    "show": ("show", "show"),
    "plan": ("plan", "plan"),
    "explain": ("explain", "explain"),
    "verify": ("verify", "verify"),
    "checkpoints": ("checkpoint", "checkpoints"),
    "checkpoint": ("checkpoint", "checkpoint"),
    "abort": ("checkpoint", "abort"),
    "pin": ("pin", "pin"),
    "release": ("pin", "release"),
    "savepoint": ("savepoint", "savepoint"),
    "stop": ("stop", "stop"),
    "resume": ("stop", "resume"),
    "branch": ("branch", "branch"),
    "lineage": ("branch", "lineage"),
    "delete": ("garbage", "delete"),
    "gc": ("garbage", "gc"),
    "db": ("db", "db"),
}

_logger = logging.getLogger(__name__)


def main() -> None:
    """Run the command line; never returns."""
    try:
        _log_as_asked(os.environ.get("ITERATION_LOG_LEVEL") or "WARNING")
        cli.main(standalone_mode=False)
    except click.ClickException as err:
        err.show()
        sys.exit(err.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(INTERRUPTED_EXIT_CODE)
    except IterationError as err:
        _logger.info("event=command_failed", exc_info=err)  # with the line of the user's code that raised
        click.echo(f"error: {err}", err=True)
        sys.exit(err.exit_code)
    except OSError as err:  # of what it prints to, as a full disk, or of an import
        _logger.info("event=command_failed", exc_info=err)
        click.echo(f"error: {err}", err=True)
        sys.exit(IterationError.exit_code)
    sys.exit(0)


def _log_as_asked(level: str) -> None:
    levels = logging.getLevelNamesMapping()
    if level.upper() not in levels:
        raise UsageError(f"ITERATION_LOG_LEVEL is {level!r}; give DEBUG, INFO, WARNING or ERROR")
    logging.basicConfig(level=levels[level.upper()], format="%(levelname)s %(message)s")


class _Commands(click.Group):
    """The commands, each imported when it is asked for; what click is given of them are their names."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click says so
        """Return a command by its name."""
        if cmd_name not in _COMMANDS:
            return None
        module, name = _COMMANDS[cmd_name]
        found: click.Command = getattr(import_module(f"iteration_lib.cli.{module}"), name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is asked for; from now on the user's modules are found, and SIGTERM ends in order.

        Not before: a file of the current folder must not pass for a library that the command imports.
        """
        found = super().resolve_command(ctx, args)
        with suppress(FileNotFoundError):  # a folder that is gone
            sys.path.insert(0, os.getcwd())  # noqa: PTH109 - modules of the current folder, as python -m finds them
        signal.signal(signal.SIGTERM, end_in_order)
        return found


@click.group(
    cls=_Commands,
    commands={name: click.Command(name) for name in _COMMANDS},
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="iteration-lib")
def cli() -> None:
    """Durable iterations on Spark: every epoch recorded, checkpointed and resumable."""
