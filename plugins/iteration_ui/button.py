"""What may be done to a run as it is? Pure: a record in, the buttons of its page out."""

from __future__ import annotations

from dataclasses import dataclass

from iteration_lib.protocol.status import RunStatus
from iteration_lib.store.record import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """An action that a run is ready for; `path` follows that of the run's page."""

    path: str
    label: str
    title: str


def buttons_of(run: RunRecord, *, has_checkpoint: bool) -> tuple[Button, ...]:
    """Return what may be done to a run as it is."""
    found = []
    goes_on = run.status is RunStatus.RUNNING and run.terminated_by is None
    if goes_on and run.asked_to is None:
        found.append(Button(path="stop", label="Stop after this epoch", title="It can be resumed where it stopped"))
    if run.status is RunStatus.STOPPED:
        found.append(Button(path="resume", label="Resume", title="Let it go on; then clear its skipped tasks"))
    if goes_on:
        found.append(Button(path="checkpoint", label="Checkpoint now", title="Of the next epoch that aligns"))
    if has_checkpoint:
        title = "A checkpoint of the next epoch in a folder of its own; where nobody drives the run, of its last one"
        found.append(Button(path="savepoint", label="Savepoint now", title=title))
    if run.status not in (RunStatus.FINISHED, RunStatus.DELETED):
        found.append(Button(path="plan", label="Dry-run a resume", title="What the next attempt would do"))
    return tuple(found)
