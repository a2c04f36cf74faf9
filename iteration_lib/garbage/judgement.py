"""May a file go? Pure: files and what the rows say of them in, a judgement of each file out.

No clock is asked: a file is not old enough, it is unneeded. It may go when

    a row names it that needs it no more, and none that does (a discarded checkpoint; the edge of a durable epoch), or
    it lies in the folder of an attempt that has ended, and no row that counts names it.

What an attempt that has not ended has not named yet, it may name at any moment: it stays. So does whatever lies where
this project puts no file: somebody else did.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass

from iteration_lib.driver.publish import POINTER

_OUTPUT_FOLDER = re.compile(r"(.+)-epoch-\d{6,}")
_TORN_POINTER = re.compile(rf"\.{re.escape(POINTER)}\.[0-9a-f]+\.tmp")


class Fate(enum.Enum):
    """What becomes of a file: only GARBAGE may be removed."""

    GARBAGE = "garbage"
    REFERENCED = "referenced"
    LIVE = "live"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """What the rows of a run say of its files. Paths are relative to the run's folder.

    `attempts` tells by the attempt's folder whether it has ended. `needed` says by path who needs a file, `let_go` who
    named it and needs it no more; a file in both is needed.
    """

    attempts: Mapping[str, bool]
    needed: Mapping[str, str]
    let_go: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedFile:
    """A file below the run's folder, what becomes of it, and why."""

    path: str
    size_bytes: int
    fate: Fate
    reason: str


def judge_files(files: Mapping[str, int], references: References) -> tuple[JudgedFile, ...]:
    """Judge each file, given with its size in bytes, in order of their paths.

    The files must have been listed before the attempts of `references` were read.
    """
    judged = []
    for path, size_bytes in sorted(files.items()):
        fate, reason = _judge(path, references)
        judged.append(JudgedFile(path=path, size_bytes=size_bytes, fate=fate, reason=reason))
    return tuple(judged)


def writer_of(path: str) -> str:
    """Return the name of the attempt's folder that a path belongs to, if it is one of an attempt at all."""
    first, *rest = path.split("/")
    if first != "outputs":
        return first if rest else ""
    found = _OUTPUT_FOLDER.fullmatch(rest[1]) if len(rest) > 2 else None  # noqa: PLR2004 - outputs/NAME/FOLDER/file
    return found[1] if found is not None else ""


def _judge(path: str, references: References) -> tuple[Fate, str]:
    if path in references.needed:
        return Fate.REFERENCED, references.needed[path]
    if path in references.let_go:
        return Fate.GARBAGE, references.let_go[path]
    has_ended = _has_writer_ended(path, references)
    if has_ended is None:
        return Fate.UNKNOWN, "no attempt that is known wrote it"
    if not has_ended:
        return Fate.LIVE, "the attempt that wrote it has not ended"
    return Fate.GARBAGE, "nothing names it, and the attempt that wrote it has ended"


def _has_writer_ended(path: str, references: References) -> bool | None:
    """Tell whether nobody writes to a path any more; None where nobody who is known did."""
    if _TORN_POINTER.fullmatch(path):  # it does not say whose it is
        return all(references.attempts.values())
    return references.attempts.get(writer_of(path))
