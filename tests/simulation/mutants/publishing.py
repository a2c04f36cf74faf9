"""Files, the pointer, and the heartbeat."""

from __future__ import annotations

from tests.simulation.mutants.mutant import Mutant

_PUBLISH = "driver/publish.py"
_FILES = "state/files.py"
_HEARTBEAT = "heartbeat.py"
_POINTER = "    _write_pointer(context.location, pointer_to(manifest))\n"
_POINTER_WRITTEN = """    context.crash_plan.reach(CrashPoint.POINTER_WRITTEN)
    terminated = Listeners(context).notify_terminated(state)
    context.attempt.heartbeat.stop()
"""
_PUBLISHED = """    state = context.attempt.apply(
        *terminated,
        OutputsPublished(
            **context.attempt.guard,
            outputs={output: context.location.path(folder) for output, folder in folders.items()},
            state_digest=state_digest(manifest.outputs),
        ),
    )
"""
_POINTER_FIRST = _POINTER + _POINTER_WRITTEN + _PUBLISHED
_POINTER_LAST = _POINTER_WRITTEN + _PUBLISHED + _POINTER

PUBLISHING = (
    Mutant(
        name="pointer is written before the run terminates",
        rule="publishing",
        file=_PUBLISH,
        old="    if state.status is not RunStatus.TERMINATING:\n        return state\n",
        new="    if state.status is RunStatus.FINISHED:\n        return state\n",
    ),
    Mutant(
        name="pointer is written after the run is marked as finished",
        rule="publishing",
        file=_PUBLISH,
        old=_POINTER_FIRST,
        new=_POINTER_LAST,
        in_short=True,
    ),
    Mutant(
        name="pointer that was torn stays so",
        rule="publishing",
        file=_PUBLISH,
        old="        write_bytes(location, POINTER, content, replaces=True)\n",
        new="        write_bytes(location, POINTER, content)\n",
    ),
    Mutant(
        name="files of failed tasks are published too",
        rule="publishing",
        file=_PUBLISH,
        old="            location.remove(stray)\n",
        new="            pass\n",
    ),
    Mutant(
        name="the named files are removed and the strays kept",
        rule="publishing",
        file=_PUBLISH,
        old="        if stray not in named:\n",
        new="        if stray in named:\n",
    ),
    Mutant(
        name="half a file passes for a whole one",
        rule="files",
        file=_FILES,
        old="    if filesystem.size(inner) != new.written.size_bytes:\n",
        new="    if filesystem.size(inner) > new.written.size_bytes:\n",
    ),
    Mutant(
        name="digests are not verified",
        rule="files",
        file=_FILES,
        old="    if found != sha256:\n",
        new="    if not found:\n",
    ),
    Mutant(
        name="heartbeat takes a lost connection for a takeover",
        rule="lease",
        file=_HEARTBEAT,
        old='            _logger.warning("event=lease_not_renewed error=%s", err)\n            return True\n',
        new='            _logger.warning("event=lease_not_renewed error=%s", err)\n            renewed = False\n',
    ),
    Mutant(
        name="attempt that finished the run takes its own end for a takeover",
        rule="errors",
        file=_PUBLISH,
        old="    context.attempt.heartbeat.stop()\n",
        new="",
    ),
)
