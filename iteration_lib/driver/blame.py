"""In which epoch did an operator do what an error blames it for?"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from iteration_lib.errors import OperatorError


@contextmanager
def in_epoch(epoch: int, operator_ids: Collection[str]) -> Iterator[None]:
    """Have an error that blames one of these operators, or listeners, say that it was in this epoch.

    What is raised where a result is looked at does not know the epoch that the result is of.
    """
    try:
        yield
    except OperatorError as err:
        if err.epoch is None and err.operator_id in operator_ids:
            err.epoch = epoch
        raise
