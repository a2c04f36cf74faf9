"""What epochs publish through sinks: stored with the checkpoint, committed after it, aborted where it is void (I19)."""

from __future__ import annotations

from tests.simulation.mutants.mutant import Mutant

_SINKS = "driver/sinks.py"
_BOUNDARY = "driver/boundary.py"
_UPLOAD = "driver/upload.py"
_COMMITTABLE = "protocol/committable.py"
_FINISHED = "protocol/finished.py"

SINKS = (
    Mutant(
        name="sink shows an epoch before it is durable",
        rule="I19",
        file=_SINKS,
        old="        return Committable(\n",
        new="        found.sink.commit(transaction, content)\n        return Committable(\n",
        in_short=True,
    ),
    Mutant(
        name="next attempt does not commit what is stored",
        rule="I19",
        file=_SINKS,
        old="if state.uncommitted else ()",
        new="if self._prepared else ()",
    ),
    Mutant(
        name="next attempt does not abort what is void",
        rule="I19",
        file=_SINKS,
        old="if epoch.status is EpochStatus.VOIDED and epoch.aligned_at is not None:",
        new="if epoch.status is EpochStatus.OPEN:",
        in_short=True,
    ),
    Mutant(
        name="next attempt aborts what is durable, too",
        rule="I19",
        file=_SINKS,
        old="if epoch.status is EpochStatus.VOIDED and epoch.aligned_at is not None:",
        new="if epoch.aligned_at is not None:",
        also=((_SINKS, "state.last_durable_epoch + 1):", "0):"),),
    ),
    Mutant(
        name="next attempt aborts first and commits then",
        rule="I19",
        file=_SINKS,
        old="""        state = self.commit(state)
        for epoch in""",
        new="""        for epoch in""",
        also=(
            (
                _SINKS,
                """                self._abort(epoch.epoch, epoch.fencing_token)
        return state
""",
                """                self._abort(epoch.epoch, epoch.fencing_token)
        return self.commit(state)
""",
            ),
        ),
        equivalent="what is stored is of durable epochs, and what is aborted of void ones",
    ),
    Mutant(
        name="what is stored counts as committed, and no sink shows it",
        rule="I19",
        file=_SINKS,
        old="                self._commit(known)\n",
        new="",
        in_short=True,
    ),
    Mutant(
        name="what an attempt before stored is committed under another token",
        rule="I19",
        file=_SINKS,
        old="self._transaction(stored.epoch, stored.output, stored.fencing_token)",
        new="self._transaction(stored.epoch, stored.output, self._context.attempt.fencing_token)",
    ),
    Mutant(
        name="what is prepared is prepared again with the next checkpoint",
        rule="I19",
        file=_SINKS,
        old="                if key in self._prepared:\n                    continue\n",
        new="",
    ),
    Mutant(
        name="what was committed is prepared again by a checkpoint that is late",
        rule="I19",
        file=_SINKS,
        old="sorted(key for key in written if key[0] > self._durable)",
        new="sorted(written)",
    ),
    Mutant(
        name="checkpoint publishes its own epoch, not those that it covers",
        rule="I19",
        file=_BOUNDARY,
        old="        self._written |= {(epoch, output): saved",
        new="        self._written = {(epoch, output): saved",
    ),
    Mutant(
        name="epoch is durable without what it publishes",
        rule="I19",
        file=_COMMITTABLE,
        old="    if sorted(found) != sorted(expected):\n",
        new="    if not set(found) <= expected:\n",
        also=(
            (
                _BOUNDARY,
                "        self._written |= {(epoch, output): saved",
                "        self._written = {(epoch, output): saved",
            ),
        ),
        in_short=True,
    ),
    Mutant(
        name="older epochs are stored once more",
        rule="I19",
        file=_COMMITTABLE,
        old="tuple(known for known in committables if known.epoch >= first_epoch)",
        new="tuple(committables)",
    ),
    Mutant(
        name="run finishes with something that is not committed",
        rule="I19",
        file=_FINISHED,
        old="    if state.uncommitted:\n",
        new="    if not state.sinks and state.uncommitted:\n",
        also=(
            ("driver/publish.py", "    state = Sinks(context).commit(state)\n", ""),
            (
                _UPLOAD,
                "        while self._uploads and (state.pending or state.uncommitted):\n",
                "        while self._uploads and state.pending:\n",
            ),
            (_UPLOAD, "        if state.uncommitted:\n", "        if not state.sinks:\n"),
            ("store/memory_write.py", 'refuse_if(None in [row["committed_at"]', 'refuse_if(1 in [row["committed_at"]'),
        ),
    ),
    Mutant(
        name="attempt ends before its sinks have committed",
        rule="I19",
        file=_UPLOAD,
        old="        while self._uploads and (state.pending or state.uncommitted):\n",
        new="        while self._uploads and state.pending:\n",
    ),
)
