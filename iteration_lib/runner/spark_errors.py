"""Which error of this project is an error that Spark or the way to it raised?

    the JVM or the Connect server is gone, the session was stopped    ExecutionLostError
    executors or the blocks on them were lost, the job was cancelled  ExecutionLostError
    a task met what may pass, and the last try of it, too             the error of this project that the task raised
    anything else that a job raised                                   OperatorFailedError, with the line that says why

The foreign error is always chained. A connection that a user's own function lost is none of these.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from iteration_lib.errors import ExecutionLostError, IterationError, OperatorFailedError
from iteration_lib.model.operator import Operator
from iteration_lib.runner.remote_error import find_error

# What Spark, its gateway and the way to them raise.
FOREIGN = (PySparkException, Py4JError, ConnectionError, EOFError)

# What they raise where a JVM, a session or its channel is closed, and with it has released everything.
CLOSED = (*FOREIGN, AttributeError, ValueError)

_DISCONNECTED = (Py4JNetworkError, ConnectionError)  # pyspark makes an error of its own of it, of a schema for one

_TRACEBACK = "Traceback (most recent call last):"

# How Spark says it. A condition is the first one in brackets on its line: what stands behind one may be the user's.
# A host may be in brackets, too, where its address is one of IPv6.
_FIRST = r"^(?:[^\[\n]|\[(?![A-Z_]+[.\]]))*\["
_LOST = {
    re.compile(pattern, re.MULTILINE): what
    for pattern, what in (
        (_FIRST + r"(SPARK_JOB_CANCELLED|OPERATION_CANCELED|INTERRUPTED)\]", "the Spark job was cancelled"),
        (r"Job \d+ cancelled because SparkContext was shut down", "Spark was stopped"),
        (r"Cannot call methods on a stopped SparkContext", "Spark was stopped"),
        (r"(?:executor \S+\): |^)ExecutorLostFailure \(", "Spark lost executors"),
        (_FIRST + r"CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND\]", "Spark lost the blocks of an executor"),
        (r"(?:executor \S+\): |^)FetchFailed\(", "Spark lost the shuffle files of an executor"),
        (r"org\.apache\.spark\.shuffle\.\w*FetchFailedException", "Spark lost the shuffle files of an executor"),
        (r"status = StatusCode\.UNAVAILABLE", "the Spark Connect server is gone"),
        (_FIRST + r"INVALID_HANDLE[.\]]", "the Spark Connect session is gone"),
    )
}


@contextmanager
def spark_errors(operator: Operator | None, epoch: int | None) -> Iterator[None]:
    """Turn what Spark raises inside the block into an error of this project that names the operator."""
    try:
        yield
    except IterationError:
        raise
    except FOREIGN as err:
        raise _translate(err, operator, epoch) from err
    except AttributeError as err:
        if "'NoneType' object" not in str(err):
            raise
        raise ExecutionLostError("Spark was stopped") from err  # a stopped session's inner objects are None


def is_of_spark(err: BaseException) -> bool:
    """Tell whether Spark raised an error in a user's function, and not that function itself.

    Of the built-in errors whoever uses a connection may raise any: the last code that is no standard library's tells.
    """
    if isinstance(err, PySparkException | Py4JError):
        return True
    names = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(err.__traceback__)]
    raising = [name for name in (name.partition(".")[0] for name in names) if name not in sys.stdlib_module_names]
    return isinstance(err, FOREIGN) and bool(raising) and raising[-1] in ("py4j", "pyspark")


def _translate(err: Exception, operator: Operator | None, epoch: int | None) -> Exception:
    is_told = isinstance(err, PySparkException | Py4JJavaError) or _is_answered(err)
    if not is_told or _is_disconnected(err.__context__):
        return ExecutionLostError("Spark's driver JVM is gone")
    text = str(err)
    passing = find_error(text)
    if passing is not None:
        return passing
    said_by_spark = text.partition(_TRACEBACK)[0]  # and the rest by a task's Python
    for pattern, what in _LOST.items():
        if pattern.search(said_by_spark):
            return ExecutionLostError(what)
    if operator is None:
        return ExecutionLostError(f"Spark failed ({_cause(text)})")
    return OperatorFailedError(operator_id=operator.operator_id, epoch=epoch, cause=_cause(text))


def _is_answered(err: Exception) -> bool:
    """Tell whether the JVM said itself that it cannot make a call, such as one of a method that is not there.

    Where it does not know the object, it is another one than that which made it.
    """
    return isinstance(err, Py4JError) and ". Trace:\n" in str(err) and "Target Object ID does not exist" not in str(err)


def _is_disconnected(context: BaseException | None) -> bool:
    """Tell whether it was by a lost connection that pyspark came to raise its own error."""
    return isinstance(context, _DISCONNECTED) and is_of_spark(context)


def _cause(text: str) -> str:
    """Return the line that says why: the last of a Python traceback, else the first."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("SQLSTATE")]
    if _TRACEBACK in text:
        after = text[text.rindex(_TRACEBACK) :].splitlines()[1:]
        raised = [line for line in after if line and not line.startswith((" ", "\t"))]
        return raised[0] if raised else lines[-1]
    if lines and lines[0].startswith("An error occurred while calling") and len(lines) > 1:
        return lines[1].removeprefix(": ")
    return lines[0] if lines else "it gave no reason"
