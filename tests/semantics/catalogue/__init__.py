"""Which test guards which row of docs/semantics.md, and which break was it seen to catch?"""

from tests.semantics.catalogue import alignment, checkpoint, hold, ownership, task, unaligned

# Rows whose guarantee here has no test of its own, each with the reason.
UNGUARDED: dict[str, str] = {
    "B6.7": "not planned",
}

GUARDS = (*alignment.GUARDS, *hold.GUARDS, *checkpoint.GUARDS, *task.GUARDS, *unaligned.GUARDS, *ownership.GUARDS)
