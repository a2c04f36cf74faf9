"""What is true of a run: the protocol, pure.

`decide(state, event, now) -> (state, commands)` is the whole of it. A caller gives the state of a run, writes the
commands and commits, all of a decision or nothing, while it holds the run's row locked and knows that the state still
is the run's. Nothing here reads a clock, draws a number or touches a disk.

Theory
------
A run makes passes, *epochs*, from 0. In each epoch the operators of the body run once, and every *head* (each variable
stream, and the criteria stream) reports, subtask by subtask, how many records it will feed back. An epoch is

    OPEN      some subtask of some head has not reported, or the alignment is held by a pending checkpoint;
    ALIGNED   all have; in that same step it is decided, from the reports alone, whether the run terminates;
    DURABLE   a completed checkpoint covers it: whatever happens, it is never run again.

A *checkpoint* is taken at an aligned epoch. It is PENDING until each participant has acknowledged what it wrote and
the manifest that names it all is there; then it is COMPLETED, once, or else ABORTED. A completed one is SUBSUMED by
the next. Only what a completed checkpoint covers leaves the run: the decision to terminate binds when its epoch is
durable.

Whoever drives a run is an *attempt*. It gets a *fencing token*, one more than any before it, and every event that it
sends carries the token. Opening an attempt supersedes the one before: epochs that are not durable become VOIDED (kept
for audit) and pending checkpoints ABORTED. A lease says when an attempt may be taken for dead; it serves liveness
alone, and no rule below depends on it.

Invariants
----------
I1   At most one attempt of a run is live, and its token is the greatest ever issued for the run.
I2   An event with any other token changes nothing and is refused (SupersededError).
I3   Epochs follow each other without a gap: the next one is one more than the last that is not voided.
I4   An epoch is ALIGNED exactly when each subtask of each head has reported it and nothing holds it (I14); this happens
     once per token. A repeated report changes nothing; one that contradicts an earlier one, or names an unknown
     subtask, is refused.
I5   The decision is a function of the reports, of max_epochs and of whether a person asked the run to drain; it is
     stored together with what it was made from.
I6   The durable epochs are a prefix of the run, the last completed checkpoint's epoch is the last of them, and no
     durable epoch is ever voided or run again, but as I21 says.
I7   Checkpoint ids grow strictly and are never used again, whatever became of the checkpoint.
I8   A checkpoint completes only with every acknowledgement and its manifest; completing it subsumes all older completed
     ones in the same step, so at most one is COMPLETED. A hand-made one that completes after a newer one is SUBSUMED.
I9   No epoch is opened after one that terminates the run.
I10  A run is FINISHED only from TERMINATING: its last epoch is durable, nothing is pending, the outputs are named.
I11  An operator is finished for good once; its marker names the files of its output and outlives every attempt.
I12  A refused event leaves the state as it was.
I13  After more failed checkpoints in a row than the attempt puts up with, it opens no epoch and begins no checkpoint,
     whatever completes later; of a final or hand-made checkpoint no failure is put up with: final is that of the epoch
     which ends the run, and made by hand exactly what a person asked for, or asked to stop with. What a person aborts,
     or a newer checkpoint subsumes, is no failure.
I14  While as many checkpoints are pending as the policy allows, an epoch whose heads have all reported is held: it
     stays OPEN, and aligns in the very step that ends one of them, whoever ends it.
I15  A part of a durable edge is marked once, only in the epoch after the last durable one, when it has switched to
     unaligned (or for an operator that finishes for good), and only after all that it was computed from. A takeover
     keeps the edges; one that is told to ignore them voids all, one that goes on with other operators those that it
     does not say are kept, and one that falls back those of what it gives up.
I16  A listener hears of every durable epoch once, in order; that the run terminated, once, while it is TERMINATING.
I17  A checkpoint that a person aborted before it began uses up its id and never becomes pending for anybody to see.
I18  A checkpoint is discarded only if it is not the newest of a run that is there, and neither a branch nor a person
     pins it. A branch pins the one that it started from until it has a completed one of its own; its epochs follow that
     one's. A person pins one that is there until it is released. An attempt discards by its policy until another one
     begins.
I19  What an epoch publishes through sinks is stored, all of it, in the step that makes the epoch durable; only what is
     stored is committed, and what is not is aborted. A run is FINISHED only when nothing that is stored is uncommitted.
I20  While a person asks a run to stop, an attempt opens no epoch after another one, and the run is STOPPED in the very
     step that lets it go; a STOPPED run has nothing that is not durable, and nobody drives or changes it until a person
     resumes it.
I21  A run falls back to an older checkpoint only before its attempt opens an epoch, and only where no listener has
     heard of an epoch after it, no sink publishes any, and neither a branch nor a person pins a newer checkpoint: these
     are discarded, those voided, in that step.

Sources: Flink FLIP-176 (iterations, epochs, termination), FLIP-147 (checkpoints after tasks finished), FLIP-76
(unaligned checkpoints), FLIP-193 (who owns what a run starts from), FLIP-143 (committables). Where we differ: the
decision after pass e counts what pass e fed back, so epoch 0 needs no exception.
"""

from iteration_lib.protocol.command import Command
from iteration_lib.protocol.event import Event
from iteration_lib.protocol.run import decide, needs_clock
from iteration_lib.protocol.state import RunState

__all__ = ["Command", "Event", "RunState", "decide", "needs_clock"]
