"""Where is the folder that a Parquet sink writes and readers list, and what is said of it where it cannot be used?

An address may hold a password: it is told to nobody, in no error and no representation.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from iteration_lib.errors import SinkTargetError, StateLocationError, without_user
from iteration_lib.state.location import StateLocation

Address: TypeAlias = str | os.PathLike[str]


def describe_folder(uri: Address) -> str:
    """Return where the files lie, in a line for people."""
    return f"the Parquet folder {without_user(os.fspath(uri))}"


def check_absolute(uri: Address) -> None:
    """Raise SinkTargetError for a local folder that is another one in each working directory."""
    path = re.sub("^(file|local):(//)?", "", os.fspath(uri))
    if StateLocation(os.fspath(uri)).is_local and not Path(path).expanduser().is_absolute():
        problem = "is another folder for every process that runs elsewhere"
        raise SinkTargetError(describe_folder(uri), problem, way_out="name it by its absolute path")


@contextmanager
def opened_folder(uri: Address) -> Iterator[StateLocation]:
    """Give the folder of an address; raises SinkTargetError, also for what goes wrong inside the block."""
    try:
        yield StateLocation(os.fspath(uri))
    except StateLocationError as err:
        way_out = "make it writable, or name another folder"
        raise SinkTargetError(describe_folder(uri), err.problem, is_passing=err.is_passing, way_out=way_out) from err
