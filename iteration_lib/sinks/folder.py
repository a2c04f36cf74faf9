"""Where is the folder that a Parquet sink writes and readers list, and what is said of it where it cannot be used?

An address may hold a password: it is told to nobody, in no error and no representation.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

from iteration_lib.errors import SinkTargetError, StateLocationError
from iteration_lib.state.location import StateLocation

Address: TypeAlias = str | os.PathLike[str]

_USER = re.compile(r"(?<=//)[^/]*(?=@)")  # up to the last @: a password may hold one


def describe_folder(uri: Address) -> str:
    """Return where the files lie, in a line for people."""
    return f"the Parquet folder {without_user(uri)}"


def without_user(address: Address) -> str:
    """Return an address with stars for the user and the password."""
    return _USER.sub("***", os.fspath(address))


@contextmanager
def opened_folder(uri: Address) -> Iterator[StateLocation]:
    """Give the folder of an address; raises SinkTargetError, also for what goes wrong inside the block."""
    try:
        yield StateLocation(os.fspath(uri))
    except StateLocationError as err:
        problem = err.problem
        for user in _USER.findall(os.fspath(uri)):
            problem = problem.replace(f"{user}@", "***@")
        way_out = "make it writable, or name another folder"
        # Not from that error, which shows the address; from what a file system said, if it said something else.
        cause = err.__cause__ if problem == err.problem else None
        raise SinkTargetError(describe_folder(uri), problem, is_passing=err.is_passing, way_out=way_out) from cause
