"""How does an error travel from an executor to the driver and stay what it is?

As data, in a task's result: the error's class, its sentence and its fields. Nothing is pickled, and Spark neither
repeats a task whose operator failed for a reason that will not go away nor wraps the reason in a page of its own.
What may pass, such as what the network or a disk does to a task, is raised there instead, and Spark tries the task
again; of the last try it tells in what it says of the job, and there the error is found again.
"""

from __future__ import annotations

import json
import re
import traceback
from typing import cast

from iteration_lib import errors


class RemoteTraceback(Exception):  # noqa: N818 - it is never raised, only chained, to show where the error came from
    """The traceback on the executor."""


class PassingError(Exception):
    """Is raised in a task for an error that may pass, which it carries as text."""

    def __init__(self, err: errors.IterationError) -> None:
        super().__init__(dump_error(err))


_PASSING = re.compile(rf"^{re.escape(f'{__name__}.{PassingError.__name__}')}\b(?:: (\{{.*\}}))?", re.MULTILINE)


def dump_error(err: errors.IterationError) -> str:
    """Return an error of this project as text."""
    cause = err.__cause__ or err
    fields = {name: value for name, value in vars(err).items() if isinstance(value, str | int | float | None)}
    return json.dumps(
        {
            "type": type(err).__name__,
            "message": str(err),
            "fields": fields,
            "traceback": "".join(traceback.format_exception(cause)),
        }
    )


def find_error(text: str) -> errors.IterationError | None:
    """Return the error that the last try of a task raised as one that may pass, if Spark tells of one."""
    found = _PASSING.search(text)
    if found is None:
        return None
    try:
        return load_error(found[1] or "")
    except ValueError:  # Spark Connect may cut what it says
        return errors.ExecutionLostError("a task failed by something that may pass; Spark has cut what it was")


def load_error(text: str) -> errors.IterationError:
    """Return the error that `dump_error` wrote, with the executor's traceback chained to it."""
    found = json.loads(text)
    kind = cast("type[errors.IterationError]", getattr(errors, found["type"], errors.IterationError))
    err = kind.__new__(kind)
    err.args = (found["message"],)
    vars(err).update(found["fields"])
    err.__cause__ = RemoteTraceback(f"\n{found['traceback']}")
    return err
